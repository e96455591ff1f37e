from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def write_image(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Write a random image file and give its uint8 pixels (H, W) or (H, W, 3)."""

    def write(path: Path, shape: tuple[int, ...] = (6, 8, 3)) -> np.ndarray:
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return pixels

    return write
