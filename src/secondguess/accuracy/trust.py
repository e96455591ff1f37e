"""May I trust this? Try every estimator on shifts made on purpose, out of the user's own validation images.

Half of the labelled images fit the estimators; the other half becomes operation, unchanged and spoilt in ways whose
effect is known because the labels are:

* `nominal`: drawn again, with replacement.
* `class frequencies`: drawn with class frequencies from a flat Dirichlet distribution: some classes nearly vanish.
* `swapped classes`: the labels of two classes were exchanged in all that was learnt from. A model trained on such
  labels is the model with two outputs exchanged, so that is how it is made; estimators, and the oracles in them, learn
  anew from validation and training images with exchanged outputs AND labels. Referees and the members of an ensemble
  have learnt from the same labels; all outputs being exchanged alike, they agree as they did before, and that is what
  is counted. No estimator can see this shift without knowledge from outside. It takes a fit for every set, so an oracle
  is tried on `REFITS` of them only; one that cannot learn anew, for want of training images, is not tried.
* `corrupted` and `half corrupted`: every image, or every other one, gets one of the corruptions of `stress.Corrupted`.
* `ambiguous`: half of the images come from a set of ambiguous ones, if there is one.

Corrupted and ambiguous images must be looked at by the classifier; an estimator that reads what other models said about
the images as they were, recorded in a column, is not tried on them. A trial that was not made is missing from the
record, neither passed nor failed. An estimator that was within two points of the truth
here may be believed under this kind of shift, which is not to say that operation has this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, Trial
from secondguess.accuracy.oracles import Evidence
from secondguess.accuracy.passes import OraclePasses
from secondguess.errors import UserError
from secondguess.model.observation import Needs, Observation

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["cross_check", "shifted", "swapped"]

REFITS = 2
RELOOKED = ("corrupted", "half corrupted", "ambiguous")


class Drawn(NamedTuple):
    """Evidence on one shifted set, and the two classes that were exchanged, if any."""

    evidence: Evidence
    pair: tuple[int, int] | None = None


Draw = Callable[[np.random.Generator], Drawn]


def cross_check(
    estimators: Sequence[Estimator],
    validation: Evidence,
    *,
    training: Evidence | None = None,
    classifier: Classifier | None = None,
    ambiguous: ImageSet | None = None,
    repetitions: int = 5,
    seed: int = 0,
) -> dict[str, tuple[Trial, ...]]:
    """How each estimator did under each kind of shift, by its name.

    Args:
        estimators: of different names; copies of them are fitted, they are left as they are.
        validation: on labelled images; one half fits, the other half is shifted.
        training: on the training images, with which the oracles of estimators are fitted anew; without it an oracle
            that was fitted on these validation images looks better than it is, and is not tried on swapped classes.
        classifier: looks at corrupted and ambiguous images; without it these kinds are left out.
        ambiguous: labelled ambiguous images.
        repetitions: how many sets are drawn of each kind.
        seed: of the halves and the draws.
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
            f"Two estimators are called {twice[0]!r}, and trials are told apart by name; give each oracle or estimator "
            "a name of its own, or try them one after the other."
        )
    order = np.random.default_rng(seed).permutation(len(validation))
    fitting, shifting = (validation.take(np.sort(half)) for half in np.array_split(order, 2))
    copies = [one.anew(training, fitting) for one in estimators]
    for one in copies:
        one.resamples = 1  # nobody looks at the intervals here
        one.fit(fitting)
    trials: dict[str, list[Trial]] = {one.name: [] for one in copies}
    needs = Needs()
    for one in copies:
        needs |= one.needs
    for number, (kind, draw) in enumerate(shifted(shifting, classifier, ambiguous, needs, seed)):
        drawn = [draw(np.random.default_rng([seed, number, i])) for i in range(repetitions)]
        for one in copies:
            if one.recorded and kind in RELOOKED:
                continue
            found = [_estimated(one, case, training, fitting) for case in drawn[: _affordable(one, kind)]]
            trial = _trial(kind, [value for value in found if value is not None], drawn)
            trials[one.name] += [trial] if trial is not None else []
    return {name: tuple(tried) for name, tried in trials.items()}


