from __future__ import annotations

from collections.abc import Callable
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import entropy as scipy_entropy
from torch import nn

from secondguess import Classifier, Needs, Observation, Supervisor, UserError, check_supervisor
from secondguess.supervisors import _sampling_scores
from secondguess.supervisors._sampling_scores import (
    mean_softmax,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)
from secondguess.supervisors.dropout import (
    DropoutMeanSoftmax,
    DropoutMutualInformation,
    DropoutPredictiveEntropy,
    DropoutVariationRatio,
)

KINDS: list[Any] = [
    DropoutVariationRatio,
    DropoutMeanSoftmax,
    DropoutMutualInformation,
    DropoutPredictiveEntropy,
]
FUNCTIONS = [variation_ratio, mean_softmax, mutual_information, predictive_entropy]


def drawn(n: int = 60, samples: int = 9, classes: int = 5, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.4), (n, samples)).astype(np.float32)


def literal(samples: NDArray[np.float32]) -> list[list[float]]:
    """The four scores of each image, number by number, as the formulas are written."""
    scores: list[list[float]] = [[], [], [], []]

    def entropy(p: list[float]) -> float:
        return -sum(x * log2(x) for x in p if x > 0)

    for image in samples.astype(np.float64).tolist():
        votes = [row.index(max(row)) for row in image]
        top = max(votes.count(k) for k in range(len(image[0])))
        mean = [sum(row[k] for row in image) / len(image) for k in range(len(image[0]))]
        scores[0].append(1 - top / len(image))
        scores[1].append(-max(mean))
        scores[2].append(entropy(mean) - sum(map(entropy, image)) / len(image))
        scores[3].append(entropy(mean))
    return scores


def test_the_scores_are_the_formulas() -> None:
    samples = drawn()
    for function, expected in zip(FUNCTIONS, literal(samples), strict=True):
        np.testing.assert_allclose(function(samples), expected, rtol=1e-9, atol=1e-12)


def test_entropies_are_those_of_scipy() -> None:
    samples = drawn().astype(np.float64)
    samples /= samples.sum(axis=2, keepdims=True)
    total = scipy_entropy(samples.mean(axis=1), base=2, axis=1)
    np.testing.assert_allclose(predictive_entropy(samples), total, rtol=1e-10)
    np.testing.assert_allclose(
        mutual_information(samples), total - scipy_entropy(samples, base=2, axis=2).mean(axis=1), atol=1e-10
    )


def test_known_cases() -> None:
    split = np.array([[[1.0, 0], [0, 1], [1, 0], [0, 1]]])
    unsure = np.full((1, 4, 2), 0.5)
    assert predictive_entropy(split) == predictive_entropy(unsure) == 1
    assert (mutual_information(split), mutual_information(unsure)) == (1, 0)
    assert mean_softmax(split) == mean_softmax(unsure) == -0.5
    assert variation_ratio(unsure) == 0  # every tie goes to the first class
    votes = np.array([[[0.2, 0.8], [0.4, 0.6], [0.9, 0.1]]])
    assert variation_ratio(votes) == pytest.approx(1 / 3)
    vectors = np.array([[0.1, 0.8, 0.08, 0.02], [0.2, 0.09, 0.7, 0.01], [0.1, 0.8, 0.05, 0.05], [0.4, 0.4, 0.1, 0.1]])
    np.testing.assert_allclose(
        predictive_entropy(vectors[:, None]), [0.994121, 1.203679, 1.021928, 1.721928], atol=1e-6
    )


def test_agreement_is_never_negative_information() -> None:
    same = np.repeat(drawn(500, 1), 30, axis=1)
    assert (mutual_information(same) >= 0).all()
    assert mutual_information(same).max() < 1e-12
    assert not np.signbit(predictive_entropy(np.eye(3)[None])).any()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_blocks_change_nothing(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    samples = drawn(101)
    whole = function(samples)
    monkeypatch.setattr(_sampling_scores, "BLOCK_BYTES", 7 * samples[0].size * 8)
    np.testing.assert_array_equal(function(samples), whole)
    monkeypatch.setattr(_sampling_scores, "BLOCK_BYTES", 1)
    np.testing.assert_array_equal(function(samples), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_is_kept(kind: type[Supervisor]) -> None:
    check_supervisor(kind)
    check_supervisor(kind(samples=7))  # type: ignore[call-arg]


@pytest.mark.parametrize(("kind", "function"), list(zip(KINDS, FUNCTIONS, strict=True)))
def test_a_supervisor_uses_its_own_number_of_samples(kind: Any, function: Callable[..., Any]) -> None:
    samples = drawn(40, 12)
    observation = Observation(samples.mean(axis=1).astype(np.float64), samples=samples)
    np.testing.assert_array_equal(kind(5).score(observation), function(samples[:, :5]))
    assert not np.array_equal(kind(5).score(observation), kind(12).score(observation))
    with pytest.raises(UserError, match="needs 13 dropout samples"):
        kind(13).score(observation)


@pytest.mark.parametrize("kind", KINDS)
def test_company_that_wants_more_samples_changes_no_score(
    kind: Any, cnn: nn.Module, images: NDArray[np.float32]
) -> None:
    nn.init.zeros_(cnn.head.bias)  # else one class always wins
    supervisor = kind(8)
    alone = Classifier(cnn, output_kind="logits").observe(images, supervisor.needs, seed=3)
    beside = Classifier(cnn, batch_size=5, output_kind="logits").observe(
        images, supervisor.needs | Needs(samples=50), seed=3
    )
    assert beside.samples is not None and beside.samples.shape[1] == 50
    np.testing.assert_allclose(supervisor.score(alone), supervisor.score(beside), rtol=1e-4, atol=1e-6)
    assert np.ptp(supervisor.score(alone)) > 0


def test_a_model_without_dropout_is_told_so() -> None:
    classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), output_kind="logits")
    needs = DropoutMutualInformation().needs
    with pytest.raises(UserError, match=r"'mc_dropout_mi' needs dropout, but .* use a torch module with torch.nn.Drop"):
        classifier.check(needs, "The supervisor 'mc_dropout_mi'")


@pytest.mark.parametrize("samples", [0, -3])
def test_no_samples_are_refused(samples: int) -> None:
    with pytest.raises(UserError, match=f"{samples} dropout samples were asked for; at least 1 is needed"):
        DropoutMeanSoftmax(samples)


def test_one_sample_is_a_single_opinion() -> None:
    samples = drawn(20, 1)
    observation = Observation(samples[:, 0].astype(np.float64), samples=samples)
    np.testing.assert_array_equal(DropoutVariationRatio(1).score(observation), np.zeros(20))
    np.testing.assert_allclose(DropoutMutualInformation(1).score(observation), 0, atol=1e-12)


def test_saved_and_loaded(tmp_path: Path) -> None:
    DropoutVariationRatio(17).save(tmp_path / "s.safetensors")
    assert DropoutVariationRatio.load(tmp_path / "s.safetensors").samples == 17
