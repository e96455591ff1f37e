"""Geometry and weather against their formulas: SciPy, and point-by-point loops."""

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
    exact,
    images,
    levels,
    planes_through,
    smeared,
    truncated,
    zoomed_by_scipy,
)

from secondguess.stress import CORRUPTIONS, corrupt
from secondguess.stress.corruptions import noise, weather
from secondguess.stress.corruptions.resample import sample, warp


def mapped_by_scipy(plane: Work, linear: Work) -> Work:
    """One plane (H, W) under a map of (column, row); scipy counts (row, column)."""
    matrix = linear[::-1, ::-1]
    centre = (np.array(plane.shape) - 1) / 2
    return scipy.ndimage.affine_transform(
        plane, matrix, offset=centre - matrix @ centre, order=1, mode="grid-constant", cval=0
    )


MAPS = {
    "rotate": lambda c: np.array([[np.cos(c), -np.sin(c)], [np.sin(c), np.cos(c)]]),
    "shear": lambda c: np.array([[1, -np.sin(c)], [0, np.cos(c)]]),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("severity", [1, 2, 5])
def test_rotate_and_shear_agree_with_scipy_with_either_sign(
    name: str, shape: tuple[int, int, int], severity: int
) -> None:
    given = images(shape, n=12)
    spoilt = levels(corrupt(given, name, severity=severity, seed=3))
    wanted = {
        sign: truncated(
            planes_through(lambda plane, c=sign * severity / 5: mapped_by_scipy(plane, MAPS[name](c)), given)
        )
        for sign in (1, -1)
    }
    fits = {sign: np.abs(spoilt - expected).max(axis=(1, 2, 3)) <= 1 for sign, expected in wanted.items()}
    assert (fits[1] != fits[-1]).all()
    assert fits[1].any() and fits[-1].any()


def test_rotate_turns_either_way_equally_often() -> None:
    bar = np.zeros((400, 1, 9, 9), dtype=np.float32)
    bar[:, :, 4, 6:] = 1
    spoilt = corrupt(bar, "rotate", seed=1)
    upwards = (spoilt[:, 0, :4].sum(axis=(1, 2)) > spoilt[:, 0, 5:].sum(axis=(1, 2))).sum()
    assert scipy.stats.binomtest(int(upwards), 400).pvalue > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "share"), [(None, 0.7), (1, 0.9), (5, 0.5)])
def test_scale_agrees_with_scipy(shape: tuple[int, int, int], severity: int | None, share: float) -> None:
    given = images(shape)
    wanted = planes_through(lambda plane: mapped_by_scipy(plane, np.eye(2) / share), given)
    assert_close(levels(corrupt(given, "scale", severity=severity)), truncated(wanted))


@pytest.mark.parametrize(
    ("shape", "severity", "dy", "dx"),
    [((1, 28, 28), None, 3, 3), ((1, 28, 28), 5, 5, 5), ((3, 8, 56), None, 1, 6), ((1, 8, 8), 1, 1, 1)],
)
def test_translate_shifts_by_whole_pixels_in_all_four_ways(
    shape: tuple[int, int, int], severity: int | None, dy: int, dx: int
) -> None:
    given = images(shape, n=30)
    spoilt = corrupt(given, "translate", severity=severity)
    ways = set()
    for before, after in zip(given, spoilt, strict=True):
        for sy, sx in product((dy, -dy), (dx, -dx)):
            if np.array_equal(after, scipy.ndimage.shift(before, (0, sy, sx), order=0)):
                ways.add((sy, sx))
                break
        else:
            pytest.fail("the image is no shifted copy")
    assert len(ways) == 4


def test_warp_with_the_identity_changes_nothing_and_a_half_turn_flips_both_axes() -> None:
    given = exact(images((3, 7, 10)))
    np.testing.assert_array_equal(warp(given, np.eye(2)), given)
    np.testing.assert_allclose(warp(given, -np.eye(2)), given[:, :, ::-1, ::-1], atol=1e-12)


