"""Models and data that name the same classes in another order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import secondguess as sg
from secondguess import UserError
from secondguess.images.sources import ArraySource

NAMES = ("zero", "one", "two")
ALPHABETICAL = ("one", "two", "zero")


def images(names, n=60):
    """Images whose mean grey level says which class of `NAMES` they are."""
    classes = np.arange(n) % 3
    pixels = np.full((n, 1, 6, 6), 0.2, np.float32) + 0.25 * classes[:, None, None, None]
    pixels += np.random.default_rng(0).uniform(-0.02, 0.02, pixels.shape).astype(np.float32)
    labels = np.array([names.index(NAMES[one]) for one in classes])
    return sg.ImageSet.from_arrays(pixels, labels, class_names=names, layout="NCHW", name="grey levels")


def model(pixels):
    level = (np.asarray(pixels).mean(axis=(1, 2, 3)) - 0.2) / 0.25
    return -8 * np.abs(level[:, None] - np.arange(3))


@pytest.mark.parametrize("names", [NAMES, ALPHABETICAL])
def test_labels_are_read_in_the_models_order(names):
    part = images(names)
    data = sg.images.Dataset("grey levels", part, replace(part))
    found = sg.overconfidence(
        sg.Classifier(model, class_names=NAMES), data, on="blend", between="zero,two", count=30, resamples=5
    )
    row = found.to_dict()["models"][0]
    assert row["accuracy"]["value"] == 1.0
    flat = found.rows()[0]
    assert (flat["model"], flat["accuracy.value"]) == (row["model"], 1.0)
    assert flat["ambiguous.absolute.value"] == row["ambiguous"]["absolute"]["value"]


def test_models_of_other_classes_are_refused():
    part = images(NAMES)
    data = sg.images.Dataset("grey levels", part, replace(part))
    models = [sg.Classifier(model, class_names=names, name=names[0]) for names in (NAMES, ALPHABETICAL)]
    with pytest.raises(UserError, match="compare models of the same classes in the same order"):
        sg.overconfidence(models, data, on="blend", count=30, resamples=5)


def test_photographs_are_blended_where_nothing_better_can_be_made(monkeypatch):
    """Without a GPU; AmbiGuess, which small grey images get, would take its time for them."""
    monkeypatch.setattr("secondguess.devices.pick_device", lambda _: torch.device("cpu"))
    grey = images(NAMES)
    colour = replace(grey, images=ArraySource(np.repeat(grey.images[:], 3, axis=1), "NCHW"))
    data = sg.images.Dataset("levels in colour", colour, replace(colour))
    with pytest.warns(UserWarning, match="plain blends of two images"):
        found = sg.overconfidence(sg.Classifier(model, class_names=NAMES), data, count=20, resamples=5)
    assert found.made is not None and found.made.card["generator"] == "PixelBlend"
