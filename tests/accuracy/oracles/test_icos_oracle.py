from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from secondguess.accuracy.oracles import Oracle
from secondguess.accuracy.oracles.icos import CRITERIA, Icos, InputRules
from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation

Sets = tuple[Observation, Observation, Observation]


@pytest.fixture(scope="module")
def sets(digits: Sets) -> Sets:
    rules = InputRules.example("mnist_fine")
    first, second, third = (one.replace(images=rules.simulate(one.images)) for one in digits)
    return first, second, third


@pytest.fixture(scope="module")
def fitted(sets: Sets) -> Icos:
    return Icos(InputRules.example("mnist_fine"), confidence=0.9, trees=30).fit(sets[0], sets[1])


def test_the_three_kinds_follow_their_definitions(sets: Sets, fitted: Icos) -> None:
    """Each kind by scikit-learn and by the letter of the fact, the thresholds of the tree apart."""
    training, validation, operation = sets
    masks = fitted.violations(operation).masks
    groups = [{0, 3, 6, 8, 9}, {1, 4, 7}, {2, 5}]
    pairs = zip(operation.labels, operation.predictions, strict=True)
    assert masks["input data"].tolist() == [not any({t, p} <= group for group in groups) for t, p in pairs]

    tree = DecisionTreeClassifier(min_samples_leaf=5, min_samples_split=10, random_state=0)
    flat = [one.images.materialise().reshape(len(one), -1) for one in sets]
    tree.fit(flat[0], training.labels)
    counts = np.zeros((tree.tree_.node_count, 10))
    np.add.at(counts, (tree.apply(flat[0]), training.labels), 1)
    kept = (counts.sum(axis=1) > fitted.support_) & (counts.max(axis=1) >= 0.9 * counts.sum(axis=1))
    leaf = tree.apply(flat[2])
    by_sklearn = kept[leaf] & (counts[leaf].argmax(axis=1) != operation.predictions)
    assert (by_sklearn == masks["training data"]).mean() > 0.95  # midpoints lead a few images elsewhere

    forest = RandomForestClassifier(30, criterion="entropy", random_state=0)
    forest.fit(validation.probabilities.astype(np.float32), ~validation.correct)
    asked = operation.probabilities.astype(np.float32)
    share = np.mean([one.predict(asked) for one in forest.estimators_], axis=0)
    assert np.array_equal(masks["algorithm"], share > 0.5)


def test_the_first_violation_is_named(sets: Sets, fitted: Icos) -> None:
    operation = sets[2]
    verdicts, found = fitted.judge(operation), fitted.violations(operation)
    masks = np.stack(list(found.masks.values()), axis=1)
    assert all(mask.any() for mask in masks.T)
    assert (masks.sum(axis=1) > 1).any()
    assert np.array_equal(verdicts.judged_wrong, masks.any(axis=1))
    for row in range(len(operation)):
        kinds = [kind for kind, violated in zip(found.masks, masks[row], strict=True) if violated]
        assert verdicts.reasons[row].partition(":")[0] == (kinds[0] if kinds else "")
    for row in np.flatnonzero(masks[:, 0]):
        allowed = fitted.rules.partitions[found.partition[row]].labels  # type: ignore[union-attr]
        likeliest = max(allowed, key=lambda k: operation.probabilities[row, int(k)])
        assert verdicts.advice[row] == likeliest
        assert verdicts.reasons[row].endswith(f"which allows {', '.join(map(str, allowed))}")
    for row in np.flatnonzero(~masks[:, 0] & masks[:, 1]):
        number = int(found.rule[row])
        assert verdicts.advice[row] == fitted.pixel_rules[number].label != operation.predictions[row]
        assert fitted.describe(number) in verdicts.reasons[row]
    only_votes = ~masks[:, 0] & ~masks[:, 1]
    assert (verdicts.advice[only_votes] == -1).all()


def test_the_estimate_errs_by_misses_minus_false_alarms(sets: Sets, fitted: Icos) -> None:
    verdicts, right = fitted.judge(sets[2]), sets[2].correct
    missed, false_alarms = (~verdicts.judged_wrong & ~right).sum(), (verdicts.judged_wrong & right).sum()
    assert verdicts.share_passed() - right.mean() == pytest.approx((missed - false_alarms) / len(right))


