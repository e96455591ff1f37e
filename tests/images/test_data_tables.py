from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import ImageSet, load, load_images, save_parquet
from secondguess.images import parquet as parquet_module
from secondguess.images.encoded import Options
from secondguess.images.hub import from_datasets
from secondguess.images.parquet import ParquetSource

arrow = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make(rng: np.random.Generator, n: int = 9, channels: int = 3, **more: Any) -> ImageSet:
    images = rng.integers(0, 256, (n, channels, 6, 5), dtype=np.uint8)
    labels = np.arange(n) % 3
    return ImageSet.from_arrays(images, labels, class_names=["a", "b", "c"], layout="NCHW", **more)


@pytest.mark.parametrize("channels", [1, 3])
def test_parquet_round_trip_through_our_loader(tmp_path: Path, rng: np.random.Generator, channels: int) -> None:
    original = make(
        rng,
        channels=channels,
        soft_labels=rng.dirichlet([1, 1, 1], 9),
        is_ambiguous=np.arange(9) % 2 == 0,
        ids=[f"{i}.png" for i in range(9)],
        columns={"kind": np.array(list("xyzxyzxyz")), "level": rng.random(9), "seed": np.arange(9)},
    )
    save_parquet(original, tmp_path / "set.parquet")
    loaded = load_images(tmp_path / "set.parquet")
    assert loaded.fingerprint == original.fingerprint
    np.testing.assert_array_equal(loaded.is_ambiguous, original.is_ambiguous)
    assert loaded.ids == original.ids
    for key, values in original.columns.items():
        np.testing.assert_array_equal(loaded.columns[key], values)
    assert [file.name for file in tmp_path.iterdir()] == ["set.parquet"]


@pytest.mark.parametrize("channels", [1, 3])
def test_parquet_round_trip_through_the_datasets_library(
    tmp_path: Path, rng: np.random.Generator, library: Any, channels: int
) -> None:
    soft = np.array([[0.6, 0.4, 0], [0, 1, 0], [0, 0, 1]])
    original = make(
        rng, 3, channels, soft_labels=soft, is_ambiguous=[True, False, False], columns={"level": rng.random(3)}
    )
    save_parquet(original, tmp_path / "set.parquet")
    theirs = library.Dataset.from_parquet(str(tmp_path / "set.parquet"), cache_dir=str(tmp_path / "cache"))
    assert theirs.features["label"].names == ["a", "b", "c"]
    assert theirs["text_label"][:] == ["p(a)=0.6, p(b)=0.4", "b", "c"]
    assert theirs["label"][:] == [0, 1, 2]
    assert theirs["is_ambiguous"][:] == [True, False, False]
    np.testing.assert_array_equal(theirs["p_label"][:], soft)
    for row, image in zip(theirs, original.materialise(), strict=True):
        pixels = np.asarray(row["image"])
        pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
        np.testing.assert_array_equal(pixels / np.float32(255), image)
    back = from_datasets({"test": theirs}, "mine")["test"]
    assert back.fingerprint == original.fingerprint
    np.testing.assert_array_equal(back.columns["level"], original.columns["level"])
    theirs.to_parquet(str(tmp_path / "again.parquet"))
    assert load_images(tmp_path / "again.parquet").fingerprint == original.fingerprint


def test_unlabelled_sets_stay_unlabelled(tmp_path: Path, rng: np.random.Generator, library: Any) -> None:
    original = ImageSet.from_arrays(rng.integers(0, 256, (4, 6, 5), dtype=np.uint8))
    save_parquet(original, tmp_path / "set.parquet")
    loaded = load_images(tmp_path / "set.parquet")
    assert loaded.class_names == ()
    assert loaded.fingerprint == original.fingerprint
    assert loaded.ids is None
    theirs = library.Dataset.from_parquet(str(tmp_path / "set.parquet"), cache_dir=str(tmp_path / "cache"))
    assert theirs["label"][:] == [-1] * 4


