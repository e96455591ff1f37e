from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, ImageSource


def make(n: int = 12, k: int = 3, **more: object) -> ImageSet:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, 5, 4, 3), dtype=np.uint8)
    return ImageSet.from_arrays(images, np.arange(n) % k, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW"])
def test_every_dtype_and_layout_gives_the_same_pixels(dtype: type, layout: str) -> None:
    rng = np.random.default_rng(1)
    reference = rng.integers(0, 2, (7, 1 if layout == "NHW" else 3, 5, 6)).astype(np.float32)
    array = {"NHW": reference[:, 0], "NHWC": reference.transpose(0, 2, 3, 1), "NCHW": reference}[layout]
    array = (array * 255).astype(np.uint8) if dtype is np.uint8 else array.astype(dtype)
    image_set = ImageSet.from_arrays(array)
    assert isinstance(image_set.images, ImageSource)
    assert image_set.shape == reference.shape[1:]
    pixels = image_set.materialise()
    assert pixels.dtype == np.float32
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, reference)


def test_uint8_is_divided_by_255_and_rounded_correctly() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    expected = (levels.astype(np.float64) / 255).astype(np.float32)
    np.testing.assert_array_equal(ImageSet.from_arrays(levels).materialise()[:, 0], expected)


def test_images_can_be_asked_for_by_slice_positions_mask_and_number() -> None:
    image_set = make()
    everything = image_set.materialise()
    rows = np.array([3, 0, 3, -1])
    np.testing.assert_array_equal(image_set.images[rows], everything[rows])
    np.testing.assert_array_equal(image_set.images[2:9:3], everything[2:9:3])
    np.testing.assert_array_equal(image_set.images[-1], everything[11])
    assert image_set.images[5].shape == (3, 5, 4)
    mask = everything.mean(axis=(1, 2, 3)) > 0.5
    np.testing.assert_array_equal(image_set.take(mask).materialise(), everything[mask])
    for outside in (12, -13):
        with pytest.raises(IndexError):
            image_set.images[outside]
    with pytest.raises(IndexError, match="positions"):
        image_set.take([0.5])


@given(size=st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_batches_do_not_depend_on_their_size(size: int) -> None:
    image_set = make()
    pairs = list(image_set.batches(size))
    assert all(len(images) == size for images, _ in pairs[:-1])
    np.testing.assert_array_equal(np.concatenate([images for images, _ in pairs]), image_set.materialise())
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in pairs]), image_set.labels)


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="batch size of 0"):
        next(make().batches(0))


def test_a_view_on_a_view_takes_everything_along() -> None:
    n = 12
    soft = np.full((n, 3), 1 / 3)
    image_set = make(
        soft_labels=soft,
        is_ambiguous=np.arange(n) % 2 == 0,
        ids=[f"{i}.png" for i in range(n)],
        columns={"row": np.arange(n)},
    )
    view = image_set.take([8, 2, 5, 5]).take([3, 0])
    np.testing.assert_array_equal(view.materialise(), image_set.materialise()[[5, 8]])
    np.testing.assert_array_equal(view.labels, image_set.labels[[5, 8]])
    assert view.soft_labels is not None
    assert view.is_ambiguous is not None
    np.testing.assert_array_equal(view.soft_labels, soft[:2])
    assert view.is_ambiguous.tolist() == [False, True]
    assert view.ids == ("5.png", "8.png")
    assert view.columns["row"].tolist() == [5, 8]


