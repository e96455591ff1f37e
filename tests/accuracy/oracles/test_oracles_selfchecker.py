from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import gaussian_kde
from sklearn.decomposition import PCA
from sklearn.metrics import f1_score

from secondguess.accuracy.oracles import selfchecker as module
from secondguess.accuracy.oracles.checks import check_oracle
from secondguess.accuracy.oracles.selfchecker import SelfChecker, best_alarm_layers, plurality, subsets
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation
from secondguess.model.outputs import softmax

LAYERS = ["one", "two", "three"]


def layered(n: int, seed: int, failing: float = 0.2, classes: int = 4) -> Observation:
    """Three layers: noise, a layer that knows the truth, and one that knows what the model will say."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    said = np.where(rng.random(n) < failing, (labels + 1) % classes, labels)
    corners = 4 * np.eye(classes)
    traces = {
        Trace("one", "mean"): rng.normal(size=(n, classes)),
        Trace("two", "mean"): corners[labels] + rng.normal(size=(n, classes)),
        Trace("three", "mean"): corners[said] + rng.normal(size=(n, classes)),
    }
    probabilities = softmax(3 * np.eye(classes)[said] + 0.3 * rng.normal(size=(n, classes)))
    images = ImageSet.from_arrays(np.zeros((n, 2, 2), dtype=np.uint8), labels, class_names=list("abcd")[:classes])
    made = Observation(
        probabilities, traces={name: one.astype(np.float32) for name, one in traces.items()}, class_names=tuple("abcd")
    )
    return made.replace(images=images)


@pytest.fixture(scope="module")
def fitted() -> SelfChecker:
    return SelfChecker(LAYERS).fit(layered(600, 0, failing=0.02), layered(400, 1))


def test_it_keeps_the_contract() -> None:
    assert len(check_oracle(SelfChecker())) >= 10
    assert len(check_oracle(SelfChecker(boost=True, output=False))) >= 10


def test_layers_infer_the_class_of_the_largest_density(fitted) -> None:
    training, operation = layered(600, 0, failing=0.02), layered(50, 2)
    votes = fitted.infer(operation)
    for number, layer in enumerate(LAYERS):
        trace = Trace(layer, "mean")
        rows, queries = training.trace(trace), operation.trace(trace)
        densities = [gaussian_kde(rows[training.labels == k].T).logpdf(queries.T) for k in range(4)]
        assert (votes[:, number] == np.argmax(densities, axis=0)).mean() > 0.97  # a ridge is not nothing
    assert votes.shape == (50, 4)


def test_it_finds_errors_and_knows_better(fitted) -> None:
    operation = layered(500, 3)
    verdicts = fitted.judge(operation)
    assert verdicts.judged_wrong[~operation.correct].mean() > 0.9
    assert verdicts.judged_wrong[operation.correct].mean() < 0.1
    advised = verdicts.advice >= 0
    assert (verdicts.advice[advised] == operation.labels[advised]).mean() > 0.9
    assert (verdicts.advice[~verdicts.judged_wrong] == -1).all()
    assert (verdicts.advice[advised] != operation.predictions[advised]).all()
    reason = verdicts.reasons[np.flatnonzero(verdicts.judged_wrong & ~operation.correct)[0]]
    assert "layers disagree with" in reason and "two infers" in reason
    assert fitted.alarm_layers_[:, 1].all() and not fitted.alarm_layers_[:, 2].all()


def test_boosting_withdraws_alarms_only(fitted) -> None:
    operation = layered(300, 4)
    plain = fitted.judge(operation)
    fitted_again = SelfChecker(LAYERS, boost=True).fit(layered(600, 0, failing=0.02), layered(400, 1))
    boosted = fitted_again.judge(operation)
    assert (plain.judged_wrong | ~boosted.judged_wrong).all()
    withdrawn = plain.judged_wrong & ~boosted.judged_wrong
    assert (plain.advice[withdrawn] == -1).all()


def brute_force(disagrees: np.ndarray, wrong: np.ndarray) -> tuple[int, ...]:
    """The authors' loop: subsets by size, then in lexicographic order, and the last maximum wins."""
    best, chosen = -1.0, ()
    for size in range(1, disagrees.shape[1] + 1):
        for members in combinations(range(disagrees.shape[1]), size):
            count = disagrees[:, members].sum(axis=1)
            score = f1_score(wrong, count >= size - count, zero_division=0)
            if score >= best - 1e-12:
                best, chosen = score, members
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_layers_are_chosen_as_in_the_authors_loop(seed, monkeypatch) -> None:
    rng = np.random.default_rng(seed)
    wrong = rng.random(60) < 0.3
    disagrees = rng.random((60, 5)) < np.where(wrong[:, None], [0.9, 0.6, 0.5, 0.7, 0.3], [0.1, 0.3, 0.5, 0.05, 0.3])
    expected = brute_force(disagrees, wrong)
    assert tuple(np.flatnonzero(best_alarm_layers(disagrees, wrong))) == expected
    monkeypatch.setattr(module, "EXHAUSTIVE", 3)  # with five layers the beam is wide enough to hold all
    beamed = best_alarm_layers(disagrees, wrong)
    count = disagrees[:, beamed].sum(axis=1)
    reached = f1_score(wrong, 2 * count >= beamed.sum())
    count = disagrees[:, list(expected)].sum(axis=1)
    assert reached == pytest.approx(f1_score(wrong, 2 * count >= len(expected)))


