"""What every corruption promises, whatever it does."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import UserError
from secondguess.images import load_images
from secondguess.stress import CORRUPTIONS, corrupt
from secondguess.stress.corruptions import COLOUR, FASHION_MNIST_C, MNIST_C, find, noise
from secondguess.stress.corruptions.registry import corruption

Floats = NDArray[np.float32]
SHAPES = [(1, 28, 28), (3, 16, 16), (1, 9, 14), (3, 5, 4), (1, 64, 64), (1, 8, 8), (4, 6, 7), (1, 1, 1)]
PUBLISHED_DEFAULTS = {
    "shot_noise": 5, "impulse_noise": 4, "glass_blur": 1, "motion_blur": 1, "shear": 2, "scale": 3, "rotate": 2,
    "brightness": 5, "translate": 3, "fog": 5, "spatter": 4, "contrast": 4, "saturate": 5, "gaussian_noise": 5,
    "speckle_noise": 5, "gaussian_blur": 2, "defocus_blur": 1, "zoom_blur": 5, "snow": 5, "jpeg_compression": 5,
    "pixelate": 3, "elastic_transform": 1, "quantize": 5,
}  # fmt: skip
WITHOUT_SEVERITY = {
    "stripe", "inverse", "flip_sides", "flip_up_down", "turn_right", "turn_left", "line", "dotted_line", "zigzag",
    "canny_edges", "identity",
}  # fmt: skip
WITHOUT_CHANCE = {
    "gaussian_blur", "defocus_blur", "zoom_blur", "scale", "brightness", "contrast", "saturate", "quantize",
    "jpeg_compression", "pixelate", *WITHOUT_SEVERITY - {"line", "dotted_line", "zigzag"},
}  # fmt: skip
# Not among them: those whose published levels do not grow step by step (spatter 4 has smaller blobs than 3).
ALWAYS_WORSE = sorted(set(PUBLISHED_DEFAULTS) - {"elastic_transform", "saturate", "spatter", "fog"})


def images(shape: tuple[int, int, int] = (1, 28, 28), n: int = 6, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape)).astype(np.float32) / np.float32(255)


def published() -> set[str]:
    """Ours, without those that a reader of the documentation has added."""
    return {name for name, entry in CORRUPTIONS.items() if entry.source in ("MNIST-C", "Fashion-MNIST-C")}


@pytest.fixture(scope="module")
def photos() -> Floats:
    return load_images("photos").head(40, seed=0).materialise()


def test_all_published_corruptions_are_there() -> None:
    assert published() == set(PUBLISHED_DEFAULTS) | WITHOUT_SEVERITY
    assert len(set(MNIST_C)) == len(set(FASHION_MNIST_C)) == len(set(COLOUR)) == 15
    assert len(set(MNIST_C + FASHION_MNIST_C)) == 22
    assert set(MNIST_C + FASHION_MNIST_C + COLOUR) < set(CORRUPTIONS)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_corruption_keeps_shape_type_range_and_its_input(name: str, shape: tuple[int, int, int]) -> None:
    given = images(shape, n=2)
    before = given.copy()
    for severity in (None, 1, 2, 3, 4, 5):
        spoilt = corrupt(given, name, severity=severity)
        assert spoilt.shape == given.shape
        assert spoilt.dtype == np.float32
        assert 0 <= spoilt.min() <= spoilt.max() <= 1
        np.testing.assert_array_equal(spoilt, (np.rint(spoilt * 255) / 255).astype(np.float32))
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_black_and_white_images_are_no_trouble(name: str, level: float) -> None:
    for channels in (1, 3):
        assert np.isfinite(corrupt(np.full((2, channels, 28, 28), level, dtype=np.float32), name)).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_default_severity_is_the_published_one(name: str) -> None:
    assert CORRUPTIONS[name].default == PUBLISHED_DEFAULTS.get(name)
    default = PUBLISHED_DEFAULTS.get(name, 3)
    np.testing.assert_array_equal(corrupt(images(), name, seed=4), corrupt(images(), name, severity=default, seed=4))


@pytest.mark.parametrize("name", sorted(WITHOUT_SEVERITY))
def test_severity_means_nothing_where_there_is_none(name: str) -> None:
    assert CORRUPTIONS[name].levels is None
    np.testing.assert_array_equal(corrupt(images(), name, severity=1), corrupt(images(), name, severity=5))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_same_seed_same_images(name: str) -> None:
    given = images(n=10)
    first = corrupt(given, name, seed=1)
    np.testing.assert_array_equal(first, corrupt(given, name, seed=1))
    assert (first != corrupt(given, name, seed=2)).any() == (name not in WITHOUT_CHANCE)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [1, 7])
def test_block_by_block_is_the_same_as_at_once(name: str, size: int) -> None:
    given = images((3, 8, 6), n=20)
    rng = noise(name, 6)
    parts = [corrupt(given[start : start + size], name, seed=rng) for start in range(0, 20, size)]
    np.testing.assert_array_equal(np.concatenate(parts), corrupt(given, name, seed=6))


@pytest.mark.parametrize("name", sorted(WITHOUT_CHANCE))
def test_without_chance_an_image_fares_the_same_in_any_company(name: str) -> None:
    given = images((1, 12, 10), n=9)
    order = np.random.default_rng(0).permutation(9)
    np.testing.assert_array_equal(corrupt(given[order], name, seed=1), corrupt(given, name, seed=2)[order])


@pytest.mark.parametrize("name", ALWAYS_WORSE)
def test_higher_severities_spoil_more(name: str, photos: Floats) -> None:
    change = [np.abs(corrupt(photos, name, severity=severity) - photos).mean() for severity in range(1, 6)]
    assert (np.diff(change) > 0).all()


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - {"identity"}))
def test_every_photo_is_changed(name: str, photos: Floats) -> None:
    changed = np.abs(corrupt(photos, name) - photos).mean(axis=(1, 2, 3))
    assert changed.min() > 0


def test_identity_changes_nothing_and_cuts_to_grey_levels() -> None:
    every_level = (np.arange(256) / 255).astype(np.float32).reshape(1, 1, 16, 16)
    np.testing.assert_array_equal(corrupt(every_level, "identity"), every_level)
    between = np.full((1, 1, 2, 2), 100.7 / 255, dtype=np.float32)
    np.testing.assert_array_equal(corrupt(between, "identity"), np.float32(100 / 255))


def test_corruptions_do_not_share_their_noise() -> None:
    assert noise("shot_noise", 0).random() != noise("impulse_noise", 0).random()


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "2"])
@pytest.mark.parametrize("name", ["rotate", "inverse"])
def test_a_severity_out_of_bounds_is_an_error(name: str, severity: object) -> None:
    with pytest.raises(UserError, match=rf"whole number from 1 to 5, not {severity!r}"):
        corrupt(images(), name, severity=severity)  # type: ignore[arg-type]


def test_an_unknown_corruption_is_an_error_with_its_close_match() -> None:
    with pytest.raises(UserError, match=r"no corruption 'shot_nois'; did you mean 'shot_noise'"):
        corrupt(images(), "shot_nois")
    with pytest.raises(UserError, match=r"no corruption 'xyz'; known are: .*zoom_blur.*speckle_noise"):
        corrupt(images(), "xyz")


@pytest.mark.parametrize(("misnomer", "name"), [("flip_left_right", "turn_right"), ("flip_top_bottom", "turn_left")])
def test_the_misnamed_turns_of_fashion_mnist_c_are_explained(misnomer: str, name: str) -> None:
    with pytest.raises(
        UserError, match=rf"calls '{misnomer}' is a quarter turn: ask for '{name}', or for 'flip_sides'"
    ):
        find(misnomer)


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((28, 28), dtype=np.float32),
        np.zeros((0, 1, 28, 28), dtype=np.float32),
        np.zeros((2, 1, 28, 28), dtype=np.uint8),
    ],
)
def test_what_is_no_stack_of_images_is_an_error(given: Floats) -> None:
    with pytest.raises(UserError, match=re.escape(f"Images of shape {given.shape} and type {given.dtype} cannot")):
        corrupt(given, "identity")


@pytest.mark.parametrize("value", [255.0, -0.5, np.nan])
def test_values_outside_0_to_1_are_an_error(value: float) -> None:
    with pytest.raises(UserError, match=r"Images with values from .* scale them to 0\.\.1"):
        corrupt(np.full((1, 1, 4, 4), value, dtype=np.float32), "identity")


def test_five_levels_and_a_default_or_neither() -> None:
    for levels, default in (((1, 2), 1), ((1, 2, 3, 4, 5), None), ((), 3)):
        with pytest.raises(ValueError, match="five levels and a default"):
            corruption(*levels, default=default)


def test_the_documentation_has_the_levels_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/corruptions.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    documented = {row[0].strip("`"): row for row in rows if len(row) == 7}
    assert set(documented) == published()
    for name, (_, sets, _, levels, default, _, source) in documented.items():
        entry = CORRUPTIONS[name]
        assert sets == " ".join(
            letter for letter, names in zip("MFC", (MNIST_C, FASHION_MNIST_C, COLOUR), strict=True) if name in names
        )
        assert source == entry.source
        assert default == ("" if entry.default is None else str(entry.default))
        numbers = [fraction(number) for number in re.findall(r"[\d./]+", levels)]
        assert numbers == [number for level in entry.levels or () for number in level]


def fraction(text: str) -> float:
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)
