from __future__ import annotations

import warnings
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Classifier, Needs, Observation, Supervisor, Trace, UserError, check_supervisor, zoo
from secondguess.supervisors._submodels import SubmodelRecipe, class_logits, train_submodel
from secondguess.supervisors.checks import example_observation
from secondguess.supervisors.dissector import Dissector, growing_weights, support

FIRST, SECOND = Trace("first", "grid"), Trace("second", "grid")


def clusters(n: int = 600, classes: int = 4, width: int = 6, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, 1.2, (classes, width))
    labels = rng.integers(0, classes, n)
    return (centres[labels] + rng.normal(0, 1, (n, width))).astype(np.float32), labels.astype(np.int64)


def observation(n: int = 600, seed: int = 0) -> tuple[Observation, NDArray[np.int64]]:
    """Two layers, of which the second knows more; a model that is right nine times in ten."""
    first, labels = clusters(n, seed=seed)
    rng = np.random.default_rng(seed + 1)
    second = np.eye(4)[labels] * 3 + rng.normal(0, 1, (n, 4))
    answers = np.where(rng.random(n) < 0.9, labels, rng.integers(0, 4, n))
    probabilities = 0.1 + 0.6 * np.eye(4)[answers]
    return Observation(probabilities, traces={FIRST: first, SECOND: second.astype(np.float32)}), labels


def literal_support(q: list[float], x: int) -> float:
    """As the replication package has it: one case where the sub-model agrees, another where it does not."""
    ranked = sorted(q, reverse=True)
    if q[x] == ranked[0]:
        return q[x] / (q[x] + ranked[1])
    return 1 - ranked[0] / (ranked[0] + q[x])


def test_support_values_are_those_of_the_two_cases() -> None:
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.full(5, 0.5), 300)
    predictions = rng.integers(0, 5, 300)
    expected = [literal_support(row, x) for row, x in zip(q.tolist(), predictions, strict=True)]
    np.testing.assert_allclose(support(np.log(q), predictions), expected, rtol=1e-9)


def test_support_is_finite_where_probabilities_are_not_distinguishable_from_zero() -> None:
    logits = np.array([[1000.0, 0, -1000], [1000, 0, -1000], [0, 0, 0]])
    np.testing.assert_allclose(support(logits, np.array([0, 2, 1])), [1, 0, 0.5])
    assert np.isfinite(support(logits, np.array([2, 2, 2]))).all()


@pytest.mark.parametrize(
    ("growth", "alpha", "beta", "formula"),
    [
        ("linear", 0, 1, lambda t: t),
        ("linear", 0.5, 1, lambda t: 0.5 * t + 1),
        ("log", 0, 1, lambda t: log(t)),
        ("log", 2, 0, lambda t: 2 * log(t) + 1),
        ("log", 2, 3, lambda t: 2 * log(3 * t + 1) + 1),
        ("exp", 0, 0.7, lambda t: exp(0.7 * t)),
        ("exp", 2, 0.7, lambda t: 2 * exp(0.7 * t) + 1),
    ],
)
def test_weights_grow_by_their_formula(growth: Any, alpha: float, beta: float, formula: Any) -> None:
    expected = np.array([formula(t) for t in range(1, 6)])
    found = growing_weights(np.arange(1.0, 6.0), growth, alpha, beta)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)


def test_weights_without_a_sum_count_equally_and_long_models_do_not_overflow() -> None:
    np.testing.assert_array_equal(growing_weights(np.array([1.0]), "log"), [1])
    np.testing.assert_array_equal(growing_weights(np.array([0.0]), "linear"), [1])
    far = growing_weights(np.arange(1.0, 2001.0), "exp", 0.0, 1.0)
    assert np.isfinite(far).all()
    assert far[-1] == pytest.approx(1 - exp(-1))


def test_the_score_is_the_formula_over_the_layers_and_the_softmax() -> None:
    seen, labels = observation()
    fitted = Dissector(["first", "second"], growth="log", alpha=1.5, beta=2.0).fit(seen, labels)
    weights = [1.5 * log(2 * t + 1) + 1 for t in (1, 2, 3)]
    scores = fitted.score(seen)
    for row in range(0, 600, 37):
        x = int(seen.predictions[row])
        values = []
        for number, trace in enumerate((FIRST, SECOND)):
            logits = seen.trace(trace)[row].astype(np.float64) @ fitted.weights_[str(number)] + fitted.biases_[number]
            q = np.exp(logits) / np.exp(logits).sum()
            values.append(literal_support(q.tolist(), x))
        values.append(literal_support(seen.probabilities[row].tolist(), x))
        expected = -sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        assert scores[row] == pytest.approx(expected, rel=1e-9)


def test_legacy_ignores_the_first_sub_model_and_the_softmax() -> None:
    seen, labels = observation()
    flat = Observation(seen.probabilities, traces={Trace(t.layer): a for t, a in seen.traces.items()})
    fitted = Dissector(["first", "second"], mode="legacy").fit(flat, labels)
    np.testing.assert_allclose(fitted.score(flat), -fitted.supports(flat)[:, 1])
    assert fitted.supports(flat).shape == (600, 2)


