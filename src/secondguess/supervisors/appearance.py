"""Mahalanobis distance of how an image looks: noise, sharpness, colour, frequencies.

    score(x) = sqrt( (f(x) - m)' S^-1 (f(x) - m) )

with f the features of `pixel_features`, and m and S their mean and covariance over the training images, at most 5,000.
The distance is that of Mahalanobis (1936); sharpness, noise and spectrum as signs of a spoilt image are those of
image quality assessment without a reference, where NIQE (Mittal, Soundararajan and Bovik, IEEE Signal Processing
Letters 2013) measures such a distance between natural scene statistics. Departures: features of the whole image in
place of those of patches, colour and JPEG blocks among them, and one Gaussian of the training images alone, so that
what is usual for these images is usual here.

Directions in which the training images do not differ, such as the colour of grey ones, are left out.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.pixel_features import features, features_of, rings
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._whitening import Rows, whiten

if TYPE_CHECKING:
    import torch

    from secondguess.images import ImageSource
    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["Appearance"]

Floats = NDArray[np.float64]

MOST = 5000  # training images, evenly spaced: 18 numbers have a mean and a covariance that more would hardly change
RTOL = 1e-6  # of the largest variance: what is below is a rule that all images obey, up to rounding


@register
class Appearance(Supervisor):
    """Suspicious = noise, sharpness, colours or frequencies unlike those of the training images.

    sqrt((f - m)' S^-1 (f - m)) with f the 18 features of `pixel_features`. It uses the pixels only, never the
    classifier. Cost: a sort and a Fourier transform per image; nothing is kept of the training images but m and S.

    Good at: corrupted images, and invalid ones that are made or taken otherwise, however sure the classifier is. Says
    nothing about: mistakes on ordinary images, ambiguous ones, and attacks too faint to be seen. A spoilt image that is
    answered rightly scores as high as one that is not.

    Attributes:
        shape_: (C, H, W) of the images.
        mean_: (18,) m.
        factor_: (18, r), with which (f - m) @ factor has covariance one.
    """

    name = "appearance"
    family: ClassVar[str] = "baseline"

    @property
    def needs(self) -> Needs:
        """The images."""
        return Needs(images=True)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        images = _pixels(observation)
        rows = np.linspace(0, len(images) - 1, min(len(images), MOST)).round().astype(np.int64)
        whitening = whiten(Rows(features_of(images, rows)), rtol=RTOL)
        if whitening.rank == 0:
            warnings.warn(
                "The training images all look the same, so the distance in appearance is 0 for every image; fit it on "
                "more images.",
                stacklevel=3,
            )
        self.shape_ = list(images.shape)
        self.mean_, self.factor_ = whitening.mean, whitening.factor

    def _score(self, observation: Observation) -> Floats:
        images = _pixels(observation)
        if list(images.shape) != list(self.shape_):
            raise UserError(
                f"The appearance of images of shape {tuple(self.shape_)} was learnt, but these are "
                f"{tuple(images.shape)} (channels, height, width); load them alike."
            )
        return np.asarray(np.linalg.norm((features_of(images) - self.mean_) @ self.factor_, axis=1))

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import Graph

        tensors = _tensors(self.shape_[1], self.shape_[2])

        def distances(seen: Tensors, mean: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            assert seen.images is not None  # needed
            found = features(seen.images.double(), tensors)
            return ((found - mean) @ factor).square().sum(1).sqrt()

        return Graph(distances, mean=self.mean_, factor=self.factor_)


def _pixels(observation: Observation) -> ImageSource:
    assert observation.pixels is not None  # checked against `needs`
    return observation.pixels


def _tensors(height: int, width: int) -> Any:
    """The twin of `pixel_features.Arrays` for tensors of grey images (n, H, W), as ONNX can express it."""
    import torch

    # A Fourier transform as two matrix products: of the operations of ONNX, few runtimes have its own.
    down = 2 * np.pi * np.outer(np.arange(height), np.arange(height)) / height
    along = 2 * np.pi * np.outer(np.arange(width), np.arange(width // 2 + 1)) / width
    rows, columns = (np.stack([np.cos(one), np.sin(one)]) for one in (down, along))
    constants = [torch.from_numpy(one) for one in (rows, columns, rings(height, width))]

    class Twin:
        log, round = torch.log, torch.round

        @staticmethod
        def where(condition: torch.Tensor, first: float, second: float) -> torch.Tensor:
            return torch.where(condition, first, second).double()

        @staticmethod
        def stack(parts: list[torch.Tensor]) -> torch.Tensor:
            return torch.stack(parts, dim=1)

        @staticmethod
        def median(values: torch.Tensor) -> torch.Tensor:
            count = values.shape[1]
            ordered = values.sort(dim=1).values
            return (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2

        @staticmethod
        def in_rings(grey: torch.Tensor) -> torch.Tensor:
            (cos_down, sin_down), (cos_along, sin_along), inside = constants
            real, imaginary = grey @ cos_along, grey @ sin_along
            first = cos_down @ real - sin_down @ imaginary
            second = sin_down @ real + cos_down @ imaginary
            return (first.square() + second.square()).flatten(1) @ inside

    return Twin
