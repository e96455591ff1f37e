from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from secondguess.accuracy import (
    AverageConfidence,
    EnsembleAgreement,
    OraclePasses,
    RulesAndConfidence,
    ValidationAccuracy,
    cross_check,
)
from secondguess.accuracy.oracles.checks import labelled_observation
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.icos import Icos
from secondguess.accuracy.oracles.icos.input_rules import InputRules, Partition
from secondguess.accuracy.trust import _joined, swapped
from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs


def _half(labels: np.ndarray) -> np.ndarray:
    return np.where(labels < 5, "low", "high")


def test_what_each_estimator_can_and_cannot_see(world, rules) -> None:
    estimators = [ValidationAccuracy(), AverageConfidence(), RulesAndConfidence(rules)]
    found = cross_check(estimators, world(3000, 0), repetitions=4)
    assert list(found) == ["validation_accuracy", "average_confidence", "rules_and_confidence"]
    for trials in found.values():
        by_shift = {trial.shift: trial for trial in trials}
        assert list(by_shift) == ["nominal", "class frequencies", "swapped classes"]
        assert by_shift["nominal"].passed(0.03)
        assert by_shift["swapped classes"].truth < by_shift["nominal"].truth - 0.1
    assert found["average_confidence"][2].bias > 0.1
    assert found["rules_and_confidence"][2].error < found["average_confidence"][2].error
    assert not hasattr(estimators[0], "_learnt")
    assert cross_check(estimators, world(3000, 0), repetitions=4) == found


def test_a_swap_is_a_model_trained_on_swapped_labels(world) -> None:
    evidence = world(500, 0)
    other, pair = swapped(evidence, np.random.default_rng(3))
    moved = np.flatnonzero(other.predictions != evidence.predictions)
    assert set(evidence.predictions[moved]) == set(pair)
    assert not other.correct[moved][evidence.correct[moved]].any()


@pytest.fixture(scope="module")
def digits() -> tuple[Classifier, ImageSet]:
    """A linear classifier on 8 x 8 digits, and the test images with the half to which a digit belongs in a column."""
    from sklearn.linear_model import LogisticRegression

    data = load("digits")
    flat = data.train.materialise().reshape(len(data.train), -1)
    fitted = LogisticRegression(max_iter=300).fit(flat, data.train.labels)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    import torch

    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(fitted.coef_))
        model[1].bias.copy_(torch.from_numpy(fitted.intercept_))
    images = ImageSet.from_arrays(
        data.test.materialise(),
        data.test.labels,
        class_names=data.test.class_names,
        columns={"half": _half(data.test.labels)},
    )
    return Classifier(model, device="cpu"), images


def test_corrupted_and_ambiguous_images_are_looked_at(digits) -> None:
    classifier, images = digits
    pixels = images.materialise()
    blend = ImageSet.from_arrays((pixels + pixels[::-1]) / 2, images.labels, class_names=images.class_names)
    rules = InputRules(
        [Partition("low", [0, 1, 2, 3, 4], column="half"), Partition("high", [5, 6, 7, 8, 9], column="half")]
    )
    estimators = [ValidationAccuracy(), RulesAndConfidence(rules)]
    found = cross_check(estimators, classifier.observe(images), classifier=classifier, ambiguous=blend, repetitions=2)
    naive, ours = ({trial.shift: trial for trial in found[one.name]} for one in estimators)
    assert list(naive)[3:] == ["corrupted", "half corrupted", "ambiguous"]
    assert naive["corrupted"].truth < naive["half corrupted"].truth < naive["nominal"].truth
    assert naive["ambiguous"].truth < naive["nominal"].truth - 0.1
    assert not naive["corrupted"].passed()
    assert ours["corrupted"].error < naive["corrupted"].error / 2


def test_too_little_to_try_on(world) -> None:
    with pytest.raises(UserError, match="3 labelled images and 5 repetitions"):
        cross_check([ValidationAccuracy()], world(3, 0))
    with pytest.raises(UserError, match="100 labelled images and 0 repetitions"):
        cross_check([ValidationAccuracy()], world(100, 0), repetitions=0)


def test_oracles_and_other_models_do_not_see_a_swap_that_they_learnt_too(digits) -> None:
    """Whoever learnt from the same swapped labels is as wrong about a swap as validation accuracy is."""
    classifier, images = digits
    training = classifier.observe(load("digits").train.head(300, seed=0))
    training = training.replace(images=replace(training.images, columns={"half": _half(training.labels)}))
    blind = Icos(support=0).fit(training, classifier.observe(images))
    estimators = [
        ValidationAccuracy(),
        OraclePasses(blind),
        OraclePasses(blind, corrected=True),
        OraclePasses(CrossReference([classifier, classifier])),
        EnsembleAgreement([classifier]),
    ]
    found = cross_check(estimators, classifier.observe(images), training=training, repetitions=3)
    for name, trials in found.items():
        by_shift = {trial.shift: trial for trial in trials}
        swap, nominal = by_shift["swapped classes"], by_shift["nominal"]
        assert swap.error > 0.1, name
        room = 0.1 if name == "icos_corrected" else 0.04  # few errors to learn the rates from: it is noisy by itself
        assert swap.truth + swap.bias == pytest.approx(nominal.truth + nominal.bias, abs=room), name
        assert swap.repetitions == (2 if name.startswith("icos") else 3)
    halves = [Partition("low", range(5), column="half"), Partition("high", range(5, 10), column="half")]
    knowing = OraclePasses(Icos(InputRules(halves), support=0).fit(training, classifier.observe(images)))
    seen = cross_check([knowing], classifier.observe(images), training=training, repetitions=3)
    assert seen["icos"][2].error < found["icos"][2].error
    untried = cross_check([knowing], classifier.observe(images), repetitions=1)
    assert [trial.shift for trial in untried["icos"]] == ["nominal", "class frequencies"]


def test_recorded_predictions_are_no_opinion_about_corrupted_images() -> None:
    evidence = labelled_observation(Needs(), 200)
    classifier = Classifier(lambda images: np.full((len(images), 4), 0.25), class_names=evidence.class_names)
    found = cross_check(
        [ValidationAccuracy(), OraclePasses(CrossReference())], evidence, classifier=classifier, repetitions=1
    )
    kinds = {name: [trial.shift for trial in trials] for name, trials in found.items()}
    assert kinds["validation_accuracy"] == [*kinds["cross_reference"], "corrupted", "half corrupted"]
    both = _joined(evidence, evidence)
    assert both.images.columns["referee_1"].dtype.kind == "i"
    assert both.images.columns["partition"].tolist() == 2 * evidence.images.columns["partition"].tolist()


def test_estimators_of_one_name_are_refused(world) -> None:
    with pytest.raises(UserError, match="Two estimators are called 'validation_accuracy'"):
        cross_check([ValidationAccuracy(), ValidationAccuracy()], world(100, 0))
