"""The sections on the order of images, on the decision boundary and on surprise coverage."""

from __future__ import annotations

import numpy as np
import pytest

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset
from secondguess.metrics import apfd_interval, avoidable_faults, frontier, pair_boundaries
from secondguess.model.needs import Needs
from secondguess.stress.ambiguous import PixelBlend
from secondguess.supervisors import make
from secondguess.supervisors.surprise.coverage import SurpriseCoverage

SECTIONS = ["boundary", "priorities", "surprise_coverage"]


@pytest.fixture(scope="module")
def ordered(net, digits: Dataset) -> AuditResult:
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test,
        train=digits.train,
        supervisors=["max_softmax", "dsa", "mdsa"],
        stress=[PixelBlend(pairs=[(0, 1), (3, 8), (4, 9)]), "invalid"],
        sections=SECTIONS,
    )


def html_of(result: AuditResult, name: str) -> str:
    section = next(one for one in result.sections if one.name == name)
    assert section.status == "done", section.reason
    return str(section.html)


@pytest.fixture(scope="module")
def blended(digits: Dataset):
    return PixelBlend(pairs=[(0, 1), (3, 8), (4, 9)]).make(digits.test, train=digits.train, seed=0)


def test_orders_are_those_of_the_scores(ordered: AuditResult, net, digits: Dataset, blended) -> None:
    classifier = Classifier(net, device="cpu")
    seen, mixed = classifier.observe(digits.test), classifier.observe(blended)
    wrong, scores = seen.predictions != digits.test.labels, -seen.confidences
    found, by_hand = ordered.numbers["priorities.max_softmax.apfd"].interval, apfd_interval(scores, wrong)
    assert (found.value, found.low) == (pytest.approx(by_hand.value), pytest.approx(by_hand.low))
    everything = np.r_[scores, -mixed.confidences]
    faults = np.r_[wrong, avoidable_faults(mixed.predictions, blended.soft_labels)]
    name = next(one for one in ordered.numbers if one.endswith("avoidable.apfd"))
    assert ordered.numbers[name].value == pytest.approx(apfd_interval(everything, faults).value)
    first = np.argsort(-everything, kind="stable")[: round(0.1 * len(everything))] >= len(wrong)
    assert ordered.numbers[name.replace("avoidable.apfd", "first")].value == pytest.approx(first.mean(), abs=0.01)


def test_the_report_says_what_a_mistake_on_an_ambiguous_image_means(ordered: AuditResult) -> None:
    text = html_of(ordered, "priorities")
    assert "of the mistakes" not in text and "mistakes among the first" in text
    assert "which of them its label names is chance" in text and "no training avoids the rest" in text
    assert "APFD for learning" in text


def test_the_boundary_is_held_against_ambiguous_images(ordered: AuditResult, net, digits: Dataset, blended) -> None:
    classifier = Classifier(net, device="cpu")
    seen, mixed = classifier.observe(digits.test), classifier.observe(blended)
    guessed = np.concatenate([seen.probabilities, mixed.probabilities])
    soft = np.concatenate([np.eye(10)[digits.test.labels], blended.soft_labels])
    pairs, found = pair_boundaries(guessed, soft), frontier(guessed, soft)
    numbers = ordered.numbers
    assert numbers["boundary.through"].value == np.mean([one.through for one in pairs])
    assert numbers["boundary.frontier.ambiguous"].value == found.share_near(ambiguous=True).value
    assert numbers["boundary.frontier.wrong"].value > 3 * numbers["boundary.away.wrong"].value
    text = html_of(ordered, "boundary")
    assert "3 or 8" in text and "the boundary runs" in text
    assert text.count("taken for") >= found.faults.sum()


def test_surprise_coverage_is_that_of_the_scores(ordered: AuditResult, net, digits: Dataset) -> None:
    classifier = Classifier(net, device="cpu")
    judge = make("dsa")
    needs = Needs.union([judge])
    scores = judge.fit(classifier.observe(digits.train, needs)).score(classifier.observe(digits.test, needs))
    by_hand = SurpriseCoverage.from_nominal(scores, 100, lower=0).add(scores)
    assert ordered.numbers["surprise_coverage.dsa.nominal"].value == pytest.approx(by_hand.coverage, abs=0.011)
    assert ordered.numbers["surprise_coverage.dsa.nominal.above"].value == 0
    assert ordered.numbers["surprise_coverage.dsa.invalid.above"].value > 0
    assert ordered.numbers["surprise_coverage.dsa.nominal"].data == digits.test.fingerprint
    invalid = {ordered.numbers[f"surprise_coverage.dsa.invalid{part}"].data for part in ("", ".above")}
    assert len(invalid) == 1 and digits.test.fingerprint not in invalid
    text = html_of(ordered, "surprise_coverage")
    assert "A varied set is no proof of a good model" in text and "Buckets of mdsa" in text


def test_without_ambiguous_images_errors_or_surprise_the_sections_say_why(net, digits: Dataset) -> None:
    classifier = Classifier(net, device="cpu")
    right = digits.test.take(classifier.observe(digits.test).predictions == digits.test.labels)
    result = sg.audit(classifier, right, supervisors=["entropy"], stress=[], sections=SECTIONS)
    assert [one.status for one in result.sections] == ["skipped"] * 3
    assert [one.reason.split(",")[0] for one in result.sections] == [
        "There are no ambiguous images with soft labels in this audit.",
        "The model answers no labelled test image wrongly",
        "None of the supervisors of this audit measures surprise (dsa",
    ]
    fixed = sg.audits.sections.make("surprise_coverage:buckets=10")
    assert fixed.params() == {"buckets": 10, "upper": None}
