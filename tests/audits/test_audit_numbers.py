"""The numbers of an audit against scikit-learn, SciPy and loops, from nothing but the network and the images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from numpy.typing import NDArray
from sklearn import metrics as sk
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Dataset, ImageSet
from secondguess.audits import sections
from secondguess.contracts.sealed import digest_of
from secondguess.stress import make_all

Floats = NDArray[np.float64]
SCORES: dict[str, Callable[[Floats], Floats]] = {
    "max_softmax": lambda p: -p.max(axis=1),
    "pcs": lambda p: np.sort(p, axis=1)[:, -2] - np.sort(p, axis=1)[:, -1],
    "entropy": lambda p: scipy.stats.entropy(p, base=2, axis=1),
    "deep_gini": lambda p: 1 - (p**2).sum(axis=1),
}


def look(net: nn.Module, images: ImageSet) -> Floats:
    with torch.no_grad():
        return np.asarray(net(torch.from_numpy(images.materialise())).double().softmax(dim=1))


@pytest.fixture(scope="module")
def probabilities(net: nn.Module, digits: Dataset) -> Floats:
    return look(net, digits.test)


@pytest.fixture(scope="module")
def stressed(net: nn.Module, digits: Dataset) -> dict[str, tuple[ImageSet, Floats]]:
    sets = {one.name: one.make(digits.test, seed=7) for one in make_all(["corrupted", "invalid"])}
    return {name: (images, look(net, images)) for name, images in sets.items()}


@pytest.fixture(scope="module")
def value(audited: AuditResult) -> Callable[[str], float]:
    return lambda name: audited.numbers[name].value


Value = Callable[[str], float]


def test_accuracy_recall_and_precision(value: Value, probabilities: Floats, digits: Dataset) -> None:
    truth, guess = digits.test.labels, probabilities.argmax(axis=1)
    assert value("accuracy.test") == pytest.approx(sk.accuracy_score(truth, guess), abs=1e-12)
    precision, recall, _, _ = sk.precision_recall_fscore_support(truth, guess)
    for k in range(10):
        assert value(f"accuracy.class.{k}.recall") == pytest.approx(recall[k], abs=1e-12)
        assert value(f"accuracy.class.{k}.precision") == pytest.approx(precision[k], abs=1e-12)


def test_accuracy_under_stress(
    value: Value, stressed: dict[str, tuple[ImageSet, Floats]], audited: AuditResult
) -> None:
    images, seen = stressed["corrupted"]
    assert value("accuracy.stress.corrupted") == pytest.approx(sk.accuracy_score(images.labels, seen.argmax(axis=1)))
    assert "accuracy.stress.invalid" not in audited.numbers


def test_wilson_interval_of_the_accuracy(audited: AuditResult, probabilities: Floats, digits: Dataset) -> None:
    right = int((probabilities.argmax(axis=1) == digits.test.labels).sum())
    expected = scipy.stats.binomtest(right, len(digits.test)).proportion_ci(method="wilson")
    interval = audited.numbers["accuracy.test"].interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def gaps(probabilities: Floats, truth: NDArray[np.int64]) -> list[tuple[float, float]]:
    """(gap between confidence and accuracy, share of the images) for each of fifteen bins that is not empty."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    found = []
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            found.append((abs(float(confidence[inside].mean() - right[inside].mean())), float(inside.mean())))
    return found


def test_calibration(value: Value, probabilities: Floats, digits: Dataset) -> None:
    truth, bins = digits.test.labels, gaps(probabilities, digits.test.labels)
    accuracy = sk.accuracy_score(truth, probabilities.argmax(axis=1))
    assert value("calibration.ece") == pytest.approx(sum(gap * share for gap, share in bins), abs=1e-6)
    assert value("calibration.mce") == pytest.approx(max(gap for gap, _ in bins), abs=1e-6)
    assert value("calibration.overconfidence") == pytest.approx(probabilities.max(axis=1).mean() - accuracy, abs=1e-6)
    assert value("calibration.nll") == pytest.approx(sk.log_loss(truth, probabilities), abs=1e-6)
    one_hot = np.eye(10)[truth]
    assert value("calibration.brier") == pytest.approx(((probabilities - one_hot) ** 2).sum(axis=1).mean(), abs=1e-6)


def test_each_half_is_judged_with_the_temperature_of_the_other(
    value: Value, probabilities: Floats, digits: Dataset
) -> None:
    truth = digits.test.labels

    def scaled(rows: NDArray[np.int64], temperature: float) -> Floats:
        return np.asarray(scipy.special.softmax(np.log(probabilities[rows]) / temperature, axis=1))

    def best(rows: NDArray[np.int64]) -> float:
        def loss(t: float) -> float:
            return float(sk.log_loss(truth[rows], scaled(rows, t), labels=range(10)))

        return float(scipy.optimize.minimize_scalar(loss, bounds=(0.05, 20), method="bounded").x)

    order = np.random.default_rng(7).permutation(len(truth))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    judged = np.empty_like(probabilities)
    judged[first], judged[second] = scaled(first, best(second)), scaled(second, best(first))
    assert value("calibration.temperature") == pytest.approx((best(first) + best(second)) / 2, rel=1e-3)
    expected = sum(gap * share for gap, share in gaps(judged, truth))
    assert value("calibration.ece_after_temperature") == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("column", ["mistakes", "corrupted", "invalid"])
