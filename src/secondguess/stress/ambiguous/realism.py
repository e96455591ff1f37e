"""Could a person call this image either class? A check beyond the paper, calibrated on held-out real images.

An autoencoder's images between two clusters are not all ambiguous to the eye: some are plainly one of the two, some are
overlays of both. An image passes

* if it lies as close to real images of *both* classes as held-out real images lie to their own class: its mean distance
  to the nearest real images of a class must not exceed the 95 % quantile of that distance for held-out images of the
  class. Most plain images of one class are too far from the other, and so are most of the overlays that autoencoders
  make;
* if it is not plainly one of the two: the ratio of its two distances must be less one-sided than that of 90 % of the
  held-out images of either class (where the held-out images themselves overlap so much that no ratio is left between
  the two bounds, no image is plain, and this rule does not apply);
* and if it is not blurrier than 95 % of the autoencoder's own reconstructions of real images, which is what this
  autoencoder can do when nothing is ambiguous.

It is no detector of double exposures in general: an average of two real images is close to everything, and half of the
pixel blends of two digits pass (`docs/evidence/ambiguity_baselines.md`).

Distances are Euclidean between images of unit length, in the space of the first principal components of the training
images; a fainter copy of an image is thus as close as the image itself. The model under test plays no part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.images import ImageSet
from secondguess.images.coarse import coarse, coarse_rows

__all__ = ["Realism", "sharpness"]

Floats = NDArray[np.float32]
REFERENCE, HELD_OUT = 2000, 500  # images per class, at most
BLOCK = 4096


class Realism:
    """Distances to the real images of each class, with thresholds from held-out ones.

    Args:
        train: labelled images; a part of them is held out for the calibration.
        quantile: of the held-out images that would pass for their own class.
        plain: share of the held-out images of a class that count as plainly this class, by the ratio of distances.
        components: principal components.
        neighbours: how many nearest real images the distance is averaged over.
        seed: of the split.
    """

    def __init__(
        self,
        train: ImageSet,
        *,
        quantile: float = 0.95,
        plain: float = 0.9,
        components: int = 50,
        neighbours: int = 3,
        seed: int = 0,
    ) -> None:
        from sklearn.decomposition import PCA

        rng = np.random.default_rng(seed)
        reference, held_out = {}, {}
        for label in np.unique(train.labels[train.labels >= 0]):
            rows = rng.permutation(np.flatnonzero(train.labels == label))
            cut = min(HELD_OUT, max(1, len(rows) // 5))
            rest = rows[cut : cut + REFERENCE] if len(rows) > 1 else rows
            held_out[int(label)] = _unit(coarse_rows(train.images, np.sort(rows[:cut])))
            reference[int(label)] = _unit(coarse_rows(train.images, np.sort(rest)))
        everything = np.concatenate([*reference.values()])
        solver = "randomized" if components < min(everything.shape) else "full"
        self._pca = PCA(min(components, *everything.shape), svd_solver=solver, random_state=seed).fit(everything)
        self._neighbours, self._plain = neighbours, plain
        self._reference = {label: self._pca.transform(images) for label, images in reference.items()}
        self._held_out = held_out
        self._bounds: dict[tuple[int, int], tuple[float, float]] = {}
        self.thresholds = {
            label: max(1e-6, float(np.quantile(self._distance(label, images), quantile)))
            for label, images in held_out.items()
        }

    def distance(self, images: Floats, label: int) -> NDArray[np.float64]:
        """Mean distance (n,) of images (n, C, H, W) to the nearest images of a class, in units of its threshold."""
        return self._distance(label, _unit(coarse(images))) / self.thresholds[label]

    def plausible(self, images: Floats, pair: tuple[int, int]) -> NDArray[np.bool_]:
        """Which images (n,) could be either class."""
        first, second = self.distance(images, pair[0]), self.distance(images, pair[1])
        low, high = self.bounds(pair)
        side = _side(first, second)
        return (np.maximum(first, second) <= 1.0) & (low <= side) & (side <= high)

    def bounds(self, pair: tuple[int, int]) -> tuple[float, float]:
        """Between which values of log(distance to the first / to the second class) an image is plainly neither."""
        if pair not in self._bounds:
            sides = [
                _side(*(self._distance(label, self._held_out[own]) / self.thresholds[label] for label in pair))
                for own in pair
            ]
            low, high = np.quantile(sides[0], self._plain), np.quantile(sides[1], 1 - self._plain)
            self._bounds[pair] = (float(low), float(high)) if low < high else (-np.inf, np.inf)
        return self._bounds[pair]

    def _distance(self, label: int, unit: Floats) -> NDArray[np.float64]:
        points, reference = self._pca.transform(unit), self._reference[label]
        near = min(self._neighbours, len(reference))
        squares = np.square(reference).sum(axis=1)
        result = np.empty(len(points))
        for start in range(0, len(points), BLOCK):  # one matrix product per block
            rows = points[start : start + BLOCK]
            table = squares - 2 * rows @ reference.T
            nearest = np.partition(table, near - 1, axis=1)[:, :near] + np.square(rows).sum(axis=1, keepdims=True)
            result[start : start + BLOCK] = np.sqrt(np.maximum(nearest, 0)).mean(axis=1)
        return result


def _side(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Negative where an image is nearer to the first class, positive where it is nearer to the second."""
    tiny = 1e-12
    return np.log(np.maximum(first, tiny)) - np.log(np.maximum(second, tiny))


def sharpness(images: Floats) -> NDArray[np.float64]:
    """Length of the image gradient over length of the image (n,): small for blurred images, whatever their contrast."""
    across, down = np.diff(images, axis=3), np.diff(images, axis=2)
    slope = np.square(across).sum(axis=(1, 2, 3)) + np.square(down).sum(axis=(1, 2, 3))
    return np.sqrt(slope / np.maximum(np.square(images).sum(axis=(1, 2, 3)), 1e-12))


def _unit(flat: Floats) -> Floats:
    """Rows (n, d) of length 1."""
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
