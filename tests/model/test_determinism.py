from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Classifier, Guard, audit, load
from secondguess.model.determinism import warn_if_random

DIGITS = load("digits")
TWICE = "gives other probabilities when it is asked about the same images again"


class Wavering:
    """Logits that depend on the image, and on how often it was asked."""

    def __init__(self, by: float) -> None:
        self.by, self.calls = by, 0

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        self.calls += 1
        return images.reshape(len(images), -1)[:, 20:30] * 5 + self.by * (self.calls % 2) * np.arange(10)


def test_a_random_model_is_said_once() -> None:
    classifier = Classifier(Wavering(1))
    with pytest.warns(UserWarning, match=TWICE) as heard:
        warn_if_random(classifier, DIGITS.test.head(40))
        warn_if_random(classifier, DIGITS.test.head(50))
    assert len(heard) == 1
    assert classifier.is_repeatable is False


def test_a_guard_of_a_random_model_is_said() -> None:
    guard = Guard(["entropy"], false_alarms=0.1, rule="bonferroni")
    with pytest.warns(UserWarning, match=TWICE):
        guard.fit(Classifier(Wavering(1)), DIGITS.train, DIGITS.test.head(200), stress=None)
    assert guard.classifier.is_repeatable is False


def test_rounding_is_no_randomness() -> None:
    classifier = Classifier(Wavering(1e-6))
    warn_if_random(classifier, DIGITS.test.head(40))
    assert classifier.is_repeatable is True


def test_a_cache_and_an_audit_say_it_too(tmp_path: Path) -> None:
    classifier = Classifier(Wavering(1), version="1", cache=tmp_path)
    with pytest.warns(UserWarning, match=TWICE):
        classifier.observe(DIGITS.test.head(40))
    with pytest.warns(UserWarning, match=TWICE):
        result = audit(
            Wavering(1), test=DIGITS.test.head(60), sections=["accuracy"], supervisors=["entropy"], stress=()
        )
    assert result.to_dict()["model"]["repeatable"] is False
    result.save(tmp_path / "audit")
    assert "gives other answers when it is asked about the same images again" in (
        tmp_path / "audit" / "report.html"
    ).read_text("utf-8")
