"""Three splits: what a data set has to learn from, to calibrate on, and to test with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess import Dataset, ImageSet, UserError, load

RNG = np.random.default_rng(0)


def pixels(n: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, 4, 4), dtype=np.uint8)


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_an_archive_with_validation_images(tmp_path: Path, name: str) -> None:
    arrays = {f"x_{name}": pixels(4), f"y_{name}": np.arange(4) % 2}
    for split, n in (("train", 6), ("test", 2)):
        arrays |= {f"x_{split}": pixels(n), f"y_{split}": np.arange(n) % 2}
    np.savez(tmp_path / "a.npz", **arrays)
    data = load(tmp_path / "a.npz", size=8)
    assert [len(part) for part in (data.train, data.test, data.validation)] == [6, 2, 4]
    assert data.validation.shape == (1, 8, 8) and data.validation.name == "a/val"
    assert data.describe()["validation"]["images"] == 4
    assert "validation=ImageSet('a/val'" in repr(data)


def test_two_validation_sets_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_val=pixels(2), x_validation=pixels(2), x_test=pixels(2))
    with pytest.raises(UserError, match="holds both x_val and x_validation; leave one of them out"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_folder_with_validation_images(tmp_path: Path, name: str) -> None:
    for split, n in (("train", 3), (name, 2), ("test", 1)):
        for label in ("cat", "dog"):
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            for row in range(n):
                Image.fromarray(pixels(1)[0]).save(folder / f"{row}.png")
    data = load(tmp_path)
    assert [len(part) for part in (data.train, data.test, data.validation)] == [6, 2, 4]
    assert data.validation.class_names == ("cat", "dog")
    assert set(data.splits) == {"train", "test", "validation"}
    other = load(tmp_path, split="validation")
    assert len(other.test) == 4 and other.validation is None
    assert load(tmp_path, split="train").train is None and len(load(tmp_path, split="train").validation) == 4


def test_without_a_test_split_the_validation_images_test(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=pixels(6), x_val=pixels(3))
    data = load(tmp_path / "a.npz")
    assert len(data.test) == 3 and data.validation is None


def test_splits_agree() -> None:
    train, test = (ImageSet.from_arrays(pixels(2), ["cat", "dog"]) for _ in range(2))
    bare = ImageSet.from_arrays(pixels(3))
    data = Dataset("farm", train, test, bare)
    assert data.validation.class_names == ("cat", "dog")
    assert data.fingerprint != Dataset("farm", train, test).fingerprint
    with pytest.raises(UserError, match=r"classes of validation and test differ in farm \(only in validation: hen"):
        Dataset("farm", train, test, ImageSet.from_arrays(pixels(2), ["cat", "hen"]))


def test_a_split_that_lacks_classes_takes_over_their_names() -> None:
    train = ImageSet.from_arrays(pixels(4), ["ant", "bee", "cat", "dog"])
    few = ImageSet.from_arrays(pixels(3), ["dog", "bee", "dog"])
    soft = replace(few, soft_labels=np.array([[0.1, 0.9], [1, 0], [0, 1]]))
    with pytest.warns(UserWarning, match="The test images of farm have none of ant, cat; nothing is known of these"):
        data = Dataset("farm", train, few)
    assert data.test.class_names == train.class_names and data.test.labels.tolist() == [3, 1, 3]
    with pytest.warns(UserWarning, match="none of ant, cat"):
        assert Dataset("farm", train, soft).test.soft_labels.tolist() == [[0, 0.1, 0, 0.9], [0, 1, 0, 0], [0, 0, 0, 1]]
    many = ImageSet.from_arrays(pixels(40), [f"class {k:02}" for k in range(40)])
    with pytest.warns(
        UserWarning, match=r"none of 38 classes \(class 02, class 03, class 04, class 05, class 06, ...\)"
    ):
        Dataset("farm", many, ImageSet.from_arrays(pixels(2), ["class 00", "class 01"]))
