"""`secondguess guard serve` and `secondguess guard watch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.guard_options import Folder, GuardModel, Resize
from secondguess.cli.options import (
    VALIDATION,
    Common,
    LoadingOptions,
    listed,
    print_json,
    say,
)
from secondguess.errors import require

__all__ = ["serve", "watch"]


@grouped
def serve(
    *,
    guard: Folder,
    model: GuardModel,
    host: Annotated[str, typer.Option(help="Where to listen.", rich_help_panel="Service")] = "127.0.0.1",
    exposed: Annotated[
        bool, typer.Option("--exposed", help="Allow another host than this machine.", rich_help_panel="Service")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.", rich_help_panel="Service")] = 8000,
    records: Annotated[
        str | None,
        typer.Option(
            help="An SQLite file or postgresql://... [default: GUARD/records.sqlite]", rich_help_panel="Service"
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Processes that answer, each with a model of its own; one a core.", rich_help_panel="Service"
        ),
    ] = 1,
    thumbnails: Annotated[
        bool,
        typer.Option(
            "--thumbnails", help="Keep a small picture of every image with an alarm.", rich_help_panel="Service"
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Holds the token; made if missing. [default: a fresh token]", rich_help_panel="Service"),
    ] = None,
    allow_hosts: Annotated[
        str | None,
        typer.Option(
            help="Names under which callers reach it, separated by commas, besides addresses and this machine's name.",
            rich_help_panel="Service",
        ),
    ] = None,
    max_body: Annotated[float, typer.Option(help="Megabytes a request.", rich_help_panel="Limits")] = 8,
    max_images: Annotated[int, typer.Option(min=1, help="Images a request.", rich_help_panel="Limits")] = 64,
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixels of an uploaded picture.", rich_help_panel="Limits")] = 4
    << 20,
    max_wait: Annotated[
        float, typer.Option(min=0, help="Milliseconds that a request waits for others.", rich_help_panel="Limits")
    ] = 2,
    resize: Resize = None,
    common: Common,
) -> None:
    """Serve guarded predictions over HTTP: POST /predict, GET /healthz, GET /readyz, GET /metrics.

    Callers send the header `Authorization: Bearer TOKEN`. Every prediction is recorded before it is answered. Ctrl-C or
    a termination signal ends the service after what was taken in has been answered.

    **Examples**

    `secondguess guard serve guard/`

    `secondguess guard serve guard/ --workers 4 --records postgresql://me@db/records --token-file token.txt`
    """
    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        require(module, "app")
    from secondguess.service.limits import Limits
    from secondguess.service.server import Serving, serve_guard

    def announce(serving: Serving) -> None:
        if common.json:
            print_json({"address": serving.address, "token": serving.token, "records": serving.records})
        else:
            say(f"Predictions at {serving.address}/predict; how to ask: {serving.address}/")
            say(f"Token: {serving.token or f'in {token_file}'}")
            say(f"Records: {serving.records}; watch them: secondguess guard watch {serving.watched}")
        sys.stdout.flush()  # it may be read from a pipe

    serve_guard(
        guard,
        model.model,
        host=host,
        port=port,
        exposed=exposed,
        records=records,
        token_file=token_file,
        hosts=listed(allow_hosts) if allow_hosts else (),
        limits=Limits.of(body=int(max_body * 1e6), pixels=max_pixels, images=max_images),
        thumbnails=thumbnails,
        resize=resize,
        wait=max_wait / 1000,
        workers=workers,
        announce=announce,
        **model.changes(),
    )


@grouped
def watch(
    *,
    records: Annotated[
        str,
        typer.Argument(
            metavar="RECORDS",
            help="What `guard serve` writes: a file, a URL, or the guard's folder.",
            show_default=False,
        ),
    ],
    guard: Annotated[
        Path | None,
        typer.Option(help="The guard's folder, to show what it is known to miss. [default: RECORDS, if a folder]"),
    ] = None,
    model: GuardModel,
    validation: Annotated[str | None, VALIDATION] = None,
    loading: LoadingOptions,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any free port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    common: Common,
) -> None:
    """Watch the records of a service on a local page: whether something has changed, and which images raised alarms.

    **Examples**

    `secondguess guard watch guard/records.sqlite --guard guard/`

    `secondguess guard watch guard/ --validation photos/val`: with an estimate of the accuracy
    """
    for module in ("fastapi", "uvicorn"):
        require(module, "app")
    from secondguess.watch.page import watch_records

    def announce(link: str) -> None:
        if common.json:
            print_json({"link": link})
        else:
            say("Open this link; Ctrl-C ends it:")
            say(link)
        sys.stdout.flush()

    watch_records(
        records,
        guard=guard,
        model=model.model,
        validation=validation,
        loading=loading.changes() | {"skip_bad": loading.skip_bad},
        port=port,
        browser=browser,
        announce=announce,
        **model.changes(),
    )
