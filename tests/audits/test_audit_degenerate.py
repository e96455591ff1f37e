"""Every section works on a softmax that says nothing, and the audit says so before anything else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, supervisors
from secondguess.model.check import check_model

Kind = Callable[[torch.Tensor], torch.Tensor]
KINDS: dict[str, Kind] = {
    "saturated": lambda logits: 300 * logits,
    "exact": lambda logits: (300 * logits).softmax(dim=1),  # probabilities of exactly 0 and 1
    "constant": lambda logits: 0 * logits + torch.arange(10.0),
    "tied": lambda logits: logits.clamp(max=-4.0),  # for most images all that is likely is equally likely
    "one class": lambda logits: 0.01 * logits + 5 * torch.eye(10)[3],
}
SAID = {"exact": "saturated"}


class Changed(nn.Module):
    """A network whose logits are changed."""

    def __init__(self, net: nn.Module, change: Kind) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.net(x))


def classifier(net: nn.Module, kind: str) -> Classifier:
    return Classifier(Changed(net, KINDS[kind]).eval(), name=kind, device="cpu")


EXTREME = ("saturated", "constant")  # the others are between these


@pytest.fixture(
    scope="module", params=[one if one in EXTREME else pytest.param(one, marks=pytest.mark.slow) for one in KINDS]
)
def result(
    request: pytest.FixtureRequest, net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> AuditResult:
    assert digits.train is not None
    return sg.audit(
        classifier(net, request.param),
        digits.test.head(200, seed=0),
        train=digits.train.head(300, seed=0),
        folder=tmp_path_factory.mktemp("degenerate"),
        supervisors=["max_softmax", "entropy", "mdsa", "knn"],
        stress=["ambiguous_blend", "corrupted", "invalid"],
        seed=1,
    )


def test_every_section_works(result: AuditResult) -> None:
    assert {one.name: one.reason for one in result.failed} == {}
    assert all(np.isfinite(number.value) for number in result.numbers.values())


def test_it_is_said_first(result: AuditResult) -> None:
    kind = result.about["model"]["name"]
    assert result.softmax is not None and result.softmax.name == SAID.get(kind, kind)
    reasons = [one.text for one in result.verdict.reasons]
    fed_wrongly = kind == "one class"  # brighter pixels outweigh what makes it answer one class: that is said before
    assert ("pixels are normalised otherwise" in reasons[0]) is fed_wrongly
    assert result.verdict.ready is False and reasons[fed_wrongly] == result.softmax.text
    assert result.summary().splitlines()[1 + fed_wrongly].startswith("Softmax")
    assert result.to_dict()["softmax"]["name"] == result.softmax.name
    page = result.report.read_text("utf-8")
    assert page.index(result.softmax.text[:40]) < page.index("In short")


def test_nobody_reads_it_as_a_probability(result: AuditResult) -> None:
    assert dict(result.highlights)["Confidence"].startswith(f"says nothing ({result.softmax.name})")
    assert "may be read" not in result.summary() + result.report.read_text("utf-8")


def test_the_temperature_of_a_saturated_softmax_is_found(result: AuditResult) -> None:
    if result.about["model"]["name"] == "saturated":
        numbers = result.numbers
        assert numbers["calibration.temperature"].value > 20
        assert numbers["calibration.ece_after_temperature"].value < numbers["calibration.ece"].value


def test_mistakes_that_are_all_made_with_certainty_are_no_probabilities(net: nn.Module, digits: Dataset) -> None:
    """Few mistakes keep the calibration error small; certain ones must not be called calibrated all the same."""
    labels = digits.test.labels.copy()

    def sure(images: np.ndarray) -> np.ndarray:
        rows = np.eye(10)[labels[: len(images)]] * 0.998 + 0.0002
        rows[:3] = np.roll(rows[:3], 1, axis=1)
        return rows

    model = Classifier(sure, output_kind="probabilities", batch_size=1000)
    options: dict[str, Any] = {"supervisors": ["entropy"], "stress": [], "sections": ["calibration"]}
    audited = sg.audit(model, digits.test, **options)
    assert audited.softmax is None and audited.numbers["calibration.ece"].value < 0.02
    assert "says nothing about mistakes: 3 of 3 were made with 100%" in dict(audited.highlights)["Confidence"]


@pytest.mark.parametrize("kind", ["saturated", "constant"])
def test_guard_estimate_and_check_say_it_first(net: nn.Module, digits: Dataset, kind: str, tmp_path: Path) -> None:
    assert digits.train is not None
    model, train, validation = classifier(net, kind), *digits.train.head(700, seed=0).split(0.6, seed=0)
    supervisors = ["max_softmax", "entropy", "mdsa"]
    guard = sg.Guard(supervisors, false_alarms=0.05, rule="bonferroni", protect="novelty")
    guard.fit(model, train, validation, stress=None)
    assert str(guard.report).splitlines()[0] == guard.report.softmax != ""
    guard.save(tmp_path / "guard")
    assert sg.Guard.load(tmp_path / "guard", model).report.softmax == guard.report.softmax
    assert np.isfinite(guard.judge(digits.test.head(50)).p_values).all()
    found = sg.estimate(model, digits.test.head(100, seed=0), train=train, validation=validation)
    assert found.summary().splitlines()[0] == found.softmax != ""
    assert len(found.summary().splitlines()) <= 10 and found.to_dict()["softmax"] == found.softmax
    assert all(np.isfinite([one.value, one.low, one.high]).all() for one in found.estimates.values())
    assert check_model(model, digits.test).findings[0].about == "softmax"


CHEAP = [
    one
    for one in supervisors.names()
    if not (supervisors.get(one).expensive or supervisors.make(one).needs.samples or one == "autoencoder")
]


REFUSE = {"constant": ("dsa",), "one class": ("dsa",), "tied": ("react", "ash", "scale", "fdbd", "nnguide", "vim")}


@pytest.mark.parametrize("kind", KINDS)
def test_no_supervisor_has_a_score_that_is_no_number(kind: str, net: nn.Module, digits: Dataset) -> None:
    assert digits.train is not None
    model = classifier(net, kind)
    model.observe(digits.test.head(20, seed=0))  # then it knows whether it gives logits
    made = [one for one in supervisors.make_all(CHEAP) if one.needs.abilities <= model.gives]
    assert len(made) > 15
    needs = supervisors.SupervisorSet(made).needs
    some = digits.train.head(300, seed=0)
    learnt, asked = model.observe(some, needs), model.observe(digits.test.head(100, seed=0), needs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is little to learn from such a softmax, and some say so
        for one in made:
            try:
                fitted = one.fit(learnt, some.labels)
            except sg.UserError as error:  # one class has no others, and clipped logits no last layer; they say so
                assert one.name in REFUSE.get(kind, ()), error
                continue
            scores = fitted.score(asked)
            assert scores.shape == (100,) and not np.isnan(scores).any(), one.name
