"""The section on deployment: its numbers from nothing but scores, ranks and a panel of its own."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset
from secondguess.audits.context import Context
from secondguess.audits.rehearsal import rehearse
from secondguess.audits.sections.deploy import Deploy
from secondguess.errors import UserError
from secondguess.guard import Protect
from secondguess.guard.panel import fit_panel
from secondguess.stress import make_all as make_stress
from secondguess.supervisors import make_all as make_supervisors

SUPERVISORS = ["entropy", "pcs", "mdsa"]


@pytest.fixture(scope="module")
def result(net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test,
        train=digits.train,
        folder=tmp_path_factory.mktemp("deploy"),
        supervisors=SUPERVISORS,
        stress=["corrupted", "invalid"],
        seed=3,
        sections=["deploy"],
        protect="novelty",
    )


@pytest.fixture
def context(net: nn.Module, digits: Dataset, tmp_path: Path) -> Context:
    return Context(
        Classifier(net, name="tiny", device="cpu"),
        digits.test,
        digits.train,
        make_supervisors(SUPERVISORS),
        make_stress(["corrupted", "invalid"]),
        tmp_path,
        seed=3,
        protect="novelty",
    )


def test_it_says_what_to_expect(result: AuditResult) -> None:
    assert not result.failed, result.failed[0].reason
    page = result.report.read_text("utf-8")
    assert "If you deploy this" in page
    assert re.search(r"<strong>50 false alarms</strong> \(2\d to 8\d, calibrated on 180 images\)", page)
    assert "<code>entropy</code>, <code>pcs</code> and <code>mdsa</code>" in page
    assert "out-of-distribution → ask, invalid → refuse" in page
    assert "What it will miss." in page
    assert "sorts it has not met" in page


def test_the_false_alarms_are_those_of_the_threshold(result: AuditResult) -> None:
    number = result.numbers["deploy.false_alarms"].to_dict()
    k = math.floor(0.05 * 181)
    low, high = beta.ppf([0.025, 0.975], k, 181 - k)
    assert number["value"] == pytest.approx(k / 181)
    assert (number["low"], number["high"], number["n"]) == (pytest.approx(low), pytest.approx(high), 180)


def test_detection_is_counted_on_images_nobody_learnt_from(context: Context) -> None:
    findings = Deploy().run(context)
    order = np.random.default_rng(3).permutation(360)
    learn, calibrate = order[:180], order[180:]

    def scores(which: str) -> np.ndarray:
        return np.stack([context.scored(name, which).scores for name in SUPERVISORS], axis=1)

    kinds = context.stressed["corrupted"][0].columns["corruption"]
    heard = np.isin(kinds, np.unique(kinds)[0::2])
    sources = context.stressed["invalid"][0].columns[make_stress(["invalid"])[0].groups]
    known = np.isin(sources, np.unique(sources)[0::2])
    shuffled = np.random.default_rng([3, 1]).permutation(len(kinds))
    others = np.random.default_rng([3, 1]).permutation(len(sources))
    panel = fit_panel(
        scores("nominal")[learn],
        {
            "out-of-distribution": scores("corrupted")[shuffled][heard[shuffled]],
            "invalid": scores("invalid")[others][known[others]],
        },
        sorts={
            "out-of-distribution": kinds[shuffled][heard[shuffled]],
            "invalid": sources[others][known[others]],
        },
        seed=3,
    )
    nominal = np.sort(panel.combine(scores("nominal")[calibrate])[0])
    limit = nominal[-math.floor(0.05 * 181)]
    for name, unknown in (("corrupted", ~heard), ("invalid", ~known)):
        share = float((panel.combine(scores(name)[unknown])[0] > limit).mean())
        assert findings.numbers[f"deploy.{name}.detection"].value == pytest.approx(share)
        assert findings.numbers[f"deploy.{name}.detection"].to_dict()["n"] == unknown.sum()
    missed = findings.view["report"].missed
    for kind in np.unique(kinds[~heard]):
        share = float((panel.combine(scores("corrupted")[kinds == kind])[0] > limit).mean())
        if (kinds == kind).sum() >= 5:
            assert (share < 0.5) == (f"corrupted: {kind.replace('_', ' ')} ({share:.0%})" in missed)


@pytest.mark.parametrize("protect", ["errors", "both"])
def test_mistakes_are_a_column(context: Context, digits: Dataset, protect: Protect) -> None:
    """The half that sets the threshold: its right answers count false alarms, its wrong ones are what is to be seen."""
    context.protect = protect
    findings, tried = Deploy().run(context), rehearse(context)
    calibrate = np.random.default_rng(3).permutation(360)[180:]
    wrong = context.nominal.predictions[calibrate] != digits.test.labels[calibrate]
    scores = np.stack([context.scored(name).scores for name in SUPERVISORS], axis=1)[calibrate]
    statistics = tried.panel.combine(scores)[0]
    limit = np.sort(statistics[~wrong])[-math.floor(0.05 * ((~wrong).sum() + 1))]
    assert tried.report.calibrated_on == (~wrong).sum() < 180
    assert findings.numbers["deploy.mistakes.detection"].value == pytest.approx((statistics[wrong] > limit).mean())
    images, seen = context.stressed["corrupted"]
    rows = next(one.test for one in tried.sets if one.stress.name == "corrupted")
    corrupted = np.stack([context.scored(name, "corrupted").scores for name in SUPERVISORS], axis=1)[rows]
    alarms, missed = tried.panel.combine(corrupted)[0] > limit, (seen.predictions != images.labels)[rows]
    for name, share in (("mistakes", alarms[missed].mean()), ("right", alarms[~missed].mean())):
        assert findings.numbers[f"deploy.corrupted.{name}.detection"].value == pytest.approx(share)
    assert findings.numbers["deploy.corrupted.unnoticed"].value == pytest.approx((missed & ~alarms).mean())
    assert f"{1000 * tried.report.mistakes.detected.value:.0f} mistakes" in findings.summary[0][1]  # type: ignore[union-attr]


def test_what_could_be_promised_about_errors_is_tried_on_every_set(context: Context, digits: Dataset) -> None:
    context.protect = "both"
    tried, findings = rehearse(context), Deploy().run(context)
    assert [one.risk for one in tried.kept] == [0.01, 0.02, 0.05]
    for one in tried.kept:
        if one.promise is None:
            assert f"deploy.risk.{100 * one.risk:g}_percent.accepted" not in findings.numbers
            continue
        assert one.promise.wrong.value <= one.risk
        assert one.wrong["invalid"] is None or one.wrong["invalid"].value == 1.0
    assert any(one.promise is not None for one in tried.kept)


def test_nothing_is_looked_at_again_once_the_scores_are_there(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SUPERVISORS:
        for which in ("nominal", "corrupted", "invalid"):
            context.scored(name, which)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the model was asked again")

    monkeypatch.setattr(type(context.classifier), "observe", refuse)
    assert Deploy().run(context).numbers


def test_same_seed_same_numbers(context: Context) -> None:
    first, second = Deploy().run(context), Deploy().run(context)
    assert {name: one.to_dict() for name, one in first.numbers.items()} == {
        name: one.to_dict() for name, one in second.numbers.items()
    }


def test_without_stress_sets_only_the_rate_is_promised(context: Context) -> None:
    context.stress = []
    findings = Deploy().run(context)
    own = {"deploy.mistakes.detection", "deploy.mistakes.auroc", "deploy.risk.5_percent.accepted", "deploy.aurc"}
    assert set(findings.numbers) == {"deploy.false_alarms", *own}
    assert findings.view["kinds"] == {"suspicious": "ask"}
    assert "a guard stops 750 mistakes and 50 good ones" in findings.summary[0][1]


def test_kinds_that_took_no_part_are_named(result: AuditResult, context: Context) -> None:
    page = result.report.read_text("utf-8")
    lead = page[page.index("Of a thousand images of each kind") :].partition("</p>")[0]
    assert "Nothing is known of <strong>ambiguous images</strong> and <strong>adversarial images</strong>" in lead
    findings = Deploy().run(context)
    assert findings.view["untried"] == ["ambiguous", "adversarial"]
    assert findings.summary[0][1].endswith("; not tried: ambiguous, adversarial")


def test_the_guards_own_order_stands_beside_the_best_single_one(context: Context, digits: Dataset) -> None:
    tried, findings = rehearse(context), Deploy().run(context)
    half = np.array_split(np.random.default_rng(3).permutation(360), 2)[1]
    wrong = (context.nominal.predictions != digits.test.labels)[half]

    def mean_risk(values: np.ndarray) -> float:
        errors = wrong[np.argsort(values[half], kind="stable")]
        return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())

    scores = {name: context.scored(name).scores for name in SUPERVISORS}
    assert tried.orders is not None
    assert tried.orders.single == pytest.approx(min(map(mean_risk, scores.values())), rel=1e-3)
    statistic, _ = tried.panel.combine(np.column_stack(list(scores.values())))
    assert tried.orders.guard == pytest.approx(mean_risk(statistic), rel=1e-3)
    assert findings.numbers["deploy.aurc"].value == tried.orders.guard


def test_supervisors_that_nobody_recommends_are_better_than_none(context: Context) -> None:
    context.supervisors = make_supervisors(["deep_gini"])
    assert Deploy().run(context).view["supervisors"] == ["deep_gini"]


def test_too_few_images_are_a_reason_not_a_failure(context: Context, digits: Dataset) -> None:
    context.test = digits.test.head(30)
    with pytest.raises(UserError, match=r"30 test images are too few: half of them calibrate .* takes 19"):
        Deploy().run(context)
