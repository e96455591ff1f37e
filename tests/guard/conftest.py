from __future__ import annotations

import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn

from full_sizes import unhurried
from secondguess import Classifier, Dataset, load, train
from secondguess.guard import Guard, StressSplit, make_stress_split
from secondguess.guard.fitting import split_images
from secondguess.images import ImageSet
from secondguess.stress import Invalid

__all__ = ["unhurried"]

RATE = 0.05


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


def trained(digits: Dataset, seed: int) -> torch.nn.Module:
    """A network of 1x8x8 digits that knows most of them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 8, 3, padding=1),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(8, 16, 3, padding=1),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                head=nn.Linear(64, 10),
            )
        )
    train(model, digits.train.images, digits.train.labels, epochs=12, batch_size=64, lr=0.01, seed=seed)
    return model


@pytest.fixture(scope="session")
def classifier(digits: Dataset) -> Classifier:
    return Classifier(trained(digits, 0), class_names=digits.train.class_names, device="cpu")


@pytest.fixture(scope="session")
def other_classifier(digits: Dataset) -> Classifier:
    return Classifier(trained(digits, 1), class_names=digits.train.class_names, device="cpu")


@pytest.fixture(scope="session")
def both_ways(digits: Dataset) -> Dataset:
    """Digits, every other one in a mirror, of the same classes."""

    def turned(images: ImageSet) -> ImageSet:
        pixels = images.materialise()
        pixels[::2] = pixels[::2, ..., ::-1].copy()
        return ImageSet.from_arrays(pixels, images.labels, layout="NCHW", class_names=images.class_names)

    return Dataset("both ways", turned(digits.train), turned(digits.test))


@pytest.fixture(scope="session")
def indifferent(both_ways: Dataset) -> Classifier:
    """A classifier to which left and right mean nothing."""
    return Classifier(trained(both_ways, 0), class_names=both_ways.train.class_names, device="cpu")


@pytest.fixture(scope="session")
def stress_split(digits: Dataset, classifier: Classifier) -> StressSplit:
    parts = split_images(digits.train, digits.test, seed=0, most=None)
    return make_stress_split(
        classifier, digits.train, parts.learn, parts.calibrate, ambiguous="blend", attacked=24, device="cpu"
    )


@pytest.fixture(scope="session")
def guard(digits: Dataset, classifier: Classifier, stress_split: StressSplit) -> Guard:
    """Two cheap supervisors and two of traces."""
    made = Guard(["entropy", "pcs", "mdsa", "relative_mahalanobis"], false_alarms=RATE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of which a tiny set has few
        return made.fit(classifier, digits.train, digits.test, stress_split)


@pytest.fixture(scope="session")
def strangers(digits: Dataset) -> ImageSet:
    """Photographs, textures and shuffled digits, which are no digits."""
    return Invalid().make(split_images(digits.train, digits.test, seed=0, most=None).calibrate, seed=1).head(40)
