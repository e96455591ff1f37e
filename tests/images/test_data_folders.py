from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import as_batch, conform, load, load_images

Write = Callable[..., np.ndarray]


def nchw(pixels: np.ndarray) -> np.ndarray:
    """The referee's conversion: uint8 (H, W[, 3]) to float32 (C, H, W)."""
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return (pixels / 255).astype(np.float32)


def test_class_folders(tmp_path: Path, write_image: Write) -> None:
    root = tmp_path / "pets"
    expected = {name: write_image(root / name) for name in ("dog/b.png", "cat/2.PNG", "cat/1.bmp", "cat/deep/x.png")}
    (root / "cat" / "readme.txt").write_text("not an image")
    (root / "cat" / ".hidden.png").write_text("not an image")
    (root / ".git").mkdir()
    dataset = load(root)
    assert dataset.name == "pets"
    assert dataset.train is None
    test = dataset.test
    assert test.class_names == ("cat", "dog")
    assert test.ids == ("cat/1.bmp", "cat/2.PNG", "cat/deep/x.png", "dog/b.png")
    assert test.labels.tolist() == [0, 0, 0, 1]
    assert test.shape == (3, 6, 8)
    np.testing.assert_array_equal(test.materialise(), np.stack([nchw(expected[name]) for name in test.ids]))
    np.testing.assert_array_equal(test.images[np.array([3, 0])], test.materialise()[[3, 0]])
    assert test.notes == ("1 files that are not .png, .jpg, .jpeg, .webp, .bmp images were ignored.",)


def test_the_fingerprint_of_a_folder_is_that_of_its_pixels(tmp_path: Path, write_image: Write) -> None:
    write_image(tmp_path / "a" / "cat" / "1.png")
    Image.open(tmp_path / "a" / "cat" / "1.png").save(tmp_path / "1.bmp")
    (tmp_path / "b" / "cat").mkdir(parents=True)
    (tmp_path / "1.bmp").rename(tmp_path / "b" / "cat" / "1.bmp")
    assert load(tmp_path / "a").fingerprint == load(tmp_path / "b").fingerprint


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Training", "testing"), ("train", "valid")])
def test_split_folders(tmp_path: Path, write_image: Write, train: str, test: str) -> None:
    for split, count in ((train, 3), (test, 2)):
        for number in range(count):
            for name in ("cat", "dog"):
                write_image(tmp_path / split / name / f"{number}.png")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notes.txt").write_text("x")
    dataset = load(tmp_path)
    assert dataset.train is not None
    assert (len(dataset.train), len(dataset.test)) == (6, 4)
    assert dataset.test.ids is not None
    assert dataset.test.ids[0] == f"{test}/cat/0.png"


def test_validation_gives_way_to_test_and_can_be_asked_for(tmp_path: Path, write_image: Write) -> None:
    for split, count in (("train", 1), ("val", 2), ("test", 3)):
        for number in range(count):
            write_image(tmp_path / split / "cat" / f"{number}.png")
    assert len(load(tmp_path).test) == 3
    assert len(load(tmp_path, split="val").test) == 2
    assert len(load_images(tmp_path / "train")) == 1
    write_image(tmp_path / "validation" / "cat" / "0.png")
    with pytest.raises(UserError, match="both hold the val split"):
        load(tmp_path)


def test_a_class_may_be_called_train(tmp_path: Path, write_image: Write) -> None:
    for name in ("bus", "train"):
        write_image(tmp_path / name / "1.png")
    assert load(tmp_path).class_names == ("bus", "train")


def test_a_flat_folder_has_no_labels(tmp_path: Path, write_image: Write) -> None:
    for number in range(3):
        write_image(tmp_path / f"{number}.png", (4, 4))
    images = load_images(tmp_path)
    assert images.labels.tolist() == [-1, -1, -1]
    assert images.class_names == ()
    assert images.shape == (1, 4, 4)


def test_a_flat_test_folder_beside_training_classes(tmp_path: Path, write_image: Write) -> None:
    write_image(tmp_path / "train" / "cat" / "1.png")
    write_image(tmp_path / "test" / "1.png")
    dataset = load(tmp_path)
    assert dataset.class_names == ("cat",)
    assert not dataset.test.is_labelled


