from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from secondguess.accuracy.oracles.icos._trees import Tree, leaves, single
from secondguess.accuracy.oracles.icos.pixel_rules import CRITERIA, PixelRules, choose_support, grow
from secondguess.errors import UserError
from secondguess.images import load

Data = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


@pytest.fixture(scope="module")
def data() -> Data:
    sets = load("digits")
    train, test = sets.train, sets.test
    flat = [one.materialise().reshape(len(one), -1) for one in (train, test)]
    return flat[0], train.labels, flat[1], test.labels


@pytest.fixture(scope="module")
def tree(data: Data) -> Tree:
    return grow(data[0], data[1], 10)


@pytest.fixture(scope="module")
def referee(data: Data) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(min_samples_leaf=5, min_samples_split=10, random_state=0).fit(data[0], data[1])


def test_trees_as_arrays_lead_where_scikit_learn_does(data: Data, referee: DecisionTreeClassifier) -> None:
    arrays = single(referee.tree_)
    for values in (data[0], data[2]):
        assert np.array_equal(leaves(arrays, values)[:, 0], referee.apply(values))


def test_training_images_keep_their_leaf_with_thresholds_on_the_lower_side(
    data: Data, tree: Tree, referee: DecisionTreeClassifier
) -> None:
    assert np.array_equal(leaves(tree, data[0])[:, 0], referee.apply(data[0]))
    paths = referee.decision_path(data[0]).toarray().astype(bool)
    inner = np.flatnonzero(referee.tree_.children_left >= 0)
    for node in inner:
        left = paths[:, referee.tree_.children_left[node]]
        assert tree["threshold"][node] == data[0][left, referee.tree_.feature[node]].max()
    assert (tree["threshold"][inner] <= referee.tree_.threshold[inner]).all()


def test_nodes_hold_as_many_images_as_they_must(data: Data, tree: Tree, referee: DecisionTreeClassifier) -> None:
    size = tree["counts"].sum(axis=1)
    inner = tree["left"] != np.arange(len(size))
    assert size[~inner].min() >= 5
    assert (size[inner] == 0).all()
    assert referee.tree_.n_node_samples[inner].min() >= 10
    for leaf in np.flatnonzero(~inner):
        counted = np.bincount(data[1][referee.apply(data[0]) == leaf], minlength=10)
        assert np.array_equal(tree["counts"][leaf], counted)


def test_a_rule_matches_the_images_of_its_leaf_and_no_others(data: Data, tree: Tree) -> None:
    rules = PixelRules(tree, 0.0, 0)
    for values in (data[0], data[2]):
        matches = np.stack([rule.matches(values) for rule in rules], axis=1)
        assert (matches.sum(axis=1) == 1).all()
        assert np.array_equal(rules.matching(values), matches.argmax(axis=1))
    on_training = np.stack([rule.matches(data[0]) for rule in rules])
    for rule, met in zip(rules, on_training, strict=True):
        assert rule.support == met.sum()
        assert rule.confidence == np.mean(data[1][met] == rule.label)


@pytest.mark.parametrize(("confidence", "support"), [(0.99, 0), (0.99, 20), (0.9, 7), (1.0, 10_000)])
def test_rules_are_filtered_and_sorted(tree: Tree, confidence: float, support: int) -> None:
    everything = list(PixelRules(tree, 0.0, 0))
    kept = list(PixelRules(tree, confidence, support))
    wanted = [rule for rule in everything if rule.confidence >= confidence and rule.support > support]
    assert sorted(map(repr, kept)) == sorted(map(repr, wanted))
    order = [(-rule.confidence, -rule.support) for rule in kept]
    assert order == sorted(order)


def test_support_must_be_exceeded(tree: Tree) -> None:
    supports = sorted(rule.support for rule in PixelRules(tree, 0.99, 0))
    assert len(PixelRules(tree, 0.99, supports[0])) == sum(one > supports[0] for one in supports) < len(supports)


def test_a_violation_is_a_kept_rule_with_another_class(data: Data, tree: Tree) -> None:
    rules = PixelRules(tree, 0.99, 5)
    predictions = np.random.default_rng(0).integers(0, 10, len(data[2]))
    wanted = []
    for image, predicted in zip(data[2], predictions, strict=True):
        fired = [k for k, rule in enumerate(rules) if rule.matches(image[None])[0] and rule.label != predicted]
        wanted.append(fired[0] if fired else -1)
    assert rules.violated(data[2], predictions).tolist() == wanted
    assert (PixelRules(tree, 0.99, 10**6).violated(data[2], predictions) == -1).all()


def test_support_is_chosen_so_that_half_of_the_images_match(data: Data, tree: Tree) -> None:
    def covered(support: int) -> float:
        return float((PixelRules(tree, 0.9, support).matching(data[2]) >= 0).mean())

    chosen = choose_support(tree, data[2], 0.9)
    assert chosen == max(support for support in range(300) if covered(support) >= 0.5)


def test_support_is_the_median_where_too_few_images_match(data: Data, tree: Tree) -> None:
    rules = list(PixelRules(tree, 1.0, 0))
    unlike = np.tile(data[2][PixelRules(tree, 1.0, 0).matching(data[2]) < 0][:1], (9, 1))
    assert choose_support(tree, unlike, 1.0) == int(np.median([rule.support for rule in rules]))
    hopeless = {**tree, "counts": np.tile(np.ones(10, dtype=np.int64), (len(tree["left"]), 1))}
    assert choose_support(hopeless, data[2], 0.99) == 0


def test_the_criteria_widen(tree: Tree) -> None:
    assert [CRITERIA[k]["confidence"] for k in (1, 2, 3)] == [0.99, 0.99, 0.0]
    assert [CRITERIA[k]["support"] for k in (1, 2, 3)] == ["auto", 0, 0]


def test_rules_are_put_into_words(tree: Tree) -> None:
    rule = PixelRules(tree, 0.99, 0)[0]
    text = rule.describe([str(k) for k in range(10)], lambda feature: f"x{feature}")
    assert text.endswith(f"-> '{rule.label}' (support {rule.support}, confidence {rule.confidence:.3f})")
    for feature, bound in rule.up_to.items():
        assert f"x{feature} <= {bound:.3g}" in text
    for feature, bound in rule.above.items():
        assert (f"{bound:.3g} < x{feature}" if feature in rule.up_to else f"x{feature} > {bound:.3g}") in text


def test_one_class_makes_one_rule_without_conditions() -> None:
    values = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    rules = PixelRules(grow(values, np.full(20, 1), 3), 0.99, 0)
    assert len(rules) == 1
    assert rules[0].describe(["a", "b", "c"]) == "always -> 'b' (support 20, confidence 1.000)"
    assert rules.violated(values[:2], np.array([1, 0])).tolist() == [-1, 0]


def test_a_node_needs_an_image() -> None:
    with pytest.raises(UserError, match="A node must hold at least 1 image, not 0"):
        grow(np.zeros((4, 2), np.float32), np.zeros(4, np.int64), 2, min_records=0)


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(0)
    values, labels = rng.integers(0, 2, (200, 30)).astype(np.float32), rng.integers(0, 3, 200)
    first, again, other = (grow(values, labels, 3, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["feature"], other["feature"])
