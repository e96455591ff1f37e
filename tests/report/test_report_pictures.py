from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from secondguess.report import data_uri


def decoded(uri: str) -> Image.Image:
    kind, _, content = uri.partition(",")
    picture = Image.open(io.BytesIO(base64.b64decode(content, validate=True)))
    picture.load()
    assert kind == f"data:image/{str(picture.format).lower()};base64"
    return picture


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 5, 11), (3, 64, 32), (1, 1, 1)])
def test_every_pixel_comes_back(shape: tuple[int, int, int]) -> None:
    levels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    picture = decoded(data_uri(levels.astype(np.float32) / 255))
    assert picture.mode == ("L" if shape[0] == 1 else "RGB")
    seen = np.asarray(picture).reshape(*shape[1:], shape[0])
    np.testing.assert_array_equal(seen.transpose(2, 0, 1), levels)


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 300, 200), (107, 160)), ((1, 161, 161), (160, 160)), ((3, 100, 300), (160, 53))]
)
def test_large_pictures_shrink_and_keep_their_proportions(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    level = np.full(shape, 0.4, dtype=np.float32)
    picture = decoded(data_uri(level))
    assert picture.size == size
    assert picture.format == "JPEG"
    assert np.abs(np.asarray(picture, dtype=float) - 102).max() <= 2


def test_values_outside_the_range_are_clipped() -> None:
    picture = decoded(data_uri(np.array([[[-0.5, 0.0, 1.0, 1.5]]], dtype=np.float32)))
    assert np.asarray(picture).tolist() == [[0, 0, 255, 255]]


def test_the_same_picture_gives_the_same_text() -> None:
    image = np.random.default_rng(1).random((3, 20, 20), dtype=np.float32)
    assert data_uri(image) == data_uri(image.copy())
