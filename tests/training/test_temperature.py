from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from secondguess.errors import UserError
from secondguess.training import apply_temperature, fit_temperature, merged_temperature, temperature_part


def simulated(temperature: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose probabilities are right at this temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=3.0, size=(n, 5))
    labels = np.array([rng.choice(5, p=p) for p in softmax(logits / temperature, axis=1)])
    return logits, labels


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 8.0])
def test_recovers_a_known_temperature(temperature):
    assert fit_temperature(*simulated(temperature, 20_000)) == pytest.approx(temperature, rel=0.06)


@pytest.mark.parametrize("scale", [0.02, 0.1, 10.0, 255.0, 3000.0])
def test_finds_temperatures_of_a_hundredth_and_of_thousands(scale):
    logits, labels = simulated(1.0, 2000)
    logits = logits * scale
    targets = np.eye(5)[labels]
    nll = lambda u: -np.mean((targets * log_softmax(logits / np.exp(u), axis=1)).sum(axis=1))  # noqa: E731
    found = minimize_scalar(nll, bounds=(np.log(0.01), np.log(10_000)), method="bounded", options={"xatol": 1e-10})
    fitted = fit_temperature(logits, labels)
    assert fitted == pytest.approx(np.exp(found.x), rel=1e-5)
    assert fitted == pytest.approx(scale * fit_temperature(logits / scale, labels), rel=1e-9)
    assert nll(np.log(fitted)) <= min(nll(u) for u in np.log(np.geomspace(0.01, 10_000, 1000))) + 1e-12


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("soft", [False, True])
def test_equals_a_direct_minimisation(seed, soft):
    logits, labels = simulated(2.0, 200, seed)
    targets = 0.8 * np.eye(5)[labels] + 0.04
    nll = lambda t: -np.mean((targets * log_softmax(logits / t, axis=1)).sum(axis=1))  # noqa: E731
    if not soft:
        targets = np.eye(5)[labels]
    found = minimize_scalar(nll, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9})
    fitted = fit_temperature(logits, targets if soft else labels)
    assert fitted == pytest.approx(found.x, rel=1e-5)
    assert nll(fitted) <= min(nll(t) for t in np.geomspace(0.05, 20, 500)) + 1e-12


def test_degenerate_logits():
    labels = np.array([0, 1, 0])
    assert fit_temperature(np.eye(2)[labels], labels) == 0.01
    assert fit_temperature(np.eye(2)[1 - labels], labels) == 10_000.0
    assert fit_temperature(np.ones((3, 2)), labels) == 1.0
    assert fit_temperature(1e30 * np.eye(2)[labels], labels) == 0.01


def test_apply_is_a_softmax():
    logits = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32) * 1000
    probabilities = apply_temperature(logits, 1.7)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities, softmax(logits.astype(np.float64) / 1.7, axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros(3), np.zeros(3, int), r"shape \(3,\)"),
        (np.zeros((3, 1)), np.zeros(3, int), "K ≥ 2"),
        (np.zeros((0, 2)), np.zeros(0, int), "n ≥ 1"),
        (np.array([[0.0, np.nan]]), np.zeros(1, int), "NaN or infinity"),
        (np.zeros((3, 2)), np.zeros(2, int), "3 images but 2 labels"),
        (np.zeros((3, 2)), np.full(3, 2), "labels go up to 2"),
        (np.zeros((3, 2)), np.full(3, -1), "negative"),
        (np.zeros((3, 2)), np.full((3, 4), 0.25), "soft labels have the shape"),
    ],
)
def test_bad_input(logits, labels, message):
    with pytest.raises(UserError, match=message):
        fit_temperature(logits, labels)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_bad_temperature(temperature):
    with pytest.raises(UserError, match="greater than 0"):
        apply_temperature(np.zeros((1, 2)), temperature)


@settings(max_examples=25, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 199), max_size=8, unique=True),
    kind=st.sampled_from([np.float32, np.float64]),
    soft=st.booleans(),
)
def test_a_temperature_of_parts_is_that_of_the_whole(cuts, kind, soft):
    rng = np.random.default_rng(len(cuts))
    logits = (3 * rng.standard_normal((200, 4))).astype(kind)
    labels = rng.dirichlet(np.ones(4), 200) if soft else rng.integers(0, 4, 200)
    edges = [0, *sorted(cuts), 200]
    parts = [temperature_part(logits[low:high], labels[low:high]) for low, high in pairwise(edges)]
    assert merged_temperature(parts) == fit_temperature(logits, labels)


def test_a_part_that_cannot_be_used_is_refused_where_it_is():
    with pytest.raises(UserError, match="NaN or infinity"):
        temperature_part(np.array([[0.0, np.nan]]), np.array([0]))
    with pytest.raises(UserError, match="labels go up to 5"):
        temperature_part(np.zeros((2, 3)), np.array([0, 5]))
