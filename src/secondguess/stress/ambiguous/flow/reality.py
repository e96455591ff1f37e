"""Whether composed images are as real as plain samples of the same generator, and how near they are to training images.

A composition may be less real than real images and yet as good as the generator can do; so it is compared with plain
samples at the same guidance. The features come from a network that knows no class at all: it has learnt to tell which
way up images are. A classifier's features would put whatever lies between two classes far from both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.images import ImageSet
from secondguess.metrics.realism import kernel_distance_interval
from secondguess.progress import Progress
from secondguess.stress.ambiguous.feature_vectors import features, train_extractor

__all__ = ["Reality", "nearest_distances"]

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
LEARNT, COMPARED = 4000, 2000  # images
QUANTILE, NEIGHBOURS = 0.95, 5
COPIED = 0.01  # of the real images lie nearer to a training image than this quantile


class Reality:
    """Distances to real images in features of a network that knows no class.

    Args:
        train: real images.
        plain: plain samples of the generator, uint8 (m, C, H, W).
        seed: of the network and of the subsample.
        device: where to compute.
        progress: where to report.
    """

    def __init__(
        self, train: ImageSet, plain: Bytes, *, seed: int = 0, device: str = "auto", progress: Progress | None = None
    ) -> None:
        rows = np.random.default_rng(seed).permutation(len(train))
        self._extractor = train_extractor(
            _turned(train.images[rows[:LEARNT]]), seed=seed, device=device, progress=progress
        )
        self.real = self._features(np.rint(train.images[rows[:COMPARED]] * 255).astype(np.uint8))
        self.plain = self._features(plain)
        self.threshold = float(np.quantile(self._distances(self.plain), QUANTILE))

    def accepts(self, images: Bytes) -> NDArray[np.bool_]:
        """Which images (n,) are as near to real ones as 95 % of the plain samples are."""
        return np.asarray(self._distances(self._features(images)) <= self.threshold)

    def measure(self, images: Bytes) -> dict[str, Any]:
        """Kernel distances to real images, of these and of plain samples, with their bounds; and their ratio.

        The ratio is None where the features cannot tell plain samples from real images: it would be one of noise.
        """
        own, plain = (kernel_distance_interval(self.real, one) for one in (self._features(images), self.plain))
        ratio = own.value / plain.value if plain.low > 0 else None
        return {
            "kernel": [own.value, own.low, own.high],
            "kernel_of_plain_samples": [plain.value, plain.low, plain.high],
            "ratio": ratio,
        }

    def _features(self, images: Bytes) -> Floats:
        return features(ImageSet.from_arrays(images, layout="NCHW"), self._extractor)

    def _distances(self, rows: Floats) -> Floats:
        """Mean distance (n,) to the nearest real images."""
        return _nearest(rows, self.real, min(NEIGHBOURS, len(self.real))).mean(axis=1)


def nearest_distances(images: Bytes, train: ImageSet, *, most: int = 20000, seed: int = 0) -> Floats:
    """Root mean square distance (n,) of pixels, in [0, 1], to the nearest of (at most `most`) training images."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(train))[:most])
    real = train.images[rows].reshape(len(rows), -1)
    flat = images.reshape(len(images), -1) / np.float32(255)
    return _nearest(flat, real, 1)[:, 0] / np.sqrt(flat.shape[1])


def _nearest(rows: NDArray[Any], real: NDArray[Any], count: int) -> Floats:
    squares = np.square(real).sum(axis=1)
    found = []
    for block in np.array_split(rows, -(-len(rows) // 1000)):
        table = squares - 2 * block @ real.T + np.square(block).sum(axis=1, keepdims=True)
        found.append(np.sqrt(np.maximum(np.partition(table, count - 1, axis=1)[:, :count], 0)))
    return np.concatenate(found).astype(np.float64)


def _turned(images: NDArray[np.float32]) -> ImageSet:
    """Each image in one of four positions, which is its label: quarter turns, or reflections where it is not square."""
    square = images.shape[2] == images.shape[3]
    which = np.arange(len(images)) % 4
    turned = [
        np.rot90(image, turn, axes=(1, 2)) if square else image[:, :: -1 if turn & 1 else 1, :: -1 if turn & 2 else 1]
        for image, turn in zip(images, which.tolist(), strict=True)
    ]
    return ImageSet.from_arrays(np.stack(turned), which, name="turned images", layout="NCHW")
