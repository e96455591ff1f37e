"""Drawing and digital damage against their formulas: published lines, scikit-image, colorsys, Pillow."""

from __future__ import annotations

import colorsys
import io
import math
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.stats
from corruption_referees import SHAPES, Work, assert_close, digits, exact, images, levels, planes_through, truncated
from PIL import Image

from secondguess.stress import CORRUPTIONS, corrupt
from secondguess.stress.corruptions import noise


def ink(c0: float, r0: float, c1: float, r1: float) -> Work:
    """The published line on 28 x 28 pixels, pixel by pixel."""
    drawn = np.zeros((28, 28))
    for column in range(max(0, math.floor(c0)), min(28, math.ceil(c1))):
        middle = r0 + (r1 - r0) / (c1 - c0) * (column - c0)
        for row in range(28):
            distance = min(abs(row - middle), 2.3 - 1e-10)
            drawn[row, column] = min(max(math.log(1 - distance / 2.3) + 1, 0), 1)
    return drawn


def published_zigzag(r0: int, r1: int) -> Work:
    theta = math.atan((r1 - r0) / 23)
    d = 23 / math.cos(theta)
    points = [(0.0, 0.0)]
    side = 2.0
    while 2 * (2 * len(points) - 1) <= d:
        points.append((2.0 * (2 * len(points) - 1), side))
        side = -side
    if d != 4 * (d // 4):
        points.append((d, points[-1][1] / (2 * (d - 4 * (d // 4)))))
    turned = [
        (2 + x * math.cos(theta) - y * math.sin(theta), r0 + x * math.sin(theta) + y * math.cos(theta))
        for x, y in points
    ]
    total = np.zeros((28, 28))
    for (c0, s0), (c1, s1) in pairwise(turned):
        total = np.clip(total + ink(c0, s0, c1, s1), 0, 1)
    return total


def test_zigzag_is_one_of_the_published_ones_equally_often() -> None:
    seen = levels(corrupt(np.zeros((1000, 1, 28, 28), dtype=np.float32), "zigzag", seed=1))[:, 0]
    drawn = noise("zigzag", 1).random((1000, 2))
    for k in range(0, 1000, 25):
        r0 = int(drawn[k, 0] * 27)
        r1 = r0 - 5 + int(drawn[k, 1] * 10)
        assert_close(seen[k], truncated(published_zigzag(r0, r1)), same=0.99)
    starts, drops = np.floor(drawn[:, 0] * 27), np.floor(drawn[:, 1] * 10)
    assert scipy.stats.chisquare(np.bincount(starts.astype(int), minlength=27)).pvalue > 1e-3
    assert scipy.stats.chisquare(np.bincount(drops.astype(int), minlength=10)).pvalue > 1e-3


def test_dotted_line_is_one_of_the_published_ones() -> None:
    dark = [column for column in range(28) if column % 4 < 2]
    dictionary = {}
    for r0, r1 in product(range(27), repeat=2):
        drawn = ink(0, r0, 27, r1)
        drawn[:, dark] = 0
        dictionary[truncated(drawn).tobytes()] = (r0, r1)
    found = [
        dictionary.get(plane.tobytes())
        for plane in levels(corrupt(np.zeros((60, 1, 28, 28), dtype=np.float32), "dotted_line"))[:, 0]
    ]
    assert None not in found
    assert len(set(found)) > 50


def test_line_is_one_of_the_published_ones() -> None:
    for plane in levels(corrupt(np.zeros((40, 1, 28, 28), dtype=np.float32), "line"))[:, 0]:
        lit = np.flatnonzero(plane.any(axis=0))
        c0, c1 = int(lit[0]), int(lit[-1]) + 1
        assert 0 <= c0 <= 4
        assert 22 <= c1 <= 26
        (r0,) = np.flatnonzero(plane[:, c0] == 255)
        # At its first column the line is on a row; its slope follows from any other.
        fits = [r1 for r1 in range(27) if np.array_equal(truncated(ink(c0, r0, c1, r1)), plane)]
        assert len(fits) == 1


@pytest.mark.parametrize("name", ["line", "dotted_line", "zigzag"])
@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 64, 64), (1, 8, 8), (3, 20, 50)])
def test_lines_are_added_in_white_to_all_channels_on_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    black = levels(corrupt(np.zeros((20, *shape), dtype=np.float32), name))
    assert (black == black[:, :1]).all()
    assert (black.max(axis=(1, 2, 3)) > 150).all()
    given = images(shape, n=20)
    sums = (levels(given) + black).clip(max=255)
    assert_close(levels(corrupt(given, name)), sums, same=0.8)


@pytest.mark.parametrize(("width", "quarter"), [(28, 7), (64, 16), (9, 2), (2, 1)])
def test_stripe_inverts_the_outer_quarters(width: int, quarter: int) -> None:
    given = images((3, 6, width))
    wanted = levels(given)
    wanted[..., :quarter] = 255 - wanted[..., :quarter]
    wanted[..., -quarter:] = 255 - wanted[..., -quarter:]
    np.testing.assert_array_equal(levels(corrupt(given, "stripe")), wanted)


# scikit-image 0.26: `feature.canny(wave())`. The same version agreed on every pixel of 6,000 test images of MNIST and
# Fashion-MNIST, and on 200 of CIFAR-10 by their luma.
CANNY_BY_SKIMAGE = """
..........................
.#..#....#..#...#...##..#.
...###..##..#..##.#.#..##.
..#..#####....##.#.##..##.
.##..##..###.##....#..#.#.
.##..#...#..##..#....##...
..###....#..#..##...##....
..####.###.#..##.####..##.
..#..###.###.##....#..###.
.##..#......##..#....##.#.
..#.#....#..#...#...##..#.
...###..##..#..##.#.#..##.
..#..#####....##.#.##..##.
.##..##...##.##....#..#.#.
.##..#...#..##..#....##...
..##....##..#..##...##....
...#..###.##..##.#..#..#..
..........................
"""


def wave() -> Work:
    row, column = np.mgrid[0:18, 0:26]
    return np.rint(255 * (0.5 + 0.5 * np.sin(0.7 * row + 0.02 * column**2) * np.cos(0.45 * column))) / 255


def test_canny_edges_are_those_of_scikit_image() -> None:
    wanted = np.array([[character == "#" for character in line] for line in CANNY_BY_SKIMAGE.split()])
    company = np.stack([np.zeros((18, 26)), wave(), 1 - wave()])[:, None].astype(np.float32)
    seen = corrupt(company, "canny_edges")[:, 0]
    np.testing.assert_array_equal(seen[1], wanted)
    assert not seen[0].any()
    np.testing.assert_array_equal(corrupt(company.repeat(3, axis=1), "canny_edges")[1, 2], wanted)


def test_canny_edges_agree_with_an_installed_scikit_image() -> None:
    feature = pytest.importorskip("skimage.feature")
    given = digits(6)
    wanted = np.stack([feature.canny(plane) for plane in exact(given)[:, 0]])
    np.testing.assert_array_equal(corrupt(given, "canny_edges")[:, 0], wanted)


def test_canny_keeps_weak_edges_only_where_they_touch_strong_ones() -> None:
    steps = np.zeros((2, 1, 24, 20), dtype=np.float32)
    # The gradient is about 2.7 times the height of the step: between the thresholds at .05, above both at .27.
    steps[:, :, :, 10:] = np.float32(0.05)
    steps[1, :, :, 10:] += np.linspace(0, 0.22, 24, dtype=np.float32)[:, None]
    weak, joined = corrupt(steps, "canny_edges")[:, 0]
    assert not weak.any()
    assert joined[1].any() and joined[-2].any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("severity", "factor"), [(None, 0.1), (1, 0.4), (5, 0.05)])
def test_contrast_by_hand(shape: tuple[int, int, int], severity: int | None, factor: float) -> None:
    given = images(shape)
    wanted = planes_through(lambda plane: (plane - plane.mean()) * factor + plane.mean(), given)
    assert_close(levels(corrupt(given, "contrast", severity=severity)), truncated(wanted))


def through_hsv(image: Work, change) -> Work:  # type: ignore[no-untyped-def]
    """An image (3, H, W), pixel by pixel: RGB to HSV, changed, and back."""
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in image.reshape(3, -1).T]
    return np.array(pixels).T.reshape(image.shape)


@pytest.mark.parametrize("severity", [None, 1, 2])
def test_brightness_raises_the_value_of_hsv(severity: int | None) -> None:
    (amount,) = CORRUPTIONS["brightness"].level(severity)
    grey, colour = images(), images((3, 9, 7))
    colour[0, :, 0] = 0
    np.testing.assert_array_equal(
        levels(corrupt(grey, "brightness", severity=severity)), truncated(exact(grey) + amount)
    )
    wanted = [through_hsv(image, lambda h, s, v: (h, s, min(v + amount, 1))) for image in exact(colour)]
    assert_close(levels(corrupt(colour, "brightness", severity=severity)), truncated(np.stack(wanted)), same=0.9)


@pytest.mark.parametrize("severity", [None, 1, 2, 3, 4, 5])
def test_saturate_changes_the_saturation_of_colour_and_all_of_a_grey_image(severity: int | None) -> None:
    factor, offset = CORRUPTIONS["saturate"].level(severity)
    mapped = lambda x: min(max(x * factor + offset, 0), 1)  # noqa: E731
    colour = images((3, 9, 7))
    colour[0, :, :3] = colour[0, :1, :3]  # some shades of grey, and black
    colour[0, :, 0] = 0
    wanted = [through_hsv(image, lambda h, s, v: (h, mapped(s), v)) for image in exact(colour)]
    assert_close(levels(corrupt(colour, "saturate", severity=severity)), truncated(np.stack(wanted)), same=0.8)

    shades = (np.arange(256) / 255).astype(np.float32).reshape(1, 1, 16, 16)
    luma = np.array([0.2125, 0.7154, 0.0721])
    by_hand = [luma @ colorsys.hsv_to_rgb(mapped(0), mapped(0), mapped(v)) for v in np.arange(256) / 255]
    assert_close(levels(corrupt(shades, "saturate", severity=severity)).ravel(), truncated(np.array(by_hand)), same=0.9)


def test_saturate_at_its_default_has_a_closed_form() -> None:
    given = images()
    wanted = truncated(0.97708 * np.clip(20 * exact(given) + 0.2, 0, 1))
    np.testing.assert_array_equal(levels(corrupt(given, "saturate")), wanted)


def test_inverse_is_the_negative() -> None:
    given = images((3, 6, 6))
    np.testing.assert_array_equal(levels(corrupt(given, "inverse")), 255 - levels(given))


@pytest.mark.parametrize(("severity", "bits"), [(None, 1), (1, 5), (4, 2)])
def test_quantize_rounds_to_the_nearest_of_2_to_the_bits_levels(severity: int | None, bits: int) -> None:
    shades = (np.arange(256) / 255).astype(np.float32).reshape(1, 1, 16, 16)
    allowed = np.linspace(0, 255, 2**bits)
    nearest = allowed[np.abs(np.arange(256)[:, None] - allowed).argmin(axis=1)]
    np.testing.assert_array_equal(
        levels(corrupt(shades, "quantize", severity=severity)).ravel(), np.floor(nearest + 1e-9)
    )


@pytest.mark.parametrize("shape", [*SHAPES, (2, 9, 9)])
@pytest.mark.parametrize(("severity", "quality"), [(None, 7), (1, 25)])
def test_jpeg_compression_is_pillows(shape: tuple[int, int, int], severity: int | None, quality: int) -> None:
    given = images(shape)
    spoilt = levels(corrupt(given, "jpeg_compression", severity=severity))
    for before, after in zip(levels(given).astype(np.uint8), spoilt, strict=True):
        pictures = [before.transpose(1, 2, 0)] if shape[0] == 3 else list(before)
        decoded = []
        for picture in pictures:
            Image.fromarray(picture).save(file := io.BytesIO(), format="JPEG", quality=quality)
            decoded.append(np.asarray(Image.open(file)))
        np.testing.assert_array_equal(after, decoded[0].transpose(2, 0, 1) if shape[0] == 3 else np.stack(decoded))


@pytest.mark.parametrize("shape", [*SHAPES, (1, 64, 64), (1, 31, 45), (1, 6, 7), (1, 13, 49)])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_pixelate_is_pillows_box_filter(shape: tuple[int, int, int], severity: int) -> None:
    given = images(shape, n=2)
    (share,) = CORRUPTIONS["pixelate"].level(severity)
    height, width = shape[1:]
    spoilt = levels(corrupt(given, "pixelate", severity=severity))
    for before, after in zip(levels(given).astype(np.uint8), spoilt, strict=True):
        for plane, seen in zip(before, after, strict=True):
            small = Image.fromarray(plane).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
            np.testing.assert_array_equal(seen, np.asarray(small.resize((width, height), Image.Resampling.BOX)))
