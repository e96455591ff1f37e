"""Trials of estimators: artificial shifts of the user's own validation images show when each can be trusted.

Half of the labelled images fit the estimators; the other half becomes operation, unchanged and shifted in ways whose
effect is known because the labels are:

* `nominal`: drawn again, with replacement.
* `class frequencies`: drawn with class frequencies from a flat Dirichlet distribution: some classes nearly vanish.
* `swapped classes`: the labels of two classes were exchanged in all that was learnt from. A model trained on such
  labels is the model with two outputs exchanged, so that is how it is made; estimators, and the oracles in them, learn
  anew from validation and training images with exchanged outputs AND labels. Referees and the members of an ensemble
  have learnt from the same labels; all outputs being exchanged alike, they agree as they did before, and that is what
  is counted. No estimator can detect this shift without external knowledge. It takes a fit for every set, so an oracle
  is tried on `REFITS` of them only; one that cannot be fitted anew, for lack of training images, is not tried.
* `corrupted` and `half corrupted`: every image, or every other one, gets one of the corruptions of `stress.Corrupted`.
* `ambiguous`: half of the images come from a set of ambiguous ones, if there is one.

Corrupted and ambiguous images must be observed by the classifier; an estimator that reads the predictions of other
models for the original images, recorded in a column, is not tried on them. A trial that was not made is missing from
the record, neither passed nor failed. An estimator that was within two points of the truth here can be trusted under
this kind of shift, which does not mean that operation has this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, Trial
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.progress import Progress, Silent

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["cross_check", "shifted", "swapped"]

REFITS = 2
RELOOKED = ("corrupted", "half corrupted", "ambiguous")


class Drawn(NamedTuple):
    """The observation of one shifted set, and the two classes that were exchanged, if any."""

    seen: Observation
    pair: tuple[int, int] | None = None


Draw = Callable[[np.random.Generator], Drawn]


KINDS = 6  # of shift, where all can be made


def cross_check(
    estimators: Sequence[Estimator],
    validation: Observation,
    *,
    training: Observation | None = None,
    classifier: Classifier | None = None,
    ambiguous: ImageSet | None = None,
    repetitions: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, tuple[Trial, ...]]:
    """Try each estimator under each kind of shift; return the trials by its name.

    Args:
        estimators: of different names; copies of them are fitted, they are left as they are.
        validation: of labelled images; one half fits, the other half is shifted.
        training: of the training images, with which the oracles of estimators are fitted anew; without it an oracle
            that was fitted on these validation images seems better than it is, and is not tried on swapped classes.
        classifier: observes corrupted and ambiguous images; without it these kinds are left out.
        ambiguous: labelled ambiguous images.
        repetitions: how many sets are drawn of each kind.
        seed: of the halves and the draws.
        progress: where to report.
    """
    validation.require_labels("Trying estimators")
    if len(validation) < 4 or repetitions < 1:
        raise UserError(
            f"{len(validation)} labelled images and {repetitions} repetitions were given; trying estimators needs at "
            "least 4 images, one half to fit and one to shift, and one repetition."
        )
    names = [one.name for one in estimators]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f"Two estimators are called {twice[0]!r}, and trials are kept by name; give each oracle or estimator "
            "a name of its own, or try them one after the other."
        )
    order = np.random.default_rng(seed).permutation(len(validation))
    fitting, shifting = (validation.take(np.sort(half)) for half in np.array_split(order, 2))
    once = [one.clone(resamples=1) for one in estimators]  # the intervals are not used here
    trials: dict[str, list[Trial]] = {one.name: [] for one in once}
    done, total = 0, (1 + KINDS) * len(once)
    with (progress or Silent()).task("Trying estimators", total) as advance:
        copies = []
        for one in once:
            copies.append(one.retrained(fitting, training) or one.fit(fitting))
            advance(done := done + 1, total)
        needs = Needs()
        for one in copies:
            needs |= one.needs
        for number, (kind, draw) in enumerate(shifted(shifting, classifier, ambiguous, needs, seed)):
            drawn = [draw(np.random.default_rng([seed, number, i])) for i in range(repetitions)]
            for one in copies:
                advance(done := done + 1, total)
                if one.recorded and kind in RELOOKED:
                    continue
                found = [_estimated(one, case, training, fitting) for case in drawn[: _affordable(one, kind)]]
                trial = _trial(kind, [value for value in found if value is not None], drawn)
                trials[one.name] += [trial] if trial is not None else []
    return {name: tuple(tried) for name, tried in trials.items()}


def shifted(
    nominal: Observation, classifier: Classifier | None, ambiguous: ImageSet | None, needs: Needs, seed: int
) -> Iterator[tuple[str, Draw]]:
    """The kinds of shift that can be made, each with a function that draws a set of the size of `nominal`."""
    yield "nominal", lambda rng: Drawn(_again(nominal, rng))
    yield "class frequencies", lambda rng: Drawn(_reweighted(nominal, rng))
    yield "swapped classes", lambda rng: swapped(_again(nominal, rng), rng)
    if classifier is None:
        return
    corrupted = _corrupted(nominal, classifier, needs, seed)
    yield "corrupted", lambda rng: Drawn(_again(corrupted, rng))
    yield "half corrupted", lambda rng: Drawn(_halves(nominal, corrupted, rng))
    if ambiguous is not None:
        doubtful = classifier.observe(_with_columns(ambiguous, nominal), needs)
        doubtful.require_labels("Trying estimators on ambiguous images")
        yield "ambiguous", lambda rng: Drawn(_halves(nominal, doubtful, rng))


def swapped(seen: Observation, rng: np.random.Generator) -> Drawn:
    """The same images, seen by a model for which two classes, of those that occur, have changed places."""
    classes = np.unique(seen.require_labels("Exchanging classes"))
    first, second = rng.choice(classes, size=2, replace=len(classes) < 2)
    pair = int(first), int(second)
    return Drawn(_outputs_exchanged(seen, pair), pair)


def _estimated(one: Estimator, case: Drawn, training: Observation | None, fitting: Observation) -> float | None:
    """The value of a fitted estimator, fitted anew where classes were exchanged; None if it cannot be."""
    if case.pair is None:
        return one.estimate(case.seen).value
    if one.other_models:  # they learnt from the same labels, so among them nothing has changed
        return one.estimate(_outputs_exchanged(case.seen, case.pair)).value
    learnt_from = None if training is None else _all_exchanged(training, case.pair)
    anew = one.retrained(_all_exchanged(fitting, case.pair), learnt_from)
    return None if anew is None else anew.estimate(case.seen).value


def _affordable(one: Estimator, kind: str) -> int | None:
    """How many sets of a kind an estimator is tried on; None for all."""
    return REFITS if kind == "swapped classes" and one.slow_to_fit else None


def _trial(kind: str, values: list[float], drawn: list[Drawn]) -> Trial | None:
    if not values:
        return None
    truth = np.array([case.seen.correct.mean() for case in drawn[: len(values)]])
    off = np.array(values) - truth
    return Trial(kind, float(np.abs(off).mean()), float(off.mean()), float(truth.mean()), len(values))


def _order(seen: Observation, pair: tuple[int, int]) -> NDArray[np.int64]:
    order = np.arange(seen.num_classes)
    order[list(pair)] = pair[::-1]
    return order


def _all_exchanged(seen: Observation, pair: tuple[int, int]) -> Observation:
    """Labelled images in a world where two classes have each other's name: outputs and labels agree as before."""
    order, images = _order(seen, pair), seen.images
    labels = order[seen.require_labels("Exchanging classes")]
    exchanged = _outputs_exchanged(seen, pair)
    if images is None:
        return exchanged.replace(labels=labels)
    soft = None if images.soft_labels is None else images.soft_labels[:, order]
    return exchanged.replace(images=replace(images, labels=labels, soft_labels=soft))


