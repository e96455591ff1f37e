"""The quick look sees what the classifier sees; the quick score is the score."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tiny_models
from secondguess import Classifier, Needs, Trace
from secondguess.guard.eye import Eye
from secondguess.guard.jury import Jury
from secondguess.guard.quick import quick_mdsa
from secondguess.supervisors import make

SHAPE = (1, 8, 8)


def assert_same_observation(classifier: Classifier, needs: Needs, images: np.ndarray) -> None:
    eye = Eye(classifier, needs, SHAPE)
    expected = classifier.observe(images, needs)
    for rows in (slice(0, 1), slice(0, 7), slice(0, len(images))):
        seen = eye.look(images[rows])
        assert seen.probabilities == pytest.approx(expected.probabilities[rows], abs=1e-6)
        for trace in needs.traces:
            assert seen.trace(trace) == pytest.approx(expected.trace(trace)[rows], abs=1e-5)
        if needs.logits:
            assert seen.logits == pytest.approx(expected.logits[rows], abs=1e-5)
        if needs.images:
            assert (seen.images[:] == images[rows]).all()
        if needs.samples:
            assert seen.samples.shape == (len(seen), needs.samples, 3)
    eye.close()


@pytest.mark.parametrize("kind", [tiny_models.TinyCNN, tiny_models.InPlace, tiny_models.Functional])
def test_an_eye_sees_what_the_classifier_sees(kind, images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(kind), mean=0.2, std=0.3, batch_size=8)
    traces = frozenset({Trace(), Trace("conv", "mean"), Trace("50%", "grid")})
    assert_same_observation(classifier, Needs(logits=True, traces=traces, images=True), images)


def test_layers_that_run_twice_and_dropout_are_left_to_the_classifier(images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN))
    assert_same_observation(classifier, Needs(traces=frozenset({Trace("relu#2")})), images)
    assert_same_observation(classifier, Needs(samples=3), images)


def test_a_callable_is_asked_through_its_backend(images: np.ndarray) -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        scores = np.exp(batch.reshape(len(batch), -1)[:, :3])
        return scores / scores.sum(axis=1, keepdims=True)

    assert_same_observation(Classifier(model), Needs(), images)


def test_a_model_that_somebody_trains_is_put_back_into_eval_mode(images: np.ndarray) -> None:
    model = tiny_models.seeded(tiny_models.TinyCNN)
    eye = Eye(Classifier(model, device="cpu"), Needs(traces=frozenset({Trace()})), SHAPE)
    before = eye.look(images[:2]).probabilities
    model.train()
    assert (eye.look(images[:2]).probabilities == before).all()
    assert not model.training


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.3}, {"per_class": False}, {"squared": True, "shrinkage": 0}])
def test_the_quick_score_of_one_image_is_the_score(options: dict, images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN))
    many = np.random.default_rng(1).random((120, 1, 8, 8), dtype=np.float32)
    supervisor = make("mdsa", layers=Trace("conv", "mean"), **options)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        supervisor.fit(classifier.observe(many, supervisor.needs))
        seen = classifier.observe(images, supervisor.needs)
        expected = supervisor.score(seen)
        quick = quick_mdsa(supervisor)
        single = [quick(seen.take(np.array([row])))[0] for row in range(len(images))]
    assert np.isfinite(expected).any()
    assert single == pytest.approx(expected.tolist(), rel=1e-5)
    assert quick(seen).tolist() == expected.tolist()


def test_supervisors_of_one_name_are_told_apart_by_their_layers() -> None:
    jury = Jury(make("mdsa") + make("mdsa", layers=Trace("25%", "grid")) + make("mdsa", layers=["conv", "hidden"]))
    assert jury.labels == ("mdsa", "mdsa@25%", "mdsa@conv+hidden")
    assert jury.needs.traces == {Trace(), Trace("25%", "grid"), Trace("conv"), Trace("hidden")}
