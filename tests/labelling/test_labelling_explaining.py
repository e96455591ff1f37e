from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from label_house import make_pool

from secondguess import Classifier
from secondguess.labelling import explaining
from secondguess.labelling.explaining import explainer
from secondguess.report.pictures import data_uri
from secondguess.web.pictures import Album


@pytest.fixture
def classifier() -> Classifier:
    """Three classes, told apart by which third of the image is brightest."""
    return Classifier(
        lambda images: np.exp(9 * np.stack([part.mean(axis=(1, 2, 3)) for part in np.array_split(images, 3, 2)], 1)),
        output_kind="logits",
    )


def test_an_image_its_counterexample_and_the_prototype(classifier: Classifier) -> None:
    pool = make_pool(12)
    assert pool.distances is not None
    shown = explainer(classifier, lambda: pool, Album(pool.images.images))
    assert shown is not None
    found = shown(3)
    captions = [one["caption"] for one in found["pictures"]]
    assert captions[0].startswith("The image; the model says ")
    assert captions[2].startswith("Its counterexample; the model says ")
    assert [caption.startswith("What speaks for ") for caption in captions] == [False, True, False, True, False]
    name = pool.observation.class_names[pool.predictions[3]]
    assert captions[4] == f"Prototype of {name}: farthest from any other decision"
    alike = np.flatnonzero(pool.predictions == pool.predictions[3])
    farthest = alike[pool.distances.mae[alike].argmax()]
    assert found["pictures"][4]["image"] == data_uri(pool.images.images[int(farthest)])
    assert found["pictures"][0]["image"] == data_uri(pool.images.images[3])
    assert shown(3) == found


def test_without_distances_there_is_no_counterexample(classifier: Classifier) -> None:
    pool = make_pool(12)
    shown = explainer(classifier, lambda: replace(pool, distances=None), Album(pool.images.images))
    assert shown is not None
    assert len(shown(3)["pictures"]) == 2


def test_without_captum_there_is_no_explainer(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "find_spec", lambda name: None)
    pool = make_pool(12)
    assert explainer(classifier, lambda: pool, Album(pool.images.images)) is None
