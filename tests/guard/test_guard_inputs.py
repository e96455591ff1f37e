"""Whatever a program holds its images in, the same pixels are judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from secondguess import UserError
from secondguess.guard.inputs import as_images
from secondguess.images import ImageSet

GREY, COLOUR = (1, 6, 5), (3, 6, 5)


@pytest.fixture
def grey() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 6, 5), dtype=np.uint8)


@pytest.fixture
def colour() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def test_all_forms_of_grey_images_are_the_same(grey: np.ndarray) -> None:
    expected = (grey / np.float32(255))[:, None]
    forms = [
        grey,
        grey[:, None],
        grey[..., None],
        expected,
        expected.astype(np.float64),
        torch.from_numpy(expected),
        torch.from_numpy(expected).double().requires_grad_(),
        [Image.fromarray(one) for one in grey],
        list(grey),
        ImageSet.from_arrays(grey),
        ImageSet.from_arrays(grey).images,
    ]
    for form in forms:
        images = as_images(form, GREY)
        assert images.dtype == np.float32
        assert images == pytest.approx(expected, abs=1e-6)


def test_all_forms_of_colour_images_are_the_same(colour: np.ndarray) -> None:
    expected = np.moveaxis(colour / np.float32(255), 3, 1)
    for form in (colour, expected, torch.from_numpy(expected), [Image.fromarray(one) for one in colour]):
        assert as_images(form, COLOUR) == pytest.approx(expected, abs=1e-6)


def test_one_image_is_a_set_of_one(grey: np.ndarray, colour: np.ndarray) -> None:
    for form in (grey[0], grey[0][None], grey[0][..., None], Image.fromarray(grey[0])):
        assert as_images(form, GREY).shape == (1, *GREY)
    for form in (colour[0], colour[0].transpose(2, 0, 1), Image.fromarray(colour[0])):
        assert as_images(form, COLOUR).shape == (1, *COLOUR)
    assert as_images(np.zeros((3, 6, 5)), GREY).shape == (3, *GREY)  # three grey images for this guard
    assert as_images(np.zeros((3, 6, 5)), COLOUR).shape == (1, *COLOUR)  # one of colour for that one


def test_pictures_are_brought_to_the_shape(grey: np.ndarray) -> None:
    large = Image.fromarray(np.full((40, 30, 3), 255, dtype=np.uint8))
    assert as_images(large, GREY) == pytest.approx(np.ones((1, *GREY)))
    palette = Image.fromarray(grey[0]).convert("P")
    assert as_images(palette, COLOUR).shape == (1, *COLOUR)
    assert as_images(Image.new("CMYK", (5, 6)), COLOUR).shape == (1, *COLOUR)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 7, 5)), "shape \\(2, 7, 5\\) was given, but images of shape \\(1, 6, 5\\)"),
        (np.zeros((0, 6, 5)), "no images to judge"),
        (np.full((1, 6, 5), 2.0), "run from 2 to 2"),
        (np.full((1, 6, 5), np.nan), "must be finite"),
        (np.full((1, 1, 6, 5), -0.5, dtype=np.float32), "run from -0.5"),
        (np.zeros((1, 6, 5), dtype=np.int64), "type int64"),
        ("photo.png", "type"),
    ],
)
def test_what_cannot_be_judged_is_said(images, message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_images(images, GREY)
