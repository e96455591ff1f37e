"""`secondguess hubris`: how overconfident are predictions, or models, where the truth is ambiguous?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess._files import make_folder, write_json, write_text
from secondguess.cli.companion import class_numbers
from secondguess.cli.options import (
    BatchSize,
    Channels,
    Debug,
    Device,
    Fit,
    Json,
    Mean,
    Output,
    Quiet,
    Seed,
    Size,
    SkipBad,
    Std,
    listed,
    loading_for,
    numbers,
    print_json,
    progress_for,
    say,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from secondguess.hubris import HubrisTable, Scores
    from secondguess.images import Dataset, ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.progress import Progress

__all__ = ["hubris"]

CONSTANT, GENERATED = "constant", "ambiguess"


def hubris(
    predictions: Annotated[
        Path | None,
        typer.Argument(help="A .csv or .npz file with a column p, or p0, p1, ... one a class.", show_default=False),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: constant, a number, a file, or a column. [default: constant; with --models, "
            "the companion's soft labels or estimator]"
        ),
    ] = None,
    votes: Annotated[
        bool, typer.Option("--votes", help="The reference counts votes of people.", rich_help_panel="Predictions")
    ] = False,
    smoothing: Annotated[
        float | None,
        typer.Option(
            help="Mixed into a reference that has zeros; with --votes, votes added to each class.",
            rich_help_panel="Predictions",
        ),
    ] = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="Exactly as published.", rich_help_panel="Predictions")
    ] = False,
    models: Annotated[
        str | None,
        typer.Option(help=".onnx or .pt2 files, or package.module:make_model.", rich_help_panel="Benchmark"),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Real images of the task, labelled.", rich_help_panel="Benchmark")
    ] = None,
    companion: Annotated[
        str,
        typer.Option(help="A folder of ambiguous images, or ambiguess to make some.", rich_help_panel="Benchmark"),
    ] = GENERATED,
    classes: Annotated[
        str | None, typer.Option(help="Two classes, such as 9,8. [default: all pairs]", rich_help_panel="Benchmark")
    ] = None,
    count: Annotated[
        int, typer.Option(min=2, help="Images to make with ambiguess.", rich_help_panel="Benchmark")
    ] = 1000,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for hubris.json and, with --models, .csv and .png.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure overconfidence: score a file of predictions, or compare models on ambiguous images.

    Hubris is 0 for predictions as uncertain as the images are, .63 for random ones and at most .97 for two classes. It
    misleads alone: read docs/hubris.md. With `--models` the table has the controls: accuracy, the same model after
    temperature scaling, clean images, models of equal accuracy.

    **Examples**

    `secondguess hubris predictions.csv`

    `secondguess hubris predictions.csv --reference votes.csv --votes --json`

    `secondguess hubris --models a.onnx,b.pt2 --dataset mnist5k --classes 9,8 --out out/hubris`

    `secondguess hubris --models a.onnx --dataset photos/ --companion out/companion --reference mean_probability`
    """
    if (predictions is None) == (models is None):
        raise UserError("Give either a file of predictions, or --models with --dataset.")
    if predictions is not None:
        if dataset is not None or classes is not None or companion != GENERATED:
            raise UserError("--dataset, --companion and --classes are for --models, not for a file of predictions.")
        found = _scored(predictions, reference or CONSTANT, votes, smoothing, compat, seed)
        if out is not None:
            write_json(make_folder(out) / "hubris.json", found.to_json())
        print_json(found.to_json()) if json else _print_scores(found)
        return
    from secondguess.hubris import CompanionSet, benchmark, read_companion
    from secondguess.images import load

    if dataset is None:
        raise UserError("Say with --dataset on which real images the models are tested.")
    if votes or smoothing is not None or compat:
        raise UserError("--votes, --smoothing and --compat are for a file of predictions, not for --models.")
    progress = progress_for(quiet=quiet or json)
    options = {"output_kind": output, "batch_size": batch_size, "device": device}
    opened = _opened(listed(models or ""), options | {"mean": numbers(mean), "std": numbers(std)})
    shape = next((one.input_shape for one in opened if one.input_shape), None)
    loading = loading_for(shape, size, channels, fit, skip_bad=skip_bad)
    real = load(dataset, **loading)
    loading |= {"size": real.test.shape[1:], "channels": real.test.shape[0]}
    pair, dial = _classes(classes, real.test), reference or "auto"
    if companion == GENERATED:
        ambiguous = CompanionSet.of(_generated(real, pair, count, out, seed, device, progress), pair, dial)
    else:
        ambiguous = read_companion(companion, pair, dial, **loading)
    table = benchmark(opened, real.test, ambiguous, seed=seed, progress=progress)
    _keep(table, out)
    print_json(table.to_json()) if json else _print_table(table, out)


def _scored(path: Path, reference: str, votes: bool, smoothing: float | None, compat: bool, seed: int) -> Scores:
    from secondguess.hubris import read_predictions, score

    found = read_predictions(path)
    return score(found, _reference(path, reference, votes, smoothing), compat=compat, seed=seed)


