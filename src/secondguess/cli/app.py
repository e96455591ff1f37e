"""The tree of commands."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Annotated

import typer

from secondguess import __version__
from secondguess.cli import (
    audit,
    compare,
    data,
    estimate,
    generate,
    guard,
    hubris,
    label,
    model,
    score,
    supervisors,
    welcome,
)

__all__ = ["app"]

app = typer.Typer(
    name="secondguess",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"secondguess {__version__}")
        raise typer.Exit


@app.callback(
    help="Know when your image classifier is guessing.",
    epilog="Start with `secondguess audit`: it trains a small classifier on 5,000 digits and audits it.",
)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.command("estimate")(estimate.estimate)
app.command("hubris")(hubris.hubris)
app.command("label")(label.label)
app.command("score")(score.score)
app.command("data")(data.data)
app.command("supervisors")(supervisors.supervisors)
app.command("demo")(welcome.demo)
app.command("doctor")(welcome.doctor)
app.add_typer(generate.app, name="generate")
app.add_typer(guard.app, name="guard")
app.add_typer(model.app, name="model")


def _plug_in() -> None:
    """Add the groups of commands that other packages bring, such as `secondguess-lab` its studies and benchmarks."""
    for entry in sorted(entry_points(group="secondguess.commands"), key=lambda one: one.name):
        try:
            app.add_typer(entry.load(), name=entry.name)
        except Exception as error:  # a defect in another package must not disable our commands
            warnings.warn(f"The command {entry.name!r} ({entry.value}) was left out: {error}", stacklevel=2)


_plug_in()
