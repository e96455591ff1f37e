from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from secondguess import Observation, Trace, check_supervisor
from secondguess.errors import UserError
from secondguess.supervisors.surprise.dsa import DSA


def observed(traces, predictions, classes=4, layer="penultimate") -> Observation:
    return Observation(np.eye(classes)[np.asarray(predictions)], traces={Trace(layer): np.asarray(traces, np.float32)})


def definition(train, of_train, test, of_test, *, from_input=False):
    """The formula, word by word."""
    train, test = train.astype(np.float64), test.astype(np.float64)
    scores = []
    for x, label in zip(test, of_test, strict=True):
        same, others = train[of_train == label], train[of_train != label]
        to_same = np.linalg.norm(same - x, axis=1)
        nearest = same[to_same.argmin()]
        scores.append(to_same.min() / np.linalg.norm(others - (x if from_input else nearest), axis=1).min())
    return np.array(scores)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 2, (4, 15))
    of_train, of_test = rng.integers(0, 4, 600), rng.integers(0, 4, 90)
    train = (centres[of_train] + rng.normal(size=(600, 15))).astype(np.float32)
    test = (centres[of_test] + rng.normal(size=(90, 15))).astype(np.float32)
    return train, of_train, test, of_test


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"other_distances": "fit"},
        {"variant": "dsa1"},
        {"variant": "dsa2"},
        {"subsampling": 0.5},
        {"subsampling": 100},
        {"subsampling": 0.5, "sampler": "stratified"},
        {"subsampling": 0.5, "sampler": "epsilon_free"},
        {"epsilon": 3.0, "sampler": "epsilon_free"},
        {"subsampling": 0.5, "sampler": "unsurprising_first"},
    ],
    ids=str,
)
def test_it_keeps_the_contract(params):
    check_supervisor(DSA(device="cpu", **params))


@pytest.mark.parametrize("when", ["lazy", "fit"])
def test_it_is_the_definition(case, when):
    train, of_train, test, of_test = case
    fitted = DSA(other_distances=when, device="cpu").fit(observed(train, of_train))
    np.testing.assert_allclose(fitted.score(observed(test, of_test)), definition(*case), rtol=1e-12)


def test_the_first_variant_measures_b_from_the_input(case):
    train, of_train, test, of_test = case
    scores = DSA(variant="dsa1", device="cpu").fit(observed(train, of_train)).score(observed(test, of_test))
    np.testing.assert_allclose(scores, definition(*case, from_input=True), rtol=1e-12)


def test_the_second_variant_compares_class_means(case):
    train, of_train, test, of_test = case
    scores = DSA(variant="dsa2", device="cpu").fit(observed(train, of_train)).score(observed(test, of_test))
    means = np.stack([train[of_train == k].astype(np.float64).mean(axis=0) for k in range(4)])
    distances = np.linalg.norm(test[:, None].astype(np.float64) - means, axis=2)
    own = distances[np.arange(90), of_test]
    distances[np.arange(90), of_test] = np.inf
    np.testing.assert_allclose(scores, own / distances.min(axis=1), rtol=1e-12)


def test_several_layers_are_put_side_by_side(case):
    train, of_train, test, of_test = case
    halves = {Trace("a"): slice(0, 6), Trace("b"): slice(6, 15)}

    def split(traces, predictions):
        parts = {trace: np.ascontiguousarray(traces[:, columns]) for trace, columns in halves.items()}
        return Observation(np.eye(4)[predictions], traces=parts)

    scores = DSA(["a", "b"], device="cpu").fit(split(train, of_train)).score(split(test, of_test))
    np.testing.assert_allclose(scores, definition(*case), rtol=1e-12)


def test_training_images_score_zero_against_themselves(case):
    train, of_train, *_ = case
    assert (DSA(device="cpu").fit(observed(train, of_train)).score(observed(train, of_train)) == 0).all()


def test_other_distances_are_computed_once(case, monkeypatch):
    train, of_train, test, of_test = case
    from secondguess.supervisors.surprise import dsa

    asked = []
    real = dsa.nearest_other
    monkeypatch.setattr(dsa, "nearest_other", lambda *given: asked.append(len(given[1])) or real(*given))
    fitted = DSA(device="cpu").fit(observed(train, of_train))
    first = fitted.score(observed(test, of_test))
    assert asked == [np.isfinite(fitted.other_).sum()]
    np.testing.assert_array_equal(fitted.score(observed(test[:40], of_test[:40])), first[:40])
    assert len(asked) == 1


