from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from secondguess.accuracy import AverageConfidence, RulesAndConfidence, ValidationAccuracy, cross_check
from secondguess.accuracy.trust import swapped
from secondguess.classifier import Classifier
from secondguess.data import ImageSet, load
from secondguess.errors import UserError
from secondguess.oracles import Evidence
from secondguess.oracles.icos.input_rules import InputRules, Partition


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
    other = swapped(evidence, np.random.default_rng(3))
    moved = np.flatnonzero(other.predictions != evidence.predictions)
    assert len(np.unique(evidence.predictions[moved])) == 2
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
    half = np.where(data.test.labels < 5, "low", "high")
    images = ImageSet.from_arrays(
        data.test.materialise(), data.test.labels, class_names=data.test.class_names, columns={"half": half}
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
    found = cross_check(
        estimators, Evidence.of(classifier, images), classifier=classifier, ambiguous=blend, repetitions=2
    )
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