def test_sample_reads_each_image_at_its_own_places() -> None:
    given = exact(images((3, 6, 9), n=4))
    y, x = np.random.default_rng(0).uniform(-2, 11, (2, 4, 6, 9))
    seen = sample(given, x, y)
    for image, channel in product(range(4), range(3)):
        wanted = scipy.ndimage.map_coordinates(
            given[image, channel], [y[image], x[image]], order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(seen[image, channel], wanted, atol=1e-12)


@pytest.mark.parametrize("severity", [None, 2, 5])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 16, 30)])
def test_elastic_transform_by_hand(shape: tuple[int, int, int], severity: int | None) -> None:
    given = images(shape, n=3)
    reach, smoothness, affine = CORRUPTIONS["elastic_transform"].level(severity)
    height, width = shape[1:]
    side = min(height, width)
    row, column = np.mgrid[0:height, 0:width]
    wanted = []
    for image, draw in zip(exact(given), noise("elastic_transform", 4).random((3, 6 + 2 * row.size)), strict=True):
        jitter, (dx, dy) = 2 * draw[:6].reshape(3, 2) - 1, 2 * draw[6:].reshape(2, height, width) - 1
        third = side // 3
        old = np.array([[width // 2 + x * third, height // 2 + y * third, 1] for x, y in ((1, 1), (1, -1), (-1, -1))])
        new = old[:, :2] + affine * side * jitter
        forward = np.vstack([np.linalg.solve(old, new).T, [0, 0, 1]])
        x, y, _ = np.linalg.inv(forward) @ np.stack([column.ravel(), row.ravel(), np.ones(row.size)])
        read = [(y, x), (row + scaled(dy, reach, smoothness, side), column + scaled(dx, reach, smoothness, side))]
        bent = [scipy.ndimage.map_coordinates(plane, read[0], order=1, mode="grid-constant") for plane in image]
        planes = [plane.reshape(height, width) for plane in bent]
        wanted.append([scipy.ndimage.map_coordinates(plane, read[1], order=1, mode="constant") for plane in planes])
    assert_close(levels(corrupt(given, "elastic_transform", severity=severity, seed=4)), truncated(np.array(wanted)))


def scaled(field: Work, reach: float, smoothness: float, side: int) -> Work:
    return reach * side * scipy.ndimage.gaussian_filter(field, smoothness * side, mode="reflect", truncate=3)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 7, 7)])
def test_flips_and_turns_are_what_their_names_say(shape: tuple[int, int, int]) -> None:
    given = images(shape)
    np.testing.assert_array_equal(corrupt(given, "flip_sides"), given[..., ::-1])
    np.testing.assert_array_equal(corrupt(given, "flip_up_down"), given[:, :, ::-1])
    np.testing.assert_array_equal(corrupt(given, "turn_left"), np.rot90(given, axes=(2, 3)))
    np.testing.assert_array_equal(corrupt(given, "turn_right"), np.rot90(given, -1, axes=(2, 3)))


def test_an_oblong_image_is_turned_within_its_frame() -> None:
    given = images((1, 4, 8), n=1)
    turned = corrupt(given, "turn_left")[0, 0]
    np.testing.assert_array_equal(turned[:, 2:6], np.rot90(given[0, 0, :, 2:6]))
    assert not turned[:, :2].any() and not turned[:, 6:].any()