def test_head_takes_the_first_or_a_seeded_sample() -> None:
    image_set = make(columns={"row": np.arange(12)})
    assert image_set.head(3).columns["row"].tolist() == [0, 1, 2]
    assert image_set.head(99) is image_set
    sample = image_set.head(5, seed=1).columns["row"].tolist()
    assert sample == sorted(set(sample))
    assert len(sample) == 5
    assert sample == image_set.head(5, seed=1).columns["row"].tolist()
    assert sample != image_set.head(5, seed=2).columns["row"].tolist()
    with pytest.raises(UserError, match="at least 1"):
        image_set.head(0)


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5), share=st.floats(0.05, 0.95), seed=st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_a_stratified_split_is_a_partition_that_keeps_the_shares(counts: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    n = len(labels)
    image_set = ImageSet.from_arrays(np.zeros((n, 2, 2), np.uint8), labels, columns={"row": np.arange(n)})
    if not 0 < round(share * n) < n:
        with pytest.raises(UserError, match="leaves one side of the split empty"):
            image_set.split(share, seed=seed)
        return
    first, second = image_set.split(share, seed=seed)
    rows = np.concatenate([first.columns["row"], second.columns["row"]])
    assert sorted(rows.tolist()) == list(range(n))
    assert len(first) == round(share * n)
    assert np.all(np.diff(first.columns["row"]) > 0)
    got = np.bincount(first.labels, minlength=len(counts))
    assert np.all(np.abs(got - share * np.array(counts)) < 1)


def test_a_split_depends_on_the_seed_alone() -> None:
    image_set = make(60, columns={"row": np.arange(60)})
    one, again, other = (image_set.split(0.5, seed=s)[0].columns["row"].tolist() for s in (0, 0, 1))
    assert one == again != other
    loose = image_set.split(0.25, seed=0, stratify=False)
    assert [len(part) for part in loose] == [15, 45]


def test_the_content_fingerprint_is_about_pixels_and_the_fingerprint_about_labels_too() -> None:
    image_set = make()
    base = image_set.content_fingerprint
    assert len(base) == 32
    pixels = image_set.materialise()
    as_floats = ImageSet.from_arrays(pixels, image_set.labels)
    assert as_floats.content_fingerprint == base
    assert as_floats.fingerprint == image_set.fingerprint
    changed = pixels.copy()
    changed[3, 1, 2, 2] += np.float32(1 / 255) if changed[3, 1, 2, 2] < 0.9 else np.float32(-1 / 255)
    assert ImageSet.from_arrays(changed).content_fingerprint != base
    assert image_set.take(np.arange(12)[::-1]).content_fingerprint != base
    assert image_set.take(np.arange(11)).content_fingerprint != base
    assert image_set.take(np.arange(12)).content_fingerprint == base
    assert ImageSet.from_arrays(pixels.reshape(12, 3, 4, 5), layout="NCHW").content_fingerprint != base

    other_labels = ImageSet.from_arrays(pixels, (image_set.labels + 1) % 3)
    soft = ImageSet.from_arrays(pixels, image_set.labels, soft_labels=np.full((12, 3), 1 / 3))
    named = ImageSet.from_arrays(pixels, image_set.labels, class_names=["a", "b", "c"])
    prints = {s.fingerprint for s in (image_set, other_labels, soft, named)}
    assert len(prints) == 4
    assert {s.content_fingerprint for s in (image_set, other_labels, soft, named)} == {base}


@pytest.mark.parametrize(
    ("labels", "expected", "names", "is_soft"),
    [
        (None, [-1, -1, -1], (), False),
        ([1, -1, 0], [1, -1, 0], ("0", "1"), False),
        ([[1], [0], [2]], [1, 0, 2], ("0", "1", "2"), False),
        ([1.0, 0.0, 1.0], [1, 0, 1], ("0", "1"), False),
        (["dog", "cat", ""], [1, 0, -1], ("cat", "dog"), False),
        ([[0, 1], [1, 0], [0, 1]], [1, 0, 1], ("0", "1"), False),
        ([[0.2, 0.8], [1, 0], [0.6, 0.4]], [1, 0, 0], ("0", "1"), True),
    ],
)
def test_labels_of_every_form(labels: object, expected: list[int], names: tuple[str, ...], is_soft: bool) -> None:
    image_set = ImageSet.from_arrays(np.zeros((3, 2, 2), np.uint8), labels)  # type: ignore[arg-type]
    assert image_set.labels.tolist() == expected
    assert image_set.labels.dtype == np.int64
    assert image_set.class_names == names
    assert image_set.num_classes == len(names)
    assert (image_set.soft_labels is not None) == is_soft
    assert image_set.is_labelled == (max(expected) >= 0)


def test_soft_labels_alone_give_the_likeliest_class() -> None:
    image_set = ImageSet.from_arrays(np.zeros((2, 2, 2), np.uint8), soft_labels=[[0.1, 0.9], [0.7, 0.3]])
    assert image_set.labels.tolist() == [1, 0]
    assert image_set.soft_labels is not None
    assert image_set.soft_labels.dtype == np.float64


IMAGES = np.zeros((3, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.full((2, 4, 4), 200.0), {}, r"run from 200 to 200, but must lie in \[0, 1\]"),
        (np.full((2, 4, 4), -0.1), {}, r"run from -0.1 to"),
        (np.full((2, 4, 4), np.nan), {}, "NaN or infinity"),
        (np.full((2, 4, 4), np.inf), {}, "NaN or infinity"),
        (np.zeros((2, 4, 4), dtype=object), {}, "dtype object"),
        (np.zeros((2, 4, 4), dtype=np.int64), {}, "dtype int64"),
        (np.zeros((0, 4, 4), np.uint8), {}, r"\(0, 4, 4\) is empty"),
        (np.zeros((4, 4), np.uint8), {}, r"shape \(4, 4\)"),
        (np.zeros((2, 3, 32, 3), np.uint8), {}, "pass layout='NCHW' or layout='NHWC'"),
        (np.zeros((2, 5, 32, 4), np.uint8), {}, "pass layout="),
        ([[[1, 2]], [[1]]], {}, "do not form one array"),
        (IMAGES, {"layout": "CHWN"}, "layout 'CHWN' is not known"),
        (IMAGES, {"labels": [0, 1]}, r"3 images but labels of shape \(2,\)"),
        (IMAGES, {"labels": [0, 1, 2], "class_names": ["a", "b"]}, "run from 0 to 2, but with 2 classes"),
        (IMAGES, {"labels": [0, -2, 1]}, "run from -2 to 1"),
        (IMAGES, {"labels": [0, 0.5, 1]}, "fractions or NaN"),
        (IMAGES, {"labels": [0, np.nan, 1]}, "fractions or NaN"),
        (IMAGES, {"labels": [None, None, 1]}, "Labels of dtype object"),
        (IMAGES, {"labels": ["a", "b", "c"], "class_names": ["a", "b"]}, "'c' is not one of the classes a, b"),
        (IMAGES, {"soft_labels": [[0.5, 0.6]] * 3}, "Row 0 of the soft labels sums to 1.1"),
        (IMAGES, {"soft_labels": [[0.5, 0.5], [1.5, -0.5], [0.5, 0.5]]}, "Row 1 of the soft labels"),
        (IMAGES, {"soft_labels": [[np.nan, 1.0]] * 3}, "Row 0"),
        (IMAGES, {"soft_labels": [[0.5, 0.5]] * 2}, r"Soft labels of shape \(2, 2\)"),
        (IMAGES, {"labels": [0, 1, 2], "soft_labels": [[0.5, 0.5]] * 3}, r"Soft labels of shape \(3, 2\)"),
        (IMAGES, {"is_ambiguous": [True]}, "1 values of 'is_ambiguous'"),
        (IMAGES, {"ids": ["a"]}, "1 values of 'ids'"),
        (IMAGES, {"columns": {"seed": np.zeros(4)}}, "4 values of 'seed'"),
    ],
)
def test_bad_arrays_are_refused_in_one_sentence(images: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImageSet.from_arrays(images, **options)  # type: ignore[arg-type]


def test_explicit_layout_settles_an_ambiguous_shape() -> None:
    images = np.zeros((2, 3, 32, 3), np.uint8)
    assert ImageSet.from_arrays(images, layout="NCHW").shape == (3, 32, 3)
    assert ImageSet.from_arrays(images, layout="NHWC").shape == (3, 3, 32)


def test_direct_construction_is_checked_too() -> None:
    source = make().images
    with pytest.raises(UserError, match="12 integers are needed"):
        ImageSet(source, np.zeros(12), ("a",))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="with 0 classes a label is -1"):
        ImageSet(source, np.zeros(12, np.int64), ())
    with pytest.raises(UserError, match="is empty"):
        make().take([])


