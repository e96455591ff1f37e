from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secondguess import Observation, UserError, check_supervisor
from secondguess.supervisors.logits import Energy, MaxLogit, energy, max_logit

Floats = NDArray[np.float64]


@pytest.fixture
def logits() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 8, (300, 10)).astype(np.float32)


def seen(logits: NDArray[np.float32]) -> Observation:
    return Observation(scipy.special.softmax(logits.astype(np.float64), axis=1), logits=logits)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 7.5, 1000.0])
def test_energy_agrees_with_scipy(logits: NDArray[np.float32], temperature: float) -> None:
    expected = -temperature * scipy.special.logsumexp(logits.astype(np.float64) / temperature, axis=1)
    np.testing.assert_allclose(energy(logits, temperature), expected, rtol=1e-12)
    np.testing.assert_array_equal(Energy(temperature).score(seen(logits)), energy(logits, temperature))


def test_max_logit_is_minus_the_largest(logits: NDArray[np.float32]) -> None:
    expected = [-max(row) for row in logits.tolist()]
    assert max_logit(logits).tolist() == expected
    assert MaxLogit().score(seen(logits)).tolist() == expected


def test_energy_is_the_log_of_the_largest_probability_less_the_largest_logit(logits: NDArray[np.float32]) -> None:
    """Liu et al., equation 7."""
    observation = seen(logits)
    np.testing.assert_allclose(
        np.log(observation.confidences), energy(logits) - max_logit(logits), rtol=1e-9, atol=1e-12
    )


@settings(deadline=None, max_examples=50)
@given(shift=st.floats(-50, 50), seed=st.integers(0, 1000))
def test_a_constant_added_to_all_logits_lowers_suspicion_by_as_much(shift: float, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, (20, 4))
    np.testing.assert_allclose(energy(logits + shift), energy(logits) - shift, atol=1e-9)
    np.testing.assert_allclose(max_logit(logits + shift), max_logit(logits) - shift, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), temperature=st.floats(0.01, 100))
def test_energy_lies_below_max_logit_by_at_most_t_log_k(seed: int, temperature: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, (20, 4))
    gap = max_logit(logits) - energy(logits, temperature)
    assert (gap >= -1e-9).all()
    assert (gap <= temperature * np.log(4) + 1e-9).all()


def test_huge_and_infinite_logits_neither_overflow_nor_warn() -> None:
    rows = np.array([[1e30, -1e30], [-1e30, -1e30], [0.0, -np.inf], [-np.inf, -np.inf]])
    assert energy(rows).tolist() == [-1e30, 1e30, 0.0, np.inf]


@pytest.mark.parametrize("supervisor", [Energy(), Energy(temperature=5), MaxLogit()])
def test_log_probabilities_are_noticed(logits: NDArray[np.float32], supervisor: Energy | MaxLogit) -> None:
    logs = scipy.special.log_softmax(logits, axis=1)
    with pytest.warns(
        UserWarning, match=rf"to '{supervisor.name}' are logarithms .* a model that returns logits"
    ) as told:
        supervisor.score(seen(logs))
    assert [one.filename for one in told] == [__file__]
    mixed = logs.copy()
    mixed[200] += 0.01
    supervisor.score(seen(mixed))
    supervisor.score(seen(logits))
    supervisor.score(seen(logs[:1]))


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(
        UserError, match=rf"The temperature of the energy is {temperature}; it must be a number above 0"
    ):
        Energy(temperature)


@pytest.mark.parametrize("kind", [Energy, MaxLogit])
def test_a_model_without_logits_is_told_so(kind: type[Energy | MaxLogit]) -> None:
    with pytest.raises(UserError, match=rf"'{kind.name}' needs logits, which this observation does not hold"):
        kind().score(Observation(np.full((3, 2), 0.5)))


@pytest.mark.parametrize("supervisor", [Energy(), Energy(temperature=10), MaxLogit()])
def test_the_contract_is_kept(supervisor: Energy | MaxLogit) -> None:
    assert not supervisor.requires_fit
    assert "check_save_and_load" in check_supervisor(supervisor)