def test_row_groups_are_read_once_a_batch_and_only_where_needed(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secondguess.images.save.BLOCK", 4)
    original = make(rng, 18)
    save_parquet(original, tmp_path / "set.parquet")
    assert pq.ParquetFile(tmp_path / "set.parquet").num_row_groups == 5
    loaded = load_images(tmp_path / "set.parquet")
    source = loaded.images
    assert isinstance(source, ParquetSource)
    everything = original.materialise()
    source._cache.clear()
    np.testing.assert_array_equal(source[5:7], everything[5:7])
    assert list(source._cache) == [1]
    rows = np.array([17, 5, 0, 17, 6])
    np.testing.assert_array_equal(source[rows], everything[rows])
    assert sorted(source._cache) == [0, 1, 4]
    monkeypatch.setattr(parquet_module, "CACHE_BYTES", 1)
    np.testing.assert_array_equal(np.concatenate([images for images, _ in loaded.batches(5)]), everything)
    assert list(source._cache) == [4], "the cache is bounded"


def test_a_folder_of_parquet_files_with_splits(tmp_path: Path, rng: np.random.Generator) -> None:
    train, test = make(rng, 9), make(rng, 6)
    (tmp_path / "data").mkdir()
    save_parquet(train.take(range(5)), tmp_path / "data" / "train-00000-of-00002.parquet")
    save_parquet(train.take(range(5, 9)), tmp_path / "data" / "train-00001-of-00002.parquet")
    save_parquet(test, tmp_path / "data" / "test-00000-of-00001.parquet")
    dataset = load(tmp_path)
    assert dataset.train is not None
    assert dataset.train.fingerprint == train.fingerprint
    assert dataset.test.fingerprint == test.fingerprint
    save_parquet(test, tmp_path / "data" / "extra.parquet")
    with pytest.raises(UserError, match=r"extra\.parquet lies beside files of named splits"):
        load(tmp_path)


def write_table(path: Path, **columns: Any) -> Path:
    pq.write_table(arrow.table(columns), path)
    return path


@pytest.mark.parametrize("form", ["binary", "struct", "uint8 lists", "int64 lists", "float lists"])
def test_images_in_every_form(tmp_path: Path, rng: np.random.Generator, form: str) -> None:
    pixels = rng.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    column = {
        "binary": [png(image) for image in pixels],
        "struct": [{"bytes": png(image), "path": None} for image in pixels],
        "uint8 lists": arrow.array(pixels.tolist(), arrow.list_(arrow.list_(arrow.list_(arrow.uint8())))),
        "int64 lists": pixels.tolist(),
        "float lists": (pixels / 255).tolist(),
    }[form]
    path = write_table(tmp_path / "a.parquet", img=column, labels=[2, None, 0])
    loaded = load_images(path)
    expected = pixels.transpose(0, 3, 1, 2) / np.float32(255)
    np.testing.assert_allclose(loaded.materialise(), expected, atol=1e-7)
    assert loaded.labels.tolist() == [2, -1, 0]
    assert loaded.class_names == ("0", "1", "2")


def test_class_names_come_from_text_labels_only_where_they_fit(tmp_path: Path) -> None:
    images = [png(np.zeros((4, 4), np.uint8))] * 3
    path = write_table(tmp_path / "a.parquet", image=images, label=[1, 0, 1], text_label=["dog", "cat", "dog"])
    assert load_images(path).class_names == ("cat", "dog")
    write_table(path, image=images, label=[1, 0, 1], text_label=["dog", "cat", "p(dog)=0.6"])
    assert load_images(path).class_names == ("0", "1")
    write_table(path, image=images, label=["dog", "cat", None], flag=[True, False, None])
    loaded = load_images(path)
    assert loaded.class_names == ("cat", "dog")
    assert loaded.labels.tolist() == [1, 0, -1]


def test_sizes_and_bad_cells_in_parquet(tmp_path: Path) -> None:
    grey, colour = np.zeros((4, 4), np.uint8), np.full((6, 8, 3), 255, np.uint8)
    cells = [png(grey), png(colour), png(colour), b"hello", None]
    path = write_table(tmp_path / "a.parquet", image=arrow.array(cells, arrow.binary()))
    with pytest.raises(UserError, match=r"The image at row 3 of .*a\.parquet could not be read"):
        load(path)
    loaded = load_images(path, skip_bad=True)
    assert loaded.shape == (3, 6, 8)
    assert len(loaded) == 3
    assert len(loaded.skipped) == 2
    assert load_images(path, skip_bad=True, size=2, channels=1).materialise().shape == (3, 1, 2, 2)
    write_table(path, image=[None, png(grey)])
    with pytest.raises(UserError, match=r"The image at row 0 of .*a\.parquet is missing"):
        load(path)
    write_table(path, image=[[[1, 2], [3]]])
    with pytest.raises(UserError, match="not a rectangle of pixels"):
        load(path)
    write_table(path, image=[[[1, 2], [3, 400]]])
    with pytest.raises(UserError, match=r"outside 0\.\.255"):
        load(path)


def test_tables_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    image = png(np.zeros((4, 4), np.uint8))
    path = write_table(tmp_path / "a.parquet", picture=[image])
    with pytest.raises(UserError, match="has the columns picture, but none called image"):
        load(path)
    write_table(path, image=[image] * 2, p_label=[[0.5, 0.5], [1.0]])
    with pytest.raises(UserError, match="p_label differ in length"):
        load(path)
    write_table(path, image=[image] * 2, p_label=[[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(UserError, match="Row 1 of the soft labels"):
        load(path)
    write_table(path, image=arrow.array([], arrow.binary()))
    with pytest.raises(UserError, match="No readable image was found"):
        load(path)
    whole = write_table(path, image=[image]).read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(UserError, match="not a complete Parquet file"):
        load(path)
    (tmp_path / "b").mkdir()
    write_table(tmp_path / "b" / "test-1.parquet", image=[image], label=[1])
    write_table(tmp_path / "b" / "test-2.parquet", image=[image], label=["x"])
    with pytest.raises(UserError, match="files beside it differ"):
        load(tmp_path / "b")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path / "a.parquet", image=[b""])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"secondguess\[hub\]"):
        load(path)


def test_a_datasets_object_in_memory(library: Any, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (6, 7, 5), dtype=np.uint8)
    features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["no", "yes"])})
    rows = {"image": [Image.fromarray(p) for p in pixels], "label": [0, 1, -1, 1, 0, 1]}
    dataset = library.Dataset.from_dict(rows, features=features)
    splits = library.DatasetDict({"train": dataset.select([5, 2, 0]), "validation": dataset})
    parts = from_datasets(splits, "owner/name", Options(channels=3))
    assert set(parts) == {"train", "val"}
    train = parts["train"]
    assert train.name == "owner/name/train"
    assert train.class_names == ("no", "yes")
    assert train.labels.tolist() == [1, -1, 0]
    expected = np.repeat(pixels[[5, 2, 0], None], 3, axis=1) / np.float32(255)
    np.testing.assert_array_equal(train.materialise(), expected)
    reference = ImageSet.from_arrays(np.repeat(pixels[:, None], 3, axis=1), layout="NCHW")
    assert parts["val"].content_fingerprint == reference.content_fingerprint


def test_a_data_set_of_the_hub_is_loaded_and_offline_is_reported(
    library: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"The Hugging Face data set 'no/such' could not be loaded \("):
        load("hub:no/such")
    with pytest.raises(UserError, match="no file or folder 'no/such'; for a Hugging Face data set write hub:no/such"):
        load("no/such")
    (tmp_path / "photos" / "test").mkdir(parents=True)
    with pytest.raises(UserError, match=r"There is no data set 'photos/tset' \(did you mean 'photos/test'\?\)"):
        load("photos/tset")
    with pytest.raises(UserError, match=r"no file or folder 'fotos/test' \(did you mean 'photos'\?\); for a Hugging"):
        load("fotos/test")
    image = Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8))
    fake = library.DatasetDict({"test": library.Dataset.from_dict({"image": [image], "label": [0]})})
    monkeypatch.setattr(library, "load_dataset", lambda identifier: fake if identifier == "own/set" else None)
    loaded = load("hub:own/set")
    assert loaded.name == "hub:own/set"
    assert loaded.test.shape == (1, 4, 4)
    with pytest.raises(UserError, match="write hub:own/set"):  # a mistyped path is not asked for on the network
        load("own/set")
