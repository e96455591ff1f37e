from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from numpy.typing import NDArray

from secondguess import UserError
from secondguess.stress import CORRUPTIONS, corrupt
from secondguess.stress.corruptions import noise

Floats = NDArray[np.float32]
NAMES = ("shot_noise", "impulse_noise", "rotate", "contrast")
SHAPES = [(1, 28, 28), (3, 16, 16), (1, 9, 14), (3, 5, 4)]


def images(shape: tuple[int, int, int] = (1, 28, 28), n: int = 6, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape)).astype(np.float32) / np.float32(255)


def truncated(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Grey levels 0..255 as in the published sets: clipped, scaled, cut to whole numbers."""
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-9).astype(np.int64)


def levels(values: Floats) -> NDArray[np.int64]:
    return np.rint(values * 255).astype(np.int64)


def turned_by_scipy(image: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """One plane (H, W) turned about its centre; scipy counts coordinates (row, column)."""
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.array([[cos, sin], [-sin, cos]])  # (column, row) -> [[cos, -sin], [sin, cos]], axes swapped
    centre = (np.array(image.shape) - 1) / 2
    return scipy.ndimage.affine_transform(
        image, matrix, offset=centre - matrix @ centre, order=1, mode="grid-constant", cval=0
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("severity", [1, 2, 5])
def test_rotate_agrees_with_scipy_inside_and_at_the_edges(shape: tuple[int, int, int], severity: int) -> None:
    given = images(shape, n=12)
    angle = 0.2 * severity
    spoilt = levels(corrupt(given, "rotate", severity=severity, seed=3))
    signs = []
    for before, after in zip(given.astype(np.float64), spoilt, strict=True):
        expected = {
            sign: truncated(np.stack([turned_by_scipy(plane, sign * angle) for plane in before])) for sign in (1, -1)
        }
        # Two roundings of the same real number can fall on both sides of a whole grey level.
        matching = [sign for sign, wanted in expected.items() if np.abs(wanted - after).max() <= 1]
        assert len(matching) == 1
        assert (expected[matching[0]] == after).mean() > 0.99
        signs += matching
    assert set(signs) == {1, -1}


def test_rotate_turns_either_way_equally_often() -> None:
    bar = np.zeros((400, 1, 9, 9), dtype=np.float32)
    bar[:, :, 4, 6:] = 1
    spoilt = corrupt(bar, "rotate", seed=1)
    upwards = (spoilt[:, 0, :4].sum(axis=(1, 2)) > spoilt[:, 0, 5:].sum(axis=(1, 2))).sum()
    assert scipy.stats.binomtest(int(upwards), 400).pvalue > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "factor"), [(None, 0.1), (1, 0.4), (5, 0.05)])
def test_contrast_by_hand(shape: tuple[int, int, int], severity: int | None, factor: float) -> None:
    given = images(shape)
    spoilt = levels(corrupt(given, "contrast", severity=severity))
    for before, after in zip(given, spoilt, strict=True):
        for plane, seen in zip(before.astype(np.float64), after, strict=True):
            mean = sum(plane.ravel().tolist()) / plane.size
            assert np.abs(truncated((plane - mean) * factor + mean) - seen).max() <= 1
            wide, narrow = np.ptp(plane), np.ptp(seen) / 255
            assert narrow == pytest.approx(factor * wide, abs=1.01 / 255)


def test_shot_noise_at_its_default_has_four_grey_levels() -> None:
    assert set(np.unique(levels(corrupt(images(n=20), "shot_noise")))) == {0, 85, 170, 255}


@pytest.mark.parametrize(("severity", "rate"), [(1, 60), (2, 25), (5, 3)])
def test_shot_noise_has_the_mean_and_variance_of_poisson(severity: int, rate: int) -> None:
    value = 0.2  # far enough from 1 that clipping hardly matters except at the lowest rate
    given = np.full((40, 1, 28, 28), value, dtype=np.float32)
    seen = corrupt(given, "shot_noise", severity=severity, seed=5).ravel().astype(np.float64)
    counts = np.arange(200)
    weights = scipy.stats.poisson.pmf(counts, rate * value)
    outcomes = truncated(counts / rate) / 255
    mean = float(weights @ outcomes)
    variance = float(weights @ (outcomes - mean) ** 2)
    error = np.sqrt(variance / seen.size)
    assert seen.mean() == pytest.approx(mean, abs=4 * error)
    assert seen.var() == pytest.approx(variance, rel=0.06)
    if severity < 5:
        assert mean == pytest.approx(value, abs=1 / 255)
        assert variance == pytest.approx(value / rate, rel=0.02)


def test_shot_noise_leaves_black_black() -> None:
    assert not corrupt(np.zeros((3, 1, 8, 8), dtype=np.float32), "shot_noise").any()


@pytest.mark.parametrize(("severity", "share"), [(None, 0.17), (1, 0.03), (5, 0.27)])
@pytest.mark.parametrize("channels", [1, 3])
def test_impulse_noise_hits_its_share_half_white_half_black(severity: int | None, share: float, channels: int) -> None:
    given = np.full((30, channels, 28, 28), 128 / 255, dtype=np.float32)
    seen = levels(corrupt(given, "impulse_noise", severity=severity, seed=2))
    assert set(np.unique(seen)) == {0, 128, 255}
    hit = int((seen != 128).sum())
    assert scipy.stats.binomtest(hit, seen.size, share).pvalue > 1e-3
    assert scipy.stats.binomtest(int((seen == 255).sum()), hit, 0.5).pvalue > 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_corruption_keeps_shape_type_and_range_and_its_input(name: str, shape: tuple[int, int, int]) -> None:
    given = images(shape)
    before = given.copy()
    for severity in (None, 1, 2, 3, 4, 5):
        spoilt = corrupt(given, name, severity=severity)
        assert spoilt.shape == given.shape
        assert spoilt.dtype == np.float32
        assert 0 <= spoilt.min() <= spoilt.max() <= 1
        np.testing.assert_array_equal(spoilt, (levels(spoilt) / 255).astype(np.float32))
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("name", NAMES)
def test_the_default_severity_is_the_published_one(name: str) -> None:
    published = {"shot_noise": 5, "impulse_noise": 4, "rotate": 2, "contrast": 4}
    np.testing.assert_array_equal(
        corrupt(images(), name, seed=4), corrupt(images(), name, severity=published[name], seed=4)
    )


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_images(name: str) -> None:
    given = images(n=30)
    first = corrupt(given, name, seed=1)
    np.testing.assert_array_equal(first, corrupt(given, name, seed=1))
    if name != "contrast":  # the only one without chance
        assert (first != corrupt(given, name, seed=2)).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 4, 7])
def test_block_by_block_is_the_same_as_at_once(name: str, size: int) -> None:
    given = images((3, 8, 6), n=20)
    rng = noise(name, 6)
    parts = [corrupt(given[start : start + size], name, seed=rng) for start in range(0, 20, size)]
    np.testing.assert_array_equal(np.concatenate(parts), corrupt(given, name, seed=6))


def test_corruptions_do_not_share_their_noise() -> None:
    assert noise("shot_noise", 0).random() != noise("impulse_noise", 0).random()


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "2"])
def test_a_severity_out_of_bounds_is_an_error(severity: object) -> None:
    with pytest.raises(UserError, match=rf"whole number from 1 to 5, not {severity!r}"):
        corrupt(images(), "rotate", severity=severity)  # type: ignore[arg-type]


def test_an_unknown_corruption_is_an_error_with_its_close_match() -> None:
    with pytest.raises(UserError, match=r"no corruption 'shot_nois'; there is shot_noise"):
        corrupt(images(), "shot_nois")
    with pytest.raises(UserError, match="no corruption 'xyz'; there is") as caught:
        corrupt(images(), "xyz")
    assert all(name in str(caught.value) for name in CORRUPTIONS)