def test_threads_may_score_at_once(case):
    train, of_train, test, of_test = case
    fitted = DSA(device="cpu").fit(observed(train, of_train))
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(fitted.score(observed(test, of_test)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for scores in results:
        np.testing.assert_allclose(scores, definition(*case), rtol=1e-12)
    assert len(results) == 4


def test_a_memory_mapped_file_is_kept_by_reference(case, tmp_path: Path):
    train, of_train, test, of_test = case
    np.save(tmp_path / "traces.npy", train)
    mapped = np.load(tmp_path / "traces.npy", mmap_mode="r")
    fitted = DSA(device="cpu").fit(Observation(np.eye(4)[of_train], traces={Trace(): mapped}))
    assert fitted.traces_ is mapped
    np.testing.assert_allclose(fitted.score(observed(test, of_test)), definition(*case), rtol=1e-12)


def test_a_sampled_supervisor_saves_what_it_uses(case, tmp_path: Path):
    train, of_train, test, of_test = case
    fitted = DSA(subsampling=0.2, device="cpu").fit(observed(train, of_train))
    before = fitted.score(observed(test, of_test))
    fitted.save(tmp_path / "dsa.safetensors")
    loaded = DSA.load(tmp_path / "dsa.safetensors")
    assert len(loaded.traces_) == len(fitted.order_) == 120
    np.testing.assert_array_equal(loaded.score(observed(test, of_test)), before)
    kept = np.sort(fitted.order_)
    np.testing.assert_allclose(before, definition(train[kept], of_train[kept], test, of_test), rtol=1e-12)


def test_unsurprising_first_keeps_the_traces_of_lowest_lsa(case):
    from secondguess.supervisors.surprise.lsa import LSA

    train, of_train, *_ = case
    fitted = DSA(subsampling=0.25, sampler="unsurprising_first", device="cpu").fit(observed(train, of_train))
    surprise = LSA(device="cpu").fit(observed(train, of_train)).score(observed(train, of_train))
    kept = np.isin(np.arange(600), fitted.order_)
    for label in range(4):
        members = of_train == label
        assert kept[members].sum() == members.sum() // 4
        assert surprise[members & kept].max() < surprise[members & ~kept].min()


def test_a_class_without_training_images_is_infinitely_surprising(case):
    train, of_train, test, of_test = case
    few = of_train != 3
    for params in ({}, {"variant": "dsa1"}, {"variant": "dsa2"}):
        fitted = DSA(device="cpu", **params).fit(observed(train[few], of_train[few]))
        with pytest.warns(UserWarning, match=r"predicted as classes \(3\) that no training image is predicted as"):
            scores = fitted.score(observed(test, of_test))
        assert (np.isinf(scores) == (of_test == 3)).all()


def test_identical_traces_in_two_classes_give_finite_ordered_scores():
    train = np.array([[0.0], [0.0], [5.0]])
    fitted = DSA(device="cpu").fit(observed(train, [0, 1, 1]))
    scores = fitted.score(observed([[0.0], [1.0], [2.0]], [0, 0, 0]))
    assert scores[0] == 0
    assert np.isfinite(scores).all()
    assert 1e30 < scores[1] < scores[2]


def test_one_class_alone_cannot_be_fitted():
    with pytest.raises(UserError, match="All 3 training images are predicted as class 2, but dsa needs two"):
        DSA().fit(observed(np.zeros((3, 2)), [2, 2, 2]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"variant": "dsa3"}, "variant must be one of 'dsa', 'dsa1', 'dsa2', not 'dsa3'"),
        ({"sampler": "random"}, "sampler must be one of"),
        ({"other_distances": "never"}, "other_distances must be one of 'lazy', 'fit'"),
        ({"subsampling": 0.0}, "share up to 1.0 or a number of traces from 2 on, not 0.0"),
        ({"subsampling": 1}, "not 1"),
        ({"epsilon": 1.0}, "epsilon goes with sampler='epsilon_free'"),
    ],
    ids=str,
)
def test_parameters_are_checked(params, message):
    with pytest.raises(UserError, match=message):
        DSA(**params)


def test_traces_are_checked(case):
    train, of_train, *_ = case
    fitted = DSA(device="cpu").fit(observed(train, of_train))
    with pytest.raises(UserError, match="fitted on traces of 15 neurons, but these have 3"):
        fitted.score(observed(np.zeros((2, 3)), [0, 1]))