def _outputs_exchanged(seen: Observation, pair: tuple[int, int]) -> Observation:
    """The same images with the outputs of two classes exchanged; done twice, everything is as before."""
    order = _order(seen, pair)
    return seen.replace(
        probabilities=seen.probabilities[:, order],
        logits=None if seen.logits is None else seen.logits[:, order],
        samples=None if seen.samples is None else seen.samples[:, :, order],
    )


def _again(seen: Observation, rng: np.random.Generator) -> Observation:
    return seen.take(rng.integers(len(seen), size=len(seen)))


def _reweighted(seen: Observation, rng: np.random.Generator) -> Observation:
    classes, of_image = np.unique(seen.require_labels("Drawing by class"), return_inverse=True)
    share = rng.dirichlet(np.ones(len(classes))) / np.bincount(of_image)
    weights = share[of_image]
    return seen.take(rng.choice(len(seen), size=len(seen), p=weights / weights.sum()))


def _halves(first: Observation, second: Observation, rng: np.random.Generator) -> Observation:
    """As many images as in the first set, half of them from each."""
    half = len(first) // 2
    return _joined(
        first.take(rng.integers(len(first), size=len(first) - half)), second.take(rng.integers(len(second), size=half))
    )


def _corrupted(nominal: Observation, classifier: Classifier, needs: Needs, seed: int) -> Observation:
    from secondguess.stress import Corrupted

    made = Corrupted().make(nominal.require_images("Corrupting"), seed=seed)
    images = replace(made, columns={**nominal.columns, **made.columns})  # a camera stays the same camera
    return classifier.observe(images, needs)


def _with_columns(images: ImageSet, like: Observation) -> ImageSet:
    """The images with an empty column where the others have one: rules then have no opinion about them."""
    lacking = {name: np.full(len(images), "") for name in like.columns if name not in images.columns}
    return replace(images, columns={**images.columns, **lacking}, ids=images.ids or ("",) * len(images))


def _joined(first: Observation, second: Observation) -> Observation:
    """Two sets in one; of the images only what both know is kept."""
    from secondguess.images import ImageSet

    one, other = (seen.require_images("Joining two sets") for seen in (first, second))
    images = ImageSet.from_arrays(
        np.concatenate([one.materialise(), other.materialise()]),
        np.concatenate([one.labels, other.labels]),
        class_names=first.class_names,
        layout="NCHW",
        name=f"{one.name} and {other.name}",
        ids=[*one.ids, *other.ids] if one.ids and other.ids else None,
        columns={
            name: _concatenated(np.asarray(values), np.asarray(other.columns[name]))
            for name, values in one.columns.items()
            if name in other.columns
        },
    )
    return Observation(
        np.concatenate([first.probabilities, second.probabilities]),
        _both(first.logits, second.logits),
        {
            trace: np.concatenate([first.traces[trace], second.traces[trace]])
            for trace in first.traces
            if trace in second.traces
        },
        _both(first.samples, second.samples),
        images,
        class_names=first.class_names,
    )


def _both(first: NDArray[Any] | None, second: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if first is None or second is None else np.concatenate([first, second])


def _concatenated(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Two columns in one, as text only where they hold different kinds of things."""
    if first.dtype.kind != second.dtype.kind:
        first, second = first.astype(str), second.astype(str)
    return np.concatenate([first, second])