def test_different_sizes_are_brought_to_the_most_common_one(tmp_path: Path, write_image: Write) -> None:
    pixels = [write_image(tmp_path / f"{i}.png", shape) for i, shape in enumerate([(9, 7), (4, 5), (4, 5, 3)])]
    images = load_images(tmp_path)
    assert images.shape == (3, 4, 5)
    assert "2 sizes among 3 inspected" in images.notes[0]
    assert "4x5" in images.notes[0]
    shrunk = Image.fromarray(pixels[0]).resize((5, 4), Image.Resampling.BILINEAR)
    for channel in images.images[0]:
        np.testing.assert_allclose(channel, np.asarray(shrunk) / 255, atol=1.01 / 255)
    np.testing.assert_array_equal(images.images[2], nchw(pixels[2]))
    assert load_images(tmp_path, channels=1).shape == (1, 4, 5)
    sized = load_images(tmp_path, size=(3, 2), resize="pad")
    assert sized.shape == (3, 3, 2)
    assert sized.notes == ()


def test_loading_with_a_size_equals_conforming_afterwards(tmp_path: Path, write_image: Write) -> None:
    for number in range(3):
        write_image(tmp_path / f"{number}.png", (12, 9, 3))
    whole = load_images(tmp_path)
    for fit in ("stretch", "crop", "pad"):
        at_once = load_images(tmp_path, size=5, channels=1, resize=fit)  # type: ignore[arg-type]
        after = conform(whole, (1, 5, 5), resize=fit)  # type: ignore[arg-type]
        np.testing.assert_array_equal(at_once.materialise(), after.materialise())


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_exif_rotation_is_respected(tmp_path: Path, orientation: int, suffix: str) -> None:
    stored = np.zeros((16, 32, 3), np.uint8)
    stored[:8, :16] = 255  # the top left quarter is white
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(stored).save(tmp_path / f"1{suffix}", exif=exif)
    upright = {  # the definition of the tag: which side of the picture the first row and column are
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, 1),
    }[orientation](stored)
    images = load_images(tmp_path)
    assert images.shape == (3, *upright.shape[:2])
    assert images.notes == ()
    assert np.abs(images.images[0] - nchw(upright)).max() < 0.2


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg", ".webp", ".bmp"])
@pytest.mark.parametrize("grey", [True, False])
def test_every_format_decodes(tmp_path: Path, suffix: str, grey: bool) -> None:
    ramp = np.linspace(0, 255, 32 * 32).reshape(32, 32).astype(np.uint8)
    picture = Image.fromarray(ramp if grey else np.stack([ramp, ramp[::-1], ramp.T], axis=-1))
    picture.save(tmp_path / f"1{suffix}", quality=95) if suffix != ".bmp" else picture.save(tmp_path / "1.bmp")
    images = load_images(tmp_path, channels=1 if grey else 3)
    got = images.images[0]
    expected = nchw(np.asarray(picture))
    assert np.abs(got - expected).mean() < (1e-7 if suffix in (".png", ".bmp") else 0.05)


def test_16_bit_grey_is_scaled_by_65535(tmp_path: Path) -> None:
    values = np.array([[0, 257, 32768], [65535, 1, 65534]], np.uint16)
    Image.fromarray(values).save(tmp_path / "1.png")
    images = load_images(tmp_path)
    assert images.shape == (1, 2, 3)
    np.testing.assert_allclose(images.images[0], values[None] / 65535, rtol=1e-6)


def test_palette_and_bilevel_images(tmp_path: Path) -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 51, 255])
    palette.putdata([0, 1])
    palette.save(tmp_path / "1.png")
    np.testing.assert_allclose(load_images(tmp_path).images[0][:, 0], [[1, 0], [0, 0.2], [0, 1]], atol=1e-6)
    bilevel = Image.new("1", (2, 1))
    bilevel.putdata([0, 255])
    bilevel.save(tmp_path / "1.png")
    assert load_images(tmp_path).images[0].tolist() == [[[0.0, 1.0]]]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_composited_on_black(tmp_path: Path, mode: str) -> None:
    if mode == "P":
        picture = Image.new("P", (2, 1))
        picture.putpalette([255, 255, 255, 255, 255, 255])
        picture.putdata([0, 1])
        picture.save(tmp_path / "1.png", transparency=1)
        alpha = [1.0, 0.0]
    else:
        picture = Image.new("RGBA", (2, 1))
        picture.putdata([(255, 255, 255, 255), (255, 255, 255, 51)])
        picture.convert(mode).save(tmp_path / "1.png")
        alpha = [1.0, 0.2]
    images = load_images(tmp_path)
    assert images.shape[0] == (1 if mode == "LA" else 3)
    for channel in images.images[0]:
        np.testing.assert_allclose(channel[0], alpha, atol=1e-6)


