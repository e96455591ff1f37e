"""Orders of images and decision boundaries, with ambiguous images among nominal ones.

Sections 4.2 and 4.3 of Weiss, Garcia Gomez and Tonella (2023) describe both and measure neither. A classifier of
nominal images, trained here or opened from a file, looks at nominal test images and at ambiguous ones with soft labels,
which were made without it. What is measured is in `secondguess.metrics.prioritisation` and `.boundary`.

The paper also says that clear images between a boundary and the ambiguous images are worth learning from, and that
ambiguous ones may not be. `learn_more` tries it: a classifier that has seen few images gets more of them, of each sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import TaskData
from secondguess.images import ImageSet
from secondguess.metrics import (
    Frontier,
    PairBoundary,
    apfd_interval,
    avoidable_faults,
    best_apfd,
    fault_chances,
    frontier,
    pair_boundaries,
    share_of_first,
)
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.supervisors import Supervisor, make_all
from secondguess_lab.studies.tasks.ambiguity import Generation, ambiguous_sets, train_classifiers
from secondguess_lab.studies.tasks.opening import opened, training_images
from secondguess_lab.studies.tasks.supervisors import configured

__all__ = ["boundary_rows", "follow_boundary", "learn_more", "order_images", "order_row"]

FIRST = 0.1


class _Case(NamedTuple):
    """A classifier, the images it learnt from, and those it looks at."""

    classifier: Classifier
    training: ImageSet
    nominal: ImageSet
    ambiguous: ImageSet


def order_images(
    *,
    data: TaskData,
    kept: TaskData | None,
    name: str,
    model: str,
    architecture: str,
    epochs: int,
    train: int,
    test: int,
    generator: str,
    generation: Generation,
    supervisors: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    learnt: int,
    seed: int,
) -> dict[str, Any]:
    """One row for every supervisor: how early it brings mistakes, and how many ambiguous images.

    Args:
        data: the nominal images.
        kept: ambiguous images that were made before; without them AmbiGuess makes some.
        name: what the table calls the data.
        model: the path of a `model.toml`; "" to train a network of the zoo.
        architecture: of that network.
        epochs: of its training; 0 for the architecture's own number.
        train: how many training images are used at most; 0 for all.
        test: how many test images are looked at; 0 for all.
        generator: of ambiguous images, where none are kept.
        generation: of the ambiguous images, see `secondguess_lab.studies.tasks.ambiguity`.
        supervisors: their names; those that the classifier cannot serve are left out.
        parameters: of supervisors, where they differ from the defaults.
        learnt: from how many training images supervisors learn; 0 for all.
        seed: of the run.
    """
    made = (generator, *sorted(generation.items()))
    case = _case(data, kept, model, architecture, epochs, train, test, made, seed)
    panel = [configured(one, parameters, architecture, seed) for one in make_all(list(supervisors))]
    panel = [one for one in panel if one.needs.abilities <= case.classifier.gives]
    needs = Needs.union(panel)
    seen = [case.classifier.observe(images, needs, seed=seed) for images in (case.nominal, case.ambiguous)]
    wrong = seen[0].predictions != case.nominal.labels
    soft = _soft(case.ambiguous)
    chances = np.r_[wrong.astype(float), fault_chances(seen[1].predictions, soft)]
    avoidable = np.r_[wrong, avoidable_faults(seen[1].predictions, soft)]
    about = {"data": name, "run": seed}
    rows = [
        about | {"supervisor": one.name} | order_row(scores, wrong, chances, avoidable)
        for one, scores in _scored(case, panel, seen, learnt)
    ]
    best = {"nominal": best_apfd(wrong), "testing": best_apfd(chances), "learning": best_apfd(avoidable)}
    share = len(soft) / len(chances)
    return {
        "rows": [*rows, about | {"supervisor": "(best order)"} | best],
        "accuracy": 1 - wrong.mean(),
        "share": share,
    }


def follow_boundary(
    *,
    data: TaskData,
    kept: TaskData | None,
    name: str,
    model: str,
    architecture: str,
    epochs: int,
    train: int,
    test: int,
    generator: str,
    generation: Generation,
    seed: int,
) -> dict[str, Any]:
    """Where the boundary of each pair of classes runs, and what lies at it; for the arguments see `order_images`."""
    made = (generator, *sorted(generation.items()))
    case = _case(data, kept, model, architecture, epochs, train, test, made, seed)
    seen = [case.classifier.observe(images) for images in (case.nominal, case.ambiguous)]
    guessed = np.concatenate([one.probabilities for one in seen])
    soft = np.concatenate([np.eye(seen[0].num_classes)[case.nominal.labels], _soft(case.ambiguous)])
    found = boundary_rows(frontier(guessed, soft), pair_boundaries(guessed, soft), case.nominal.class_names)
    right = float((seen[0].predictions == case.nominal.labels).mean())
    return {"data": name, "run": seed, "accuracy": right} | found


def learn_more(
    *,
    data: TaskData,
    kept: TaskData | None,
    name: str,
    architecture: str,
    epochs: int,
    train: int,
    test: int,
    generator: str,
    generation: Generation,
    start: int,
    added: int,
    seed: int,
) -> dict[str, Any]:
    """The accuracy of a network that has learnt from few images, and from more images of each sort.

    Args:
        data: the nominal images.
        kept: see `order_images`.
        name: what the table calls the data.
        architecture: a name of the zoo.
        epochs: of its training; 0 for the architecture's own number.
        train: of how many training images those are that it may learn from; 0 for all.
        test: how many test images it is tried on; 0 for all.
        generator: see `order_images`.
        generation: see `order_images`.
        start: how many images it learns from at first.
        added: how many more it gets: ambiguous ones with drawn labels; clear ones at its frontier that it answers
            wrongly, as many as there are; any clear ones.
        seed: of the run.
    """
    whole = _some(training_images(opened(data)), train)
    order = np.random.default_rng([seed, 1]).permutation(len(whole))
    first, rest = whole.take(np.sort(order[:start])), whole.take(np.sort(order[start:]))
    nominal = _some(opened(data).test, test)
    ambiguous = _ambiguous(data, kept, generator, generation)
    rng = np.random.default_rng([seed, 2])

    def accuracy(extra: ImageSet | None) -> tuple[Classifier, float]:
        fleet = train_classifiers(first, architecture, extra, members=1, epochs=epochs, seed=seed)
        classifier = Classifier(fleet[0], class_names=whole.class_names, batch_size=1000)
        return classifier, float((classifier.observe(nominal).predictions == nominal.labels).mean())

    classifier, before = accuracy(None)
    seen = classifier.observe(rest)
    at = frontier(seen.probabilities, np.eye(seen.num_classes)[rest.labels])
    sorts = {
        "clear, wrong, at the frontier": rest.take(_drawn(rng, np.flatnonzero(at.faults), added)),
        "ambiguous": ambiguous.take(_drawn(rng, np.arange(len(ambiguous)), added)),
        "any clear": rest.take(_drawn(rng, np.arange(len(rest)), added)),
    }
    found = {sort: {"images": len(images), "accuracy": accuracy(images)[1]} for sort, images in sorts.items()}
    return {"data": name, "run": seed, "start": start, "accuracy": before, "sorts": found}


def boundary_rows(at: Frontier, pairs: Sequence[PairBoundary], names: Sequence[str]) -> dict[str, Any]:
    """What lies at the frontier, and a row for every pair of classes, by their names."""
    near = {"ambiguous": at.share_near(ambiguous=True).value, "clear": at.share_near(ambiguous=False).value}
    if 0 < near["clear"] < 1:
        near |= {"wrong": at.share_wrong(near=True).value, "away": at.share_wrong(near=False).value}
    rows = [
        {"pair": f"{names[one.pair[0]]} or {names[one.pair[1]]}", "through": one.through, "on_a": one.on_a.value}
        | {"lean": one.lean, "excess": one.excess, "images": one.on_a.n}
        for one in pairs
    ]
    return {"frontier": near, "pairs": rows}


def order_row(
    scores: NDArray[np.float64], wrong: NDArray[np.bool_], chances: NDArray[np.float64], avoidable: NDArray[np.bool_]
) -> dict[str, float]:
    """How early scores (n + m,) bring mistakes, and how many ambiguous images come first.

    Args:
        scores: of n nominal images and m ambiguous ones behind them.
        wrong: (n,) which of the former are answered wrongly.
        chances: (n + m,) that an image is answered wrongly.
        avoidable: (n + m,) whether it is, and need not be.
    """
    nominal, testing = apfd_interval(scores[: len(wrong)], wrong), apfd_interval(scores, chances)
    marks = np.arange(len(scores)) >= len(wrong)
    return {
        "nominal": nominal.value,
        "nominal ±": (nominal.high - nominal.low) / 2,
        "testing": testing.value,
        "testing ±": (testing.high - testing.low) / 2,
        "learning": apfd_interval(scores, avoidable).value,
        "first": share_of_first(scores, marks, max(1, round(FIRST * len(scores)))),
    }


def _scored(
    case: _Case, panel: Sequence[Supervisor], seen: Sequence[Any], learnt: int
) -> Iterator[tuple[Supervisor, NDArray[np.float64]]]:
    """Every supervisor, and its scores of nominal images and then of ambiguous ones."""
    some = _some(case.training, learnt)
    known = case.classifier.observe(some, Needs.union(one for one in panel if one.requires_fit))
    for one in panel:
        if one.requires_fit:
            one.fit(known, some.labels)
        yield one, np.concatenate([one.score(images) for images in seen])


@lru_cache(maxsize=2)
def _case(
    data: TaskData,
    kept: TaskData | None,
    model: str,
    architecture: str,
    epochs: int,
    train: int,
    test: int,
    made: tuple[Any, ...],
    seed: int,
) -> _Case:
    training, nominal = _some(training_images(opened(data)), train), _some(opened(data).test, test)
    if model:
        classifier = Classifier.open(model)
    else:
        fleet = train_classifiers(training, architecture, None, members=1, epochs=epochs, seed=seed)
        classifier = Classifier(fleet[0], class_names=nominal.class_names, batch_size=1000)
    return _Case(classifier, training, nominal, _ambiguous(data, kept, made[0], dict(made[1:])))


def _ambiguous(data: TaskData, kept: TaskData | None, generator: str, generation: Generation) -> ImageSet:
    return opened(kept).test if kept else ambiguous_sets(data, generator, generation, 0)[1]


def _soft(images: ImageSet) -> NDArray[np.float64]:
    assert images.soft_labels is not None  # generators give some
    return images.soft_labels


def _some(images: ImageSet, count: int) -> ImageSet:
    return images.head(count, seed=0) if 0 < count < len(images) else images


def _drawn(rng: np.random.Generator, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.sort(rng.permutation(rows)[:count])
