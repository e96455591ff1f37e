"""Of companion images: how real they are, in the features of classifiers, and what ambiguity estimators say of them.

The Fréchet distance is taken in two spaces of features: of a classifier of all classes, which keeps the two classes
apart and finds whatever lies between them far away, and of one of all other classes, which knows such images but not
this boundary (only where there are other classes). The latter decides where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.images import ImageSet
from secondguess.metrics.confusion_distance import acd
from secondguess.metrics.giqa import published_giqa
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator
from secondguess.stress.ambiguous.feature_vectors import features as features_of
from secondguess.stress.ambiguous.feature_vectors import train_extractor
from secondguess.stress.ambiguous.realism_reference import kept_out, measure_realism, some_rows

__all__ = ["Spaces", "judgement", "of_classes", "unit"]

Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]
Pair = tuple[int, int]


class Spaces:
    """Real images of two classes in the spaces of features.

    Args:
        train: labelled images, of which the classifiers learn that see the features.
        test: labelled images that they have not seen.
        classes: the two.
        **training: options of `train_extractor`.
    """

    def __init__(self, train: ImageSet, test: ImageSet, classes: Pair, **training: Any) -> None:
        self.extractors = {"all": train_extractor(train, **training)}
        if left_out := kept_out(train, classes):
            self.extractors["others"] = train_extractor(train, leave_out=left_out, **training)
        images, _ = of_classes(test, classes)
        self.train, self.test = self.seen(of_classes(train, classes)[0]), self.seen(images)
        self._contrast = _contrast(images)

    @property
    def deciding(self) -> str:
        """The space by which generators are chosen."""
        return list(self.extractors)[-1]

    def seen(self, images: Pixels) -> dict[str, Floats]:
        """Features (n, d) of images (n, C, H, W) by the name of their space."""
        source = ImageSet.from_arrays(images, layout="NCHW")
        return {name: features_of(source, one) for name, one in self.extractors.items()}

    def features(self, images: Pixels) -> Floats:
        """Features (n, d) of images (n, C, H, W) in the space that decides."""
        return features_of(ImageSet.from_arrays(images, layout="NCHW"), self.extractors[self.deciding])

    def contrast(self, images: Pixels) -> float:
        """Contrast of images (n, C, H, W) over that of real ones: low for faint images."""
        return _contrast(images) / self._contrast

    def compare(self, seen: Mapping[str, Floats]) -> dict[str, dict[str, Any]]:
        """Distances of features from those of the training images, and the overlap, in every space."""
        return {name: measure_realism(self.train[name], values) for name, values in seen.items()}

    def giqa(self, seen: Mapping[str, Floats]) -> dict[str, float]:
        """Quality and diversity as published, in the space that decides."""
        real, generated = some_rows(self.train[self.deciding]), seen[self.deciding]
        quality, diversity = published_giqa(real, generated), published_giqa(generated, real)
        return {"quality": quality, "diversity": diversity}


def unit(pixels: NDArray[np.uint8]) -> Pixels:
    """Pixels of 0 to 255 in [0, 1]."""
    return pixels.astype(np.float32) / np.float32(255)


def of_classes(images: ImageSet, classes: Pair) -> tuple[Pixels, NDArray[np.int64]]:
    """The images (n, C, H, W) of two classes, and which of the two each is (n,)."""
    rows = np.flatnonzero(np.isin(images.labels, classes))
    return images.images[rows], (images.labels[rows] == classes[1]).astype(np.int64)


def judgement(estimator: AmbiguityEstimator, pixels: Pixels) -> dict[str, float]:
    """What one estimator says of images."""
    members, agreement = estimator.members(pixels), estimator.agreement(pixels)
    return {
        "acd": acd(members.mean(axis=0)),
        "acd_of_members": float(np.abs(members - 0.5).mean()),
        "variance": float(agreement.variance.mean()),
        "mutual_information": float(agreement.mutual_information.mean()),
    }


def _contrast(images: Pixels) -> float:
    """Mean over images (n, C, H, W) of the standard deviation of their pixels."""
    return float(images.reshape(len(images), -1).std(axis=1, dtype=np.float64).mean())
