from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.covariance import EmpiricalCovariance
from torch import nn

from secondguess import Classifier, Observation, Trace, UserError, check_supervisor
from secondguess.supervisors.logits import energy
from secondguess.supervisors.vim import ViM, _rule

Floats = NDArray[np.float64]
WIDTH, CLASSES = 8, 3


@pytest.fixture
def layer() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    return rng.normal(0, 1, (CLASSES, WIDTH)), rng.normal(0, 2, CLASSES)


def draw(rows: int, seed: int, scale: float = 1.0) -> NDArray[np.float32]:
    """ReLU features: never negative, correlated, far from the origin."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(0, 1, (WIDTH, WIDTH))
    return np.maximum(0, scale * rng.normal(1, 1, (rows, WIDTH)) @ mixing + 1).astype(np.float32)


def seen(traces: NDArray[np.float32], layer: tuple[Floats, Floats]) -> Observation:
    logits = (traces.astype(np.float64) @ layer[0].T + layer[1]).astype(np.float32)
    return Observation(softmax(logits.astype(np.float64), axis=1), logits=logits, traces={Trace(): traces})


def referee(
    queries: Observation, training: Observation, layer: tuple[Floats, Floats], dimension: int
) -> tuple[Floats, Floats, float]:
    """The authors' recipe, step by step with the true W and b: scores, origin and alpha."""
    weight, bias = layer
    origin = -np.linalg.pinv(weight) @ bias
    shifted = training.trace("penultimate").astype(np.float64) - origin
    eigenvalues, eigenvectors = np.linalg.eigh(EmpiricalCovariance(assume_centered=True).fit(shifted).covariance_)
    residual = eigenvectors[:, np.argsort(-eigenvalues)[dimension:]]
    assert training.logits is not None
    assert queries.logits is not None
    alpha = float(training.logits.max(axis=1).mean() / np.linalg.norm(shifted @ residual, axis=1).mean())
    virtual = alpha * np.linalg.norm((queries.trace("penultimate") - origin) @ residual, axis=1)
    return virtual - logsumexp(queries.logits.astype(np.float64), axis=1), origin, alpha


@pytest.mark.parametrize("dimension", [None, 0, 2, 7])
def test_it_is_the_authors_recipe_without_seeing_the_weights(
    layer: tuple[Floats, Floats], dimension: int | None
) -> None:
    training, queries = seen(draw(500, 1), layer), seen(draw(50, 2, 4.0), layer)
    supervisor = ViM(dimension=dimension).fit(training)
    scores, origin, alpha = referee(queries, training, layer, WIDTH // 2 if dimension is None else dimension)
    np.testing.assert_allclose(supervisor.origin_, origin, rtol=1e-4, atol=1e-4)
    assert supervisor.alpha_ == pytest.approx(alpha, rel=1e-4)
    np.testing.assert_allclose(supervisor.score(queries), scores, rtol=1e-4, atol=1e-3)


def test_the_origin_comes_out_of_a_real_network() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        last = nn.Linear(6, 4)
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), last).eval()
    images = np.random.default_rng(0).random((400, 1, 4, 4), dtype=np.float32)
    observation = Classifier(net, device="cpu", output_kind="logits").observe(images, ViM().needs)
    weight, bias = last.weight.detach().double().numpy(), last.bias.detach().double().numpy()
    np.testing.assert_allclose(ViM().fit(observation).origin_, -np.linalg.pinv(weight) @ bias, rtol=1e-3, atol=1e-4)


def test_dead_neurons_leave_the_logits_as_they_are(layer: tuple[Floats, Floats]) -> None:
    alive = draw(500, 1)
    weight = np.concatenate([layer[0], np.ones((CLASSES, 2))], axis=1)
    training = seen(np.concatenate([alive, np.zeros((500, 2), np.float32)], axis=1), (weight, layer[1]))
    supervisor = ViM(dimension=4).fit(training)
    expected, _, _ = referee(seen(alive, layer), seen(alive, layer), layer, 4)
    np.testing.assert_allclose(supervisor.score(training), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("width", "dimension"), [(1, 0), (84, 42), (767, 383), (768, 512), (2047, 512), (2048, 1000)])
def test_the_authors_rule_for_the_dimension(width: int, dimension: int) -> None:
    assert _rule(width) == dimension


def test_leaving_the_space_of_the_training_data_is_suspicious(layer: tuple[Floats, Floats]) -> None:
    training = seen(draw(500, 1), layer)
    supervisor = ViM().fit(training)
    away = training.trace("penultimate") + 100 * supervisor.residual_[:, 0].astype(np.float32)
    moved = Observation(training.probabilities, logits=training.logits, traces={Trace(): away})
    assert (supervisor.score(moved) > supervisor.score(training)).all()


