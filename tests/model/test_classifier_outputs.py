from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from secondguess import Classifier, Needs, UserError
from secondguess.model.outputs import as_matrix, detect, softmax, to_probabilities

LOGITS = np.float32([[2.0, -1.0, 0.5], [0.0, 0.1, 0.2], [-3.0, 4.0, 1.0], [1.0, 1.0, 1.0], [9.0, 0.0, -9.0]])
PROBABILITIES = scipy.special.softmax(LOGITS.astype(np.float64), axis=1)
SCORES = np.float32([-4.0, -0.5, 0.0, 0.5, 4.0])
BLANK = np.zeros((5, 1, 2, 2), np.float32)


def predicted(answer: Any, **options: Any) -> np.ndarray:
    """What a classifier makes of a model that gives `answer` for the whole of `BLANK`."""
    return Classifier(lambda images: answer, **options).predict(BLANK)


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        LOGITS.astype(np.float16),
        LOGITS.tolist(),
        torch.from_numpy(LOGITS).requires_grad_(),
        LOGITS[:, :, None, None],
        PROBABILITIES,
        PROBABILITIES.astype(np.float32),
        PROBABILITIES.astype(np.float16),
        PROBABILITIES[:, :, None, None],
        np.log(PROBABILITIES),
    ],
    ids=["logits", "half", "list", "tensor", "maps", "double", "single", "half_p", "maps_p", "log_p"],
)
def test_every_convention_gives_the_same_probabilities(output: Any) -> None:
    found = predicted(output)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, PROBABILITIES, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 1, 1, 1)])
def test_one_column_is_the_second_of_two_classes(shape: tuple[int, ...]) -> None:
    positive = scipy.special.expit(SCORES.astype(np.float64))
    expected = np.stack([1 - positive, positive], axis=1)
    np.testing.assert_allclose(predicted(SCORES.reshape(shape)), expected, rtol=1e-6)
    np.testing.assert_allclose(predicted(positive.reshape(shape)), expected, rtol=1e-6)


def test_one_column_of_logits_gives_two_logits() -> None:
    seen = Classifier(lambda images: SCORES).observe(BLANK, Needs(logits=True))
    np.testing.assert_array_equal(seen.logits, np.stack([np.zeros(5), SCORES], axis=1))


def test_double_probabilities_near_one_stay_apart() -> None:
    wrong = np.array([1e-9, 1e-10, 1e-11, 1e-12, 1e-13])
    assert len(np.unique(np.float32(1 - wrong))) == 1
    found = predicted(np.stack([1 - wrong, wrong], axis=1))
    assert (np.diff(found[:, 0]) > 0).all()


def test_what_is_promised_is_believed() -> None:
    # Logits that happen to look like probabilities.
    np.testing.assert_allclose(
        predicted(PROBABILITIES, output_kind="logits"),
        scipy.special.softmax(np.float32(PROBABILITIES), axis=1),
        rtol=1e-6,
    )
    np.testing.assert_allclose(predicted(PROBABILITIES, output_kind="probabilities"), PROBABILITIES, rtol=1e-12)


@pytest.mark.parametrize("output", [LOGITS, np.float32(SCORES), PROBABILITIES * 2, np.abs(LOGITS)])
def test_logits_where_probabilities_are_promised(output: np.ndarray) -> None:
    with pytest.raises(
        UserError,
        match=r"Probabilities were expected.*say output_kind='logits' .--output-kind logits. if these are logits",
    ):
        predicted(output, output_kind="probabilities")


def test_independent_sigmoids_are_neither() -> None:
    with pytest.raises(UserError, match=r"rows sum to .*neither probabilities of exclusive classes nor"):
        predicted(scipy.special.expit(LOGITS))


def test_what_is_found_on_the_first_batch_is_checked_on_the_others() -> None:
    answers = iter([PROBABILITIES[:1], LOGITS[:1]])
    with pytest.raises(UserError, match="Probabilities were expected"):
        Classifier(lambda images: next(answers), batch_size=1).predict(BLANK[:2])


