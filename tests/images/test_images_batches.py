"""Whatever a program holds its images in, everybody reads the same pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from secondguess import Classifier, UserError
from secondguess.images import ImageSet, as_batch, as_source, read
from secondguess.images.decode import decode

GREY, COLOUR = (1, 6, 5), (3, 6, 5)


@pytest.fixture
def grey() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 6, 5), dtype=np.uint8)


@pytest.fixture
def colour() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("shape", [GREY, None])
def test_all_forms_of_grey_images_are_the_same(grey: np.ndarray, shape) -> None:
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
        [png(Image.fromarray(one)) for one in grey],
        list(grey),
        list(grey[:, None]),
        [grey[:2, None], grey[2:, None]],
        expected.tolist(),
        ImageSet.from_arrays(grey),
        ImageSet.from_arrays(grey).images,
    ]
    for form in forms:
        images = as_batch(form, shape)
        assert images.dtype == np.float32
        assert images == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [COLOUR, None])
def test_all_forms_of_colour_images_are_the_same(colour: np.ndarray, shape) -> None:
    expected = np.moveaxis(colour / np.float32(255), 3, 1)
    pictures = [Image.fromarray(one) for one in colour]
    for form in (colour, expected, torch.from_numpy(expected), pictures, list(colour), list(expected)):
        assert as_batch(form, shape) == pytest.approx(expected, abs=1e-6)


def test_one_image_is_a_set_of_one(grey: np.ndarray, colour: np.ndarray, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.fromarray(grey[0]).save(file)
    for form in (grey[0], grey[0][None], grey[0][..., None], Image.fromarray(grey[0]), file, str(file)):
        assert as_batch(form, GREY).shape == (1, *GREY)
    for form in (colour[0], colour[0].transpose(2, 0, 1), Image.fromarray(colour[0]), file.read_bytes()):
        assert as_batch(form, COLOUR).shape == (1, *COLOUR)
    for form in (grey[0], grey[0][None], Image.fromarray(grey[0]), file):
        assert as_batch(form).shape == (1, *GREY)
    assert as_batch(np.zeros((3, 6, 5)), GREY).shape == (3, *GREY)  # three images to a model of grey ones
    assert as_batch(np.zeros((3, 6, 5)), COLOUR).shape == (1, *COLOUR)  # one to a model of colour ones


@pytest.mark.parametrize("shape", [(3, 6, 5), (6, 5, 3), (6, 5, 1)])
def test_what_may_be_one_image_or_several_is_refused(shape) -> None:
    array = np.zeros(shape, np.float32)
    with pytest.raises(UserError, match=rf"may be one image or {shape[0]} grey ones; give four axes"):
        as_batch(array)
    with pytest.raises(UserError, match="may be one image"):
        Classifier(lambda x: np.tile([0.5, 0.5], (len(x), 1))).observe(array)


def test_the_classifier_reads_what_everybody_reads(grey: np.ndarray) -> None:
    def mean(images: np.ndarray) -> np.ndarray:
        brightness = images.mean(axis=(1, 2, 3), dtype=np.float64)
        return np.stack([brightness, 1 - brightness], axis=1)

    classifier = Classifier(mean, input_shape=GREY)
    expected = classifier.predict(ImageSet.from_arrays(grey))
    for form in (grey, [Image.fromarray(one) for one in grey], list(grey), torch.from_numpy(grey)):
        assert classifier.predict(form) == pytest.approx(expected, abs=1e-7)
    assert classifier.predict(Image.fromarray(grey[1])) == pytest.approx(expected[1:2], abs=1e-7)
    with classifier.session() as session:
        assert session.observe(Image.fromarray(grey[1])).probabilities == pytest.approx(expected[1:2], abs=1e-7)


def test_a_source_is_not_copied(grey: np.ndarray) -> None:
    source = ImageSet.from_arrays(grey).images
    assert as_source(source) is source
    assert as_source(ImageSet.from_source(source), GREY) is source
    ready = as_batch(grey, GREY)
    assert as_batch(ready, GREY) is ready


def test_pictures_are_brought_to_the_shape(grey: np.ndarray) -> None:
    large = Image.fromarray(np.full((40, 30, 3), 255, dtype=np.uint8))
    assert as_batch(large, GREY) == pytest.approx(np.ones((1, *GREY)))
    assert as_batch(large).shape == (1, 3, 40, 30)
    assert as_batch([large, Image.fromarray(grey[0])], GREY).shape == (2, *GREY)
    with pytest.raises(UserError, match=r"differ in shape \(\(1, 6, 5\) and \(3, 40, 30\)"):
        as_batch([large, Image.fromarray(grey[0])])
    wide = Image.new("L", (20, 6), 255)
    assert read(wide, GREY, "pad")[0, 0].max() == 0 and read(wide, GREY, "stretch").min() == 1
    with pytest.raises(UserError, match="'squeeze' is not known"):
        read(wide, GREY, "squeeze")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_a_picture_is_read_as_its_file_is(mode: str, colour: np.ndarray) -> None:
    base = Image.fromarray(colour[0])
    picture = base.convert("L").convert(mode) if mode == "I;16" else base.convert(mode)
    kept = picture if mode not in ("CMYK", "YCbCr", "HSV") else picture.convert("RGB")
    np.testing.assert_array_equal(read(picture), decode(png(kept), "the file"))


def test_a_picture_is_turned_as_its_header_says(grey: np.ndarray) -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(grey[0]).save(file, "PNG", exif=exif)
    turned = read(Image.open(file))
    assert turned.shape == (1, 5, 6)
    np.testing.assert_array_equal(turned, read(file.getvalue()))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 7, 5)), r"takes images of shape \(1, 6, 5\) .*, but an array of shape \(2, 7, 5\) was given"),
        (ImageSet.from_arrays(np.zeros((2, 7, 5))), r"but these are \(1, 7, 5\)"),
        (np.zeros((0, 6, 5)), "is empty"),
        (np.zeros((0, 1, 6, 5), np.float32), "set is empty"),
        ([], "list is empty"),
        (np.full((1, 6, 5), 2.0), "run from 2 to 2"),
        (np.full((1, 6, 5), np.nan), "NaN or infinity"),
        (np.full((1, 1, 6, 5), np.inf, dtype=np.float32), "NaN or infinity"),
        (np.full((1, 1, 6, 5), -0.5, dtype=np.float32), "run from -0.5"),
        (np.zeros((1, 6, 5), dtype=np.int64), "dtype int64"),
        ([[1, 2], [3]], "do not form one array"),
        ([np.zeros(5)], "takes images of shape"),
        (object(), "dtype object"),
        ("photo.png", "photo.png could not be read"),
        (b"GIF89a", r"^The picture given could not be read \(not an image in a known format\); repair or remove it\.$"),
        ([np.zeros((6, 5), np.uint8), b"GIF89a"], r"^The picture given at position 1 of the list could not be read"),
        (io.BytesIO(b"GIF89a"), r"^The picture given could not be read"),
        (io.StringIO("text"), "Reading a StringIO gave a str, not bytes; open the file in binary mode"),
    ],
)
def test_what_is_no_image_is_said(images, message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_batch(images, GREY)


def test_an_opened_file_is_what_it_holds(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected, content = as_batch(pixels, GREY), (tmp_path / "a.png").read_bytes()
    with (tmp_path / "a.png").open("rb") as opened:
        assert np.array_equal(as_batch(opened, GREY), expected)
    assert np.array_equal(as_batch(io.BytesIO(content), GREY), expected)
    assert np.array_equal(as_batch([io.BytesIO(content), content, pixels], GREY), np.repeat(expected, 3, axis=0))
    assert as_batch(io.BytesIO(content)).shape == (1, 1, 6, 5)
