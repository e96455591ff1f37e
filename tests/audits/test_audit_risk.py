from __future__ import annotations

import pytest

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset
from secondguess.metrics import aurc, excess_aurc


def test_areas_are_those_of_the_test_images(audited: AuditResult, net, digits: Dataset) -> None:
    seen = Classifier(net, device="cpu").observe(digits.test)
    wrong = seen.predictions != digits.test.labels
    scores = -seen.probabilities.max(axis=1)
    assert audited.numbers["risk.max_softmax.aurc"].value == pytest.approx(aurc(scores, wrong), abs=1e-6)
    found = audited.numbers["risk.max_softmax.excess_aurc"].value
    assert found == pytest.approx(excess_aurc(scores, wrong), abs=1e-6)
    assert audited.numbers["risk.entropy.corrupted.aurc"].value > audited.numbers["risk.entropy.aurc"].value


def test_the_report_shows_curves_and_tables(audited: AuditResult) -> None:
    section = next(one for one in audited.sections if one.name == "risk")
    assert section.status == "done"
    assert "Risk against coverage of" in section.html and "accepted at 2% wrong" in section.html
    assert "The same within corrupted images" in section.html
    assert any("of the accepted ones may be wrong" in text for _, text in section.findings.summary)


def test_a_model_without_errors_has_nothing_to_say(net, digits: Dataset) -> None:
    classifier = Classifier(net, device="cpu")
    right = digits.test.take(classifier.observe(digits.test).predictions == digits.test.labels)
    result = sg.audit(classifier, right, supervisors=["entropy"], stress=[], sections=["risk"])
    assert result.sections[0].status == "skipped"
    assert "answers no labelled test image wrongly" in result.sections[0].reason