def test_legacy_leaves_the_last_tenth_out_without_shuffling() -> None:
    features, labels = clusters(200)
    rows = np.arange(200)
    recipe = SubmodelRecipe(epochs=3, legacy=True)
    spoiled = labels.copy()
    spoiled[180:] = 0
    kept = train_submodel(features, labels, rows, 4, recipe)
    same = train_submodel(features, spoiled, rows, 4, recipe)
    np.testing.assert_array_equal(kept[0], same[0])
    spoiled[:20] = 0
    assert not np.array_equal(kept[0], train_submodel(features, spoiled, rows, 4, recipe)[0])
    paper = SubmodelRecipe(epochs=3)
    spoiled = labels.copy()
    spoiled[180:] = 0
    assert not np.array_equal(
        train_submodel(features, labels, rows, 4, paper)[0], train_submodel(features, spoiled, rows, 4, paper)[0]
    )


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_sub_models_are_as_good_as_logistic_regression(legacy: bool, scale: float) -> None:
    from sklearn.linear_model import LogisticRegression

    (features, labels), (other, truth) = clusters(2000), clusters(1000, seed=5)
    features, other = scale * features, scale * other
    weights, biases = train_submodel(features, labels, np.arange(2000), 4, SubmodelRecipe(legacy=legacy))
    referee = LogisticRegression(max_iter=500).fit(features, labels)
    found = class_logits(other, weights, biases)
    assert (found.argmax(axis=1) == truth).mean() > referee.score(other, truth) - 0.02
    if not legacy:
        long = SubmodelRecipe(epochs=150, patience=10)
        found = class_logits(other, *train_submodel(features, labels, np.arange(2000), 4, long))
        q = np.exp(found - found.max(axis=1, keepdims=True))
        gap = np.abs(q / q.sum(axis=1, keepdims=True) - referee.predict_proba(other))
        assert gap.mean() < 0.01


