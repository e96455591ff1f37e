"""Image corruptions at the published parameters of MNIST-C and Fashion-MNIST-C, for grey and colour images of any size.

Sources: Mu and Gilmer, "MNIST-C" (2019); Weiss and Tonella, "Fashion-MNIST-C" (2022); both build on Hendrycks and
Dietterich, "ImageNet-C" (2019), whose definitions are taken where images are in colour. The random numbers are seeded
here; in the published sets they were not. Two corruptions of MNIST-C are left out because files define them, and no
formula: `pessimal_noise` needs a matrix learnt from one model, `frost` photographs.
"""

from __future__ import annotations

# Importing the families enters their corruptions into the table.
from secondguess.stress.corruptions import blur, digital, drawing, geometry, sensor, weather  # noqa: F401
from secondguess.stress.corruptions.registry import (
    CORRUPTIONS,
    Corruption,
    check_severity,
    corrupt,
    corruption,
    drawn,
    find,
    noise,
)

__all__ = [
    "COLOUR",
    "CORRUPTIONS",
    "FASHION_MNIST_C",
    "MNIST_C",
    "Corruption",
    "check_severity",
    "corrupt",
    "corruption",
    "drawn",
    "find",
    "noise",
]

_COMMON = ("shot_noise", "impulse_noise", "glass_blur", "motion_blur", "shear", "scale", "rotate", "brightness")

MNIST_C = (*_COMMON, "translate", "stripe", "fog", "spatter", "dotted_line", "zigzag", "canny_edges")
"""The fifteen of MNIST-C, in their published order."""

FASHION_MNIST_C = (
    *_COMMON, "contrast", "saturate", "inverse", "flip_sides", "flip_up_down", "turn_right", "turn_left",
)  # fmt: skip
"""The fifteen of Fashion-MNIST-C, in their published order; there, the last two are misnamed flips."""

COLOUR = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "fog", "spatter", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
"""Fifteen for colour images: those of ImageNet-C, with its `spatter` in place of `frost`."""
