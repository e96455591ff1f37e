"""What the verbs have in common: a keyword that nobody knows is refused, and so is what cannot be data."""

from __future__ import annotations

import numpy as np
import pytest

import secondguess as sg
from secondguess import UserError
from secondguess.guard.inputs import fitting_images


def model(pixels):
    return np.eye(10)[np.zeros(len(pixels), dtype=int)] * 0.5 + 0.05


@pytest.fixture(scope="module")
def digits():
    return sg.load("digits")


CALLS = {
    "compare": lambda data: sg.compare(model, model, data, no_worse=1),
    "audit": lambda data: sg.audit(model, data, supervisor=["entropy"]),
    "fit": lambda data: sg.Guard("entropy").fit(model, data.train, calibration=data.test),
    "estimate": lambda data: sg.estimate(model, data.test, like=data, rule="rules.toml"),
    "find_errors": lambda data: sg.find_errors(model, data.test, min_conf=0.5),
    "overconfidence": lambda data: sg.overconfidence(model, data, betwen="3,8"),
}
MEANT = {
    "compare": "no_worse_than",
    "audit": "supervisors",
    "estimate": "rules",
    "find_errors": "min_confidence",
    "overconfidence": "between",
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_keyword_that_nobody_knows_is_refused(digits, verb):
    with pytest.raises(UserError, match=rf"{verb} has no parameter") as refused:
        CALLS[verb](digits)
    assert MEANT.get(verb, "") in str(refused.value)


@pytest.mark.parametrize("verb", [sg.audit, sg.overconfidence])
def test_a_tuple_of_arrays_is_no_data_set(digits, verb):
    pair = (digits.test.materialise(), digits.test.labels)
    with pytest.raises(UserError, match=r"A tuple was given .* sg.ImageSet.from_arrays"):
        verb(model, pair)


def test_a_guard_takes_the_validation_images_of_a_data_set(digits):
    train, validation = digits.train.split(0.7, seed=0)
    data = sg.images.Dataset("three parts", train, digits.test, validation)
    classifier = sg.Classifier(model)
    for given in ((data, None), (train, data)):
        _, learning, nominal = fitting_images(classifier, *given, {})
        assert (len(learning), len(nominal)) == (len(train), len(validation))
    assert fitting_images(classifier, digits, None, {})[2] is None
    assert len(fitting_images(classifier, train, digits, {})[2]) == len(digits.test)


def test_the_rooms_are_listed_beside_the_names():
    assert {"supervisors", "stress", "zoo", "audit"} <= set(dir(sg))
