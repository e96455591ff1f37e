"""An audit is planned: it fits, says what it leaves out, keeps what was given, and can be repeated exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess.accuracy.planned import price_of_copies
from secondguess.accuracy.shifted_copies import learnt_shifts
from secondguess.audits import Findings
from secondguess.audits.context import Context
from secondguess.audits.planned import plan_audit
from secondguess.audits.sections import Section
from secondguess.audits.sections.supervisors import KINDS
from secondguess.guard.stress_split import StressMaker
from secondguess.images import Dataset, ImageSet, load
from secondguess.model.passes import CANARIES, NOISE
from secondguess.planning import Pace, Part, Plan, Price
from secondguess.progress import Silent
from secondguess.stress import Corrupted
from secondguess.stress.ambiguous.choosing import BLENDS
from secondguess.stress.ambiguous.flow import AmbiFlow
from secondguess.stress.base import Given, StressSet
from secondguess.supervisors import Supervisor, make

SECTIONS = ["accuracy", "supervisors", "deploy"]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture
def classifier() -> sg.Classifier:
    torch.manual_seed(0)
    return sg.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), name="tiny", device="cpu")


class Patient(Supervisor):
    """Counts its epochs."""

    name = "patient"
    dial, least = "epochs", 2

    def __init__(self, epochs: int = 50) -> None:
        self.epochs = epochs

    def _fit(self, observation: Any, labels: Any) -> None:
        self.seen_ = len(observation)

    def _score(self, observation: Any) -> Any:
        return -observation.confidences


class Dear(StressSet):
    """Says that an image costs ten seconds."""

    kind, name, least = "corrupted", "dear", 20

    def price(self, pace: Pace, given: Given) -> Price:
        return Price(10.0, 0.0, len(given.nominal), self.least, "images")

    def _make(self, given: Given) -> ImageSet:
        return given.nominal


@pytest.fixture(autouse=True)
def a_known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model takes a tenth of a second for an image, and nothing else takes any time."""
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 0.1)
    monkeypatch.setattr("secondguess.supervisors.pricing.timed", lambda work, clock: (work() and 0.0) or 0.0)
    monkeypatch.setattr(
        "secondguess.supervisors.pricing.paced", lambda work, few, most, clock: (work(few) and 0.0) or 0.0
    )


def planned(classifier: sg.Classifier, digits: Dataset, folder: Path, minutes: float, **changes: Any) -> Any:
    settings: Any = {
        "classifier": classifier,
        "test": digits.test,
        "train": digits.train,
        "supervisors": [make("entropy"), Patient()],
        "stress": [Corrupted(), Dear()],
        "folder": folder,
    }
    context = Context(**settings | changes)
    sections = sg.audits.sections.make_all(SECTIONS)
    return plan_audit(context, sections, minutes), context


def test_sizes_follow_from_the_time(classifier: sg.Classifier, digits: Dataset, tmp_path: Path) -> None:
    plan, _ = planned(classifier, digits, tmp_path, 10.0)
    assert plan.size("test") == 360 and plan.size("train") == 1437, "what everything rests on comes last"
    assert 20 <= plan.size("stress.dear") < 360 and plan.part("stress.dear").remark == "instead of 360"
    assert plan.planned <= 600
    hurried, _ = planned(classifier, digits, tmp_path / "other", 0.5)
    assert hurried.size("stress.dear") == 0
    assert all(hurried.size(f"section.{name}") for name in SECTIONS), "sections stay"


