"""Images inside the page: data URIs of PNG for tiny images, whose pixels stay visible, and of JPEG for photographs."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

__all__ = ["data_uri"]

LARGEST = 160  # pixels on the longer side; a gallery of photographs must not make the report heavy
TINY = 64  # up to this size an image is shown pixel by pixel


def data_uri(image: NDArray[np.float32]) -> str:
    """An image (C, H, W) in [0, 1], with one or three channels, as `data:image/png;base64,...` or `image/jpeg`."""
    from PIL import Image

    levels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(levels[0] if len(levels) == 1 else np.moveaxis(levels[:3], 0, -1))
    kind, options = ("png", {"optimize": True}) if max(picture.size) <= TINY else ("jpeg", {"quality": 85})
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    picture.save(buffer, kind.upper(), **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
