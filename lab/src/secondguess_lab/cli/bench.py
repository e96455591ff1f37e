"""`secondguess bench`: ratios measured in one run, against a floor or a peer.

Absolute times mean little on a machine that does other things too.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from secondguess.cli.options import Debug, Device, Json, Quiet, print_json, progress_for, say
from secondguess.errors import UserError

__all__ = ["app"]

app = typer.Typer(help="Measure speed, as ratios within one run.", no_args_is_help=True)


@app.command("observe")
def observe(
    images: Annotated[int, typer.Option(min=1, help="How many images a pass.")] = 5120,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a forward pass.")] = 256,
    repeats: Annotated[int, typer.Option(min=1, help="Passes of each kind; the best counts.")] = 15,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the price of looking: `observe` against the bare forward pass of the same model."""
    from secondguess_lab.bench.observe import run

    result = run(
        images=images, batch_size=batch_size, repeats=repeats, device=device, progress=progress_for(quiet=quiet or json)
    )
    if json:
        print_json(result)
        return
    say(f"{result['model']}, {images:,} images, batch {batch_size}, {result['device']}")
    for row in result["rows"]:
        cost = f"{row['ratio']:5.2f} x bare   overhead {row['overhead']:+.1%} (median {row['median_overhead']:+.1%})"
        say(f"  {row['work']:<34} {row['seconds']:7.3f} s   {cost}")


