"""What an observation holds: made of an image set, of an image source, or of bare arrays."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from secondguess import Classifier, ImageSet, Observation, Trace
from secondguess.errors import UserError
from secondguess.metrics import brier
from secondguess.model import given as given_module

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
        ({"probabilities": P, "logits": np.ones((4, 5))}, "probabilities are of 3 classes, but the logits of 5; give"),
        ({"logits": P, "samples": np.full((4, 2, 5), 0.2)}, "The logits are of 3 classes, but the samples of 5; give"),
        ({"predictions": [0, 3], "samples": np.full((2, 9, 2), 0.5)}, "Class 3 is predicted, but there are 2 classes"),
        (
            {"samples": P[:, None], "predictions": [0] * 4, "class_names": "ab"},
            "2 class names were given for 3 classes",
        ),
        (
            {"probabilities": np.ones((4, 1))},
            r"outputs have 1 column, but .* give \(1 - p, p\) for a probability p, or",
        ),
        ({"logits": np.ones((4, 1))}, r"outputs have 1 column, but .* or \(0, l\) for a logit l"),
        ({"probabilities": np.ones((4, 0))}, "outputs have 0 columns, but there are two classes or more"),
        ({"probabilities": np.full((2, 2), "x")}, "The probabilities are of dtype <U1; give numbers"),
        ({"logits": np.array([[1.0, None]])}, "The logits are of dtype object; give numbers"),
        (
            {"probabilities": [[1.01, -0.01]]},
            r"from -0\.01 to 1\.01 and rows sum to 1 to 1; none may be negative, and every row must",
        ),
        ({"probabilities": [[0.5, 0.5], [0.6, 0.5]]}, r"rows sum to 1 to 1\.1; none .* as such: logits=\.\.\."),
        ({"probabilities": [[0.5, 0.5], [0.4, 0.5]]}, r"rows sum to 0\.9 to 1; .* every row must sum to 1\."),
        ({"probabilities": [[0.5, 0.5], [np.nan, 1.0]]}, "run from nan to nan and rows sum to nan to nan"),
        ({"probabilities": P, "samples": 5 * P[:, None]}, "The samples run from 0.5 to 3.5 .* give their softmax"),
        ({"probabilities": P, "samples": np.full((4, 2, 3), np.nan)}, "The samples run from nan to nan"),
        ({"logits": [[0, 1], [0, np.nan]]}, "The logits of image 1 hold NaN or infinity, .* leave such images out"),
        (
            {"probabilities": P[:2, :2] / P[:2, :2].sum(axis=1, keepdims=True), "logits": [[0, -np.inf]] * 2},
            "image 0 hold",
        ),
        ({"logits": [[0, 1e39], [0, 1]]}, "The logits of image 0 .* what single precision cannot hold"),
    ],
)
@pytest.mark.parametrize("numbers", [1 << 20, 2])
def test_what_does_not_fit_together_is_refused(given, says, numbers, monkeypatch) -> None:
    monkeypatch.setattr(given_module, "NUMBERS", numbers)  # a row at a time, too
    with pytest.raises(UserError, match=says):
        Observation(**given)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"probabilities": 2 * P}, "every row must sum to 1"),
        ({"logits": np.ones((4, 4))}, "of 3 classes, but the logits of 4"),
        ({"logits": np.full((4, 3), np.nan)}, "The logits of image 0 hold NaN"),
        ({"samples": 2 * P[:, None]}, "The samples run from 0.2 to 1.4"),
    ],
)
def test_what_is_replaced_is_looked_at(changes, says) -> None:
    with pytest.raises(UserError, match=says):
        Observation(P).replace(**changes)
    with pytest.raises(TypeError, match="An observation has no scores"):
        Observation(P).replace(scores=P)


def test_samples_say_how_many_classes_there_are() -> None:
    seen = Observation(predictions=[0, 1], samples=np.full((2, 9, 4), 0.25))
    assert seen.num_classes == 4 and seen.classes_are_known


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, bool])
def test_probabilities_are_read_as_those_of_a_classifier_are(dtype) -> None:
    """Referee: a classifier that gives them."""
    given = np.eye(3, dtype=dtype)[RNG.integers(3, size=40)]
    if np.issubdtype(dtype, np.floating):
        given = RNG.dirichlet(np.ones(3), 40).astype(dtype)
        given[0] = [1 + 4e-3, -4e-3, 0]
    pixels = images([-1] * 40, ())
    expected = Classifier(lambda batch: given[: len(batch)], output_kind="probabilities").observe(pixels)
    for one in (given, np.asfortranarray(given), torch.tensor(given)):
        seen = Observation(one)
        np.testing.assert_array_equal(seen.probabilities, expected.probabilities)
        np.testing.assert_array_equal(seen.predictions, expected.predictions)
        np.testing.assert_array_equal(seen.confidences, expected.confidences)
        assert seen.probabilities.dtype == seen.confidences.dtype == np.float64 and seen.probabilities.min() >= 0


def test_confidences_that_single_precision_rounds_to_one_do_not_tie() -> None:
    left = np.array([1e-9, 1e-12, 1e-30])
    seen = Observation(np.stack([1 - left, left], axis=1).astype(np.float32))
    np.testing.assert_allclose(1 - seen.confidences[:2], left[:2], rtol=1e-3)


def test_probabilities_within_the_tolerance_are_brought_to_one() -> None:
    given = np.array([[1.004, -0.004], [0.5, 0.5], [0.999, 0.002], [0.7, 0.3]])
    seen = Observation(given)
    np.testing.assert_allclose(seen.probabilities, [[1, 0], [0.5, 0.5], [0.999 / 1.001, 0.002 / 1.001], [0.7, 0.3]])
    assert seen.probabilities[3].tolist() == [0.7, 0.3], "what is sound stays to the last digit, whatever is beside it"
    assert given[0, 1] == -0.004
    assert brier(seen.probabilities, np.array([0, 0, 0, 0])) > 0
    for rows in ([0], [3, 2], slice(1, 3), slice(0, 0)):
        some = seen.take(rows).replace(labels=None)
        np.testing.assert_array_equal(some.probabilities, seen.probabilities[rows])
        np.testing.assert_array_equal(some.confidences, seen.confidences[rows])
        np.testing.assert_array_equal(some.predictions, seen.predictions[rows])
    again = Observation(seen.probabilities)
    assert (
        again.probabilities is seen.probabilities and again.replace(labels=[0] * 4).probabilities is seen.probabilities
    )


def test_probabilities_that_are_sound_are_not_copied(tmp_path) -> None:
    sure = np.exp(RNG.normal(size=(5000, 7)))
    np.save(tmp_path / "p.npy", sure / sure.sum(axis=1, keepdims=True))
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    assert Observation(mapped).probabilities is mapped
    some = Observation(mapped, labels=[0] * 5000).take(slice(10, 20))
    assert np.shares_memory(some.probabilities, mapped) and np.array_equal(some.probabilities, mapped[10:20])


def test_narrow_probabilities_are_widened_where_they_are_asked_for(tmp_path, monkeypatch) -> None:
    """A memory-mapped file of float32 is not copied where it is given, nor for predictions, nor whole for some rows."""
    sure = np.exp(RNG.normal(size=(5000, 7))).astype(np.float32)
    np.save(tmp_path / "p.npy", sure / sure.sum(axis=1, keepdims=True))
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    monkeypatch.setattr(given_module, "NUMBERS", 700)
    asked = []
    real = given_module.to_probabilities
    monkeypatch.setattr(given_module, "to_probabilities", lambda raw, kind: asked.append(len(raw)) or real(raw, kind))
    seen = Observation(mapped)
    some = seen.take(slice(0, 150))
    assert not asked, "nothing was asked for yet"
    assert some.probabilities.shape == (150, 7) and asked == [100, 50]
    asked.clear()
    predictions, confidences = seen.predictions, seen.confidences
    assert max(asked) == 100 and "probabilities" not in vars(seen)
    np.testing.assert_array_equal(predictions, seen.probabilities.argmax(axis=1))
    np.testing.assert_array_equal(confidences, seen.probabilities.max(axis=1))
    np.testing.assert_array_equal(some.probabilities, seen.probabilities[:150])
    assert "probabilities" not in vars(Observation(mapped, predictions=predictions))


def test_other_classes_are_refused_where_labels_are_used() -> None:
    seen = Observation(P, images=images(names=("c", "b", "a")), class_names=("a", "b", "c"))
    assert seen.class_names == ("a", "b", "c")
    with pytest.raises(UserError, match="must agree on the classes and their order"):
        seen.check_classes()
    with pytest.raises(UserError, match="must agree on the classes and their order"):
        _ = seen.correct
