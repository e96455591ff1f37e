from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import ImageSet, conform


def colour(rng: np.random.Generator, height: int = 20, width: int = 30) -> ImageSet:
    return ImageSet.from_arrays(rng.integers(0, 256, (5, height, width, 3), dtype=np.uint8), [0, 1, 0, 1, -1])


def test_a_set_that_fits_is_returned_itself(rng: np.random.Generator) -> None:
    image_set = colour(rng)
    assert conform(image_set, (3, 20, 30)) is image_set


def test_stretch_equals_pillow_on_8_bits_up_to_its_rounding(rng: np.random.Generator) -> None:
    image_set = colour(rng)
    got = conform(image_set, (3, 9, 13)).materialise()
    for image, result in zip(image_set.materialise(), got, strict=True):
        picture = Image.fromarray(np.rint(image * 255).astype(np.uint8).transpose(1, 2, 0))
        expected = np.asarray(picture.resize((13, 9), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.abs(result * 255 - expected).max() <= 1.01


def test_grey_and_colour_change_into_each_other_as_in_pillow(rng: np.random.Generator) -> None:
    image_set = colour(rng)
    grey = conform(image_set, (1, 20, 30))
    for image, result in zip(image_set.materialise(), grey.materialise(), strict=True):
        picture = Image.fromarray(np.rint(image * 255).astype(np.uint8).transpose(1, 2, 0))
        assert np.abs(result[0] * 255 - np.asarray(picture.convert("L"))).max() <= 1.0
    back = conform(grey, (3, 20, 30)).materialise()
    for channel in range(3):
        np.testing.assert_array_equal(back[:, channel], grey.materialise()[:, 0])


def test_crop_keeps_the_centre_and_pad_adds_black(rng: np.random.Generator) -> None:
    image_set = colour(rng, 20, 30)
    pixels = image_set.materialise()
    np.testing.assert_array_equal(conform(image_set, (3, 20, 20), resize="crop").materialise(), pixels[..., 5:25])
    padded = conform(image_set, (3, 30, 30), resize="pad").materialise()
    np.testing.assert_array_equal(padded[:, :, 5:25], pixels)
    assert not padded[:, :, :5].any()
    assert not padded[:, :, 25:].any()
    shrunk = conform(image_set, (3, 10, 10), resize="pad").materialise()
    np.testing.assert_array_equal(shrunk[:, :, 1:8], conform(image_set, (3, 7, 10)).materialise())
    assert not shrunk[:, :, [0, 8, 9]].any()


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("shape", [(1, 7, 40), (3, 64, 5), (3, 1, 1)])
def test_results_stay_in_range_and_do_not_depend_on_the_batch(
    rng: np.random.Generator, fit: str, shape: tuple[int, int, int]
) -> None:
    image_set = conform(colour(rng), shape, resize=fit)  # type: ignore[arg-type]
    everything = image_set.materialise()
    assert everything.shape == (5, *shape)
    assert everything.dtype == np.float32
    assert everything.min() >= 0
    assert everything.max() <= 1
    np.testing.assert_array_equal(np.concatenate([images for images, _ in image_set.batches(2)]), everything)
    np.testing.assert_array_equal(image_set.images[3], everything[3])
    assert image_set.labels.tolist() == [0, 1, 0, 1, -1]


def test_a_constant_image_stays_constant() -> None:
    image_set = ImageSet.from_arrays(np.full((1, 9, 9, 3), 51, np.uint8))
    np.testing.assert_allclose(conform(image_set, (1, 4, 17)).materialise(), 0.2, atol=1e-6)


def test_impossible_wishes_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(UserError, match="resizing 'squash' is not known; use one of stretch, crop, pad"):
        conform(colour(rng), (3, 4, 4), resize="squash")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="must be at least 1"):
        conform(colour(rng), (3, 0, 4))
    four = ImageSet.from_arrays(np.zeros((2, 4, 8, 8), np.uint8), layout="NCHW")
    with pytest.raises(UserError, match="4 channels cannot be turned into images with 3"):
        conform(four, (3, 8, 8))