FAR = [{}, {"other_distances": "fit"}, {"variant": "dsa1"}, {"subsampling": 0.5, "sampler": "epsilon_free"}]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [4.1e16, 1e18, -1e25, 1e38, np.inf, np.nan])
@pytest.mark.parametrize("params", FAR, ids=str)
def test_a_trace_beyond_all_distances_is_infinitely_surprising_and_spoils_no_other(case, params, value, dtype):
    train, of_train, test, of_test = (array.astype(dtype) if array.ndim == 2 else array for array in case)
    fitted = DSA(device="cpu", **params).fit(described(train, of_train))
    expected = fitted.score(described(test, of_test))
    far = test.copy()
    far[[7, 30], 3] = value
    whole = fitted.score(described(far, of_test))
    assert (whole[[7, 30]] == np.inf).all()
    others = np.delete(np.arange(90), [7, 30])
    np.testing.assert_array_equal(whole[others], expected[others])
    assert fitted.score(described(far[7:8], of_test[7:8])).tolist() == [np.inf]
    parts = fitted.in_parts(3)
    seen = described(far, of_test)
    np.testing.assert_array_equal(fitted.combined(seen, [part.nearest(seen) for part in parts]), whole)


def test_the_longest_traces_that_are_measured_are_measured_right():
    """Referee: the definition, at the end of what is allowed, in opposite directions."""
    rng = np.random.default_rng(0)
    train = rng.normal(size=(40, 3)) + 4
    train, of_train = np.float32(train / np.linalg.norm(train, axis=1, keepdims=True) * 3.9e16), np.arange(40) % 2
    test, of_test = -train[:10] * np.float32(0.9), of_train[:10]
    for params in ({}, {"variant": "dsa1"}):
        scores = DSA(device="cpu", **params).fit(described(train, of_train)).score(described(test, of_test))
        expected = definition(train, of_train, test, of_test, from_input=bool(params))
        np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_class_means_are_measured_however_far_a_trace_is(case):
    train, of_train, test, of_test = case
    fitted = DSA(variant="dsa2", device="cpu").fit(observed(train, of_train))
    far = test.copy()
    far[7, 3] = 1e18
    assert fitted.score(observed(far, of_test))[7] == pytest.approx(1)


@pytest.mark.parametrize("params", FAR, ids=str)
def test_training_traces_beyond_all_distances_are_refused(case, params):
    train, of_train, *_ = case
    far = train.copy()
    far[5, 0] = 1e18
    with pytest.raises(
        UserError, match=r"The trace of image 5 is longer than 4e\+16, .* leave such images out, or choose"
    ):
        DSA(device="cpu", **params).fit(observed(far, of_train))
    DSA(variant="dsa2", device="cpu").fit(observed(far, of_train))


def described(traces, predictions) -> Observation:
    return Observation(np.eye(4)[predictions], traces={Trace(): traces})


@pytest.mark.parametrize("params", [{}, {"other_distances": "fit"}, {"variant": "dsa1"}, {"subsampling": 0.5}], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_traces_of_double_precision_are_centred_before_they_are_rounded(case, params, offset):
    """At 1e6, float32 knows no differences below 1/16."""
    train, of_train, test, of_test = case
    wide, asked = train.astype(np.float64) + 1e-3 * np.pi + offset, test.astype(np.float64) + 1e-3 * np.pi + offset
    fitted = DSA(device="cpu", **params).fit(described(wide, of_train))
    kept = np.sort(fitted.order_)
    expected = definition(wide[kept], of_train[kept], asked, of_test, from_input=params.get("variant") == "dsa1")
    np.testing.assert_allclose(fitted.score(described(asked, of_test)), expected, rtol=1e-6)


def test_a_supervisor_of_double_precision_is_the_same_after_saving(case, tmp_path: Path):
    train, of_train, test, of_test = case
    fitted = DSA(device="cpu").fit(described(train.astype(np.float64) + 1e6, of_train))
    asked = described(test.astype(np.float64) + 1e6, of_test)
    fitted.save(tmp_path / "dsa.safetensors")
    np.testing.assert_array_equal(DSA.load(tmp_path / "dsa.safetensors").score(asked), fitted.score(asked))


@pytest.mark.parametrize("params", [{}, {"variant": "dsa2"}, {"subsampling": 0.5, "sampler": "epsilon_free"}], ids=str)
def test_traces_of_half_precision_are_widened(case, params):
    train, of_train, test, of_test = case
    train, test = train.astype(np.float16), test.astype(np.float16)
    half = DSA(device="cpu", **params).fit(described(train, of_train)).score(described(test, of_test))
    single = DSA(device="cpu", **params).fit(observed(train, of_train)).score(observed(test, of_test))
    np.testing.assert_array_equal(half, single)


@pytest.mark.parametrize("subsampling", [np.int64(100), np.float32(0.25), np.float64(0.25)])
def test_numbers_of_numpy_will_do_for_subsampling(case, subsampling):
    train, of_train, *_ = case
    fitted = DSA(subsampling=subsampling, device="cpu").fit(observed(train, of_train))
    assert len(fitted.order_) == (100 if subsampling > 1 else 150)