@app.command("fleet")
def fleet(
    members: Annotated[int, typer.Option(min=2, help="How many models.")] = 20,
    images: Annotated[int, typer.Option(min=1, help="Training images.")] = 2000,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    architecture: Annotated[str, typer.Option(help="A name of the zoo.")] = "simple_cnn",
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train many small models at once, and one after another."""
    from secondguess_lab.bench.fleet import run

    result = run(
        members=members,
        images=images,
        epochs=epochs,
        architecture=architecture,
        device=device,
        progress=progress_for(quiet=quiet or json),
    )
    if json:
        print_json(result)
        return
    _print_fleet(result)


def _print_fleet(result: dict[str, Any]) -> None:
    say(f"{result['members']} x {result['architecture']}, {result['images']:,} images, {result['device']}")
    for row in result["rows"]:
        way = f"{row['mode']}, replayed" if row["replay"] else row["mode"]
        say(f"  {way:<17} {row['seconds']:8.2f} s   {row['speed_up']:5.2f} x the loop")


@app.command("ambiguess")
def ambiguess(
    data: Annotated[str, typer.Option(help="Labelled images; the pair 3-8 of their classes is used.")] = "mnist5k",
    members: Annotated[int, typer.Option(min=2, help="Autoencoders in the fleet.")] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 80,
    batch_size: Annotated[int | None, typer.Option(min=2, help="[default: a twelfth of the images]")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the autoencoders of AmbiGuess: seconds each, alone and in a fleet; survival of the final filter."""
    from secondguess_lab.bench.ambiguess import run

    progress = progress_for(quiet=quiet or json)
    result = run(data=data, members=members, epochs=epochs, batch_size=batch_size, device=device, progress=progress)
    if json:
        print_json(result)
        return
    say(f"pair 3-8 of {data}: {result['images']:,} images, {epochs} epochs, {result['device']}")
    for row in result["rows"]:
        say(f"  {row['work']:<12} {row['autoencoders']:>3} autoencoders   {row['seconds_each']:8.2f} s each")
    say(f"  {result['final_filter_share']:.1%} of the drawn points survive the final filter")


@app.command("corruptions")
def corruptions(
    images: Annotated[int, typer.Option(min=1, help="How many images a corruption.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="The median counts.")] = 3,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Time every corruption against a copy, and the two published mixes of 10,000."""
    from secondguess_lab.bench.corruptions import run

    result = run(images=images, repeats=repeats, progress=progress_for(quiet=quiet or json))
    if json:
        print_json(result)
        return
    for row in result["rows"]:
        say(f"  {row['work']:<22} {row['per_1000']:8.3f} s per 1,000 images   {row['ratio']:7.1f} x identity")


@app.command("surprise")
def surprise(
    traces: Annotated[int, typer.Option(min=200, help="Training traces.")] = 60_000,
    queries: Annotated[int, typer.Option(min=1, help="Traces to be scored.")] = 10_000,
    dimensions: Annotated[str, typer.Option(help="Neurons, separated by commas.")] = "10,128,1600",
    repeats: Annotated[int, typer.Option(min=1, help="The best counts.")] = 3,
    peer_queries: Annotated[int, typer.Option(min=1, help="Of these, dnn-tip scores so many.")] = 100,
    growth: Annotated[bool, typer.Option(help="Time against the number of traces, queries and neurons, too.")] = True,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Time DSA, LSA, MDSA and sampling against a bare matrix product and against dnn-tip."""
    from secondguess_lab.bench.surprise import run

    result = run(
        traces=traces,
        queries=queries,
        dimensions=_whole_numbers(dimensions),
        repeats=repeats,
        peer_queries=peer_queries,
        growth=growth,
        device=device,
        progress=progress_for(quiet=quiet or json),
    )
    if not result["peer_installed"]:
        typer.echo(f"NO PEER: {result['peer']}", err=True)
    if json:
        print_json(result)
        return
    _print_surprise(result)


@app.command("search")
def search(
    images: Annotated[int, typer.Option(min=2, help="How many images are attacked at once.")] = 2000,
    budget: Annotated[int, typer.Option(min=150, help="Queries an image.")] = 200,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a forward pass.")] = 1024,
    repeats: Annotated[int, typer.Option(min=1, help="The best counts.")] = 3,
    alone: Annotated[int, typer.Option(min=0, help="Of these, so many are attacked one at a time, too.")] = 5,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the price of adversarial distances: the engine against as many bare forward passes."""
    from secondguess_lab.bench.search import run

    result = run(
        images=images,
        budget=budget,
        batch_size=batch_size,
        repeats=repeats,
        alone=alone,
        device=device,
        progress=progress_for(quiet=quiet or json),
    )
    if json:
        print_json(result)
        return
    say(f"{result['model']}, {images:,} images, {budget} queries each, batch {batch_size}, {result['device']}")
    for row in result["rows"]:
        cost = f"{row['ratio']:6.2f} x bare   overhead {row['overhead']:+.1%}"
        say(f"  {row['work']:<20} {row['queries']:>9,} queries   {row['microseconds']:8.1f} µs each   {cost}")


@app.command("gan")
def gan(
    members: Annotated[int, typer.Option(min=2, help="Of the estimator.")] = 50,
    filters: Annotated[int, typer.Option(min=1, help="Of the GAN; 512 want a GPU.")] = 512,
    batch_size: Annotated[int, typer.Option(min=1, help="Of the GAN.")] = 32,
    iterations: Annotated[int, typer.Option(min=1, help="Of each stage.")] = 100,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure what ambiguity costs a GAN: stage 2 against stage 1, and the judges as one network against a loop."""
    from secondguess_lab.bench.gan import run

    result = run(
        members=members,
        filters=filters,
        batch_size=batch_size,
        iterations=iterations,
        device=device,
        progress=progress_for(quiet=quiet or json),
    )
    if json:
        print_json(result)
        return
    say(f"{members} members, {filters} filters, batch {batch_size}, {result['device']}")
    for row in result["stages"]:
        say(f"  {row['work']:<32} {1e3 * row['seconds']:8.2f} ms an iteration   {row['ratio']:5.2f} x stage 1")
    for row in result["estimator"]:
        say(f"  {row['work']:<32} {1e3 * row['fleet']:8.2f} ms a step        {row['speed_up']:5.1f} x the loop")


@app.command("guard")
def guard(
    requests: Annotated[float, typer.Option(min=1, help="Requests a second.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="How long the service is called.")] = 60,
    repeats: Annotated[int, typer.Option(min=1, help="Timings of each kind.")] = 30,
    service: Annotated[bool, typer.Option(help="Call the service, too.")] = True,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure what a guard costs over the bare model, and whether its service keeps up with steady calls."""
    from secondguess_lab.bench.guard import run

    progress = progress_for(quiet=quiet or json)
    result = run(requests=requests, seconds=seconds, repeats=repeats, service=service, progress=progress)
    if json:
        print_json(result)
        return
    _print_guard(result)


def _print_guard(result: dict[str, Any]) -> None:
    say(f"{' + '.join(result['supervisors'])} over {result['model']}, {result['cores']} cores")
    for how, rows in (("guarded", result["overhead"]), ("exported", result["exported"] or [])):
        for row in rows:
            say(
                f"  batch {row['batch']:<4} bare {row['bare_ms']:8.3f} ms   {how:<8} {row['guard_ms']:8.3f} ms   "
                f"overhead {row['overhead']:+.1%} (median {row['median_overhead']:+.1%}; target {row['target']:.0%})"
            )
    if (held := result["service"]) is not None:
        say(
            f"  service    {held['requests']:,} requests at {held['rate']:g} a second   {held['errors']} errors   "
            f"p50 {held['p50']:.1f} ms   p99 {held['p99']:.1f} ms (target {held['target_p99']:g})"
        )


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"--dimensions is {text!r}; give whole numbers separated by commas, as in 10,128.") from error
    if min(numbers) < 1:
        raise UserError(f"--dimensions is {text!r}; every number must be 1 or more.")
    return numbers


def _print_surprise(result: dict[str, Any]) -> None:
    for row in result["rows"]:
        peer = "      -" if row["peer_ratio"] is None else f"{row['peer_ratio']:7,.0f}"
        say(
            f"  {row['work']:<20} d {row['dimension']:>5}   {row['seconds']:8.3f} s   {row['floor_ratio']:6.2f} x floor"
            f"   dnn-tip {peer} x ours   {row['peak_mib']:5.0f} MiB"
        )
    for row in result["growth"]:
        sizes = f"{row['traces']:>7,} traces   {row['queries']:>7,} queries   d {row['dimension']:>5}"
        say(f"  dsa, {row['varied']:<10} {sizes}   {row['seconds']:8.3f} s")