def test_contributions_add_up(sets: Sets, fitted: Icos) -> None:
    operation = sets[2]
    verdicts, found = fitted.judge(operation), fitted.contributions(operation)
    assert [one.kind for one in found] == ["input data", "training data", "algorithm"]
    assert sum(one.credited for one in found) == verdicts.judged_wrong.sum()
    assert sum(one.caught or 0 for one in found) == (verdicts.judged_wrong & ~operation.correct).sum()
    assert found[0].caught == found[0].credited == found[0].violations > 0
    assert all(one.credited <= one.violations for one in found)
    hidden = operation.replace(images=replace(operation.images, labels=np.full(len(operation), -1)))
    assert [one.caught for one in fitted.contributions(hidden)] == [None] * 3


def test_wider_criteria_judge_more_wrong(sets: Sets) -> None:
    counts = []
    for number in (1, 2, 3):
        oracle = Icos(trees=5, **CRITERIA[number]).fit(sets[0], sets[1])
        counts.append(int((oracle.violations(sets[2]).rule >= 0).sum()))
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


def test_without_rules_no_input_is_violated(sets: Sets) -> None:
    oracle = Icos(trees=5).fit(sets[0], sets[1])
    assert (oracle.violations(sets[2]).partition == -1).all()


def test_rules_are_listed_and_drawn(sets: Sets, fitted: Icos) -> None:
    lines = fitted.describe().splitlines()
    assert len(lines) == len(fitted.pixel_rules) > 0
    assert lines[0] == f"0: {fitted.describe(0)}"
    assert "pixel[" in lines[0]
    image = sets[2].images.images[0]
    assert fitted.draw(0, image).shape == (336, 336, 3)
    with pytest.raises(UserError, match=r"The rule is about images of shape \(1, 8, 8\), but this one is \(1, 4, 4\)"):
        fitted.draw(0, image[:, :4, :4])
    with pytest.raises(UserError, match="There are no rules yet"):
        Icos().describe()


def test_layers_make_rules_that_cannot_be_drawn(sets: Sets) -> None:
    trace = Trace("dense")
    traced = [one.replace(traces={trace: one.probabilities.astype(np.float32)}) for one in sets]
    oracle = Icos(features=trace, trees=5, confidence=0.8).fit(traced[0], traced[1])
    assert oracle.needs.traces == {trace}
    assert "dense[" in oracle.describe()
    assert len(oracle.judge(traced[2])) == len(sets[2])
    with pytest.raises(UserError, match="cannot be drawn"):
        oracle.draw(0, sets[2].images.images[0])
    with pytest.raises(UserError, match="no trace of 'dense/flatten'"):
        oracle.judge(sets[2])


def test_a_saved_one_judges_the_same_without_a_pickle(sets: Sets, fitted: Icos, tmp_path: Path) -> None:
    fitted.save(tmp_path / "icos.safetensors")
    loaded = Oracle.load(tmp_path / "icos.safetensors")
    assert isinstance(loaded, Icos)
    assert loaded.params() == fitted.params()
    first, second = fitted.judge(sets[2]), loaded.judge(sets[2])
    assert np.array_equal(first.wrong, second.wrong)
    assert np.array_equal(first.reasons, second.reasons)
    assert loaded.describe() == fitted.describe()


def test_a_validation_set_without_failures_is_handled(sets: Sets) -> None:
    right = sets[1].take(sets[1].correct)
    with pytest.warns(UserWarning, match="is right, so nothing can be learnt about failures"):
        oracle = Icos(trees=5).fit(sets[0], right)
    assert (oracle.violations(sets[2]).votes == 0).all()


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"confidence": 1.5}, "between 0 and 1, not 1.5"),
        ({"support": -1}, "0 or more, not -1"),
        ({"support": "most"}, "not 'most'"),
        ({"features": 9}, "the images are 8 x 8"),
        ({"rules": InputRules.example("cifar100_fine")}, "in the partition 'P1', the label 30 is unknown"),
    ],
)
def test_bad_parameters_are_told_when_fitting(sets: Sets, params: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Icos(**params).fit(sets[0], sets[1])  # type: ignore[arg-type]


def test_images_of_another_size_are_refused(sets: Sets, fitted: Icos, evidence: Callable[..., Observation]) -> None:
    other = evidence([0, 1], [0, 1], classes=10)
    with pytest.raises(UserError, match=r"the operation images are \(1, 4, 4\)"):
        fitted.judge(other)
    with pytest.raises(UserError, match=r"the validation images are \(1, 4, 4\)"):
        Icos().fit(sets[0], other)