@pytest.mark.parametrize("allowed", [50, 30])
def test_decompression_bombs_are_refused(
    tmp_path: Path, write_image: Write, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    write_image(tmp_path / "huge.png", (8, 8))  # above the limit, and above twice the limit
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", allowed)
    with pytest.raises(UserError, match=rf"huge\.png is larger than the {allowed} pixels that are safe to decode"):
        load(tmp_path)
    with pytest.raises(UserError, match="safe to decode"):
        load_images(tmp_path, size=4, channels=1).materialise()


def test_bombs_are_refused_where_pillow_only_warns(
    tmp_path: Path, write_image: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image(tmp_path / "huge.png", (8, 8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with pytest.warns(Image.DecompressionBombWarning), pytest.raises(UserError, match="safe to decode"):
        load(tmp_path)


def spoil(path: Path, kind: str) -> None:
    data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "text": b"hello", "empty": b""}[kind])


@pytest.mark.parametrize("kind", ["truncated", "text", "empty"])
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp"])
def test_unreadable_images_are_named(tmp_path: Path, write_image: Write, kind: str, suffix: str) -> None:
    good = [write_image(tmp_path / "cat" / f"{i}.png", (32, 32, 3)) for i in range(3)]
    write_image(tmp_path / "cat" / f"1bad{suffix}", (32, 32, 3))
    spoil(tmp_path / "cat" / f"1bad{suffix}", kind)
    with pytest.raises(UserError, match=rf"1bad\{suffix} could not be read \(.+\); .*--skip-bad"):
        load_images(tmp_path).materialise()
    dataset = load(tmp_path, skip_bad=True)
    assert [Path(name).name for name in dataset.skipped] == [f"1bad{suffix}"]
    assert dataset.test.skipped == dataset.skipped
    assert "1 images that could not be read were left out." in dataset.test.notes
    np.testing.assert_array_equal(dataset.test.materialise(), np.stack([nchw(pixels) for pixels in good]))
    assert dataset.describe()["test"]["skipped"] == list(dataset.skipped)


def test_a_set_of_bad_images_only_is_refused_even_with_skip_bad(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(b"hello")
    with pytest.raises(UserError, match="No readable image was found"):
        load(tmp_path, skip_bad=True)
    with pytest.raises(UserError, match="None of the 1 images"):
        load(tmp_path, skip_bad=True, size=4, channels=1)


def test_folders_that_make_no_sense_are_refused(tmp_path: Path, write_image: Write) -> None:
    with pytest.raises(UserError, match=r"There is no image \(.png, .*\) in the folder"):
        load(tmp_path)
    write_image(tmp_path / "a" / "cat" / "1.png")
    (tmp_path / "a" / "dog").mkdir()
    with pytest.raises(UserError, match=r"class folder .*dog holds no image"):
        load(tmp_path / "a")
    write_image(tmp_path / "a" / "loose.png")
    with pytest.raises(UserError, match=r"both images \(such as loose.png\) and class folders \(such as cat\)"):
        load(tmp_path / "a")
    for name in ("train/cat", "train/dog", "test/cat", "test/cow"):
        write_image(tmp_path / "b" / name / "1.png")
    with pytest.raises(UserError, match="only in train: dog; only in test: cow"):
        load(tmp_path / "b")


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("secondguess.images.loading.has_idx", refuse)
    with pytest.raises(UserError, match="may not be read; change its permissions"):
        load(tmp_path)


@pytest.mark.parametrize(("largest", "scale"), [(1.0, 1), (0.2, 1), (255.0, 255), (17.5, 255)])
def test_grey_floats_are_from_0_to_1_or_to_255(tmp_path: Path, largest: float, scale: int) -> None:
    pixels = np.linspace(0, largest, 48, dtype=np.float32).reshape(6, 8)
    Image.fromarray(pixels).save(tmp_path / "float.tiff")
    read = as_batch(tmp_path / "float.tiff")
    np.testing.assert_allclose(read, pixels[None, None] / scale, rtol=1e-6)
