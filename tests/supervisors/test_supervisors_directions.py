"""NNGuide, SHE and the normalised Mahalanobis distance against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from secondguess import Observation, Trace, UserError, check_supervisor
from secondguess.supervisors import make
from secondguess.supervisors.nnguide import NNGuide
from secondguess.supervisors.normalised_mahalanobis import NormalisedMahalanobis
from secondguess.supervisors.she import SimplifiedHopfield

WIDTH, CLASSES = 6, 3


def draw(rows: int, seed: int, shift: float = 4.0) -> tuple[Observation, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    centres = np.random.default_rng(5).normal(0, 3, (CLASSES, WIDTH))
    traces = (centres[labels] + rng.normal(0, 1, (rows, WIDTH))).astype(np.float32)
    logits = (2 * np.eye(CLASSES)[labels] + rng.normal(0, 1, (rows, CLASSES)) + shift).astype(np.float32)
    return Observation(softmax(logits.astype(np.float64), axis=1), logits=logits, traces={Trace(): traces}), labels


def units(traces: NDArray[np.float32]) -> NDArray[np.float64]:
    return traces.astype(np.float64) / np.linalg.norm(traces.astype(np.float64), axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_guidance_is_the_papers_product(k: int) -> None:
    (training, _), (queries, _) = draw(200, 0), draw(30, 1)
    assert training.logits is not None
    assert queries.logits is not None
    bank = logsumexp(training.logits, axis=1)[:, None] * units(training.trace("penultimate"))
    expected = [
        -logsumexp(f) * np.sort(bank @ z)[-min(k, 200) :].mean()
        for f, z in zip(queries.logits.astype(np.float64), units(queries.trace("penultimate")), strict=True)
    ]
    np.testing.assert_allclose(NNGuide(k=k).fit(training).score(queries), expected, rtol=1e-5)


def test_guidance_keeps_no_more_than_asked() -> None:
    training, _ = draw(200, 0)
    fitted = NNGuide(kept=50, seed=3).fit(training)
    assert fitted.bank_.shape == (50, WIDTH)
    np.testing.assert_array_equal(fitted.bank_, NNGuide(kept=50, seed=3).fit(training).bank_)


def test_guidance_is_not_turned_round_by_a_constant_in_the_logits() -> None:
    (training, _), (queries, _) = draw(200, 0), draw(30, 1)
    expected = NNGuide().fit(training).score(queries)
    with pytest.warns(UserWarning, match="their log-sum-exp is negative, so 'nnguide' takes their mean away first"):
        low = NNGuide().fit(draw(200, 0, -40.0)[0])
    found = low.score(draw(30, 1, -40.0)[0])
    assert np.corrcoef(found, expected)[0, 1] > 0.8


def test_patterns_are_means_of_what_the_model_gets_right() -> None:
    (training, labels), (queries, _) = draw(300, 0), draw(30, 1)
    traces, right = training.trace("penultimate").astype(np.float64), training.predictions == labels
    patterns = [traces[right & (labels == c)].mean(axis=0) for c in range(CLASSES)]
    expected = [
        -patterns[y] @ h
        for y, h in zip(queries.predictions, queries.trace("penultimate").astype(np.float64), strict=True)
    ]
    np.testing.assert_allclose(SimplifiedHopfield().fit(training, labels).score(queries), expected, rtol=1e-9)


def test_a_class_that_is_never_right_has_the_mean_pattern() -> None:
    training, labels = draw(300, 0)
    spoilt = np.where(labels == 2, 0, labels)
    fitted = SimplifiedHopfield().fit(training, spoilt)
    np.testing.assert_allclose(fitted.patterns_[2], fitted.patterns_[:2].mean(axis=0))
    with pytest.raises(UserError, match="right about none of these 300 images, so 'she' has no pattern"):
        SimplifiedHopfield().fit(training, (training.predictions + 1) % CLASSES)


def test_the_normalised_distance_is_the_papers() -> None:
    (training, labels), (queries, _) = draw(300, 0), draw(30, 1)
    z, asked = units(training.trace("penultimate")), units(queries.trace("penultimate"))
    means = np.stack([z[labels == c].mean(axis=0) for c in range(CLASSES)])
    around = z - means[labels]
    inverse = np.linalg.inv(around.T @ around / len(z))
    expected = [min((one - mean) @ inverse @ (one - mean) for mean in means) for one in asked]
    found = NormalisedMahalanobis().fit(training, labels).score(queries)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_length_of_a_trace_plays_no_part() -> None:
    (training, labels), (queries, _) = draw(300, 0), draw(30, 1)
    fitted = NormalisedMahalanobis().fit(training, labels)
    longer = Observation(queries.probabilities, traces={Trace(): 8 * queries.trace("penultimate")})
    np.testing.assert_allclose(fitted.score(longer), fitted.score(queries), rtol=1e-9)


@pytest.mark.parametrize("name", ["nnguide", "she", "normalised_mahalanobis"])
def test_traces_of_zeros_make_no_nan(name: str) -> None:
    training, labels = draw(300, 0)
    zeros = training.take(slice(0, 4)).replace(traces={Trace(): np.zeros((4, WIDTH), np.float32)})
    assert np.isfinite(make(name).fit(training, labels).score(zeros)).all()


def test_classes_that_do_not_vary_are_said_to() -> None:
    constant = np.repeat(np.eye(CLASSES, WIDTH, dtype=np.float32), 10, axis=0)
    seen = Observation(np.repeat(np.eye(CLASSES), 10, axis=0), traces={Trace(): constant})
    with pytest.warns(UserWarning, match="do not vary within the classes, so the normalised Mahalanobis"):
        assert (NormalisedMahalanobis().fit(seen).score(seen) == 0).all()


@pytest.mark.parametrize("name", ["nnguide", "nnguide:k=3:kept=100", "she", "normalised_mahalanobis"])
def test_it_keeps_the_contract(name: str) -> None:
    check_supervisor(make(name))


@pytest.mark.parametrize(("k", "kept"), [(0, 10), (1.5, 10), (1, 0)])
def test_parameters_are_checked(k: int, kept: int) -> None:
    with pytest.raises(UserError, match="both must be whole numbers from 1 on"):
        NNGuide(k=k, kept=kept)
