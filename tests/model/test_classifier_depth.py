from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess import Classifier, Needs, Trace, UserError, zoo


def seen(classifier: Classifier, images: NDArray[np.float32], *traces: Trace) -> dict[Trace, NDArray[np.float32]]:
    return dict(classifier.observe(images, Needs(traces=frozenset(traces))).traces)


@pytest.mark.parametrize("share", ["1%", "25%", "33.4%", "50%", "99%", "100%"])
def test_a_share_of_the_depth_is_the_layer_so_far_down_the_list(
    cnn: nn.Module, images: NDArray[np.float32], share: str
) -> None:
    classifier = Classifier(cnn, input_shape=(1, 8, 8))
    names = [layer.name for layer in classifier.layers()]
    expected = names[ceil(Fraction(share[:-1]) / 100 * len(names)) - 1]
    found = seen(classifier, images, Trace(share), Trace(expected))
    np.testing.assert_array_equal(found[Trace(share)], found[Trace(expected)])


def test_shares_of_a_network_of_nine_layers() -> None:
    names = [layer.name for layer in Classifier(zoo.make("simple_cnn", seed=0), input_shape=(1, 28, 28)).layers()]
    picked = [Trace(share).pick(names) for share in ("25%", "50%", "75%", "100%")]
    assert picked == ["pool1", "relu2", "flatten", "logits"]
    assert Trace("conv1").pick(names) == "conv1"


@pytest.mark.parametrize("share", ["0%", "101%", "-5%", "%", "half%", "1/0%", "nan%"])
def test_an_impossible_share_is_refused(share: str) -> None:
    with pytest.raises(UserError, match=rf"'{share}' is no share of a model's depth; use '25%'"):
        Trace(share)


def test_a_callable_has_no_depth(images: NDArray[np.float32]) -> None:
    classifier = Classifier(lambda x: np.full((len(x), 3), 1 / 3))
    with pytest.raises(UserError, match="needs traces, but"):
        seen(classifier, images, Trace("50%"))
    with pytest.raises(UserError, match="no layers that can be traced, so '50%' of its depth is nowhere"):
        Trace("50%").pick([])


def test_layers_without_one_row_an_image_are_not_listed(images: NDArray[np.float32]) -> None:
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.window = nn.Linear(16, 5)
            self.head = nn.Linear(20, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.window(x.reshape(-1, 16)).reshape(len(x), -1))

    classifier = Classifier(Windows(), output_kind="logits", input_shape=(1, 8, 8))
    assert [layer.name for layer in classifier.layers()] == ["head"]
    assert seen(classifier, images, Trace("10%"))[Trace("10%")].shape == (19, 3)


@pytest.mark.parametrize(
    ("shape", "side"), [((3, 8, 8), 4), ((32, 12, 4), 4), ((200, 12, 12), 3), ((500, 6, 6), 2), ((600, 7, 7), 1)]
)
def test_grid_is_average_pooling(shape: tuple[int, ...], side: int) -> None:
    values = np.random.default_rng(0).random((5, *shape), dtype=np.float32)
    cells = (min(side, shape[1]), min(side, shape[2]))
    expected = nn.functional.adaptive_avg_pool2d(torch.from_numpy(values), cells).flatten(1).numpy()
    found = Trace("conv", "grid").apply(values)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == np.float32
    assert found.shape[1] == Trace("conv", "grid").width(shape) <= 2048


@pytest.mark.parametrize("size", [5, 7, 11])
def test_cells_that_do_not_divide_evenly_share_all_positions(size: int) -> None:
    values = np.random.default_rng(1).random((3, 2, size, size), dtype=np.float32)
    edges = np.arange(5) * size // 4
    expected = np.array(
        [
            [[[channel[a:b, c:d].mean() for c, d in pairwise(edges)] for a, b in pairwise(edges)] for channel in image]
            for image in values
        ]
    )
    np.testing.assert_allclose(Trace("x", "grid").apply(values), expected.reshape(3, -1), rtol=1e-5)


@pytest.mark.parametrize(
    "shape", [(7,), (5000,), (2048,), (6, 9), (6, 3000), (3, 2, 2), (2500, 3, 3), (4, 2, 5, 6), (40, 9, 9, 9)]
)
@pytest.mark.parametrize("reduce", ["flatten", "mean", "grid"])
def test_width_says_how_wide_the_trace_is(shape: tuple[int, ...], reduce: str) -> None:
    trace = Trace("x", reduce)  # type: ignore[arg-type]
    found = trace.apply(np.ones((2, *shape), dtype=np.float32))
    assert found.shape == (2, trace.width(shape))
    np.testing.assert_allclose(found, 1, rtol=1e-6)
    assert reduce != "grid" or found.shape[1] <= 2048
