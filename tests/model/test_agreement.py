"""The classes of a model and those of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Classifier, UserError, load
from secondguess.images import ImageSet
from secondguess.model.agreement import agree, with_names_of

PIXELS = np.random.default_rng(0).random((6, 4, 4), dtype=np.float32)


def four(images: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.full((len(images), 4), 0.25)


def labelled(labels: list[int], **options: object) -> ImageSet:
    return ImageSet.from_arrays(PIXELS[: len(labels)], labels, **options)  # type: ignore[arg-type]


def test_the_last_class_may_be_missing_from_the_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=np.array([0, 1, 2, 0, 1, 2]))
    images = load(tmp_path / "a.npz").test
    classifier, images, more = agree(Classifier(four), images, labelled([0, 3]))
    assert classifier.class_names == images.class_names == ("0", "1", "2", "3")
    assert more is not None and (more.class_names, more.labels.tolist()) == (images.class_names, [0, 3])
    assert classifier.observe(images).probabilities.shape == (6, 4)
    assert with_names_of(Classifier(four), None, images).class_names == images.class_names


def test_soft_labels_get_a_column_for_it() -> None:
    soft = labelled([0, 1], soft_labels=[[0.5, 0.5], [0.1, 0.9]])
    _, images, _ = agree(Classifier(four), soft)
    assert images.soft_labels is not None
    assert images.soft_labels.tolist() == [[0.5, 0.5, 0, 0], [0.1, 0.9, 0, 0]]


def test_one_score_means_two_classes() -> None:
    classifier, images, _ = agree(Classifier(lambda images: np.full(len(images), 0.3)), labelled([0, 0]))
    assert classifier.class_names == images.class_names == ("0", "1")


def test_names_of_one_s_own_must_be_complete() -> None:
    classifier, images, _ = agree(Classifier(four), labelled([0, 1], class_names=["cat", "dog"]))
    message = r"gives 4 classes, but 2 class names were given \(cat, dog; 2 in all\); name the model's 4, .* --classes"
    with pytest.raises(UserError, match=message):
        classifier.observe(images)
