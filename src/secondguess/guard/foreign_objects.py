"""Objects of no class: a texture or photograph cut out in a random shape, on the background of the nominal images.

Invalid inputs in operation are rarely textures from edge to edge. They are other objects, taken with the same camera
before the same background, which the three generated kinds of invalid images do not contain. With z smooth normal noise
of unit variance, and (u, v) the position from -1 to 1 on each axis, the shape is where

    z(u, v) - 2 (u^2 / a + v^2 / b)

is among its largest values, .15 to .6 of all; a and b are drawn from .5 to 1.3 and the width of the noise from a
twentieth to a sixth of the image. It is filled with a texture or a patch of a photograph, in turns. The background is
the median of the border pixels.

A panel fitted on photographs, textures and shuffled images alone may take images of another data set for
adversarial ones. Foreign objects take the place of every other of these images; that share was chosen on Fashion-MNIST
as invalid images for a classifier of MNIST, so results on that pair are not independent of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.stress import Invalid
from secondguess.stress.generated import GeneratedSource
from secondguess.stress.textures import TEXTURES, texture

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["foreign_objects"]

Floats = NDArray[np.float32]
SAMPLED = 200  # nominal images, for the background


def foreign_objects(nominal: ImageSet, *, seed: int) -> ImageSet:
    """As many objects of no class as there are nominal images, in their shape."""
    from secondguess.images import ImageSet

    photos = Invalid("embedded:photos").make(nominal, seed=seed).images
    background = _background(nominal.head(SAMPLED, seed=seed).materialise())

    def make(positions: NDArray[np.int64]) -> Floats:
        fillings = photos[positions % len(photos)]
        return np.stack([one(int(place), filling) for place, filling in zip(positions, fillings, strict=True)])

    def one(place: int, photo: Floats) -> Floats:
        rng = np.random.default_rng([seed, place])
        inside = _shape(nominal.shape[1], nominal.shape[2], rng)
        names = list(TEXTURES)
        filling = photo if place % 2 else texture(names[place // 2 % len(names)], nominal.shape, rng)
        return (inside * filling + (1 - inside) * background[:, None, None]).astype(np.float32).clip(0, 1)

    return ImageSet.from_source(
        GeneratedSource(len(nominal), nominal.shape, make),
        np.full(len(nominal), -1, dtype=np.int64),
        class_names=nominal.class_names,
        columns={"source": np.full(len(nominal), "foreign_objects")},
    )


def _shape(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How far each pixel (H, W) is inside, from 0 to 1."""
    from scipy.ndimage import gaussian_filter

    longest = max(height, width)
    field = gaussian_filter(
        rng.normal(size=(height, width)), longest * np.exp(rng.uniform(np.log(1 / 20), np.log(1 / 6)))
    )
    u, v = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
    field = field / max(float(field.std()), 1e-9) - 2 * (u**2 / rng.uniform(0.5, 1.3) + v**2 / rng.uniform(0.5, 1.3))
    inside = field > np.quantile(field, 1 - rng.uniform(0.15, 0.6))
    return np.asarray(gaussian_filter(inside.astype(np.float64), 0.5))


def _background(images: Floats) -> Floats:
    """The median (C,) of the border pixels of images (n, C, H, W)."""
    border = np.concatenate([images[:, :, 0], images[:, :, -1], images[:, :, :, 0], images[:, :, :, -1]], axis=2)
    return np.asarray(np.median(border, axis=(0, 2)), dtype=np.float32)
