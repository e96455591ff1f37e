"""Images in the format of a browser, read by one thread at a time."""

from __future__ import annotations

import io
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["Album", "png"]


class Album:
    """The images of a source for several threads: readers of encoded images cache some of them and are not thread-safe.

    Args:
        images: n images.
    """

    def __init__(self, images: ImageSource) -> None:
        self._images, self._turn = images, Lock()

    def __len__(self) -> int:
        """The number of images n."""
        return len(self._images)

    def __getitem__(self, image: int) -> NDArray[np.float32]:
        """The image (C, H, W) at a position."""
        with self._turn:
            return self._images[image]


def png(image: NDArray[np.float32]) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG of its own size; of more than three channels the first three are shown."""
    from PIL import Image

    levels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(levels[0] if len(levels) < 3 else np.moveaxis(levels[:3], 0, -1))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)  # it does not leave this machine
    return buffer.getvalue()