def test_subsets_come_by_size_and_then_by_their_members() -> None:
    found = [tuple(np.flatnonzero(mask)) for mask in subsets(4)]
    assert found == [members for size in range(1, 5) for members in combinations(range(4), size)]


def test_plurality_gives_ties_to_the_lowest_class() -> None:
    votes, masks = np.array([[2, 1, 1, -1], [3, 0, 2, 2]]), subsets(4)
    for row, winners in zip(votes, plurality(votes, masks, 4), strict=True):
        for mask, winner in zip(masks, winners, strict=True):
            counts = np.bincount(row[mask & (row >= 0)], minlength=4)
            assert winner == counts.argmax()


def test_advice_weighs_what_was_met_on_validation_images() -> None:
    """By hand: two classes, two layers; all alarms on class 0 are errors of class 1, which layer two recognises."""
    checker = SelfChecker(LAYERS)
    checker.classes_ = 2
    checker.alarm_layers_ = np.ones((2, 2), dtype=bool)
    images = ImageSet.from_arrays(np.zeros((4, 2, 2), dtype=np.uint8), [1, 1, 0, 0], class_names=["a", "b"])
    evidence = Observation(np.tile([0.9, 0.1], (4, 1)), images=images)
    votes = np.array([[0, 1], [0, 1], [0, 0], [1, 0]])
    checker._choose_advice(votes, evidence)
    # Three alarms (rows 0, 1, 3), two of them on errors. For t = 1: layer two alone is always right, m a = 2.
    assert checker.advice_weights_[0].tolist() == pytest.approx([1 / 3, 2 / 2])
    assert checker.advice_layers_[0, 1].tolist() == [False, True]
    assert checker._advise(np.array([[0, 1], [0, 0]]), np.array([0, 0])).tolist() == [1, 0]


def test_wide_layers_small_classes_and_dead_neurons() -> None:
    """More neurons than images in a class, some of them alive in one class only, one class with a single image."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], [30, 30, 30, 2])

    def evidence(seed: int) -> Observation:
        noise = np.random.default_rng(seed).normal(size=(len(labels), 60)).astype(np.float32)
        noise[labels != 1, 5] = 0.0
        noise[:, 6] = 1.0
        noise[np.arange(len(labels)), labels * 10] += 9
        images = ImageSet.from_arrays(np.zeros((len(labels), 2, 2), dtype=np.uint8), labels, class_names=list("abcd"))
        said = np.where(rng.random(len(labels)) < 0.2, (labels + 1) % 4, labels)
        return Observation(softmax(4 * np.eye(4)[said]), traces={Trace("wide", "mean"): noise}, images=images)

    checker = SelfChecker("wide", output=False).fit(evidence(0), evidence(1))
    votes = checker.infer(evidence(2))
    assert votes.shape == (92, 1) and (votes >= 0).all()


def test_a_layer_can_be_reduced_to_its_principal_components() -> None:
    """The same inferences as of a SelfChecker that is given scikit-learn's components as its layer."""
    labels = np.repeat(np.arange(3), 60)

    def evidence(seed: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(seed)
        mixed = rng.normal(size=(len(labels), 4)) @ np.random.default_rng(9).normal(size=(4, 20))
        mixed[np.arange(len(labels)), labels] += 4
        return np.asarray(mixed + 0.3 * rng.normal(size=mixed.shape), dtype=np.float32)

    def seen(values: NDArray[np.float32]) -> Observation:
        images = ImageSet.from_arrays(np.zeros((len(labels), 2, 2), dtype=np.uint8), labels, class_names=list("abc"))
        said = np.where(np.arange(len(labels)) % 7 == 0, (labels + 1) % 3, labels)
        return Observation(softmax(4 * np.eye(3)[said]), traces={Trace("wide", "mean"): values}, images=images)

    parts = [evidence(seed) for seed in range(3)]
    mine = SelfChecker("wide", output=False, components=6).fit(seen(parts[0]), seen(parts[1]))
    reduce = PCA(6, svd_solver="full").fit(parts[0].astype(np.float64))
    reduced = [reduce.transform(one.astype(np.float64)).astype(np.float32) for one in parts]
    theirs = SelfChecker("wide", output=False).fit(seen(reduced[0]), seen(reduced[1]))
    assert mine.projections_["0"].shape == (20, 6)
    assert "0" not in theirs.projections_
    assert (mine.infer(seen(parts[2])) == theirs.infer(seen(reduced[2]))).mean() > 0.99
    assert "0" not in SelfChecker("wide", output=False, components=25).fit(*map(seen, parts[:2])).projections_
    with pytest.raises(UserError, match="components=0; give 1 or more, or None"):
        SelfChecker("wide", components=0).fit(*map(seen, parts[:2]))


def test_a_validation_set_without_failures_uses_all_layers() -> None:
    with pytest.warns(UserWarning, match="could not choose layers and uses all"):
        checker = SelfChecker(LAYERS).fit(layered(200, 0, failing=0.0), layered(100, 1, failing=0.0))
    assert checker.alarm_layers_.all()
    assert (checker.judge(layered(50, 2, failing=0.0)).advice == -1).all()


def test_bad_input(fitted) -> None:
    narrow = layered(10, 0)
    narrow.traces[Trace("two", "mean")] = np.zeros((10, 2), dtype=np.float32)
    with pytest.raises(UserError, match="fitted on wider traces than these 2 neurons of layer 2"):
        fitted.judge(narrow)
    with pytest.raises(UserError, match="no layer; name at least one"):
        _ = SelfChecker([], output=False).needs
