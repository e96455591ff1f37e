"""An audit whose classifier has an engine: workers score, what they cannot score is scored here, and nothing twice."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, Needs, Observation, Supervisor, Trace
from secondguess.audits.context import Context
from secondguess.model import shards

BATCH = 20  # so that more than 40 images are worth an engine's while
IMAGES = 130


class Norm(Supervisor):
    """The length of the traces, with a warning."""

    name = "norm"
    requires_fit = False

    @property
    def needs(self) -> Needs:
        return Needs(traces=frozenset({Trace()}))

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        warnings.warn("Lengths are no proof.", stacklevel=2)
        return np.linalg.norm(observation.trace("penultimate"), axis=1)


class Delicate(Norm):
    """Fails where there are more than a few images, and fewer than all."""

    name = "delicate"

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        if 8 < len(observation) < IMAGES:
            raise ValueError("neither few nor all")
        return -np.linalg.norm(observation.trace("penultimate"), axis=1)


class Homebody(Norm):
    """Holds what cannot be pickled, as an ensemble does."""

    name = "homebody"

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        with self._lock:
            return observation.trace("penultimate").max(axis=1)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Who scored how many images on the road of the engines."""
    scored: list[tuple[str, int]] = []
    bare = shards._scores

    def noted(scorer: Any, observation: Observation) -> Any:
        scored.append((scorer.name, len(observation)))
        return bare(scorer, observation)

    monkeypatch.setattr(shards, "_scores", noted)
    return scored


def audited(net: nn.Module, digits: Dataset, folder: Path, engine: str | None, **more: Any) -> AuditResult:
    classifier = Classifier(net, name="tiny", device="cpu", batch_size=BATCH, engine=engine)
    how: dict[str, Any] = {"supervisors": ["max_softmax", "knn", "mc_dropout_pe", Norm(), Delicate(), Homebody()]}
    how |= {"stress": ["corrupted"], "sections": ["accuracy", "risk", "supervisors"], "minutes": None}
    test, train = digits.test.head(IMAGES, seed=1), digits.train.head(300, seed=1)
    return sg.audit(classifier, test=test, train=train, folder=folder, **how | more)


def numbers(result: AuditResult) -> dict[str, Any]:
    assert not result.failed, result.failed[0].reason
    return {name: one for name, one in result.numbers.items() if "seconds" not in name}


def test_workers_score_what_can_be_sent(
    net: nn.Module, digits: Dataset, tmp_path: Path, there: list[tuple[str, int]]
) -> None:
    plain = audited(net, digits, tmp_path / "plain", None)
    assert not there
    found = audited(net, digits, tmp_path / "engine", "local:1")
    assert numbers(found) == numbers(plain)
    assert found.numbers["supervisor.knn.microseconds"].value > 0
    images = {name: sum(count for who, count in there if who == name) for name, _ in there}
    assert images == dict.fromkeys(["max_softmax", "knn", "mc_dropout_pe", "norm", "delicate"], 2 * IMAGES)
    for folder in ("plain", "engine"):
        assert "Lengths are no proof." in (tmp_path / folder / "report.html").read_text("utf-8")


def test_a_second_audit_reads_the_scores_of_the_first(
    net: nn.Module, digits: Dataset, tmp_path: Path, there: list[tuple[str, int]]
) -> None:
    usable = {"supervisors": ["max_softmax", "knn"]}
    first = audited(net, digits, tmp_path, "local:1", **usable)
    assert there
    there.clear()
    second = audited(net, digits, tmp_path, "local:1", **usable)
    assert not there and numbers(second) == numbers(first)
    assert second.numbers["supervisor.knn.microseconds"] == first.numbers["supervisor.knn.microseconds"]
    audited(net, digits, tmp_path, "local:1", supervisors=["max_softmax", "knn:k=7"])
    assert {who for who, _ in there} == {"knn"}  # another one, of whom nothing is known


def test_nobody_is_fitted_where_no_section_reads_scores(
    net: nn.Module, digits: Dataset, tmp_path: Path, there: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "fitted", property(lambda self: pytest.fail("nobody asked for scores")))
    found = audited(net, digits, tmp_path, "local:1", sections=["accuracy", "calibration"])
    assert not there and not found.failed


def test_an_audit_goes_on_where_no_supervisor_can_be_used(net: nn.Module, digits: Dataset, tmp_path: Path) -> None:
    class Broken(Norm):
        name = "broken"

        def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
            raise ValueError("never")

    found = audited(net, digits, tmp_path, "local:1", supervisors=[Broken()], sections=["accuracy", "risk"])
    assert [one.name for one in found.failed] == ["risk"]
    assert "None of the supervisors can be used" in found.failed[0].reason
