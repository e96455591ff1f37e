"""Windows of operation out of what was seen of each kind of image, and how far estimates on them are off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy import Estimator
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.observation import Observation

__all__ = ["Combination", "Look", "try_all", "windows_of"]


@dataclass(frozen=True, eq=False)
class Look:
    """What is known about n images.

    Attributes:
        seen: probabilities and logits.
        columns: scores (n,) by detector, and the predictions (n,) of other classifiers as `other 1` and so on.
        jury: (n, m) scores of the panel's supervisors.
        labels: (n,) that only predictions which are right have.
    """

    seen: Observation
    columns: dict[str, NDArray[Any]]
    jury: NDArray[np.float64]
    labels: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which predictions are right, (n,)."""
        return np.asarray(self.seen.predictions == self.labels)

    def take(self, rows: NDArray[np.int64] | slice) -> Look:
        """What is known about some of the images."""
        columns = {key: values[rows] for key, values in self.columns.items()}
        chosen = np.arange(len(self.labels))[rows]
        return Look(self.seen.take(chosen), columns, self.jury[rows], self.labels[rows])

    def observation(self) -> Observation:
        """For estimators, none of which looks at pixels."""
        names = [str(k) for k in range(self.seen.num_classes)]
        pixels = np.zeros((len(self.labels), 1, 1), np.uint8)
        images = ImageSet.from_arrays(pixels, self.labels, class_names=names, columns=self.columns)
        return self.seen.replace(images=images)

    @classmethod
    def joined(cls, looks: Sequence[Look]) -> Look:
        """What is known about the images of several, one after the other."""
        logits = [one.seen.logits for one in looks if one.seen.logits is not None]
        seen = Observation(
            np.concatenate([one.seen.probabilities for one in looks]), np.concatenate(logits) if logits else None
        )
        columns = {key: np.concatenate([one.columns[key] for one in looks]) for key in looks[0].columns}
        jury, labels = (np.concatenate([getattr(one, key) for one in looks]) for key in ("jury", "labels"))
        return cls(seen, columns, jury, labels)


@dataclass(frozen=True, eq=False)
class Combination:
    """A fitted estimator, its validation, name and detector, and what the detector costs an image."""

    names: tuple[str, str, str]
    estimator: Estimator
    milliseconds: float


def windows_of(
    sizes: Mapping[str, int], size: int, shares: Sequence[float], count: int, seed: int
) -> Iterator[tuple[tuple[str, float], list[NDArray[np.int64]]]]:
    """Cells of the table, each with the rows of its windows in the images of all kinds, one kind after the other.

    Args:
        sizes: how many images there are, `nominal` first, then of each kind of trouble.
        size: of a window.
        shares: of trouble in it; a share of nothing is a cell of its own, the same for all kinds.
        count: windows of each cell.
        seed: of the draws.
    """
    kinds = list(sizes)
    starts = dict(zip(kinds, np.cumsum([0, *sizes.values()]), strict=False))
    cells = [("nominal", 0.0)] * (0.0 in shares) + [(kind, share) for kind in kinds[1:] for share in shares if share]
    for number, (kind, share) in enumerate(cells):
        wanted = {"nominal": size - round(share * size)} | ({kind: round(share * size)} if share else {})
        for one, many in wanted.items():
            if many > sizes[one]:
                raise UserError(
                    f"A window of {size} images with a share of {share:g} takes {many} {one} ones, but there are "
                    f"{sizes[one]}; make windows smaller, or give or attack more images."
                )
        drawn = []
        for repetition in range(count):
            rng = np.random.default_rng([seed, number, repetition])
            parts = [starts[one] + rng.choice(sizes[one], many, replace=False) for one, many in wanted.items()]
            drawn.append(np.concatenate(parts))
        yield (kind, share), drawn


def try_all(
    combinations: Sequence[Combination],
    pool: Sequence[Look],
    windows: Sequence[tuple[tuple[str, float], Sequence[NDArray[np.int64]]]],
    intervals: int,
    resamples: int,
) -> dict[str, Any]:
    """The errors of c combinations on the windows of s cells, as `secondguess_lab.studies.tasks.mixtures` returns them.

    Args:
        combinations: fitted.
        pool: what is known about all images.
        windows: as `windows_of` makes them.
        intervals: for how many windows of a cell an interval is made.
        resamples: of each interval.
    """
    whole, right = Look.joined(pool).observation(), np.concatenate([one.right for one in pool])
    errors, covered = [], []
    for _, drawn in windows:
        off, holds = np.zeros((2, len(combinations), len(drawn)))
        for place, rows in enumerate(drawn):
            window, truth = whole.take(rows), float(right[rows].mean())
            for line, one in enumerate(combinations):
                one.estimator.resamples = resamples if place < intervals else 1
                found = one.estimator.estimate(window)
                off[line, place], holds[line, place] = found.value - truth, found.low <= truth <= found.high
        errors.append(off)
        covered.append(holds[:, :intervals].mean(axis=1) if intervals else np.full(len(combinations), np.nan))
    return {
        "cells": [list(cell) for cell, _ in windows],
        "truth": np.array([np.mean([right[rows].mean() for rows in drawn]) for _, drawn in windows]),
        "error": np.stack([np.abs(off).mean(axis=1) for off in errors], axis=1),
        "bias": np.stack([off.mean(axis=1) for off in errors], axis=1),
        "covered": np.stack(covered, axis=1),
    }
