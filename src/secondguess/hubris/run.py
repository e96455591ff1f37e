"""`overconfidence`: hubris with its controls, of models on ambiguous images or of bare predictions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.hubris.files import read_predictions
from secondguess.hubris.result import OverconfidenceResult
from secondguess.hubris.scores import score
from secondguess.images import check_loading
from secondguess.metrics import smoothed, vote_shares
from secondguess.progress import Progress, attending, shown

if TYPE_CHECKING:
    from secondguess.hubris.companion import CompanionSet
    from secondguess.images import Dataset, ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.stress.ambiguous import AmbiguousImages

__all__ = ["open_models", "overconfidence"]

CONSTANT, AUTO = "constant", "auto"
HALF_A_VOTE = 0.5  # added to each class, so that three votes of three are not certainty


@attending
def overconfidence(
    models: Any = None,
    data: str | os.PathLike[str] | Dataset | ImageSet | None = None,
    *,
    on: str | os.PathLike[str] | ImageSet | CompanionSet = AUTO,
    between: str | Sequence[str | int] | None = None,
    predictions: ArrayLike | str | os.PathLike[str] | None = None,
    reference: Any = None,
    votes: ArrayLike | str | os.PathLike[str] | None = None,
    smoothing: float | None = None,
    compat: bool = False,
    count: int = 1000,
    resamples: int = 500,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: Progress | None = None,
    **loading: Any,
) -> OverconfidenceResult:
    """Measure how much more certain models, or bare predictions, are than ambiguous images justify.

    Hubris is 0 for predictions as uncertain as the images are. It misleads alone, so that models are measured with
    controls: accuracy, the same model after temperature scaling, clean images, models of equal accuracy.

    Args:
        models: a classifier or several: anything that `Classifier.open` takes.
        data: labelled real images of the task that no model was trained on; their training split is what ambiguous
            images are made of.
        on: ambiguous images: a folder of them, such as `secondguess generate` makes, an image set, or the name of a
            generator that makes some: `"ambiguess"`, `"flow"` or `"blend"`, or `"auto"` for the one that suits the
            images.
        between: the two classes that the images lie between, by name or number; by default every image has its own
            pair.
        predictions: instead of models: (n,) probabilities of one of two classes, (n, K) of K classes, or a `.csv` or
            `.npz` file with a column `p`, or `p0`, `p1`, ...
        reference: how uncertain predictions should be. For bare predictions: one number for all, an array, a file, or
            the name of other columns of the file; for models, where the dial comes from, see `CompanionSet.of`.
        votes: for bare predictions, instead of a reference: how many people voted for each class, (n, K), a file, or
            the name of other columns of the file.
        smoothing: for bare predictions: the share of the uniform distribution that is mixed into a reference which has
            zeros; with `votes`, the votes added to each class (0.5 by default).
        compat: for bare predictions: the published computation, of two classes only.
        count: how many ambiguous images to make.
        resamples: how many bootstrap resamples each interval takes.
        seed: of everything random.
        device: where to make ambiguous images, and to run models that are not open yet.
        folder: where to keep what generators learn, and to save the result at the end; by default nothing is written.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        **loading: options of `load` for images given by name; `size` and `channels` default to what the models take.
    """
    loading = check_loading(loading, overconfidence)
    if (models is None) == (predictions is None):
        raise UserError("Give either models with data, or predictions.")
    if predictions is not None:
        if data is not None or between is not None:
            raise UserError("Data and the classes between which images lie are for models, not for bare predictions.")
        values, where = _values(predictions, "p")
        shares = _reference(reference, votes, smoothing, where)
        found = score(values, shares, compat=compat, resamples=resamples, seed=seed)
        result = OverconfidenceResult(found)
    else:
        if votes is not None or smoothing is not None or compat:
            raise UserError("Votes, smoothing and compat are for bare predictions, not for models.")
        if data is None:
            raise UserError("Models were given without data; say on which real images of the task they are tested.")
        progress = shown(progress)
        making: Any = {"count": count, "seed": seed, "device": device, "folder": folder, "progress": progress}
        companion, made, test, opened = _task(models, data, on, between, reference, making, loading)
        from secondguess.hubris.benchmark import benchmark

        table = benchmark(opened, test, companion, resamples=resamples, seed=seed, progress=progress)
        result = OverconfidenceResult(table, made)
    if folder is not None:
        result.save(folder)
    return result


def _values(what: Any, prefix: str) -> tuple[Any, Path | None]:
    """Predictions, and the file they come from if they come from one."""
    if isinstance(what, (str, os.PathLike)):
        return read_predictions(what, prefix), Path(what)
    return np.asarray(what, dtype=np.float64), None


def _reference(reference: Any, votes: Any, smoothing: float | None, file: Path | None) -> ArrayLike | None:
    """Nothing, one number for all, an array, what another file says, or other columns of the same file."""
    if votes is not None:
        if reference is not None:
            raise UserError("Votes and a reference were given; give one of them.")
        return vote_shares(_resolved(votes, file), HALF_A_VOTE if smoothing is None else smoothing)
    if reference is None or (isinstance(reference, str) and reference == CONSTANT):
        if smoothing is not None:
            raise UserError("Smoothing was given without a reference or votes; it says how to read them.")
        return None
    values = _resolved(reference, file)
    return values if smoothing is None else smoothed([values] if isinstance(values, float) else values, smoothing)


def _resolved(what: Any, file: Path | None) -> Any:
    """Values from a number, an array, a file, or columns of the file that the predictions are from."""
    if not isinstance(what, (str, os.PathLike)):
        return what if isinstance(what, float) else np.asarray(what, dtype=np.float64)
    try:
        return float(os.fspath(what))
    except ValueError:
        if file is None or Path(what).is_file():
            return read_predictions(what)
        return read_predictions(file, os.fspath(what))


def _task(
    models: Any, data: Any, on: Any, between: Any, reference: Any, making: dict[str, Any], loading: dict[str, Any]
) -> tuple[CompanionSet, AmbiguousImages | None, ImageSet, list[Classifier]]:
    """The ambiguous images, those that were made, the real ones, and the models."""
    from secondguess.hubris.companion import CompanionSet, in_order, read_companion
    from secondguess.images import Dataset, ImageSet, load

    opened = open_models(models, device=making["device"])
    telling = next((one for one in opened if one.input_shape), opened[0])
    loading = telling.loading | loading
    if isinstance(data, ImageSet):
        data = Dataset(data.name, None, data)
    real = data if isinstance(data, Dataset) else load(data, **loading)
    real = _agreeing(opened, real)
    names = real.test.class_names
    pair = _pair(between, real.test)
    dial = AUTO if reference is None else reference
    if isinstance(on, CompanionSet):
        return on, None, real.test, opened
    if isinstance(on, ImageSet):
        return CompanionSet.of(in_order(on, names), pair, dial), None, real.test, opened
    if _is_generator(on):
        made = _made(str(on), real, pair, **making)
        return CompanionSet.of(made.images, pair, dial), made, real.test, opened
    channels, *sides = real.test.shape
    loading = loading | {"size": tuple(sides), "channels": channels}
    return read_companion(on, pair, dial, class_names=names, **loading), None, real.test, opened


def _agreeing(models: list[Classifier], data: Dataset) -> Dataset:
    """The data with labels that count in the order of the models' outputs, where the models know their classes."""
    from secondguess.model.agreement import relabelled

    named = [one for one in models if one.class_names]
    if not named or not set(data.test.class_names) <= set(named[0].class_names):
        return data  # a model of some of the classes is asked about those
    names = named[0].class_names
    for one in named[1:]:
        if one.class_names != names:
            raise UserError(
                f"The classes of {one.name} ({', '.join(one.class_names[:5])} ...) and of {named[0].name} "
                f"({', '.join(names[:5])} ...) differ; compare models of the same classes in the same order."
            )
    train = None if data.train is None else relabelled(data.train, names)
    return replace(data, test=relabelled(data.test, names), train=train, validation=None)