def test_logits_of_a_model_that_gives_probabilities() -> None:
    message = r"needs logits, but <lambda> \(a callable\) gives probabilities only; let the model return its logits"
    classifier = Classifier(lambda images: PROBABILITIES)
    with pytest.raises(UserError, match=message):
        classifier.observe(BLANK, Needs(logits=True))
    assert classifier.gives == {"probabilities"}
    with pytest.raises(UserError, match=message):
        Classifier(lambda images: PROBABILITIES, output_kind="probabilities").observe(BLANK, Needs(logits=True))
    assert Classifier(lambda images: LOGITS).gives == {"probabilities", "logits"}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            np.full((5, 3), np.nan),
            r"NaN or infinity for 5 of 5 images \(image 0, .*; check its weights and normalisation",
        ),
        (np.array([[0, 1], [1, 0], [np.inf, 0], [0, 1], [0, 1]]), r"NaN or infinity for 1 of 5 images \(image 2\); "),
        (LOGITS[:4], r"shape \(4, 3\) for 5 images; \(5, K\) with one score per class was expected"),
        (np.zeros((5, 3, 2, 2)), r"shape \(5, 3, 2, 2\) for 5 images"),
        (np.zeros((5, 0)), r"shape \(5, 0\) for 5 images"),
        (3.0, r"shape \(\) for 5 images"),
        ([[1, 2], [3]], "The callable returned list, which is not an array of numbers"),
        ("cat", "The callable returned str, which is not an array of numbers"),
        ({"scores": LOGITS}, "The callable returned dict, which is not an array of numbers"),
    ],
)
def test_outputs_that_cannot_be_read(output: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        predicted(output)


MATRICES = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.floats(-80, 80, width=32)
)


@given(MATRICES)
def test_softmax_equals_scipy_and_knows_no_shift(logits: np.ndarray) -> None:
    np.testing.assert_allclose(softmax(logits), scipy.special.softmax(logits.astype(np.float64), axis=1), rtol=1e-12)
    np.testing.assert_allclose(softmax(logits.astype(np.float64) + 700), softmax(logits), rtol=1e-9)


@given(MATRICES)
def test_probabilities_are_recognised_and_returned_unchanged(logits: np.ndarray) -> None:
    probabilities = softmax(logits)
    assert detect(probabilities) == "probabilities"
    values, none = to_probabilities(probabilities, "probabilities")
    assert none is None
    np.testing.assert_allclose(values, probabilities, rtol=1e-12)
    assert as_matrix(probabilities, len(logits)) is probabilities


class Peak(torch.nn.Module):
    """Two logits of the brightest pixel, which for an image of .5 lie between 0 and 1 and sum to 1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        peak = images.flatten(1).max(dim=1, keepdim=True).values
        return torch.cat([10 * peak - 4.55, 0.55 + 0 * peak], dim=1)


def test_one_image_whose_logits_look_like_probabilities_does_not_decide() -> None:
    grey = np.full((1, 1, 4, 4), 0.5, np.float32)
    classifier = Classifier(Peak(), device="cpu")
    np.testing.assert_allclose(classifier.predict(grey), softmax(np.array([[0.45, 0.55]])), rtol=1e-6)
    assert classifier.output_kind == "logits"


def test_what_a_few_images_look_like_counts_where_noise_says_nothing() -> None:
    class Picky(Peak):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if len(images) > 1:
                raise ValueError("one at a time")
            return super().forward(images)

    grey = np.full((1, 1, 4, 4), 0.5, np.float32)
    for model in (Picky(), lambda images: np.array([[0.45, 0.55]])):
        classifier = Classifier(model, device="cpu")
        np.testing.assert_allclose(classifier.predict(grey), [[0.45, 0.55]], rtol=1e-6)
        assert classifier.output_kind == "probabilities"


def test_what_is_known_of_the_outputs_is_settled_once() -> None:
    classifier = Classifier(Peak(), device="cpu")
    classifier.settle("auto")
    assert classifier.output_kind == "auto"
    classifier.settle("logits")
    classifier.settle("probabilities")
    assert classifier.output_kind == "logits"