def test_without_a_residual_the_energy_is_left_and_said_so(layer: tuple[Floats, Floats]) -> None:
    flat = np.zeros((100, WIDTH), np.float32)
    flat[:, :2] = draw(100, 1)[:, :2]
    observation = seen(flat, (layer[0], np.zeros(CLASSES)))
    with pytest.warns(UserWarning, match="lie within 4 dimensions, so ViM finds no residual and falls back to the"):
        supervisor = ViM().fit(observation)
    assert observation.logits is not None
    np.testing.assert_array_equal(supervisor.score(observation), energy(observation.logits))


def test_a_layer_that_does_not_feed_the_last_one_is_noticed(layer: tuple[Floats, Floats]) -> None:
    observation = seen(draw(500, 1), layer)
    other = Observation(observation.probabilities, logits=observation.logits, traces={Trace(): draw(500, 7)})
    with pytest.warns(
        UserWarning, match=r"no linear function of the traces .* \(9\d% of their variance is left over\)"
    ):
        assert np.isfinite(ViM().fit(other).score(other)).all()


@pytest.mark.parametrize("shift", [-30.0, -1000.0])
def test_negative_logits_leave_the_residual_a_reason_for_suspicion(layer: tuple[Floats, Floats], shift: float) -> None:
    """A constant in the bias changes no prediction; a negative alpha would reward being far away."""
    shifted = (layer[0], layer[1] + shift)
    training = seen(draw(500, 1), shifted)
    with pytest.warns(UserWarning, match=r"largest logit of a training image is -.* on average, so ViM scales"):
        supervisor = ViM().fit(training)
    assert training.logits is not None
    lengths = np.linalg.norm((training.trace("penultimate") - supervisor.origin_) @ supervisor.residual_, axis=1)
    f = training.logits.astype(np.float64)
    assert supervisor.alpha_ == pytest.approx((f.max(axis=1) - f.mean(axis=1)).mean() / lengths.mean(), rel=1e-6)
    away = training.trace("penultimate") + 100 * supervisor.residual_[:, 0].astype(np.float32)
    moved = Observation(training.probabilities, logits=training.logits, traces={Trace(): away})
    assert (supervisor.score(moved) > supervisor.score(training)).all()


def test_log_probabilities_are_noticed_once(layer: tuple[Floats, Floats]) -> None:
    observation = seen(draw(500, 1), layer)
    logs = np.log(observation.probabilities).astype(np.float32)
    with pytest.warns(UserWarning, match="given to 'vim' are logarithms of probabilities") as caught:
        supervisor = ViM().fit(Observation(observation.probabilities, logits=logs, traces=observation.traces))
    assert len(caught) == 1
    assert supervisor.alpha_ > 0


def test_traces_that_are_not_finite_are_suspicious_and_such_logits_are_refused(layer: tuple[Floats, Floats]) -> None:
    training = seen(draw(500, 1), layer)
    assert training.logits is not None
    expected = ViM().fit(training).score(training)
    logits, traces = training.logits.copy(), training.trace("penultimate").copy()
    logits[3], traces[3] = np.nan, np.nan
    for given in (training.logits, logits):  # NaN in a trace is NaN in the logits, most often
        broken = Observation(training.probabilities, logits=given, traces={Trace(): traces}, checked=True)
        scores = ViM().fit(training).score(broken)
        assert scores[3] == np.inf
        np.testing.assert_allclose(np.delete(scores, 3), np.delete(expected, 3), rtol=1e-13)
    for checked in (False, True):
        with pytest.raises(UserError, match="The logits of image 3 hold NaN or infinity"):
            ViM().fit(Observation(training.probabilities, logits=logits, traces=training.traces, checked=checked))


def test_a_dimension_that_leaves_nothing_is_refused(layer: tuple[Floats, Floats]) -> None:
    with pytest.raises(UserError, match=r"has 8 dimensions, but the traces have 8 .* give a dimension below 8"):
        ViM(dimension=8).fit(seen(draw(50, 1), layer))
    with pytest.raises(UserError, match="dimension of the principal space is -1; it must be a whole number from 0"):
        ViM(dimension=-1)
    with pytest.raises(UserError, match=r"dimension of the principal space is 3\.0; it must be a whole number"):
        ViM(dimension=3.0)  # type: ignore[arg-type]
    assert ViM(dimension=np.int64(3)).dimension == 3  # type: ignore[arg-type]


def test_logits_are_needed_too(layer: tuple[Floats, Floats]) -> None:
    observation = seen(draw(50, 1), layer)
    with pytest.raises(UserError, match="'vim' needs logits"):
        ViM().fit(Observation(observation.probabilities, traces=observation.traces))


@pytest.mark.parametrize("supervisor", [ViM(), ViM(dimension=0), ViM(layers=Trace("features", "mean"), dimension=3)])
def test_the_contract_is_kept(supervisor: ViM) -> None:
    assert "check_save_and_load" in check_supervisor(supervisor)
