"""Supervisors on bare arrays: activations with predictions, without a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from secondguess import Observation, Supervisor, Trace
from secondguess.errors import UserError
from secondguess.supervisors.softmax import Entropy
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.supervisors.surprise.mdsa import MDSA

RNG = np.random.default_rng(0)


def scored(supervisor: Supervisor, train: Any, classes: Any, test: Any, predicted: Any, **more: Any) -> Any:
    learnt = Observation(predictions=classes, traces={"penultimate": train}, **more)
    return supervisor.fit(learnt).score(Observation(predictions=predicted, traces={"penultimate": test}, **more))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_need_no_model(kind: type) -> None:
    train, test = RNG.normal(size=(100, 4)).astype(kind), RNG.normal(size=(10, 4)).astype(kind)
    classes = np.arange(100) % 2
    scores = scored(MDSA(), train, classes, test, classes[:10])
    for label in range(2):
        own = train[classes == label].astype(np.float64)
        away = test[classes[:10] == label] - own.mean(axis=0)
        wanted = np.sqrt(np.einsum("ij,jk,ik->i", away, np.linalg.inv(np.cov(own.T)), away))
        np.testing.assert_allclose(scores[classes[:10] == label], wanted, rtol=1e-5)
    np.testing.assert_allclose(scored(MDSA(squared=True), train, classes, test, classes[:10]), scores**2)


@pytest.mark.parametrize("kind", [DSA, LSA, MDSA])
def test_doubles_far_from_zero_keep_their_digits(kind: type[Supervisor]) -> None:
    train, test = RNG.normal(size=(200, 4)).round(6), RNG.normal(size=(20, 4)).round(6)
    classes = np.arange(200) % 2
    near = scored(kind(), train, classes, test, classes[:20])
    far = scored(kind(), train + 1e7, classes, test + 1e7, classes[:20])
    np.testing.assert_allclose(far, near, rtol=1e-5, atol=1e-5)


def test_the_number_of_classes_plays_no_part() -> None:
    traces, classes = RNG.normal(size=(300, 3)).astype(np.float32), np.arange(300) % 7
    names = [str(k) for k in range(1000)]
    many = Observation(predictions=classes, traces={Trace("fc"): traces}, class_names=names)
    few = Observation(predictions=classes, traces={Trace("fc"): traces})
    assert (many.num_classes, few.num_classes) == (1000, 7)
    np.testing.assert_array_equal(DSA("fc").fit(many).score(many), DSA("fc").fit(few).score(few))


def test_classes_that_do_not_occur_in_a_test_set_are_no_other_classes() -> None:
    train, classes = RNG.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 3
    fitted = DSA().fit(Observation(predictions=classes, traces={"penultimate": train}))
    wanted = fitted.score(Observation(predictions=classes, traces={"penultimate": train}))[classes == 0]
    some = Observation(predictions=np.zeros(20, int), traces={"penultimate": train[classes == 0]})
    np.testing.assert_array_equal(fitted.score(some), wanted)
    with pytest.raises(UserError, match="fitted on 3 classes, but this observation has 5"):
        fitted.score(Observation(predictions=[4], traces={"penultimate": train[:1]}))


def test_a_label_above_those_of_training_scores_inf() -> None:
    """dnn-tip returns uninitialised memory for it."""
    train, names = RNG.normal(size=(50, 3)).astype(np.float32), [str(k) for k in range(8)]
    with pytest.warns(UserWarning, match=r"belong to a class \(7\)"):
        scores = scored(LSA(), train, np.arange(50) % 2, train[:2], [0, 7], class_names=names)
    assert scores[1] == np.inf
    assert np.isfinite(scores[0])


def test_what_arrays_lack_is_named() -> None:
    seen = Observation(predictions=[0, 1, 1], traces={"penultimate": np.eye(3)})
    with pytest.raises(UserError, match="neither probabilities nor logits, which are needed here"):
        Entropy().score(seen)
    with pytest.raises(UserError, match="no trace of 'a/flatten'"):
        MDSA(["a", "b"]).fit(seen)