def test_comparing_is_priced_for_the_images_that_are_compared(
    classifier: sg.Classifier, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell takes 40 milliseconds for an image; a row has one for each set, and for the mistakes among its images."""
    monkeypatch.setattr("secondguess.audits.sections.supervisors.timed", lambda work, clock: 0.04 * len(work.args[1]))
    many = digits.train.take(np.arange(2 * len(digits.train)) % len(digits.train))
    plan, _ = planned(classifier, digits, tmp_path, 10.0, test=many, stress=[Corrupted()])
    size, row = plan.size("test"), 0.04 * 3
    assert 500 < size < len(many)
    kinds = 2 * 0.04 * KINDS  # of both supervisors
    assert plan.part("section.supervisors").expected == pytest.approx((row + kinds) * size)
    assert plan.part("supervisor.patient").expected == pytest.approx(row * size)
    assert plan.part("stress.corrupted").size <= size


def test_a_plan_cuts_the_images(classifier: sg.Classifier, digits: Dataset, tmp_path: Path) -> None:
    votes = np.eye(10)[digits.test.labels]
    plan, context = planned(classifier, digits, tmp_path, 0.1, votes=votes)
    context.follow(plan)
    size = plan.size("test")
    assert len(context.test) == size == len(context.votes) <= 360
    assert np.array_equal(context.votes.argmax(axis=1), context.test.labels), "votes go with their images"


def test_what_was_given_keeps_its_size(classifier: sg.Classifier, digits: Dataset, tmp_path: Path) -> None:
    settings: Any = {"train": digits.train, "supervisors": ["entropy"], "sections": SECTIONS}
    result = sg.audit(classifier, digits.test, folder=tmp_path, stress=["corrupted", Dear()], minutes=100.0, **settings)
    assert not result.failed
    (part,) = (one for one in result.about["plan"]["parts"] if one["name"] == "stress.dear")
    assert part["size"] == 360, "ready-made: its size was given"


def test_the_same_sizes_give_the_same_numbers(
    classifier: sg.Classifier, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"train": digits.train, "supervisors": ["entropy"], "stress": ["corrupted"], "sections": SECTIONS}
    first = sg.audit(classifier, digits.test, folder=tmp_path / "first", minutes=0.5, **settings)
    record = json.loads((tmp_path / "first/audit.json").read_text())
    sizes = {part["name"]: part["size"] for part in record["plan"]["parts"]}
    assert sizes["stress.corrupted"] < 360
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 1e-6)  # a faster machine
    plan = tmp_path / "first/audit.json"
    again = sg.audit(classifier, digits.test, folder=tmp_path / "again", plan=plan, minutes=None, **settings)
    whole = sg.audit(classifier, digits.test, folder=tmp_path / "whole", minutes=None, **settings)
    resumed = sg.audit(classifier, digits.test, folder=tmp_path / "first", minutes=0.5, **settings)
    values = [
        {name: one.value for name, one in result.numbers.items() if "seconds" not in name}
        for result in (first, again, resumed, whole)
    ]
    assert values[0] == values[1] == values[2] != values[3]
    assert whole.about["plan"]["parts"] == [], "no plan without a limit"
    assert "instead of 360" in (tmp_path / "first/report.html").read_text()


def test_dropout_samples_are_recorded_as_they_were_drawn_and_repeated(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit is much faster than planned, so that sizes grow on the way; not that of what has been drawn."""
    monkeypatch.setattr(Pace, "sampling", lambda self: 0.005)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))
    model = sg.Classifier(network, name="dropping", device="cpu")
    settings: Any = {"train": digits.train, "supervisors": ["mc_dropout_vr", "knn"], "stress": ["corrupted"]}
    settings |= {"sections": [*SECTIONS, Drawn()]}
    said: list[str] = []
    first = sg.audit(model, digits.test, folder=tmp_path / "first", minutes=6.0, progress=Heard(said), **settings)
    assert not first.failed
    record = {one["name"]: one for one in json.loads((tmp_path / "first/audit.json").read_text())["plan"]["parts"]}
    drawn = round(first.numbers["drawn.samples"].value)
    assert record["samples"]["size"] == drawn and record["samples"]["least"] <= drawn < record["samples"]["full"]
    assert record["samples"]["among"] == ["test", "stress.corrupted"] and record["samples"]["planned_seconds"] == 0
    assert not [one for one in said if "sized anew" in one and "dropout samples" in one]
    again = sg.audit(model, digits.test, folder=tmp_path / "again", plan=tmp_path / "first/audit.json", **settings)
    values = [
        {name: one.value for name, one in result.numbers.items() if "seconds" not in name} for result in (first, again)
    ]
    assert values[0] == values[1]
    page = (tmp_path / "first/report.html").read_text("utf-8")
    row = f"<td>dropout samples</td><td>{drawn} samples</td><td>with other parts</td><td></td><td>instead of 100</td>"
    assert row in page