def test_a_step_follows_the_gradient_that_torch_derives() -> None:
    import torch

    features, labels = clusters(32)
    recipe = SubmodelRecipe(epochs=1, batch_size=32, seed=3, legacy=True)
    weights, biases = train_submodel(features, labels, np.arange(32), 4, recipe)
    bound = np.sqrt(6 / (6 + 4))
    start = np.random.default_rng(3).uniform(-bound, bound, (6, 4)).astype(np.float32)
    w, b = torch.tensor(start, requires_grad=True), torch.zeros(4, requires_grad=True)
    optimiser = torch.optim.Adam([w, b], lr=1e-3, eps=1e-7)
    used = slice(0, 28)
    torch.nn.functional.cross_entropy(
        torch.from_numpy(features[used]) @ w + b, torch.from_numpy(labels[used])
    ).backward()
    optimiser.step()
    np.testing.assert_allclose(weights, w.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(biases, b.detach().numpy(), atol=1e-6)


def test_dead_neurons_get_no_weight_and_odd_scales_no_trouble() -> None:
    features, labels = clusters(300)
    features[:, 2] = 0
    weights, _ = train_submodel(features, labels, np.arange(300), 4, SubmodelRecipe())
    np.testing.assert_array_equal(weights[2], 0)
    silent, _ = train_submodel(np.zeros((300, 3), np.float32), labels, np.arange(300), 4, SubmodelRecipe(epochs=2))
    np.testing.assert_array_equal(silent, 0)


@pytest.mark.parametrize("mode", ["paper", "legacy"])
@pytest.mark.parametrize("growth", ["linear", "log", "exp"])
def test_the_contract_is_kept(mode: Any, growth: Any) -> None:
    check_supervisor(Dissector(mode=mode, growth=growth, epochs=8))


def test_the_contract_is_kept_by_default() -> None:
    check_supervisor(Dissector)


def test_labels_are_used_where_known_and_predictions_without_any() -> None:
    seen, labels = observation()
    layers = ["first", "second"]
    by_label = Dissector(layers, epochs=3).fit(seen, labels).score(seen)
    by_answer = Dissector(layers, epochs=3).fit(seen).score(seen)
    assert not np.array_equal(by_label, by_answer)
    np.testing.assert_array_equal(Dissector(layers, epochs=3).fit(seen, np.full(600, -1)).score(seen), by_answer)
    np.testing.assert_array_equal(Dissector(layers, epochs=3).fit(seen, seen.predictions).score(seen), by_answer)
    some = np.where(np.arange(600) < 400, labels, -1)
    head = Dissector(layers, epochs=3).fit(seen.take(slice(0, 400)), labels[:400])
    np.testing.assert_array_equal(Dissector(layers, epochs=3).fit(seen, some).score(seen), head.score(seen))


def test_the_seed_decides_and_nothing_else() -> None:
    seen, labels = observation()
    scores = [Dissector(["first"], epochs=3, seed=s).fit(seen, labels).score(seen) for s in (0, 0, 1)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_answers_without_support_score_higher() -> None:
    seen, labels = observation(900)
    fitted = Dissector(["first", "second"]).fit(seen, labels)
    other, truth = observation(900, seed=7)
    scores, wrong = fitted.score(other), other.predictions != truth
    above = (scores[wrong][:, None] > scores[~wrong]).mean()
    assert above > 0.95


def test_saved_and_loaded_as_plain_arrays(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    seen, labels = observation()
    fitted = Dissector([FIRST, "second"], growth="exp", beta=0.5).fit(seen, labels)
    fitted.save(tmp_path / "d.safetensors")
    assert set(load_file(tmp_path / "d.safetensors")) == {"biases_", "weights_/0", "weights_/1"}
    loaded = Dissector.load(tmp_path / "d.safetensors")
    assert loaded.layers == [FIRST, "second"]
    np.testing.assert_array_equal(loaded.score(seen), fitted.score(seen))


def test_layers_of_a_real_model_by_depth_and_memory_that_stays_small() -> None:
    classifier = Classifier(zoo.make("simple_cnn", seed=0), output_kind="logits")
    images = np.random.default_rng(0).random((64, 1, 28, 28), dtype=np.float32)
    dissector = Dissector(epochs=2)
    seen = classifier.observe(images, dissector.needs)
    assert [trace.layer for trace in dissector.traces] == ["25%", "50%", "75%", "penultimate"]
    assert [seen.trace(trace).shape[1] for trace in dissector.traces] == [512, 1024, 1600, 1600]
    assert np.isfinite(dissector.fit(seen).score(seen)).all()
    wide = classifier.observe(images[:2], Dissector(mode="legacy").needs)
    assert wide.trace(Trace("25%")).shape[1] == 32 * 13 * 13


def test_memory_mapped_traces_are_read_as_they_are(tmp_path: Path) -> None:
    seen, labels = observation()
    np.save(tmp_path / "first.npy", seen.trace(FIRST))
    mapped = np.load(tmp_path / "first.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = Dissector(["first"], epochs=2).fit(Observation(seen.probabilities, traces={FIRST: mapped}), labels)
    np.testing.assert_array_equal(fitted.score(seen), Dissector(["first"], epochs=2).fit(seen, labels).score(seen))


def test_few_images_are_enough_to_fit() -> None:
    seen, labels = observation()
    small = Dissector(["first"]).fit(seen.take(slice(0, 5)), labels[:5])
    assert np.isfinite(small.score(seen)).all()
    assert np.isfinite(Dissector(["first"], mode="paper").fit(seen.take(slice(0, 1)), labels[:1]).score(seen)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "new"}, "mode of the dissector is 'paper' or 'legacy', not 'new'"),
        ({"growth": "cubic"}, "'linear', 'log' or 'exp', not 'cubic'"),
        ({"epochs": 0}, "epochs=0, batch_size=32 and patience=2 .* at least 1"),
        ({"layers": []}, "No layer was chosen for the dissector"),
        ({"layers": ["120%"]}, "'120%' is no share of a model's depth"),
        ({"alpha": -1.0}, "gives weights that are negative or not finite"),
        ({"growth": "exp", "beta": float("inf")}, "gives weights that are negative or not finite"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], words: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(UserError, match=words):
            Dissector(**options)


def test_one_trace_is_as_good_as_a_list_of_one() -> None:
    seen, labels = observation()
    scores = [Dissector(layers, epochs=1).fit(seen, labels).score(seen) for layers in (FIRST, [FIRST], (FIRST,))]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_bad_data_is_refused() -> None:
    seen, labels = observation()
    fitted = Dissector(["first"], epochs=1).fit(seen, labels)
    with pytest.raises(UserError, match=r"labels go up to 4, but the model has 4 classes \(0 to 3\)"):
        Dissector(["first"]).fit(seen, labels + 1)
    narrow = Observation(seen.probabilities, traces={FIRST: seen.trace(FIRST)[:, :3]})
    with pytest.raises(UserError, match="fitted on 6 activations of 'first/grid', but this observation has 3"):
        fitted.score(narrow)
    activations = seen.trace(FIRST).copy()
    activations[3, 2] = np.nan
    broken = Observation(seen.probabilities, traces={FIRST: activations})
    with pytest.raises(UserError, match="activations of the training images hold NaN or infinity"):
        Dissector(["first"]).fit(broken, labels)
    others = np.arange(600) != 3
    np.testing.assert_array_equal(fitted.score(broken)[others], fitted.score(seen)[others])
    assert fitted.supports(broken)[3, 0] == 0
    with pytest.raises(UserError, match="no trace of 'second/grid'"):
        Dissector(["second"]).fit(Observation(seen.probabilities, traces={FIRST: seen.trace(FIRST)}))


def test_the_example_of_the_kit_holds_all_layers() -> None:
    supervisor: Supervisor = Dissector()
    assert set(example_observation(supervisor.needs, 10).traces) == supervisor.needs.traces
    assert Needs(traces=supervisor.needs.traces).abilities == {"probabilities", "traces"}
