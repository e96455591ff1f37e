"""What is rehearsed, and what is said where it cannot be."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from secondguess import Classifier, Dataset, ImageSet, UserError
from secondguess.errors import MissingExtra
from secondguess.guard import Guard, make_stress_split
from secondguess.guard.foreign_objects import foreign_objects
from secondguess.guard.stress_split import LEARNT_ATTACKS, invalid_images
from secondguess.stress import Adversarial, Invalid
from secondguess.stress.adversarial.surrogate import train_surrogate
from secondguess.stress.ambiguous import AmbiGuess


def test_what_cannot_be_made_is_noted(classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingExtra("This needs the package 'foolbox'.")

    def sure(*_: object, **__: object) -> None:
        raise UserError("No autoencoder gave an image.")

    monkeypatch.setattr(Adversarial, "_make", missing)
    monkeypatch.setattr(AmbiGuess, "generate", sure)
    learn, test = digits.test.split(0.5)
    made = make_stress_split(classifier, digits.train, learn, test, device="cpu")
    assert set(made.learn) == set(made.test) == {"ambiguous", "corrupted", "invalid"}
    assert "lambda" in made.learn["ambiguous"].columns  # plain blends
    assert [note.partition(":")[0] for note in made.notes] == [
        "Ambiguous images are plain blends of two images, which teach little about true ambiguity",
        "No adversarial images were made",
    ]
    guard = Guard(["entropy"], false_alarms=0.1).fit(classifier, digits.train, digits.test, made)
    assert guard.report.notes == made.notes
    assert "adversarial" not in guard.judge(digits.test)[0].anomalies


def test_attacks_that_fool_nobody_teach_nothing(
    classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, test = digits.test.head(60).split(0.5)
    made = make_stress_split(classifier, digits.train, learn, test, ambiguous="blend", attacked=5, device="cpu")
    assert "adversarial" not in made.learn
    assert "attacks fooled the classifier" in made.notes[0]


def test_both_sets_of_attacks_share_one_surrogate(
    classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model without gradients; what the guard learns from is what the attack makes alone."""
    trained = []

    def counted(*args: Any, **options: Any) -> Classifier:
        assert args[1] is train, "no image that the guard learns from or is calibrated on"
        trained.append(train_surrogate(*args, **options | {"epochs": 2}))
        return trained[-1]

    monkeypatch.setattr("secondguess.stress.adversarial.surrogate.train_surrogate", counted)
    sealed = Classifier(classifier.predict, name="sealed", output_kind="probabilities")
    train, (learn, test) = digits.train.head(200), digits.test.head(80).split(0.5)
    made = make_stress_split(sealed, train, learn, test, ambiguous="none", attacked=40, device="cpu")
    assert len(trained) == 1
    alone = Adversarial(LEARNT_ATTACKS, limit=40).make(learn, train=train, classifier=sealed)
    fooled = alone.columns["success"] & (alone.columns["epsilon"] > 0)
    assert np.array_equal(made.learn["adversarial"].materialise(), alone.materialise()[fooled])
    assert set(made.test["adversarial"].columns["attack"]) <= {"bim", "deepfool"}


def test_what_is_wrong_with_a_set_of_ones_own_is_said(
    classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*_: object, **__: object) -> None:
        raise UserError("There are no photographs.")

    monkeypatch.setattr(Invalid, "_make", empty)
    with pytest.raises(UserError, match="no photographs"):
        make_stress_split(
            classifier, digits.train, digits.test, digits.test, ambiguous="blend", attacked=5, device="cpu"
        )


@pytest.mark.slow
def test_the_recommended_guard_learns_from_generated_stress(classifier: Classifier, digits: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard = Guard(false_alarms=0.05).fit(classifier, digits.train, digits.test)
    assert len(guard.pipeline.supervisors) == 15 and "appearance" in guard.pipeline.labels
    assert set(guard.report.seen) == {"ambiguous", "corrupted", "adversarial", "invalid"}
    assert guard.report.verdict_accuracy > 0.4


def test_silhouettes_are_things_before_the_background_of_the_nominal_images() -> None:
    colours = np.array([0.2, 0.5, 0.9], dtype=np.float32)[:, None, None]
    nominal = ImageSet.from_arrays(np.tile(colours, (60, 1, 24, 20)), np.arange(60) % 3, layout="NCHW")
    made = foreign_objects(nominal, seed=3)
    images = made.materialise()
    assert images.shape == (60, 3, 24, 20)
    assert images.min() >= 0 and images.max() <= 1
    assert (made.labels == -1).all()
    untouched = (np.abs(images - colours) < 1e-3).all(axis=1)  # (n, H, W)
    assert untouched[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean() > 0.8
    assert untouched[:, 12, 10].mean() < 0.3
    assert 0.2 < untouched.mean() < 0.8
    assert (made.images[np.array([7, 3])] == images[[7, 3]]).all()
    assert (foreign_objects(nominal, seed=4).materialise() != images).mean() > 0.2


def test_every_other_invalid_image_is_a_silhouette(digits: Dataset) -> None:
    made = invalid_images(digits.test.head(61), seed=0)
    sources = made.columns["source"]
    assert len(made) == 61
    assert (sources[0::2] == "foreign_objects").all()
    assert set(sources[1::2]) == {"photos", "textures", "shuffled"}
    mixed, cut_out = Invalid().make(digits.test.head(61), seed=0), foreign_objects(digits.test.head(61), seed=0)
    assert (made.materialise()[1::2] == mixed.materialise()[:30]).all()
    assert (made.materialise()[0::2] == cut_out.materialise()[:31]).all()