def test_a_fit_is_recorded_with_the_size_that_it_had(
    classifier: sg.Classifier, digits: Dataset, tmp_path: Path
) -> None:
    """Observing the training images takes no time instead of a hundred seconds, which a longer fit may have."""
    context = Context(classifier, digits.test, digits.train, [Patient()], [], tmp_path)
    observing = Part("train", "observe the training images", Price(fixed=100.0, required=True))
    context.follow(Plan([observing, Part("supervisor.patient", "fit patient", Price(10.0, 0.0, 50, 2))], minutes=5.0))
    planned = context.plan.part("supervisor.patient").size
    (fitted,) = context.fitted
    assert fitted.params()["epochs"] == context.plan.part("supervisor.patient").size > planned


def test_training_images_are_not_observed_for_what_is_left_out(
    classifier: sg.Classifier, digits: Dataset, tmp_path: Path
) -> None:
    context = Context(classifier, digits.test, digits.train, [Patient(), make("entropy")], [], tmp_path)
    context.follow(Plan([Part("train", "x", Price()), Part("supervisor.patient", "y", Price(fixed=1e6))], minutes=5.0))
    assert [one.name for one in context.fitted] == ["entropy"] and not context.plan.part("train").begun
    assert context.unusable_supervisors["patient"].startswith("Too little time")


class Drawn(Section):
    """How many samples of each test image the observation holds."""

    name, title = "drawn", "Drawn"

    def run(self, context: Context) -> Findings:
        return Findings(numbers={"drawn.samples": context.number(float(context.nominal.samples.shape[1]))})


class Heard(Silent):
    """A progress that keeps what is announced."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def say(self, text: str) -> None:
        self.said.append(text)


class Endless(Section):
    """Takes so many seconds, whatever its size."""

    name, title = "endless", "Endless"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def price(self, context: Context, pace: Pace) -> Price:
        return Price(fixed=self.seconds)

    def run(self, context: Context) -> Findings:
        raise AssertionError("it is left out")


@pytest.mark.parametrize(("seconds", "minutes", "stays"), [(700.0, 10, False), (100.0, 10, True), (50.0, 0.5, True)])
def test_a_section_is_left_out_only_where_it_alone_is_too_much(
    seconds: float, minutes: float, stays: bool, classifier: sg.Classifier, digits: Dataset, tmp_path: Path
) -> None:
    context = Context(classifier, digits.test.head(20), None, [make("entropy")], [], tmp_path)
    part = plan_audit(context, [Endless(seconds)], minutes).parts[-1]
    assert bool(part.size) == stays and ("allow more minutes" in part.remark) == (not stays)


def test_copies_are_priced_with_what_recognising_the_model_asks(classifier: sg.Classifier, digits: Dataset) -> None:
    pace, shifts = Pace(classifier, digits.test), len(learnt_shifts(1))
    plain, cached = (price_of_copies(pace, 100, cached=one) for one in (False, True))
    assert plain.fixed == 0
    assert cached.fixed == pytest.approx(shifts * (NOISE + CANARIES) * 0.1)
    assert cached.each == pytest.approx(plain.each, rel=0.01), "an image costs as much either way"


def test_a_flow_for_which_there_is_no_time_gives_way_to_blends(
    classifier: sg.Classifier, digits: Dataset, tmp_path: Path
) -> None:
    settings: Any = {"supervisors": [make("entropy")], "stress": [AmbiFlow(device="cpu")], "folder": tmp_path}
    context = Context(classifier=classifier, test=digits.test, train=digits.train, **settings)
    context.follow(Plan([Part("stress.ambiguous_flow", "ambiguous images", Price(fixed=1e6))], minutes=1.0))
    assert list(context.stressed) == ["ambiguous_blend"] == [one.name for one in context.stress]
    assert context.ambiguous_note.startswith(f"{BLENDS}: Too little time") and not context.failed_stress


def test_so_it_does_in_a_guard(classifier: sg.Classifier, digits: Dataset) -> None:
    learn, test = digits.test.split(0.5)
    maker = StressMaker(classifier, digits.train, learn, test, ambiguous="flow", device="cpu")
    dear = Part("stress.ambiguous", "ambiguous images", Price(fixed=1e6))
    others = [Part(f"stress.{kind}", kind, Price(), given=20) for kind in ("corrupted", "adversarial", "invalid")]
    made = maker.make(Plan([dear, *others], minutes=1.0))
    assert "lambda" in made.learn["ambiguous"].columns
    assert made.notes[0].startswith(f"{BLENDS}: Too little time: it takes")