def test_supervisors_on_every_set(
    name: str,
    column: str,
    value: Value,
    probabilities: Floats,
    stressed: dict[str, tuple[ImageSet, Floats]],
    digits: Dataset,
) -> None:
    nominal = SCORES[name](probabilities)
    if column == "mistakes":
        wrong = probabilities.argmax(axis=1) != digits.test.labels
        nominal, other = nominal[~wrong], nominal[wrong]
    else:
        other = SCORES[name](stressed[column][1])
    truth, scores = np.repeat([0, 1], [len(nominal), len(other)]), np.concatenate([nominal, other])
    prefix = f"supervisor.{name}.{column}"
    assert value(f"{prefix}.auroc") == pytest.approx(sk.roc_auc_score(truth, scores), abs=1e-4)
    assert value(f"{prefix}.aupr") == pytest.approx(sk.average_precision_score(truth, scores), abs=1e-3)
    allowed = [limit for limit in nominal if (nominal > limit).mean() <= 0.05]
    assert value(f"{prefix}.detection") == pytest.approx((other > min(allowed)).mean(), abs=2 / len(other))


def test_the_best_supervisor_is_broken_down_by_corruption(
    audited: AuditResult, probabilities: Floats, stressed: dict[str, tuple[ImageSet, Floats]]
) -> None:
    best = max(SCORES, key=lambda name: audited.numbers[f"supervisor.{name}.corrupted.auroc"].value)
    images, seen = stressed["corrupted"]
    kinds = images.columns["corruption"]
    for kind in np.unique(kinds):
        other, nominal = SCORES[best](seen[kinds == kind]), SCORES[best](probabilities)
        truth = np.repeat([0, 1], [len(nominal), len(other)])
        expected = sk.roc_auc_score(truth, np.concatenate([nominal, other]))
        measured = audited.numbers[f"supervisor.{best}.corrupted.{kind}.auroc"]
        assert measured.value == pytest.approx(expected, abs=1e-4)


def test_confident_mistakes_are_counted(value: Value, probabilities: Floats, digits: Dataset) -> None:
    wrong = probabilities.argmax(axis=1) != digits.test.labels
    assert value("gallery.confident_mistakes") == (probabilities.max(axis=1)[wrong] >= 0.95).sum()


def test_every_number_in_the_file_says_where_it_comes_from(
    audited: AuditResult, digits: Dataset, read_json: Callable[[Path], dict[str, Any]],
    stressed: dict[str, tuple[ImageSet, Floats]],
) -> None:  # fmt: skip
    content = read_json(audited.folder / "audit.json")
    assert content["numbers"].keys() == audited.numbers.keys()
    test, others = digits.test.fingerprint, [images.fingerprint for images, _ in stressed.values()]
    known = {test, *others, *(digest_of((test + other).encode()) for other in others)}
    for name, number in content["numbers"].items():
        assert number.keys() == {"value", "low", "high", "level", "n", "seed", "data"}, name
        assert isinstance(number["value"], float)
        assert number["seed"] == 7
        assert number["data"] in known, name
        ends = {number[key] is None for key in ("low", "high", "level", "n")}
        assert len(ends) == 1, f"{name} has half an interval"
        if number["low"] is not None:
            assert number["low"] <= number["high"]
            assert number["n"] > 0


def test_numbers_on_a_stress_set_carry_its_fingerprint(
    audited: AuditResult, stressed: dict[str, tuple[ImageSet, Floats]], digits: Dataset
) -> None:
    assert audited.numbers["supervisor.entropy.invalid.auroc"].data == stressed["invalid"][0].fingerprint
    assert audited.numbers["accuracy.stress.corrupted"].data == stressed["corrupted"][0].fingerprint
    assert audited.numbers["supervisor.entropy.mistakes.auroc"].data == digits.test.fingerprint
    assert audited.numbers["risk.entropy.aurc"].data == digits.test.fingerprint
    assert audited.numbers["risk.entropy.corrupted.aurc"].data == stressed["corrupted"][0].fingerprint


def test_the_file_says_how_the_audit_was_made(
    audited: AuditResult, digits: Dataset, read_json: Callable[[Path], dict[str, Any]]
) -> None:
    assert digits.train is not None
    content = read_json(audited.folder / "audit.json")
    assert content["schema"] == 1
    assert content["status"] == "complete"
    assert content["seed"] == 7
    assert content["command"] == "secondguess audit --data digits"
    assert content["versions"]["torch"] == torch.__version__
    assert content["data"]["test"]["fingerprint"] == digits.test.fingerprint
    assert content["data"]["train"]["fingerprint"] == digits.train.fingerprint
    assert content["model"]["name"] == "tiny"
    assert content["model"]["fingerprint"]
    assert content["supervisors"] == ["max_softmax", "pcs", "entropy", "deep_gini"]
    assert content["stress"] == ["corrupted", "invalid"]
    states = {section["name"]: section["status"] for section in content["sections"]}
    assert set(states) == set(sections.names()) - {"human_doubt"}  # nobody has voted
    # There are no ambiguous images, and no supervisor measures surprise.
    assert {name for name, state in states.items() if state != "done"} == {"boundary", "surprise_coverage"}
    assert states["boundary"] == states["surprise_coverage"] == "skipped"
    assert len(content["summary"]) <= 10
    assert content["seconds"] > 0


def test_the_answers_that_are_kept_give_the_numbers_of_the_audit(audited: AuditResult) -> None:
    """Referee of both: what `compare` measures from `predictions.npz` is what the sections measured."""
    found = sg.compare(audited, audited.folder)
    shared = {one.name: one.change for one in found.measures if one.name in audited.numbers}
    assert {name.split(".")[0] for name in shared} == {"accuracy", "calibration", "supervisor"} and len(shared) > 40
    for name, change in shared.items():
        assert change.before == change.after == pytest.approx(audited.numbers[name].value, abs=1e-12), name
        assert change.p_value == 1
    assert not found.negative and found.verdict.ready
    assert len(found.after.predictions.sets["nominal"]) == 360
