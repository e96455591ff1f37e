"""`secondguess bench`: ratios measured in one run, against a floor or a peer.

Absolute times mean little on a machine that does other things too. A benchmark is a module of
`secondguess_lab.bench` with `run(...) -> dict` and `lines(result)`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import DATA, Common, Device, listed, print_json, say
from secondguess.errors import UserError
from secondguess_lab.record import provenance

__all__ = ["app"]

app = typer.Typer(help="Measure speed, as ratios within one run.", no_args_is_help=True)

BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Images per forward pass.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timings of each kind; the best counts.")]


def _measure(name: str, common: Common, **options: Any) -> dict[str, Any]:
    """Run one benchmark and print what it found."""
    module = import_module(f"secondguess_lab.bench.{name}")
    result = module.run(**options, progress=common.progress)
    if common.json:
        print_json(provenance(options) | result)
    else:
        for line in module.lines(result):
            say(line)
    return dict(result)


@app.command("observe")
@grouped
def observe(
    *,
    count: Annotated[int, typer.Option(min=1, help="Images per pass.")] = 5120,
    batch_size: BatchSize = 256,
    repeats: Repeats = 15,
    device: Device = "auto",
    common: Common,
) -> None:
    """Measure the cost of `observe` against the bare forward pass of the same model."""
    _measure("observe", common, images=count, batch_size=batch_size, repeats=repeats, device=device)


@app.command("fleet")
@grouped
def fleet(
    *,
    members: Annotated[int, typer.Option(min=2, help="How many models.")] = 20,
    count: Annotated[int, typer.Option(min=1, help="Training images.")] = 2000,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    architecture: Annotated[str, typer.Option(help="A name of the zoo.")] = "simple_cnn",
    device: Device = "auto",
    common: Common,
) -> None:
    """Train many small models at once, and one after another."""
    _measure("fleet", common, members=members, images=count, epochs=epochs, architecture=architecture, device=device)


@app.command("ambiguess")
@grouped
def ambiguess(
    *,
    data: Annotated[str, typer.Option(help="Labelled images; the pair 3-8 of their classes is used.")] = "mnist5k",
    members: Annotated[int, typer.Option(min=2, help="Autoencoders in the fleet.")] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 80,
    batch_size: Annotated[int | None, typer.Option(min=2, help="[default: a twelfth of the images]")] = None,
    device: Device = "auto",
    common: Common,
) -> None:
    """Measure the autoencoders of AmbiGuess: seconds each, alone and in a fleet; survival of the final filter."""
    _measure("ambiguess", common, data=data, members=members, epochs=epochs, batch_size=batch_size, device=device)


@app.command("corruptions")
@grouped
def corruptions(
    *,
    count: Annotated[int, typer.Option(min=1, help="Images per corruption.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="The median counts.")] = 3,
    common: Common,
) -> None:
    """Time every corruption against a copy, and the two published mixes of 10,000."""
    _measure("corruptions", common, images=count, repeats=repeats)


@app.command("surprise")
@grouped
def surprise(
    *,
    traces: Annotated[int, typer.Option(min=200, help="Training traces.")] = 60_000,
    queries: Annotated[int, typer.Option(min=1, help="Traces to be scored.")] = 10_000,
    dimensions: Annotated[str, typer.Option(help="Neurons, separated by commas.")] = "10,128,1600",
    repeats: Repeats = 3,
    peer_queries: Annotated[int, typer.Option(min=1, help="The number of these that dnn-tip scores.")] = 100,
    growth: Annotated[bool, typer.Option(help="Time against the number of traces, queries and neurons, too.")] = True,
    device: Device = "auto",
    common: Common,
) -> None:
    """Time DSA, LSA, MDSA and sampling against a bare matrix product and against dnn-tip."""
    result = _measure(
        "surprise",
        common,
        traces=traces,
        queries=queries,
        dimensions=_whole_numbers(dimensions),
        repeats=repeats,
        peer_queries=peer_queries,
        growth=growth,
        device=device,
    )
    if not result["peer_installed"]:
        typer.echo(f"NO PEER: {result['peer']}", err=True)


@app.command("search")
@grouped
def search(
    *,
    count: Annotated[int, typer.Option(min=2, help="How many images are attacked at once.")] = 2000,
    budget: Annotated[int, typer.Option(min=150, help="Queries per image.")] = 200,
    batch_size: BatchSize = 1024,
    repeats: Repeats = 3,
    alone: Annotated[int, typer.Option(min=0, help="The number of these that are also attacked one at a time.")] = 5,
    device: Device = "auto",
    common: Common,
) -> None:
    """Measure the cost of adversarial distances: the engine against as many bare forward passes."""
    options = {"images": count, "budget": budget, "batch_size": batch_size, "repeats": repeats, "alone": alone}
    _measure("search", common, **options, device=device)


@app.command("gan")
@grouped
def gan(
    *,
    members: Annotated[int, typer.Option(min=2, help="Of the estimator.")] = 50,
    filters: Annotated[int, typer.Option(min=1, help="Of the GAN; 512 want a GPU.")] = 512,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Of the GAN.")] = 32,
    iterations: Annotated[int, typer.Option(min=1, help="Of each stage.")] = 100,
    compiled: Annotated[bool, typer.Option("--compiled", help="Let PyTorch compile the networks on a GPU.")] = False,
    device: Device = "auto",
    common: Common,
) -> None:
    """Measure what ambiguity costs a GAN: stage 2 against stage 1, and the judges as one network against a loop."""
    options = {"members": members, "filters": filters, "batch_size": batch_size, "iterations": iterations}
    _measure("gan", common, **options, compiled=compiled, device=device)


@app.command("scale")
@grouped
def scale(
    *,
    count: Annotated[int, typer.Option(min=0, help="Images that are audited; 0: no audit.")] = 100_000,
    observed: Annotated[int, typer.Option(min=1, help="Images of each timed pass.")] = 20_000,
    photographs: Annotated[int, typer.Option(min=0, help="JPEG files that an ONNX file observes; 0: none.")] = 0,
    engines: Annotated[
        str, typer.Option(help="Engines, separated by commas; dask:N is a Dask of N workers, started for this.")
    ] = "dask:1,dask:2",
    repeats: Repeats = 3,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Of the audit. [default: all at full size]")] = None,
    lost: Annotated[
        int, typer.Option(min=0, help="Images of an audit on two workers of which one is killed; 0: none.")
    ] = 0,
    common: Common,
) -> None:
    """Time passes over many images on one and on several workers, and a whole audit of them."""
    chosen = {"images": count, "observed": observed, "photographs": photographs, "engines": listed(engines)}
    _measure("scale", common, **chosen, repeats=repeats, minutes=minutes, lost=lost)


@app.command("photos")
@grouped
def photos(
    *,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODELS]...", help="Any --model; a ResNet-20 with random weights if left out."),
    ] = None,
    data: Annotated[str | None, DATA] = None,
    commands: Annotated[
        str, typer.Option(help="Some of audit, guard, estimate, label and embedded, separated by commas.")
    ] = ("audit,guard,estimate,label"),
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Give no command more than this. [default: what each has by itself]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep what the commands write, in a folder each below this one.")
    ] = None,
    common: Common,
) -> None:
    """Time audit, guard fit, estimate and label on classifiers of photographs, against what they announced."""
    from secondguess_lab.bench.photos import ALLOWED

    chosen = listed(commands)
    if wrong := [one for one in chosen if one not in ALLOWED]:
        raise UserError(f"There is no command {wrong[0]!r} to be timed; there is {', '.join(ALLOWED)}.")
    _measure("photos", common, models=models or [], data=data, commands=chosen, minutes=minutes, out=out)


@app.command("guard")
@grouped
def guard(
    *,
    requests: Annotated[float, typer.Option(min=1, help="Requests per second.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="How long the service is called.")] = 60,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Timings of each kind.")] = 30,
    service: Annotated[bool, typer.Option(help="Call the service, too.")] = True,
    common: Common,
) -> None:
    """Measure what a guard costs over the bare model, and whether its service keeps up with steady calls."""
    _measure("guard", common, requests=requests, seconds=seconds, repeats=repeats, service=service)


@app.command("soak")
@grouped
def soak(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the service is called.")] = 30,
    requests: Annotated[float, typer.Option(min=1, help="Good requests per second.")] = 20,
    bad_requests: Annotated[float, typer.Option(min=0.1, help="Bad requests per second.")] = 5,
    seed: Annotated[int, typer.Option(help="Of what is called, and of the moments of kills.")] = 0,
    common: Common,
) -> None:
    """Call a service with good and bad clients, rotate its records, kill it: what is lost, what fails, what grows."""
    _measure("soak", common, minutes=minutes, requests=requests, bad_requests=bad_requests, seed=seed)


@app.command("kill")
@grouped
def kill(
    *,
    kills: Annotated[int, typer.Option(min=1, help="Of each command.")] = 50,
    jobs: Annotated[
        str | None, typer.Option(help="Which commands, separated by commas: audit, guard fit, ... [default: all]")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="How many of these commands run at the same time.")] = 1,
    kept: Annotated[
        Path | None, typer.Option(help="A file with what was found so far: written after every kill, gone on with.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    common: Common,
) -> None:
    """Kill audit, guard fit, generate, study run and label at random moments: are they the same when run again?"""
    chosen = {} if jobs is None else {"jobs": listed(jobs)}
    result = _measure("kill", common, kills=kills, at_once=at_once, seed=seed, kept=kept, **chosen)
    if not result["met"]:
        raise typer.Exit(1)


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"--dimensions is {text!r}; give whole numbers separated by commas, as in 10,128.") from error
    if min(numbers) < 1:
        raise UserError(f"--dimensions is {text!r}; every number must be 1 or more.")
    return numbers
