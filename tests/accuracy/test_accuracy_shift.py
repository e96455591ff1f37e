from __future__ import annotations

import numpy as np
import pytest

from secondguess.accuracy import EnsembleAgreement, LabelShift, NuclearNorm
from secondguess.accuracy.dispersion import nuclear_norm
from secondguess.accuracy.label_shift import class_frequencies_bbse, class_frequencies_em
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier

NOW = np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])


def drawn(n: int, frequencies: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are calibrated where classes are equally frequent, of classes with these frequencies.

    Class k is a Gaussian around its own corner; class 0 is drawn towards class 1 and is therefore often mistaken.
    """
    rng = np.random.default_rng(seed)
    corners = 2.0 * np.eye(6)
    corners[0] = (0.6, 1.4, 0, 0, 0, 0)
    labels = rng.choice(6, size=n, p=frequencies)
    points = corners[labels] + rng.normal(size=(n, 6))
    return -0.5 * ((points[:, None] - corners) ** 2).sum(axis=2), labels


@pytest.mark.parametrize("method", ["em", "bbse"])
def test_new_class_frequencies_are_found(method, see) -> None:
    validation, operation = see(*drawn(6000, np.full(6, 1 / 6), 0)), see(*drawn(6000, NOW, 1))
    estimator = LabelShift(method, resamples=10)
    found = estimator.fit(validation).estimate(operation)
    assert found.value == pytest.approx(operation.correct.mean(), abs=0.02)
    assert abs(validation.correct.mean() - operation.correct.mean()) > 0.03


def test_frequencies_against_their_definitions() -> None:
    logits, labels = drawn(4000, NOW, 2)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    now = class_frequencies_em(p, np.full(6, 1 / 6))
    # At the maximum of the likelihood the posterior frequencies are the prior ones.
    posterior = p * now / (p * now).sum(axis=1, keepdims=True)
    assert posterior.mean(axis=0) == pytest.approx(now, abs=1e-4)
    assert now == pytest.approx(np.bincount(labels, minlength=6) / 4000, abs=0.03)
    confusion = np.random.default_rng(0).dirichlet(np.ones(36)).reshape(6, 6) + np.eye(6)
    confusion /= confusion.sum()
    weights = NOW / confusion.sum(axis=0)
    assert class_frequencies_bbse(confusion, confusion @ weights) == pytest.approx(NOW)


@pytest.mark.parametrize("method", ["em", "bbse"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_classes_without_validation_images_have_the_recall_of_the_others(method, share, see) -> None:
    """Both recalls are .9, and so is the estimate, however many images are of a third class."""
    labels = np.arange(100) % 2
    validation = see(_sure(np.where(np.arange(100) < 10, 1 - labels, labels)), labels)
    now = np.where(np.arange(100) < 100 * share, 2, labels)
    found = LabelShift(method).fit(validation).estimate(see(_sure(now), now))
    assert found.value == pytest.approx(0.9)
    assert found.low > 0.7


def _sure(predicted: np.ndarray) -> np.ndarray:
    return 7.0 * np.eye(6)[predicted]


def test_the_nuclear_norm_is_numpys(world) -> None:
    p = world(500, 0).probabilities
    assert nuclear_norm(p) == pytest.approx(np.linalg.norm(p, "nuc") / np.sqrt(500 * 6))


def test_the_nuclear_norm_finds_the_accuracy_of_other_mixtures(world) -> None:
    validation = world(4000, 0)
    estimator = NuclearNorm().fit(validation)
    assert estimator.estimate(validation).value == pytest.approx(validation.correct.mean(), abs=1e-3)
    other = world(8000, 1)
    wrong, right = np.flatnonzero(~other.correct), np.flatnonzero(other.correct)
    for errors in (50, 600, 1200):
        mixture = other.take(np.concatenate([wrong[:errors], right[: 2000 - errors]]))
        assert estimator.estimate(mixture).value == pytest.approx(1 - errors / 2000, abs=0.05)


def test_a_curve_without_errors_is_a_point(see) -> None:
    logits = np.random.default_rng(0).normal(size=(50, 6))
    estimator = NuclearNorm().fit(see(logits, logits.argmax(axis=1)))
    assert estimator.estimate(see(logits, np.full(50, -1))).value == 1.0


def test_the_nuclear_norm_of_fewer_images_than_classes_says_nothing(world) -> None:
    estimator = NuclearNorm().fit(world(300, 0))
    with pytest.warns(UserWarning, match="nuclear norm of 5 images says nothing about a model with 6 classes"):
        found = estimator.estimate(world(5, 1))
    assert (found.low, found.high) == (0.0, 1.0)
    assert estimator.estimate(world(6, 1)).high < 1.0 or estimator.estimate(world(6, 1)).low > 0.0


class Other:
    """A classifier that agrees on a given share of images."""

    name = "other"

    def __init__(self, evidence, share: float, seed: int, classes: int = 6) -> None:
        self.answers = {len(one): self._observation(one, share, seed, classes) for one in evidence}

    def _observation(self, evidence, share, seed, classes):
        from secondguess.model.observation import Observation

        rng = np.random.default_rng(seed)
        shift = (rng.random(len(evidence)) >= share).astype(int)
        return Observation(np.eye(classes)[(evidence.predictions + shift) % classes])

    def observe(self, images):
        return self.answers[len(images)]


def test_agreement(world) -> None:
    validation, operation = world(1000, 0), world(1001, 1)
    others = [Other([validation, operation], 0.9, 0), Other([validation, operation], 0.7, 1)]
    agreement = [
        np.mean([(one.observe(part.images).predictions == part.predictions).mean() for one in others])
        for part in (validation, operation)
    ]
    raw = EnsembleAgreement(others, corrected=False).fit(validation).estimate(operation)
    assert raw.value == pytest.approx(agreement[1])
    corrected = EnsembleAgreement(others).fit(validation).estimate(operation)
    assert corrected.value == pytest.approx(validation.correct.mean() + agreement[1] - agreement[0])
    with pytest.raises(UserError, match="The referee other has 7 classes, but the model in question 6"):
        EnsembleAgreement([Other([validation], 1.0, 0, classes=7)]).fit(validation)
    with pytest.raises(UserError, match="at least one other model"):
        EnsembleAgreement([])
    with pytest.raises(UserError, match="'em' or 'bbse', not by 'map'"):
        LabelShift("map")


def test_another_model_is_read_by_the_names_of_its_classes() -> None:
    """The same model with its outputs in another order agrees with itself; one of other classes is refused."""
    weights = np.random.default_rng(0).normal(size=(64, 3))

    def answer(pixels: np.ndarray) -> np.ndarray:
        return np.asarray((pixels.reshape(len(pixels), -1) - 0.5) @ weights)

    pixels = np.random.default_rng(1).random((100, 1, 8, 8), dtype=np.float32)
    for names in (("cat", "dog", "fox"), ("0", "1", "2")):
        images = ImageSet.from_arrays(pixels, answer(pixels).argmax(axis=1), class_names=names)
        seen = Classifier(answer, class_names=names).observe(images)
        turned = Classifier(lambda x: answer(x)[:, [2, 0, 1]], class_names=[names[k] for k in (2, 0, 1)])
        assert turned.observe(images).correct.all()
        assert EnsembleAgreement([turned], corrected=False).fit(seen).estimate(seen).value == 1.0
        assert not CrossReference([turned, turned]).judge(seen).judged_wrong.any()
        unnamed = Classifier(answer, name="unnamed")
        assert EnsembleAgreement([unnamed], corrected=False).fit(seen).estimate(seen).value == 1.0
    seen = Classifier(answer, class_names=("cat", "dog", "fox")).observe(pixels)
    other = Classifier(answer, class_names=("cat", "dog", "owl"), name="other")
    for judge in (EnsembleAgreement([other])._see, CrossReference([other, other]).judge):
        with pytest.raises(UserError, match=r"referee other has the classes \(cat, dog, owl; 3 in all\).*in any order"):
            judge(seen)


def test_the_curve_of_many_classes_is_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    from secondguess.accuracy import dispersion

    rng = np.random.default_rng(0)
    right, wrong = rng.dirichlet(np.full(120, 0.05), 300), rng.dirichlet(np.full(120, 0.3), 80)
    whole = dispersion._curve(right, wrong)
    monkeypatch.setattr(dispersion, "MANY_CLASSES", 100)
    np.testing.assert_allclose(dispersion._curve(right, wrong), whole, atol=1e-3)
