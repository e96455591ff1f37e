"""What an observation holds: made of an image set, of an image source, or of bare arrays."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from secondguess import Classifier, ImageSet, Observation, Trace
from secondguess.errors import UserError

RNG = np.random.default_rng(0)
P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]])


def images(labels=(0, 1, 2, -1), names=("a", "b", "c"), **more) -> ImageSet:
    pixels = RNG.random((len(labels), 1, 4, 4)).astype(np.float32)
    return ImageSet.from_arrays(pixels, np.array(labels), class_names=names, layout="NCHW", **more)


def test_an_image_set_brings_its_labels_names_and_columns() -> None:
    given = images(ids=list("wxyz"), columns={"camera": np.arange(4)}, name="photos")
    seen = Observation(P, images=given)
    assert seen.images is given and seen.pixels is given.images
    assert seen.labels.tolist() == [0, 1, 2, -1]
    assert seen.class_names == ("a", "b", "c") and seen.name == "photos"
    assert seen.columns["camera"].tolist() == [0, 1, 2, 3]
    some = seen.take(np.array([2, 0]))
    assert (
        some.labels.tolist() == [2, 0] and some.images.ids == ("y", "w") and some.columns["camera"].tolist() == [2, 0]
    )
    assert some.correct.all()
    with pytest.raises(UserError, match="1 of the 4 in 'photos' are unknown"):
        _ = seen.correct


def test_a_classifier_observes_all_that_is_known() -> None:
    classifier = Classifier(lambda x: np.tile([0.2, 0.5, 0.3], (len(x), 1)))
    given = images()
    seen = classifier.observe(given)
    assert seen.images is given and seen.class_names == ("a", "b", "c")
    assert classifier.observe(given.images).labels is None
    assert classifier.observe(images((-1, -1), ())).labels is None


def test_a_source_is_wrapped_with_the_labels_given() -> None:
    source = images().images
    seen = Observation(P, images=source, labels=[0, 1, 2, 0], class_names=("x", "y", "z"))
    assert seen.pixels is source and seen.images.images is source
    assert seen.images.labels.tolist() == [0, 1, 2, 0] and seen.images.class_names == ("x", "y", "z")
    assert seen.take(slice(1, 3)).images.labels.tolist() == [1, 2]
    assert seen.take(slice(0, 0)).images is None


def test_labels_come_with_the_images() -> None:
    seen = Observation(P, images=images())
    other = replace(seen.images, labels=np.array([2, 2, 2, 2]))
    assert seen.replace(images=other).labels.tolist() == [2, 2, 2, 2]
    assert seen.replace(images=replace(other, labels=np.full(4, -1))).labels is None
    assert Observation(P, labels=[0, 1, 2, 0]).replace(logits=P).labels.tolist() == [0, 1, 2, 0]
    with pytest.raises(UserError, match="not those of the set 'images'"):
        seen.replace(labels=[0, 0, 0, 0])


def test_labels_count_as_classes_where_only_predictions_are_known() -> None:
    seen = Observation(predictions=[0, 1, 1], labels=[0, 1, 4])
    assert seen.num_classes == 5
    assert Observation(predictions=[0, 1, 1], labels=[0, 1, 4]).correct.tolist() == [True, True, False]


def test_bare_arrays_of_any_library() -> None:
    seen = Observation(torch.tensor(P), labels=torch.tensor([0, 1, 2, 0]), traces={"fc": torch.ones(4, 2)})
    assert seen.predictions.tolist() == [0, 1, 2, 0] and seen.correct.all()
    assert seen.trace("fc").shape == (4, 2) and seen.images is None and seen.pixels is None
    assert seen.class_names == ("0", "1", "2")
    assert Observation(P.tolist()).confidences.tolist() == [0.7, 0.6, 0.5, 0.4]


def test_logits_alone_give_their_softmax() -> None:
    logits = RNG.normal(size=(5, 3)).astype(np.float32)
    exp = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(Observation(logits=logits).probabilities, exp / exp.sum(axis=1, keepdims=True))


def test_raw_outputs_of_a_layer_are_reduced_as_asked() -> None:
    raw = RNG.normal(size=(4, 6, 5, 5)).astype(np.float32)
    seen = Observation(P, traces={"conv": raw})
    for kind in ("flatten", "mean", "grid"):
        np.testing.assert_array_equal(seen.trace(Trace("conv", kind)), Trace("conv", kind).apply(raw))
        np.testing.assert_array_equal(
            seen.take([3, 1]).trace(Trace("conv", kind)), Trace("conv", kind).apply(raw)[[3, 1]]
        )
    assert seen.trace("conv").shape == (4, 150)
    with pytest.raises(UserError, match="no trace of 'fc/mean'"):
        seen.trace(Trace("fc", "mean"))


def test_predictions_without_probabilities() -> None:
    traces = RNG.normal(size=(300, 3))
    seen = Observation(predictions=np.arange(300) % 7, traces={"fc": traces})
    assert (len(seen), seen.num_classes, seen.classes_are_known) == (300, 7, False)
    assert "predictions" in repr(seen) and "probabilities" not in repr(seen)
    assert np.shares_memory(seen.trace("fc"), traces)
    some = seen.take(np.array([8, 1, 290]))
    assert some.predictions.tolist() == [1, 1, 3]
    np.testing.assert_array_equal(some.trace("fc"), traces[[8, 1, 290]])
    with pytest.raises(UserError, match="predictions but neither probabilities nor logits"):
        _ = seen.probabilities
    assert Observation(predictions=[0, 1], class_names="abc").classes_are_known


def test_other_outputs_make_other_predictions() -> None:
    seen = Observation(P)
    assert seen.predictions.tolist() == [0, 1, 2, 0]
    assert seen.replace(probabilities=P[:, ::-1]).predictions.tolist() == [2, 1, 0, 1]
    told = Observation(predictions=[2, 2, 2, 2])
    assert told.replace(probabilities=P).predictions.tolist() == [0, 1, 2, 0]


def test_columns_beside_the_images() -> None:
    seen = Observation(predictions=[0, 1, 1], columns={"referee": [0, 1, 0]})
    assert seen.take([2]).columns["referee"].tolist() == [0]
    with pytest.raises(UserError, match=r"values of 'referee' have the shape \(2,\)"):
        Observation(predictions=[0, 1, 1], columns={"referee": [0, 1]})


def test_an_observation_does_not_change() -> None:
    seen = Observation(P)
    with pytest.raises(AttributeError, match="does not change"):
        seen.labels = np.zeros(4)
    assert seen != Observation(P) and seen == seen
    back = copy.deepcopy(Observation(P, images=images(), traces={"fc": np.eye(4)}))  # as pickling does
    assert back.labels.tolist() == [0, 1, 2, -1] and back.trace("fc").shape == (4, 4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "none of them was given"),
        ({"probabilities": [0.1, 0.9]}, r"probabilities have the shape \(2,\); 2 axes"),
        ({"probabilities": P, "logits": P[:2]}, r"logits have the shape \(2, 3\); 2 axes with 4 rows"),
        ({"probabilities": P, "labels": [0, 1]}, r"labels have the shape \(2,\)"),
        ({"probabilities": P, "labels": [0.5] * 4}, "labels are of dtype float64"),
        ({"probabilities": P, "traces": {"fc": np.ones((3, 2))}}, r"trace fc/flatten has the shape \(3, 2\)"),
        ({"probabilities": P, "class_names": "ab"}, "2 class names were given for 3 classes"),
        ({"probabilities": P, "predictions": [0, 0, 0, 0]}, "not the most probable classes"),
        ({"predictions": [0, -1]}, "A prediction is negative"),
        ({"predictions": [0, 3], "class_names": "abc"}, "Class 3 is predicted, but there are 3 classes"),
        ({"probabilities": P, "images": images((0, 1))}, "4 images were observed, but the set 'images' has 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(given, says) -> None:
    with pytest.raises(UserError, match=says):
        Observation(**given)


def test_other_classes_are_refused_where_labels_are_used() -> None:
    seen = Observation(P, images=images(names=("c", "b", "a")), class_names=("a", "b", "c"))
    assert seen.class_names == ("a", "b", "c")
    with pytest.raises(UserError, match="must agree on the classes and their order"):
        seen.check_classes()
    with pytest.raises(UserError, match="must agree on the classes and their order"):
        _ = seen.correct
