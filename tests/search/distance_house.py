"""What the tests of adversarial distances stand on: a classifier whose boundary is known, and when results agree."""

from __future__ import annotations

import numpy as np

from secondguess.search.distance import Distances

NAMES = ["mae", "l2", "linf", "queries", "unusable", "failed", "counterexamples", "counterexample_predictions"]


class Linear:
    """A plane through grey images 1x8x8: the nearest point of the boundary is known. Counts what it is asked."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.w = rng.standard_normal(64)
        self.images = (0.3 + 0.4 * rng.random((17, 1, 8, 8))).astype(np.float32)
        self.b = -float(np.median(self.images.reshape(17, -1) @ self.w)) + 1e-3
        self.asked = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        assert images.min() >= 0
        assert images.max() <= 1
        self.asked += len(images)
        lead = images.reshape(len(images), -1).astype(np.float64) @ self.w + self.b
        return np.stack([-lead, lead], axis=1)

    @property
    def distances(self) -> np.ndarray:
        return np.abs(self.images.reshape(17, -1) @ self.w + self.b) / np.linalg.norm(self.w)


def assert_same(one: Distances, other: Distances) -> None:
    for name in NAMES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