def clouds_by_hand(drawn: Work, decay: float) -> Work:
    """Diamond-square on one map, point by point, with wrapped neighbours."""
    size = len(drawn)
    height = np.zeros_like(drawn)
    step, amplitude = size, 100.0
    while step > 1:
        half = step // 2
        for y, x in product(range(half, size, step), range(half, size, step)):
            corners = [height[(y + dy) % size, (x + dx) % size] for dy, dx in product((-half, half), repeat=2)]
            height[y, x] = sum(corners) / 4 + amplitude**2 * (2 * drawn[y, x] - 1)
        edges = [(y, x) for y, x in product(range(0, size, half), repeat=2) if (y // half + x // half) % 2]
        values = {}
        for y, x in edges:
            around = [
                height[(y + dy) % size, (x + dx) % size] for dy, dx in ((-half, 0), (half, 0), (0, -half), (0, half))
            ]
            values[y, x] = sum(around) / 4 + amplitude**2 * (2 * drawn[y, x] - 1)
        for (y, x), value in values.items():
            height[y, x] = value
        step, amplitude = half, amplitude / decay
    return (height - height.min()) / (height.max() - height.min())


def test_clouds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weather, "CLOUD_SIDE", 8)
    for side, size in ((5, 8), (16, 16), (17, 32)):
        seen = weather.clouds(np.random.default_rng(1), 2, side, 1.4)
        wanted = [clouds_by_hand(drawn, 1.4) for drawn in np.random.default_rng(1).random((2, size, size))]
        np.testing.assert_allclose(seen, wanted, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 20)])
@pytest.mark.parametrize(("severity", "thickness", "decay"), [(None, 3, 1.4), (1, 1.5, 2)])
def test_fog_by_hand(shape: tuple[int, int, int], severity: int | None, thickness: float, decay: float) -> None:
    given = images(shape, n=3) * np.float32(0.8)
    given = exact(given).astype(np.float32)
    maps = weather.clouds(noise("fog", 9), 3, 28, decay)
    assert maps.shape == (3, 256, 256)
    spoilt = levels(corrupt(given, "fog", severity=severity, seed=9))
    for image, cloud, after in zip(exact(given), maps, spoilt, strict=True):
        brightest = image.max()
        fogged = (image + thickness * cloud[: shape[1], : shape[2]]) * brightest / (brightest + thickness)
        assert_close(after, truncated(fogged))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 15, 20)])
@pytest.mark.parametrize("severity", [None, 1, 3])
def test_spatter_by_hand(shape: tuple[int, int, int], severity: int | None) -> None:
    given = images(shape, n=5)
    mean, deviation, sigma, threshold, edge = CORRUPTIONS["spatter"].level(severity)
    drawn = noise("spatter", 3).normal(mean, deviation, (5, *shape[1:]))
    mud = np.array([63, 42, 20] if shape[0] == 3 else [63])[:, None, None] / 255
    spoilt = levels(corrupt(given, "spatter", severity=severity, seed=3))
    for image, layer, after in zip(exact(given), drawn, spoilt, strict=True):
        wet = scipy.ndimage.gaussian_filter(layer, sigma, mode="nearest") > threshold
        cover = scipy.ndimage.gaussian_filter(wet.astype(float), edge, mode="nearest")
        cover[cover < 0.8] = 0
        assert_close(after, truncated(image * (1 - cover) + mud * cover))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 13)])
@pytest.mark.parametrize("severity", [None, 1])
def test_snow_by_hand(shape: tuple[int, int, int], severity: int | None) -> None:
    given = images(shape, n=2)
    mean, deviation, size, threshold, radius, sigma, clarity = CORRUPTIONS["snow"].level(severity)
    drawn = noise("snow", 5).standard_normal((2, shape[1] * shape[2] + 1))
    spoilt = levels(corrupt(given, "snow", severity=severity, seed=5))
    for image, numbers, after in zip(exact(given), drawn, spoilt, strict=True):
        layer = zoomed_by_scipy(mean + deviation * numbers[:-1].reshape(shape[1:]), size)
        layer[layer < threshold] = 0
        angle = math.radians(-135 + 90 * scipy.stats.norm.cdf(numbers[-1]))
        flakes = smeared(truncated(layer)[None] / 255, angle, int(radius), sigma)
        grey = image[0] if shape[0] == 1 else 0.2125 * image[0] + 0.7154 * image[1] + 0.0721 * image[2]
        paler = clarity * image + (1 - clarity) * np.maximum(image, 1.5 * grey + 0.5)
        assert_close(after, truncated(paler + flakes + np.rot90(flakes, 2, axes=(1, 2))))
