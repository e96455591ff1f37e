"""Noise and blur against their formulas: distributions, SciPy, per-pixel loops."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from corruption_referees import (
    SHAPES,
    Work,
    assert_close,
    digits,
    exact,
    images,
    levels,
    planes_through,
    smeared,
    truncated,
    zoomed_by_scipy,
)

from secondguess.stress import CORRUPTIONS, corrupt
from secondguess.stress.corruptions import noise
from secondguess.stress.corruptions.resample import zoom


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


@pytest.mark.parametrize("name", ["shot_noise", "speckle_noise"])
def test_noise_of_light_leaves_black_black(name: str) -> None:
    assert not corrupt(np.zeros((3, 1, 8, 8), dtype=np.float32), name).any()


@pytest.mark.parametrize(("severity", "share"), [(None, 0.17), (1, 0.03), (5, 0.27)])
@pytest.mark.parametrize("channels", [1, 3])
def test_impulse_noise_hits_its_share_half_white_half_black(severity: int | None, share: float, channels: int) -> None:
    given = np.full((30, channels, 28, 28), 128 / 255, dtype=np.float32)
    seen = levels(corrupt(given, "impulse_noise", severity=severity, seed=2))
    assert set(np.unique(seen)) == {0, 128, 255}
    hit = int((seen != 128).sum())
    assert scipy.stats.binomtest(hit, seen.size, share).pvalue > 1e-3
    assert scipy.stats.binomtest(int((seen == 255).sum()), hit, 0.5).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "severity", "deviation"),
    [
        ("gaussian_noise", None, 0.38),
        ("gaussian_noise", 2, 0.12),
        ("speckle_noise", None, 0.3),
        ("speckle_noise", 1, 0.075),
    ],
)
def test_gaussian_and_speckle_noise_are_normal(name: str, severity: int | None, deviation: float) -> None:
    given = np.full((20, 1, 28, 28), 0.5, dtype=np.float32)
    seen = corrupt(given, name, severity=severity, seed=1).ravel().astype(np.float64) + 0.5 / 255  # undo the truncation
    for quantile in (0.2, 0.5, 0.8):
        wanted = np.clip(scipy.stats.norm.ppf(quantile, 0.5, deviation), 0, 1)
        assert np.quantile(seen, quantile) == pytest.approx(wanted, abs=0.05 * deviation + 1 / 255)


@pytest.mark.parametrize(("severity", "sigma"), [(None, 2), (1, 1), (5, 6)])
def test_gaussian_blur_acts_down_the_columns_of_grey_images_and_both_ways_in_colour(
    severity: int | None, sigma: float
) -> None:
    grey, colour = images(), images((3, 20, 28))
    down = planes_through(lambda plane: scipy.ndimage.gaussian_filter1d(plane, sigma, axis=0, mode="nearest"), grey)
    both = planes_through(lambda plane: scipy.ndimage.gaussian_filter(plane, sigma, mode="nearest"), colour)
    assert_close(levels(corrupt(grey, "gaussian_blur", severity=severity)), truncated(down))
    assert_close(levels(corrupt(colour, "gaussian_blur", severity=severity)), truncated(both))


def glass_by_hand(image: Work, drawn: Work, sigma: float, reach: int) -> Work:
    """One image (C, H, W), one pixel after the other; `drawn` (sweeps, rows, columns) decides whom it swaps with."""
    sigmas = (0, sigma, 0 if len(image) == 1 else sigma)
    x = np.floor(scipy.ndimage.gaussian_filter(image, sigmas, mode="nearest") * 255 + 1e-9)
    height, width = x.shape[1:]
    for sweep in drawn:
        for i, h in enumerate(range(height - reach, reach, -1)):
            for j, w in enumerate(range(width - reach, reach, -1)):
                if sweep[i, j] < 0.5:
                    dy, dx = divmod(int(sweep[i, j] * 2 * (2 * reach) ** 2), 2 * reach)
                    there = (slice(None), h + dy - reach, w + dx - reach)
                    x[:, h, w], x[there] = x[there].copy(), x[:, h, w].copy()
    return scipy.ndimage.gaussian_filter(x / 255, sigmas, mode="nearest")


@pytest.mark.parametrize("severity", [None, 3, 5])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 12, 17), (1, 5, 20)])
def test_glass_blur_by_hand(shape: tuple[int, int, int], severity: int | None) -> None:
    given = images(shape, n=3)
    sigma, reach, sweeps = CORRUPTIONS["glass_blur"].level(severity)
    rows, columns = (max(0, size - 2 * int(reach)) for size in shape[1:])
    drawn = noise("glass_blur", 7).random((3, int(sweeps), rows, columns))
    wanted = [glass_by_hand(image, draw, sigma, int(reach)) for image, draw in zip(exact(given), drawn, strict=True)]
    assert_close(levels(corrupt(given, "glass_blur", severity=severity, seed=7)), truncated(np.stack(wanted)))


def test_glass_blur_swaps_with_every_neighbour_equally_often() -> None:
    drawn = noise("glass_blur", 0).random(20000)
    partners = np.floor(drawn[drawn < 0.5] * 8).astype(int)
    assert scipy.stats.chisquare(np.bincount(partners, minlength=4)).pvalue > 1e-3


@pytest.mark.parametrize(("severity", "radius"), [(None, 3), (2, 4), (4, 8), (5, 10)])
def test_defocus_blur_by_hand(severity: int | None, radius: int) -> None:
    (given,) = digits(1)
    soft, half = (0.1 if radius == 3 else 0.5), max(8, radius)
    reach = 1 if radius <= 8 else 2
    offsets = range(-half, half + 1)
    area = sum(x * x + y * y <= radius**2 for x, y in product(offsets, offsets))
    taps = {d: math.exp(-(d**2) / (2 * soft**2)) for d in range(-reach, reach + 1)}
    bounce = lambda d: 2 * half - d if d > half else (-2 * half - d if d < -half else d)  # noqa: E731
    kernel = np.zeros((2 * half + 1, 2 * half + 1))
    for y, x in product(offsets, offsets):
        for dy, dx in product(taps, taps):
            if bounce(y + dy) ** 2 + bounce(x + dx) ** 2 <= radius**2:
                kernel[y + half, x + half] += taps[dy] * taps[dx] / sum(taps.values()) ** 2 / area
    padded = np.pad(exact(given)[0], half, mode="reflect")
    wanted = np.array(
        [[(padded[r : r + 2 * half + 1, c : c + 2 * half + 1] * kernel).sum() for c in range(28)] for r in range(28)]
    )
    assert_close(levels(corrupt(given[None], "defocus_blur", severity=severity))[0, 0], truncated(wanted))


@pytest.mark.parametrize("severity", [None, 5])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 14)])
def test_motion_blur_by_hand(shape: tuple[int, int, int], severity: int | None) -> None:
    given = images(shape, n=3)
    radius, sigma = CORRUPTIONS["motion_blur"].level(severity)
    angles = np.deg2rad(noise("motion_blur", 2).random(3) * 90 - 45)
    wanted = np.stack([smeared(*pair, int(radius), sigma) for pair in zip(exact(given), angles, strict=True)])
    assert_close(levels(corrupt(given, "motion_blur", severity=severity, seed=2)), truncated(wanted))


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.3, 2.5, 3.0, 4.5])
@pytest.mark.parametrize("shape", [*SHAPES, (1, 33, 40)])
def test_zoom_agrees_with_scipy(shape: tuple[int, int, int], factor: float) -> None:
    given = images(shape, n=2)
    np.testing.assert_allclose(
        zoom(exact(given), factor), planes_through(lambda plane: zoomed_by_scipy(plane, factor), given), atol=1e-9
    )


@pytest.mark.parametrize(("severity", "largest", "step"), [(None, 1.31, 0.03), (1, 1.11, 0.01), (3, 1.21, 0.02)])
def test_zoom_blur_is_the_mean_of_zooms(severity: int | None, largest: float, step: float) -> None:
    given = images()
    factors = np.arange(1, largest, step)
    layers = [planes_through(lambda plane, factor=factor: zoomed_by_scipy(plane, factor), given) for factor in factors]
    wanted = (exact(given) + np.sum(layers, axis=0)) / (len(factors) + 1)
    assert_close(levels(corrupt(given, "zoom_blur", severity=severity)), truncated(wanted))
