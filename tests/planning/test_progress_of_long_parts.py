"""Nothing works in silence: every part that can take long reports often, of a total, in terms of work, not of time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess import progress as progress_module
from secondguess.accuracy.planned import plan_estimate
from secondguess.images import Dataset, load
from secondguess.planning import Part, Plan, Price
from secondguess.progress import Advance, at_work
from secondguess.stress.adversarial.surrogate import train_surrogate
from secondguess.supervisors import make

SHARE = 0.5  # of a task, the most that may be done between two reports


class Steps:
    """Remembers what tasks have reported."""

    def __init__(self) -> None:
        self.reports: dict[str, list[tuple[int, int]]] = defaultdict(list)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        def advance(done: int, total: int) -> None:
            self.reports[label].append((done, total))

        yield advance

    def largest(self, label: str) -> float:
        """The largest share of a task between two reports; it begins at 0 and ends at 1."""
        done = [0.0, *(part / total for part, total in self.reports[label])]
        assert done == sorted(done) and done[-1] == 1, f"{label} goes {done}"
        return float(np.diff(done).max())


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def classifier() -> sg.Classifier:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    return sg.Classifier(net.eval(), name="tiny", device="cpu")


@pytest.mark.parametrize("name", ["autoencoder:epochs=3", "dissector:epochs=4", "mlsa"])
def test_long_fits(name: str, classifier: sg.Classifier, digits: Dataset) -> None:
    assert digits.train is not None
    one, steps = make(name), Steps()
    one.fit(classifier.observe(digits.train.head(80), one.needs), progress=steps)
    assert steps.largest(f"Fitting {one.name}") <= SHARE


def test_the_training_of_a_surrogate(classifier: sg.Classifier, digits: Dataset) -> None:
    steps = Steps()
    train_surrogate(classifier, digits.test.head(64), seed=0, chunk=16, epochs=3, progress=steps)
    for label in ("Asking the model for a surrogate", "Training a surrogate"):
        assert steps.largest(label) <= SHARE


def test_the_plan_itself(classifier: sg.Classifier, digits: Dataset) -> None:
    assert digits.train is not None
    steps = Steps()
    plan = plan_estimate(classifier, digits.train, (100, 50, 20), 3.0, progress=steps)
    assert steps.largest("Timing the model") <= SHARE
    assert [part.name for part in plan.parts] == ["images", "validation", "train", "copies", "estimators"]
    assert not any(part.remark for part in plan.parts)


def test_an_audit(classifier: sg.Classifier, digits: Dataset) -> None:
    steps = Steps()
    found = sg.audit(
        classifier,
        digits.test.head(40),
        supervisors=["entropy", "max_softmax"],
        stress=["corrupted"],
        sections=["supervisors"],
        minutes=None,
        progress=steps,
    )
    assert not found.failed
    for label in ("Comparing supervisors", "Comparing kinds of images"):
        assert steps.largest(label) <= SHARE


def test_work_that_cannot_say_how_far_it_is_says_that_it_goes_on() -> None:
    steps = Steps()
    with at_work(steps, "waiting", every=0.001):
        while len(steps.reports["waiting"]) < 3:
            time.sleep(0.001)
    *before, last = steps.reports["waiting"]
    assert set(before) == {(0, 1)} and last == (1, 1)


class Heard:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        yield lambda done, total: None

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_silence_is_broken_with_what_goes_on_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    heard = Heard()
    made = progress_module.Attended(heard)
    with made.task("Fitting", 10) as advance:
        advance(1, 10)
        now[0] = 3.0
        made.beat()
        assert not heard.said, "nobody has waited long yet"
        advance(1, 10)  # a sign of life is no step
        now[0] = 4.0
        made.beat()
        made.beat()
        assert heard.said == ["Fitting: 4 s so far"], "and it is said once"
        advance(2, 10)
        now[0] = 6.0
        made.beat()
        assert len(heard.said) == 1
    now[0] = 20.0
    made.beat()
    assert heard.said[-1] == "After fitting: 14 s so far"


def test_a_plan_knows_what_goes_on_and_how_long_all_of_it_takes() -> None:
    now = [0.0]
    plan = Plan(
        [Part("a", "learn", Price(fixed=30.0, essential=True)), Part("b", "judge", Price(fixed=50.0, essential=True))],
        minutes=10,
        clock=lambda: now[0],
    )
    made = progress_module.Attended(heard := Heard())
    plan.watched(made)
    assert plan.state() is None
    with plan.doing("a"):
        now[0] = 10.0
        assert plan.state() == "Learn: 10 s so far, about 70 s left in all"
        now[0] = 31.0
        assert plan.state() == "Learn: 31 s so far instead of 30 s, then about 50 s"
        now[0] = 10.0
        made._since = made._said = -100.0
        made.beat()
    assert heard.said == ["Learn: 10 s so far, about 70 s left in all"]


def test_the_verbs_attend_to_their_progress(classifier: sg.Classifier, digits: Dataset) -> None:
    from secondguess.progress import Attended, Silent, attended, attending

    @attending
    def work(*, progress: object = None) -> object:
        return progress

    assert isinstance(work(progress=Heard()), Attended)
    assert isinstance(work(), Silent), "nobody listens, so nobody speaks"
    with attended(Heard()) as one, attended(one) as other:
        assert one is other
