"""The rules behind the verdict, each at its edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset
from secondguess.audits import Gate, GateOutcome
from secondguess.audits.findings import Findings, Number, SectionResult
from secondguess.audits.verdict import READY, RENORMALISED, RULES, _told_apart
from secondguess.metrics import Interval
from secondguess.model.degenerate import Degenerate

ROOT = Path(__file__).parents[2]
GOOD = {
    "accuracy.test": (0.9, 0.88, 0.92),
    "accuracy.class.cat.recall": (0.9, 0.8, 0.95),
    "supervisor.entropy.mistakes.auroc": 0.9,
    "supervisor.dsa.mistakes.auroc": 0.6,
    "deploy.false_alarms": 0.05,
    "deploy.corrupted.unnoticed": 0.1,
    "deploy.invalid.unnoticed": 0.02,
}


def audited(changes: dict[str, Any] | None = None, **rest: Any) -> AuditResult:
    """An audit with these numbers; None takes one away."""
    numbers = {}
    for name, value in (GOOD | (changes or {})).items():
        if isinstance(value, tuple):
            interval = Interval(value[0], value[1], value[2], n=500)
            numbers[name] = Number(value[0], "data", 0, interval)
        elif value is not None:
            numbers[name] = Number(value, "data", 0)
    about = {"data": {"test": {"classes": {"cat": 300, "dog": 200}}}, "stress": ["corrupted", "invalid"]}
    section = SectionResult("all", "All", "done", findings=Findings(numbers=numbers))
    return AuditResult(about, [section, *rest.pop("sections", [])], **rest)


def weights(result: AuditResult) -> dict[str, str]:
    return {one.topic: one.weight for one in result.verdict.reasons}


def test_a_good_model_is_ready_for_three_reasons() -> None:
    verdict = audited().verdict
    assert verdict.ready and verdict.headline == READY == "Ready to deploy with a guard"
    assert [one.topic for one in verdict.reasons] == ["accuracy", "knowing", "guard"]
    assert {one.weight for one in verdict.reasons} == {"good"}
    accuracy, knowing, guard = verdict.reasons
    assert accuracy.text == "It is right on 90.0% of 500 test images (88.0% to 92.0%)."
    assert knowing.text.startswith("It knows what it does not know: the best score of suspicion (entropy)")
    assert "leaves 10% of corrupted images answered wrongly without a warning" in guard.text
    assert "50 false alarms in a thousand (guard fit --false-alarms 0.05)" in guard.text


@pytest.mark.parametrize(
    ("changes", "before", "topic"),
    [
        ({"accuracy.test": (0.62, 0.60, 0.64)}, "it beats always giving the most frequent class", "accuracy"),
        ({"supervisor.entropy.mistakes.auroc": 0.69}, "something notices its mistakes", "knowing"),
        ({"deploy.corrupted.unnoticed": 0.51}, "a guard sees more of what is corrupted", "guard"),
    ],
)
def test_one_blocker_is_enough_and_says_before_what(changes: dict[str, Any], before: str, topic: str) -> None:
    verdict = audited(changes).verdict
    assert verdict.ready is False and verdict.headline == f"Not before {before}"
    assert verdict.reasons[0].topic == topic and verdict.reasons[0].weight == "blocker"
    assert len(verdict.reasons) == 3


@pytest.mark.parametrize(("share", "ready"), [(0.49, False), (0.51, True)])
def test_a_model_that_is_wrong_more_often_than_right_is_not_ready(share: float, ready: bool) -> None:
    result = audited({"accuracy.test": (share, share - 0.04, share + 0.04)})
    result.about["data"]["test"]["classes"] = dict.fromkeys(map(str, range(10)), 50)  # one in ten is right by chance
    assert result.verdict.ready is ready
    assert (result.verdict.headline == "Not before it is right more often than wrong") is not ready


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"accuracy.class.cat.recall": (0.3, 0.2, 0.49)}, "accuracy"),
        ({"supervisor.entropy.mistakes.auroc": 0.79}, "knowing"),
        ({"deploy.corrupted.unnoticed": 0.21}, "guard"),
    ],
)
def test_a_caution_does_not_stop_it(changes: dict[str, Any], topic: str) -> None:
    result = audited(changes)
    assert result.verdict.ready and weights(result)[topic] == "caution"


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy.test": (0.62, 0.601, 0.64)},
        {"accuracy.class.cat.recall": (0.3, 0.2, 0.5)},
        {"supervisor.entropy.mistakes.auroc": 0.8},
        {"deploy.corrupted.unnoticed": 0.2},
    ],
)
def test_the_edges_are_on_the_good_side(changes: dict[str, Any]) -> None:
    assert set(weights(audited(changes)).values()) == {"good"}


def test_how_many_mistakes_are_noticed_stands_beside_how_well_they_are_ranked() -> None:
    knowing = audited({"supervisor.entropy.mistakes.detection": 0.57, "supervisor.dsa.mistakes.detection": 0.9})
    text = knowing.verdict.reasons[1].text
    assert text.endswith("a right answer in 90% of cases and notices 57% of them at the audit's rate of false alarms.")


@pytest.mark.parametrize(("low", "weight"), [(0.5, "caution"), (0.51, "good")])
def test_of_few_mistakes_nothing_good_is_said(low: float, weight: str) -> None:
    result = audited({"supervisor.entropy.mistakes.auroc": (0.9, low, 1.0)})
    assert weights(result)["knowing"] == weight and result.verdict.ready
    assert ("of so few mistakes that this may be chance" in result.verdict.reasons[1].text) is (weight == "caution")


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.699, "69.9%"), (0.6999, "69.99%"), (0.7, "70%"), (0.701, "70%"), (0.694, "69%"), (0.7996, "79.96%")],
)
def test_a_share_is_said_to_lie_where_it_lies(value: float, said: str) -> None:
    assert _told_apart(value) == said


def test_attacks_alone_are_no_blocker() -> None:
    result = audited({"deploy.adversarial.unnoticed": 0.9})
    assert result.verdict.ready and weights(result)["guard"] == "caution"
    assert "90% of adversarial" in result.verdict.reasons[2].text
    both = audited({"deploy.adversarial.unnoticed": 0.9, "deploy.invalid.unnoticed": 0.6})
    assert both.verdict.headline == "Not before a guard sees more of what is invalid"


@pytest.mark.parametrize(("share", "weight"), [(0.2, "good"), (0.21, "caution"), (0.5, "caution"), (0.51, "caution")])
def test_attacked_images_call_for_care_like_all_others(share: float, weight: str) -> None:
    """They are excepted from what speaks against a model, and from nothing else; so say the rules."""
    result = audited({"deploy.adversarial.unnoticed": share})
    assert result.verdict.ready and weights(result)["guard"] == weight
    topic, against, care = RULES[-1]
    assert topic == "With a guard"
    assert against.startswith("more than 50% of the images of some kind, attacked ones excepted, are answered wrongly")
    assert care.startswith("these are more than 20%, of attacked images too;")


def test_kinds_that_could_not_be_tried_are_named() -> None:
    result = audited()
    result.about["stress"] = ["corrupted", "invalid", "adversarial", "ambiguous_blend"]
    verdict = result.verdict
    assert verdict.ready and verdict.headline == f"{READY}, not tried against adversarial and ambiguous blend images"
    assert weights(result)["guard"] == "caution"
    assert verdict.reasons[2].text.endswith(" Not tried: adversarial and ambiguous blend images.")


def test_pixels_that_are_fed_wrongly_come_before_everything_else() -> None:
    changes = {"accuracy.test": (0.12, 0.1, 0.14), RENORMALISED: 0.91}
    result = audited(changes, softmax=Degenerate("saturated", 1.0, "The softmax is saturated."))
    assert result.verdict.headline == "Not before its pixels are normalised as in its training"
    assert [one.topic for one in result.verdict.reasons] == ["accuracy", "softmax", "knowing"]
    assert "but on 91.0% where pixels are normalised otherwise" in result.verdict.reasons[0].text


def test_the_rules_are_in_the_report_and_on_the_page_about_verdicts(audited: AuditResult) -> None:
    page = " ".join((ROOT / "docs" / "howto" / "verdict.md").read_text("utf-8").split())
    assert audited.folder is not None
    report = audited.folder.joinpath("report.html").read_text("utf-8")
    for rule in RULES:
        for words in filter(None, rule):
            assert words in report and words in page


def test_a_softmax_that_says_nothing_comes_first_and_gates_second() -> None:
    gate = GateOutcome(Gate.parse("accuracy.test>=0.99"), "failed", 0.9, "accuracy.test is 0.9, not >= 0.99.")
    result = audited(softmax=Degenerate("saturated", 1.0, "The softmax is saturated."), gates=[gate])
    assert result.verdict.headline == "Not before its confidence means something"
    assert [one.topic for one in result.verdict.reasons] == ["softmax", "gates", "accuracy"]
    assert audited(gates=[gate]).verdict.headline == "Not before every gate holds"
    assert "not >= 0.99" in audited(gates=[gate]).verdict.reasons[0].text


def test_without_enough_mistakes_stress_images_speak() -> None:
    changes = {
        "supervisor.entropy.mistakes.auroc": None,
        "supervisor.dsa.mistakes.auroc": None,
        "supervisor.dsa.corrupted.auroc": 0.85,
        "supervisor.dsa.corrupted.fog.auroc": 0.2,
        "supervisor.entropy.invalid.auroc": 0.95,
    }
    knowing = audited(changes).verdict.reasons[1]
    assert knowing.weight == "good" and "too few mistakes or right answers" in knowing.text and "dsa" in knowing.text


def test_what_was_not_measured_leaves_it_open() -> None:
    without = {name: None for name in GOOD if name.startswith("deploy")}
    skipped = SectionResult("deploy", "If you deploy this", "skipped", reason="Too few images.")
    verdict = audited(without, sections=[skipped]).verdict
    assert verdict.ready is None and verdict.headline == "No verdict: what a guard sees was not measured"
    assert verdict.reasons[2].text == "Too few images."


def test_a_section_that_was_left_out_is_said_to_be() -> None:
    without = {name: None for name in GOOD if name.startswith(("supervisor", "deploy", "accuracy"))}
    verdict = audited(without).verdict
    assert [(one.topic, one.text) for one in verdict.reasons] == [
        (topic, f"Not measured: the section {section!r} was left out; add it to the sections (--sections).")
        for topic, section in (("accuracy", "accuracy"), ("knowing", "supervisors"), ("guard", "deploy"))
    ]
    assert not any(one.section for one in verdict.reasons), "the page has no such section to lead to"


def test_supervisors_that_had_nothing_to_be_tried_on_are_not_said_to_be_missing() -> None:
    without = {name: None for name in GOOD if name.startswith(("supervisor", "deploy"))}
    done = [SectionResult(name, name, "done") for name in ("supervisors", "deploy")]
    _, knowing, guard = audited(without, sections=done).verdict.reasons
    assert knowing.text == "There are neither stress images nor enough mistakes to try supervisors on."
    assert guard.text == "No guard was tried against stress images."
    assert (knowing.section, guard.section) == ("supervisors", "deploy")


def test_the_verdict_of_some_sections_contradicts_none_of_them(classifier: Classifier, digits: Dataset) -> None:
    options: Any = {"stress": [], "supervisors": ["entropy", "pcs"], "sections": ["accuracy", "risk"]}
    result = sg.audit(classifier, digits.test, **options)
    assert any(what == "Answers accepted" for what, _ in result.highlights)
    knowing = next(one for one in result.verdict.reasons if one.topic == "knowing")
    assert knowing.weight == "unknown" and knowing.text.startswith("Not measured: the section 'supervisors' was left")
    assert "No supervisor" not in result.summary()


def test_images_of_one_class_cannot_be_guessed_better() -> None:
    result = audited({"accuracy.test": (0.6, 0.5, 0.7)})
    result.about["data"]["test"]["classes"] = {"cat": 500, "dog": 0}
    assert result.verdict.ready


def test_the_verdict_is_in_the_summary_and_in_the_record(audited: AuditResult) -> None:
    verdict = audited.verdict
    assert verdict.ready is False and verdict.headline == "Not before every gate holds"  # two of its three do not
    assert audited.summary().splitlines()[0].split(maxsplit=1) == ["Verdict", verdict.headline]
    assert audited.to_dict()["verdict"] == verdict.to_dict()
    assert [one["topic"] for one in verdict.to_dict()["reasons"]] == ["gates", "guard", "accuracy"]


def test_the_answer_to_the_question_is_never_cut(audited: AuditResult) -> None:
    talkative = [
        SectionResult(f"s{k}", "S", "done", findings=Findings(summary=[(f"s{k}", "x")] * 3)) for k in range(20)
    ]
    own = next(one for one in audited.sections if one.name == "supervisors")
    result = AuditResult(audited.about, [*talkative, own])
    assert own.findings.summary[0][0] == "Knows its limits?"
    assert own.findings.summary[0] in result.highlights and len(result.highlights) == 10
