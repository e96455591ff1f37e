"""A softmax that says nothing is recognised, and a good one is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from secondguess import UserError
from secondguess.model.degenerate import find_degenerate

LABELS = np.arange(200) % 4


def answers(scale: float, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    """Probabilities (200, 4) that are mostly right, from logits of this size."""
    rng = np.random.default_rng(seed)
    return softmax(scale * (3 * np.eye(4)[LABELS] + noise * rng.normal(size=(200, 4))), axis=1)


def test_an_ordinary_softmax_is_fine():
    assert find_degenerate(answers(1.0), LABELS) is None
    assert find_degenerate(answers(1.0)) is None


def test_a_good_model_that_is_sure_of_easy_images_is_fine():
    probabilities = answers(12, noise=0.0)
    probabilities[:8] = [0.4, 0.35, 0.25, 0.0]  # its mistakes, of which it is not sure
    assert (probabilities.max(axis=1) >= 1 - 2.0**-24).mean() > 0.9
    assert find_degenerate(probabilities, LABELS) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturated(dtype):
    found = find_degenerate(answers(300).astype(dtype), LABELS)
    assert found is not None and found.name == "saturated" and found.share > 0.9
    wrong = int((answers(300).argmax(axis=1) != LABELS).sum())
    assert wrong > 1 and f"of {wrong} mistakes were made with 100%" in found.text
    assert find_degenerate(np.eye(4)[LABELS]).name == "saturated", "exact zeros and ones, no label known"


def test_constant_tied_and_one_class():
    constant = find_degenerate(np.tile([0.7, 0.1, 0.1, 0.1], (200, 1)), LABELS)
    assert constant.name == "constant" and "the same answer to all 200 images" in constant.text
    ties = answers(1.0)
    ties[:150] = [0.4, 0.4, 0.1, 0.1]
    assert find_degenerate(ties, LABELS).name == "tied" and find_degenerate(ties).share == pytest.approx(0.75, abs=0.01)
    lopsided = np.column_stack([np.full(200, 0.9), *(0.1 * answers(1.0)[:, :3].T)])
    lopsided /= lopsided.sum(axis=1, keepdims=True)
    assert find_degenerate(lopsided, LABELS).name == "one class"
    assert find_degenerate(lopsided, np.zeros(200, int)) is None, "images of one class are rightly predicted as one"
    assert find_degenerate(lopsided) is None


def test_single_images_and_bad_shapes():
    assert find_degenerate([[1.0, 0.0]], [0]) is None
    with pytest.raises(UserError, match=r"shape \(3,\)"):
        find_degenerate([0.2, 0.3, 0.5])
    found = find_degenerate(answers(300), LABELS)
    assert found.to_dict() == {"name": "saturated", "share": found.share, "text": found.text}
