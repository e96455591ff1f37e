"""Trials of estimators on your own validation images, shifted in ways whose effect is known because the labels are.

Half of the validation images fit the estimators; sets are drawn from the other half, with replacement:

* `none`: as they are.
* `classes`: with class frequencies from a flat Dirichlet distribution: some classes nearly vanish.
* `appearance`: shifted copies, one kind and degree of shift per set.
* `both`: shifted copies with other class frequencies.

An estimator that was close to the truth here can be trusted under this kind of change, as far as the change in
operation resembles those. Predictions of other models that were recorded with the original images say nothing about
their copies: an estimator that reads them is not tried on these. Nor is one whose oracle decides about nothing in a
set. A trial that was not made is missing from the record, neither passed nor failed. Estimators that learn from shifted
copies have tried themselves, on kinds that they left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from secondguess.accuracy._synthetic_sets import WAYS, positions
from secondguess.accuracy.base import Estimator, NothingKnown, Trial
from secondguess.accuracy.shifted_copies import ShiftedCopies
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.progress import Progress, Silent

__all__ = ["try_estimators"]


def try_estimators(
    estimators: Sequence[Estimator],
    validation: Observation,
    *,
    shifted: ShiftedCopies | None = None,
    training: Observation | None = None,
    repetitions: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, tuple[Trial, ...]]:
    """Try each estimator on sets shifted in each way; return the trials by its name.

    Args:
        estimators: of different names, fitted; copies of them are tried, they are left as they are.
        validation: of labelled images; one half fits, the other half is shifted.
        shifted: copies of some of these images; without them appearance does not change.
        training: of the training images, with which the oracles of estimators are fitted anew; without it an oracle
            that was fitted on these validation images seems better than it is.
        repetitions: how many sets are drawn of each kind.
        seed: of the halves and the draws.
        progress: where to report; silent by default.
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
    # Other random numbers than those that chose the images to copy, or one half would have all copies.
    order = np.random.default_rng([seed, len(WAYS)]).permutation(len(validation))
    fitting, shifting = (np.sort(half) for half in np.array_split(order, 2))
    known, ways = validation.take(fitting), WAYS if shifted is not None else WAYS[:2]
    trials: dict[str, list[Trial]] = {one.name: [] for one in estimators}
    with (progress or Silent()).task("Trying estimators", len(ways) + 1) as advance:
        copies = {one.name: one.tried(known, training) for one in estimators if not one.own_trials}
        advance(1, len(ways) + 1)
        for number, way in enumerate(ways):
            rng = np.random.default_rng([seed, number])
            sets = list(_sets(way, validation, shifted, shifting, repetitions, rng))
            for name, one in copies.items():
                if sets and not (one.recorded and way in ("appearance", "both")):
                    with suppress(NothingKnown):
                        trials[name].append(_trial(way, one, sets))
            advance(number + 2, len(ways) + 1)
    return {one.name: one.own_trials or tuple(trials[one.name]) for one in estimators}


def _sets(
    way: str,
    validation: Observation,
    shifted: ShiftedCopies | None,
    shifting: np.ndarray,
    repetitions: int,
    rng: np.random.Generator,
) -> Iterator[Observation]:
    """Sets changed in one way, none of whose images fitted an estimator."""
    base = validation.take(shifting)
    rows = np.arange(len(base))
    chosen = [0] * repetitions
    if way in ("appearance", "both") and shifted is not None:
        rows = np.flatnonzero(np.isin(shifted.rows, shifting))
        chosen = rng.choice(len(shifted.shifts), size=repetitions, replace=repetitions > len(shifted.shifts)).tolist()
    if not len(rows):
        return
    for number in chosen:
        seen = base if way in ("none", "classes") or shifted is None else shifted.with_images(number).take(rows)
        labels = seen.require_labels("Trying estimators")
        classes, counts = np.unique(labels, return_counts=True)
        wanted = counts / counts.sum() if way in ("none", "appearance") else rng.dirichlet(np.ones(len(classes)))
        yield seen.take(positions(labels, classes, wanted, len(labels), rng))


def _trial(way: str, one: Estimator, sets: Sequence[Observation]) -> Trial:
    truths = np.array([seen.correct.mean() for seen in sets])
    off = np.array([one.estimate(seen).value for seen in sets]) - truths
    return Trial(way, float(np.abs(off).mean()), float(off.mean()), float(truths.mean()), len(sets))