def _reference(path: Path, reference: str, votes: bool, smoothing: float | None) -> ArrayLike | None:
    """Nothing, one number for all, what another file says, or other columns of the same file."""
    from secondguess.hubris import read_predictions
    from secondguess.metrics import smoothed, vote_shares

    if reference == CONSTANT:
        if votes or smoothing is not None:
            raise UserError("--votes and --smoothing say how to read a reference; name one with --reference.")
        return None
    try:
        values: Any = float(reference)
    except ValueError:
        other = Path(reference)
        values = read_predictions(other) if other.is_file() else read_predictions(path, reference)
    if votes:
        return vote_shares(values, 0.5 if smoothing is None else smoothing)
    return values if smoothing is None else smoothed([values] if isinstance(values, float) else values, smoothing)


def _opened(names: list[str], options: dict[str, Any]) -> list[Classifier]:
    """The models, each under the shortest name that tells it from the others."""
    from secondguess.model.classifier import Classifier

    if not names or len(set(names)) < len(names):
        raise UserError("--models names no model, or one of them twice; give them separated by commas.")
    short = [Path(name).stem if Path(name).suffix else name for name in names]
    unique = short if len(set(short)) == len(short) else names
    return [Classifier(model, name=name, **options) for model, name in zip(names, unique, strict=True)]


def _generated(
    real: Dataset,
    pair: tuple[int, int] | None,
    count: int,
    out: Path | None,
    seed: int,
    device: str,
    progress: Progress,
) -> ImageSet:
    """Ambiguous images between classes of the training images, kept in the folder where there is one."""
    from secondguess.stress.ambiguous import AmbiGuess

    if real.train is None or not real.train.is_labelled:
        raise UserError(
            f"{real.name} has no labelled training images to make ambiguous ones of; name a folder with --companion."
        )
    folder = None if out is None else out / "autoencoders"
    maker = AmbiGuess(pairs="confused" if pair is None else [pair], device=device, folder=folder)
    made = maker.generate(real.train, count, seed=seed, progress=progress)
    if out is not None:
        made.save(out / "companion")
    return made.images


def _keep(table: HubrisTable, out: Path | None) -> None:
    from secondguess.hubris.picture import save_picture

    if out is not None:
        folder = make_folder(out)
        write_json(folder / "hubris.json", table.to_json())
        write_text(folder / "hubris.csv", table.to_csv())
        save_picture(table, folder / "hubris.png")


def _classes(text: str | None, images: ImageSet) -> tuple[int, int] | None:
    """Two classes by name, or by number where no class has that name."""
    if text is None:
        return None
    found = class_numbers(text, images)
    if len(set(found)) != 2 or len(found) != 2:
        raise UserError(f"--classes is {text!r}; give two different classes, such as 9,8.")
    return found[0], found[1]


def _print_scores(found: Scores) -> None:
    say(f"{len(found.absolute.scores):,} predictions")
    say(f"  absolute hubris  {found.absolute.value:.4f}   at most {found.absolute.ceiling:.4f}")
    if found.relative is not None:
        say(f"  relative hubris  {found.relative.value:.4f}   at most {found.relative.ceiling:.4f}")
    say(f"  ACD              {found.acd:.4f}")
    main = found.main
    against = "the reference" if found.relative is not None else "complete ambiguity"
    say(f"  mean divergence  {main.mean_kl:.4f}   nats, from {against}")
    say(f"    of which over  {main.over:.4f}   surer than {against}; under {main.under:.4f}")
    say(f"  rescaled         {main.rescaled:.4f}   1 is the worst that predictions can do")


def _print_table(table: HubrisTable, out: Path | None) -> None:
    """A line a model, then its controls."""
    width = max(5, *(len(row.model) for row in table.rows))
    relative = table.rows[0].ambiguous.relative is not None
    say(f"{table.about['companion']['images']:,} ambiguous images, reference: {table.about['reference']}")
    say()
    head = f"{'model':<{width}}  accuracy  temp.  {'ACD':>5}  {'absolute hubris':<22}  "
    say(head + (f"{'relative hubris':<22}  " if relative else "") + "scaled  clean  slope")
    for row in table.rows:
        ours = row.ambiguous
        line = f"{row.model:<{width}}  {row.accuracy.value:>8.1%}  {row.temperature:>5.2f}  {ours.acd.value:>5.3f}  "
        line += f"{ours.absolute.value!s:<22}  "
        line += f"{ours.relative.value!s:<22}  " if ours.relative is not None else ""
        slope = row.response.slope if row.response is not None else None
        after, clean = row.ambiguous_scaled.absolute.value.value, row.clean.absolute.value.value
        say(line + f"{after:>6.3f}  {clean:>5.3f}  {'-' if slope is None else f'{slope.value:.1f}':>5}")
    say()
    say("scaled: absolute hubris after temperature scaling. clean: absolute hubris on real images.")
    say(
        "slope: 1 follows the dial, above 1 overstates it. Absolute hubris cannot exceed "
        f"{table.rows[0].ambiguous.absolute.ceiling:.3f}."
    )
    for pair in table.matched:
        say(f"Equally accurate: {pair.first} has {pair.hubris:+.3f} hubris compared with {pair.second}.")
    for row in table.rows:
        for note in row.notes:
            say(f"{row.model}: {note}")
    if out is not None:
        say(f"Written: {out / 'hubris.json'}, hubris.csv, hubris.png")
