from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Needs, Observation, Supervisor, Trace
from secondguess.supervisors import registry


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))


FEATURES = Trace()


class ClassMeanDistance(Supervisor):
    """Distance of the trace to the mean of its predicted class, plus whatever else can be observed."""

    name = "class_mean_distance"

    def __init__(self, trace: Trace = FEATURES, samples: int = 4, scale: float = 1.0) -> None:
        self.trace = trace
        self.samples = samples
        self.scale = scale

    @property
    def needs(self) -> Needs:
        return Needs(logits=True, traces=frozenset({self.trace}), samples=self.samples, images=True)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        trace = observation.trace(self.trace)
        truth = observation.predictions if labels is None else labels
        self.means_ = np.stack([trace[truth == k].mean(axis=0) for k in range(observation.num_classes)])
        self.brightness_ = float(_pixels(observation).mean())

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        distance = np.linalg.norm(observation.trace(self.trace) - self.means_[observation.predictions], axis=1)
        assert observation.samples is not None
        assert observation.logits is not None
        disagreement = observation.samples.var(axis=1).sum(axis=1)
        margin = -np.ptp(observation.logits, axis=1)
        glare = np.abs(_pixels(observation).mean(axis=(1, 2, 3)) - self.brightness_)
        return self.scale * (distance + disagreement + 0.1 * margin + glare)


def _pixels(observation: Observation) -> NDArray[np.float32]:
    assert observation.pixels is not None
    return observation.pixels[0 : len(observation)]


@pytest.fixture
def class_mean_distance() -> type[ClassMeanDistance]:
    return ClassMeanDistance