def open_models(models: Any, **changes: Any) -> list[Classifier]:
    """One classifier or several, each under a name of its own.

    Args:
        models: anything that `Classifier.open` takes, or a list of that; equal names become paths.
        changes: options of `Classifier.open` for those that are not open yet.
    """
    from secondguess.model.classifier import Classifier

    given = list(models) if isinstance(models, (list, tuple)) else [models]
    files = [os.fspath(one) if isinstance(one, (str, os.PathLike)) else None for one in given]
    named = [file for file in files if file is not None]
    if not given or len(set(named)) < len(named):
        raise UserError("No model was given, or one of them twice; give each model once.")
    opened = [one if isinstance(one, Classifier) else Classifier.open(one, **changes) for one in given]
    if len({one.name for one in opened}) == len(opened):
        return opened
    return [one if file is None else Classifier.open(one, name=file) for one, file in zip(opened, files, strict=True)]


def _pair(between: Any, images: ImageSet) -> tuple[int, int] | None:
    """Two classes by name, or by number where no class has that name."""
    from secondguess.stress.classes import class_numbers

    if between is None:
        return None
    found = class_numbers(between, images)
    if len(set(found)) != 2 or len(found) != 2:
        raise UserError(f"The images lie between {between!r}; give two different classes, such as 9,8.")
    return found[0], found[1]


def _is_generator(on: Any) -> bool:
    from secondguess.contracts.registry import snake_case
    from secondguess.stress.registry import generators

    return isinstance(on, str) and snake_case(on) in (AUTO, *generators())


def _made(
    generator: str,
    real: Dataset,
    pair: tuple[int, int] | None,
    *,
    count: int,
    seed: int,
    device: str,
    folder: str | Path | None,
    progress: Progress | None,
) -> AmbiguousImages:
    """Ambiguous images between classes of the training images."""
    from secondguess.contracts.registry import snake_case
    from secondguess.stress.ambiguous.choosing import suited_generator
    from secondguess.stress.registry import make_generator

    if real.train is None or not real.train.is_labelled:
        raise UserError(
            f"{real.name} has no labelled training images to make ambiguous ones of; name a folder of ambiguous "
            "images with on."
        )
    flows = None if folder is None else Path(folder) / "generator"
    short = snake_case(generator)
    if short == AUTO:
        short, note = suited_generator(real.train, device=device, folder=flows)
        if note:
            warnings.warn(note, stacklevel=2)
    kept = flows if folder is None or short == "flow" else Path(folder) / "autoencoders"
    pairs = "confused" if pair is None else [pair]
    maker = make_generator(short, pairs=pairs, device=device, folder=kept)
    made: AmbiguousImages = maker.generate(real.train, count, seed=seed, progress=progress)
    return made