def test_the_card_of_a_data_set_is_json() -> None:
    whole = make(30, name="thing", is_ambiguous=np.arange(30) < 4)
    train, test = whole.split(0.5)
    dataset = Dataset("thing", train, test)
    card = json.loads(json.dumps(dataset.describe()))
    assert card["class_names"] == ["0", "1", "2"]
    assert card["train"]["images"] + card["test"]["images"] == 30
    assert card["test"]["classes"] == {"0": 5, "1": 5, "2": 5}
    assert card["test"]["unlabelled"] == 0
    assert card["train"]["ambiguous"] + card["test"]["ambiguous"] == 4
    assert card["test"]["fingerprint"] == test.fingerprint
    assert card["fingerprint"] == dataset.fingerprint != Dataset("thing", None, test).fingerprint


def test_train_and_test_must_agree() -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    train = ImageSet.from_arrays(images, ["cat", "dog"])
    with pytest.raises(UserError, match="only in train: cat, dog; only in test: cow, hen"):
        Dataset("farm", train, ImageSet.from_arrays(images, ["cow", "hen"]))
    with pytest.raises(UserError, match="another order"):
        Dataset("farm", train, ImageSet.from_arrays(images, [0, 1], class_names=["dog", "cat"]))
    with pytest.raises(UserError, match="differ in shape"):
        Dataset("farm", train, ImageSet.from_arrays(np.zeros((2, 5, 4), np.uint8), ["cat", "dog"]))


def test_an_unlabelled_test_set_takes_over_the_class_names() -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    labelled, unlabelled = ImageSet.from_arrays(images, ["cat", "dog"]), ImageSet.from_arrays(images)
    assert Dataset("farm", labelled, unlabelled).test.class_names == ("cat", "dog")
    train = Dataset("farm", unlabelled, labelled).train
    assert train is not None
    assert train.class_names == ("cat", "dog")


def test_a_set_introduces_itself_in_one_line() -> None:
    pixels = np.zeros((3, 1, 8, 8), dtype=np.float32)
    made = ImageSet.from_arrays(pixels, [0, -1, 1], class_names=("cat", "dog"), name="pets")
    assert repr(made) == "ImageSet('pets': 3 images of 1 x 8 x 8, 2 classes, 1 unlabelled)"
    assert repr(Dataset("zoo", None, made)) == f"Dataset('zoo', train=None, test={made!r})"


def test_an_image_has_the_same_digest_in_every_set() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
    whole = ImageSet.from_arrays(pixels)
    floats = ImageSet.from_arrays((pixels / np.float32(255)).astype(np.float32)[:, None])
    assert whole.digests.shape == (6, 16) and whole.digests.dtype == np.uint8
    assert len(np.unique(whole.digests, axis=0)) == 6
    assert np.array_equal(floats.digests, whole.digests)
    assert np.array_equal(whole.take([4, 1]).digests, whole.digests[[4, 1]])
    assert not np.array_equal(ImageSet.from_arrays(pixels.reshape(6, 4, 5)).digests, whole.digests)