def shifted(
    nominal: Evidence, classifier: Classifier | None, ambiguous: ImageSet | None, needs: Needs, seed: int
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
        doubtful = Evidence.of(classifier, _with_columns(ambiguous, nominal.images), needs)
        doubtful.require_labels("Trying estimators on ambiguous images")
        yield "ambiguous", lambda rng: Drawn(_halves(nominal, doubtful, rng))


def swapped(evidence: Evidence, rng: np.random.Generator) -> Drawn:
    """The same images, seen by a model for which two classes, of those that occur, have changed places."""
    first, second = rng.choice(np.unique(evidence.labels), size=2, replace=len(np.unique(evidence.labels)) < 2)
    pair = int(first), int(second)
    return Drawn(_outputs_exchanged(evidence, pair), pair)


def _estimated(one: Estimator, case: Drawn, training: Evidence | None, fitting: Evidence) -> float | None:
    """What a fitted estimator says, learning anew where classes were exchanged; None if it cannot."""
    if case.pair is None:
        return one.estimate(case.evidence).value
    if one.other_models:  # they learnt from the same labels, so among them nothing has changed
        return one.estimate(_outputs_exchanged(case.evidence, case.pair)).value
    learnt_from = None if training is None else _all_exchanged(training, case.pair)
    anew = one.retrained(learnt_from, _all_exchanged(fitting, case.pair))
    return None if anew is None else anew.estimate(case.evidence).value


def _affordable(one: Estimator, kind: str) -> int | None:
    """How many sets of a kind an estimator is tried on; None for all."""
    return REFITS if kind == "swapped classes" and isinstance(one, OraclePasses) and one.oracle.requires_fit else None


def _trial(kind: str, values: list[float], drawn: list[Drawn]) -> Trial | None:
    if not values:
        return None
    truth = np.array([case.evidence.correct.mean() for case in drawn[: len(values)]])
    off = np.array(values) - truth
    return Trial(kind, float(np.abs(off).mean()), float(off.mean()), float(truth.mean()), len(values))


def _order(evidence: Evidence, pair: tuple[int, int]) -> NDArray[np.int64]:
    order = np.arange(evidence.observation.num_classes)
    order[list(pair)] = pair[::-1]
    return order


def _all_exchanged(evidence: Evidence, pair: tuple[int, int]) -> Evidence:
    """Labelled images in a world where two classes have each other's name: outputs and labels agree as before."""
    order, images = _order(evidence, pair), evidence.images
    labels = np.where(images.labels < 0, images.labels, order[images.labels])
    soft = None if images.soft_labels is None else images.soft_labels[:, order]
    return Evidence(_outputs_exchanged(evidence, pair).observation, replace(images, labels=labels, soft_labels=soft))


def _outputs_exchanged(evidence: Evidence, pair: tuple[int, int]) -> Evidence:
    """The same images with the outputs of two classes exchanged; done twice, everything is as before."""
    order = _order(evidence, pair)
    seen = evidence.observation
    exchanged = replace(
        seen,
        probabilities=seen.probabilities[:, order],
        logits=None if seen.logits is None else seen.logits[:, order],
        samples=None if seen.samples is None else seen.samples[:, :, order],
    )
    return Evidence(exchanged, evidence.images)


def _again(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    return evidence.take(rng.integers(len(evidence), size=len(evidence)))


def _reweighted(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    classes, of_image = np.unique(evidence.labels, return_inverse=True)
    share = rng.dirichlet(np.ones(len(classes))) / np.bincount(of_image)
    weights = share[of_image]
    return evidence.take(rng.choice(len(evidence), size=len(evidence), p=weights / weights.sum()))


def _halves(first: Evidence, second: Evidence, rng: np.random.Generator) -> Evidence:
    """As many images as in the first set, half of them from each."""
    half = len(first) // 2
    return _joined(
        first.take(rng.integers(len(first), size=len(first) - half)), second.take(rng.integers(len(second), size=half))
    )


def _corrupted(nominal: Evidence, classifier: Classifier, needs: Needs, seed: int) -> Evidence:
    from secondguess.stress import Corrupted

    made = Corrupted().make(nominal.images, seed=seed)
    images = replace(made, columns={**nominal.images.columns, **made.columns})  # a camera stays the same camera
    return Evidence.of(classifier, images, needs)


def _with_columns(images: ImageSet, like: ImageSet) -> ImageSet:
    """The images with an empty column where the others have one: rules then have no opinion about them."""
    lacking = {name: np.full(len(images), "") for name in like.columns if name not in images.columns}
    return replace(images, columns={**images.columns, **lacking}, ids=images.ids or ("",) * len(images))


def _joined(first: Evidence, second: Evidence) -> Evidence:
    """Two sets in one; of the images only what both know is kept."""
    from secondguess.images import ImageSet

    one, other = first.observation, second.observation
    joined = Observation(
        np.concatenate([one.probabilities, other.probabilities]),
        None if one.logits is None or other.logits is None else np.concatenate([one.logits, other.logits]),
        {
            trace: np.concatenate([one.traces[trace], other.traces[trace]])
            for trace in one.traces
            if trace in other.traces
        },
        None if one.samples is None or other.samples is None else np.concatenate([one.samples, other.samples]),
        class_names=one.class_names,
    )
    images = ImageSet.from_arrays(
        np.concatenate([first.images.materialise(), second.images.materialise()]),
        np.concatenate([first.labels, second.labels]),
        class_names=first.class_names,
        layout="NCHW",
        name=f"{first.images.name} and {second.images.name}",
        ids=[*first.images.ids, *second.images.ids] if first.images.ids and second.images.ids else None,
        columns={
            name: _concatenated(np.asarray(values), np.asarray(second.images.columns[name]))
            for name, values in first.images.columns.items()
            if name in second.images.columns
        },
    )
    return Evidence(joined, images)


def _concatenated(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Two columns in one, as text only where they hold different kinds of things."""
    if first.dtype.kind != second.dtype.kind:
        first, second = first.astype(str), second.astype(str)
    return np.concatenate([first, second])
