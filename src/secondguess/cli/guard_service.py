"""`secondguess guard serve` and `secondguess guard watch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.guard_options import Folder, GuardModel, Resize, open_guard, resizing
from secondguess.cli.options import (
    VALIDATION,
    Common,
    LoadingOptions,
    listed,
    print_json,
    say,
)
from secondguess.errors import UserError, require

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["serve", "watch"]

RECORDS = "records.sqlite"  # in the folder of the guard


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
        typer.Option(help=f"An SQLite file or postgresql://... [default: GUARD/{RECORDS}]", rich_help_panel="Service"),
    ] = None,
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

    `secondguess guard serve guard/ --records postgresql://me@db/records --token-file token.txt`
    """
    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        require(module, "app")
    from secondguess.database import public_name
    from secondguess.images.fitting import check_resize
    from secondguess.service.api import Service
    from secondguess.service.judge_worker import Subject
    from secondguess.service.limits import Limits
    from secondguess.service.records import Records
    from secondguess.service.server import bind, read_token, run

    if resize is not None:
        check_resize(resize)
    body = int(max_body * 1e6)
    limits = Limits(body=body, bodies=max(body, Limits.bodies), pixels=max_pixels, images=max_images)
    token = read_token(token_file)
    kept = records or str(guard / RECORDS)
    options: dict[str, Any] = {"limits": limits, "thumbnails": thumbnails, "wait": max_wait / 1000}
    listening = bind(host, port, exposed=exposed)
    try:
        loaded = open_guard(guard, model)
        service = Service(Subject.of(loaded), Records(kept), token, resize=resizing(loaded, resize), **options)
    except BaseException:
        listening.close()
        raise

    def announce(address: str) -> None:
        shown = token if token_file is None else None
        if common.json:
            print_json({"address": address, "token": shown, "records": public_name(kept)})
        else:
            say(f"Predictions at {address}/predict; how to ask: {address}/")
            say(f"Token: {shown or f'in {token_file}'}")
            place = guard if records is None else public_name(kept)
            say(f"Records: {public_name(kept)}; watch them: secondguess guard watch {place}")
        sys.stdout.flush()  # it may be read from a pipe

    run(service, listening, announce=announce, hosts=listed(allow_hosts) if allow_hosts else ())


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
    from secondguess.service.records import Records
    from secondguess.watch.routes import watch_app
    from secondguess.watch.stream import Watch
    from secondguess.web.access import Keys
    from secondguess.web.server import listen
    from secondguess.web.server import serve as serve_page

    if guard is None and Path(records).is_dir():
        guard = Path(records)
    where = str(Path(records) / RECORDS) if Path(records).is_dir() else records
    missed = None
    if guard is not None:
        from secondguess.guard.artefact import read_card

        missed = list(read_card(guard)["report"]["missed"])
    estimate = None
    if validation is not None:
        estimate = _estimator(_model(model, guard, loading), validation, loading)
    opened = Records(where, read_only=True)
    keys = Keys.new()

    def announce(link: str) -> None:
        if common.json:
            print_json({"link": link})
        else:
            say("Open this link; Ctrl-C ends it:")
            say(link)
        sys.stdout.flush()

    try:
        page = watch_app(Watch(opened, estimate=estimate, missed=missed))
        serve_page(page, keys, listen(port), announce=announce, browser=browser)
    finally:
        opened.close()


def _model(model: GuardModel, folder: Path | None, loading: LoadingOptions) -> Classifier:
    """The model that is served: the one that is named, or that of the guard in a folder."""
    from secondguess.guard.stored_model import stored_model
    from secondguess.model.classifier import Classifier

    if model.model is None and folder is None:
        raise UserError("The accuracy is estimated with the model; say which with --model, or give --guard FOLDER.")
    return Classifier.open(model.model or stored_model(folder or "."), **model.changes(), **loading.changes())


def _estimator(classifier: Classifier, validation: str, loading: LoadingOptions) -> Any:
    from secondguess.images import load_images
    from secondguess.model.agreement import agree
    from secondguess.watch.estimates import estimator_for

    classifier, images, _ = agree(classifier, load_images(validation, **loading.arguments(classifier)))
    return estimator_for(classifier, images)
