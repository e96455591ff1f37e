from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from secondguess.accuracy.oracles.icos import PixelRule, draw_rule, to_png
from secondguess.accuracy.oracles.icos.drawing import AMBER, GREEN, RED
from secondguess.accuracy.oracles.icos.features import cell_for, cell_means, feature_matrix, feature_name, grid_of
from secondguess.errors import UserError
from secondguess.model.observation import Observation


@pytest.mark.parametrize(
    ("shape", "cell", "grid"),
    [
        ((1, 28, 28), 1, (1, 28, 28)),
        ((3, 32, 32), 2, (3, 16, 16)),
        ((3, 224, 224), 13, (3, 18, 18)),
        ((1, 100, 10), 1, (1, 100, 10)),
        ((2000, 4, 4), 4, (2000, 1, 1)),
    ],
)
def test_large_images_are_looked_at_in_cells(
    shape: tuple[int, int, int], cell: int, grid: tuple[int, int, int]
) -> None:
    assert cell_for("auto", shape) == cell
    assert grid_of(shape, cell) == grid


def test_cells_are_means() -> None:
    images = np.random.default_rng(0).random((2, 3, 7, 5), dtype=np.float32)
    found = cell_means(images, 3).reshape(2, 3, 3, 2)
    for row in range(3):
        for column in range(2):
            block = images[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
            assert np.allclose(found[:, :, row, column], block.mean(axis=(2, 3)), atol=1e-6)
    assert np.array_equal(cell_means(images, 1), images.reshape(2, -1))


def test_the_matrix_is_the_same_in_one_piece_and_in_batches(
    evidence: Callable[..., Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = evidence([0, 1, 2, 0, 1], shape=(3, 6, 6))
    whole = feature_matrix(seen, 2)
    monkeypatch.setattr("secondguess.accuracy.oracles.icos.features.BATCH", 2)
    assert np.array_equal(feature_matrix(seen, 2), whole)
    assert whole.shape == (5, 27)


def test_features_have_names() -> None:
    assert feature_name(30, "auto", (1, 28, 28)) == "pixel[1, 2]"
    assert feature_name(256 + 17, "auto", (3, 32, 32)) == "cell[1, 1, 1]"
    assert feature_name(5, 4, (1, 8, 8 * 4)) == "cell[0, 5]"


@pytest.mark.parametrize("features", [0, 29, True, "pixels"])
def test_features_that_do_not_fit_are_refused(features: object) -> None:
    with pytest.raises(UserError, match="'auto'"):
        cell_for(features, (1, 28, 28))  # type: ignore[arg-type]


def test_a_rule_is_drawn_where_it_looks() -> None:
    image = np.full((1, 8, 8), 0.5, dtype=np.float32)
    rule = PixelRule(0, 9, 1.0, above={2 * 8 + 3: 0.4, 63: 0.1}, up_to={5: 0.2, 63: 0.6, 8: 0.99})
    picture = draw_rule(rule, image)
    scale = len(picture) // 8
    assert picture.shape == (8 * scale, 8 * scale, 3)
    corner = picture[::scale, ::scale]
    centre = picture[scale // 2 :: scale, scale // 2 :: scale]
    wanted = {(2, 3): RED, (0, 5): GREEN, (7, 7): AMBER, (1, 0): GREEN}
    for row in range(8):
        for column in range(8):
            colour = wanted.get((row, column), (128, 128, 128))
            assert tuple(corner[row, column]) == colour
            tinted = (row, column) in wanted and (row, column) != (1, 0)
            assert (tuple(centre[row, column]) != (128, 128, 128)) == tinted
    assert np.array_equal(np.asarray(Image.open(BytesIO(to_png(picture)))), picture)


def test_cells_of_colour_images_are_drawn_as_squares() -> None:
    image = np.zeros((3, 4, 6), dtype=np.float32)
    picture = draw_rule(PixelRule(0, 9, 1.0, above={6 + 4: 0.5}, up_to={12: 0.5}), image, cell=2)
    side = 2 * (len(picture) // 4)
    assert tuple(picture[side, side]) == RED
    assert tuple(picture[0, 0]) == GREEN
    assert not picture[:side, side:].any()
