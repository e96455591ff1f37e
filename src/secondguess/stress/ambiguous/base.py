"""What every generator of ambiguous images shares: its result, with soft labels, provenance and a card."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.images.sources import ArraySource, ImageSource, ViewSource
from secondguess.progress import Progress
from secondguess.stress.base import Given, StressSet
from secondguess.stress.saving import save_stress_set

__all__ = [
    "AmbiguousGenerator",
    "AmbiguousImages",
    "Candidates",
    "LatentPicture",
    "ambiguous_set",
    "assemble",
    "water_fill",
]


@dataclass(frozen=True)
class Candidates:
    """Ambiguous images before they become a set.

    Attributes:
        images: uint8 (n, C, H, W).
        pair: int64 (n, 2), the two classes.
        p1: float64 (n,), the probability of the first one.
        origin: further columns (n,) that say where each image comes from.
    """

    images: NDArray[np.uint8]
    pair: NDArray[np.int64]
    p1: NDArray[np.float64]
    origin: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[np.int64]) -> Candidates:
        """Some of them."""
        origin = {name: values[rows] for name, values in self.origin.items()}
        return Candidates(self.images[rows], self.pair[rows], self.p1[rows], origin)

    @classmethod
    def concatenate(cls, parts: list[Candidates]) -> Candidates:
        """All of them; at least one part."""
        return cls(
            np.concatenate([part.images for part in parts]),
            np.concatenate([part.pair for part in parts]),
            np.concatenate([part.p1 for part in parts]),
            {name: np.concatenate([part.origin[name] for part in parts]) for name in parts[0].origin},
        )


@dataclass(frozen=True)
class LatentPicture:
    """One autoencoder's latent plane, for a picture.

    Attributes:
        pair: the names of its two classes.
        z: (n, 2) where the training images lie.
        which: (n,) 0 or 1, their class.
        weights: (S, S) of the cells of the confined latent space, i along x and j along y.
        bounds: (left, right, bottom, top) of that space.
        drawn: (m, 2) where the accepted images of this autoencoder lie.
    """

    pair: tuple[str, str]
    z: NDArray[np.float64]
    which: NDArray[np.int64]
    weights: NDArray[np.float64]
    bounds: tuple[float, float, float, float]
    drawn: NDArray[np.float64]


@dataclass(frozen=True)
class AmbiguousImages:
    """Ambiguous images and the card that describes them.

    Attributes:
        images: with soft labels, hard labels drawn from them, and provenance in `columns`.
        card: JSON-able: settings, counts for each pair, label entropy, acceptance rates, realism.
        latent: a picture of one autoencoder, if the generator has any.
    """

    images: ImageSet
    card: dict[str, Any]
    latent: LatentPicture | None = None

    def save(self, folder: str | Path) -> Path:
        """Write `images.npz`, `images.parquet` (where pyarrow is installed), `card.json` and `sheet.png`."""
        return save_stress_set(self.images, self.card, folder, by=("class_1", "class_2"))


class AmbiguousGenerator(StressSet):
    """A stress set of ambiguous images, made from training images."""

    kind = "ambiguous"
    last: AmbiguousImages | None = None  # what `make` made last, with its card

    @abstractmethod
    def generate(
        self, train: ImageSet, count: int, *, seed: int = 0, progress: Progress | None = None
    ) -> AmbiguousImages:
        """Make `count` images between the classes of `train`, with their card."""

    def _configured(self, given: Given) -> AmbiguousGenerator:
        """This generator with the device and the folder of the run, where it has none of its own."""
        worker = copy.copy(self)
        if getattr(worker, "device", None) == "auto":
            worker.device = given.device  # type: ignore[attr-defined]
        if getattr(worker, "folder", "none of its own") is None:
            worker.folder = given.generator  # type: ignore[attr-defined]
        return worker

    def _make(self, given: Given) -> ImageSet:
        if given.train is None or not given.train.is_labelled:
            raise UserError(
                "Ambiguous images are made between the classes of labelled training images; give them with --train."
            )
        worker = self._configured(given)
        self.last = worker.generate(given.train, len(given.nominal), seed=given.seed, progress=given.progress)
        return self.last.images


def assemble(train: ImageSet, chosen: Candidates, *, name: str, seed: int) -> ImageSet:
    """Shuffle candidates into a set with soft labels and with hard labels drawn from them."""
    rng = np.random.default_rng([seed, len(chosen)])
    order = rng.permutation(len(chosen))
    pair, p1, rows = chosen.pair[order], chosen.p1[order], np.arange(len(chosen))
    soft = np.zeros((len(chosen), train.num_classes))
    soft[rows, pair[:, 0]] = p1
    soft[rows, pair[:, 1]] = 1.0 - p1
    hard = np.where(rng.random(len(chosen)) < p1, pair[:, 0], pair[:, 1])
    origin = {key: np.asarray(values)[order] for key, values in chosen.origin.items()}
    # A view: the images themselves may be many, and stay where they are.
    images = ViewSource(ArraySource(chosen.images, "NCHW"), order)
    return ambiguous_set(train, images, hard, soft, {"class_1": pair[:, 0], "class_2": pair[:, 1], **origin}, name)


def ambiguous_set(
    train: ImageSet,
    images: NDArray[Any] | ImageSource,
    hard: NDArray[np.int64],
    soft: NDArray[np.float64],
    columns: Mapping[str, NDArray[Any]],
    name: str,
) -> ImageSet:
    """Ambiguous images as a set.

    Args:
        train: the images whose classes they lie between.
        images: (n, C, H, W).
        hard: (n,) labels drawn from the soft ones.
        soft: (n, K) labels.
        columns: where each image comes from.
        name: of the generator.
    """
    return ImageSet.from_source(
        ArraySource(images, "NCHW") if isinstance(images, np.ndarray) else images,
        hard,
        class_names=train.class_names,
        soft_labels=soft,
        name=f"{name} between classes of {train.name}",
        is_ambiguous=np.ones(len(images), dtype=bool),
        columns=dict(columns),
    )


def water_fill(available: Mapping[Any, int], count: int) -> dict[Any, int]:
    """Share `count` places as equally as the supply allows: no entry gets more than is available."""
    shares = dict.fromkeys(available, 0)
    left = min(count, sum(available.values()))
    while left > 0:
        open_ones = [key for key in available if shares[key] < available[key]]
        each = max(1, left // len(open_ones))
        for key in open_ones:
            more = min(each, available[key] - shares[key], left)
            shares[key] += more
            left -= more
    return shares
