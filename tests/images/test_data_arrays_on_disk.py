from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.images import ImageSet, load, load_images, save_npz
from secondguess.images.sources import ArraySource, ViewSource


def base_array(image_set: ImageSet) -> np.ndarray:
    source = image_set.images
    if isinstance(source, ViewSource):
        source = source._source
    assert isinstance(source, ArraySource)
    return source._array


def idx_bytes(array: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    return magic + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x_train": rng.integers(0, 256, (20, 7, 6), dtype=np.uint8),
        "y_train": (np.arange(20) % 4).astype(np.uint8),
        "x_test": rng.integers(0, 256, (9, 7, 6), dtype=np.uint8),
        "y_test": (np.arange(9) % 3).astype(np.uint8),
    }


def write_idx(folder: Path, arrays: dict[str, np.ndarray], zipped: bool) -> Path:
    folder.mkdir(exist_ok=True)
    names = {"train": "train", "test": "t10k"}
    for key, array in arrays.items():
        kind, split = ("images-idx3", key[2:]) if key[0] == "x" else ("labels-idx1", key[2:])
        data = idx_bytes(array)
        name = f"{names[split]}-{kind}-ubyte" + (".gz" if zipped else "")
        (folder / name).write_bytes(gzip.compress(data) if zipped else data)
    return folder


@pytest.mark.parametrize("kind", ["stored", "compressed", "idx", "idx.gz", "medmnist"])
def test_the_same_arrays_from_every_format(tmp_path: Path, arrays: dict[str, np.ndarray], kind: str) -> None:
    path = tmp_path / "set.npz"
    if kind == "stored":
        np.savez(path, **arrays)
    elif kind == "compressed":
        np.savez_compressed(path, **arrays)
    elif kind == "medmnist":
        renamed = {
            "train_images": arrays["x_train"],
            "train_labels": arrays["y_train"][:, None],
            "test_images": arrays["x_test"],
            "test_labels": arrays["y_test"][:, None],
        }
        np.savez(path, **renamed)
    else:
        path = write_idx(tmp_path / "set", arrays, kind == "idx.gz")
    dataset = load(path)
    assert dataset.train is not None
    assert dataset.class_names == ("0", "1", "2", "3"), "the classes of both splits count"
    for part, split in ((dataset.train, "train"), (dataset.test, "test")):
        np.testing.assert_array_equal(part.materialise()[:, 0], arrays[f"x_{split}"] / np.float32(255))
        np.testing.assert_array_equal(part.labels, arrays[f"y_{split}"])
        assert isinstance(base_array(part), np.memmap) == (kind in ("stored", "idx", "medmnist"))
        reference = ImageSet.from_arrays(arrays[f"x_{split}"])
        assert part.content_fingerprint == reference.content_fingerprint


class CountingArray(np.ndarray):
    """An array that adds up how many images its readers took."""

    read: list[int]

    def __getitem__(self, key: object) -> np.ndarray:
        got = np.asarray(self)[key]  # type: ignore[index]
        CountingArray.read.append(len(got))
        return got


def test_batches_of_a_mapped_set_read_only_what_they_need(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "a.npz", images=arrays["x_train"])
    mapped = base_array(load_images(tmp_path / "a.npz"))
    assert isinstance(mapped, np.memmap)
    assert mapped.filename == tmp_path / "a.npz"
    CountingArray.read = []
    image_set = ImageSet.from_arrays(mapped.view(CountingArray))
    batches = image_set.batches(6)
    next(batches)
    assert CountingArray.read == [6]
    next(batches)
    image_set.take([3, 17]).materialise()
    assert CountingArray.read == [6, 6, 2]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_array_in_either_memory_order(tmp_path: Path, rng: np.random.Generator, order: str) -> None:
    images = np.asarray(rng.random((5, 6, 7, 3)), order=order, dtype=np.float32)  # type: ignore[call-overload]
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(5))
    loaded = load_images(tmp_path / "a.npz")
    assert isinstance(base_array(loaded), np.memmap)
    np.testing.assert_array_equal(loaded.materialise(), images.transpose(0, 3, 1, 2))


def test_soft_labels_names_ids_and_columns_of_an_archive(tmp_path: Path, rng: np.random.Generator) -> None:
    soft = rng.dirichlet([1, 1, 1], 6)
    np.savez(
        tmp_path / "ambiguous.npz",
        image=np.zeros((6, 4, 4), np.uint8),
        label=np.arange(6) % 3,
        p_label=soft,
        is_ambiguous=np.array([1, 0, 1, 0, 0, 1], bool),
        class_names=np.array(["a", "b", "c"]),
        id=np.array([f"n{i}" for i in range(6)]),
        strength=np.arange(6.0),
        meta=np.array("free text"),
    )
    loaded = load_images(tmp_path / "ambiguous.npz")
    assert loaded.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(loaded.soft_labels, soft)
    assert loaded.is_ambiguous is not None
    assert loaded.is_ambiguous.tolist() == [True, False, True, False, False, True]
    assert loaded.ids == ("n0", "n1", "n2", "n3", "n4", "n5")
    assert list(loaded.columns) == ["strength"]


def test_validation_is_the_test_set_only_where_there_is_none(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    x, y = arrays["x_train"], arrays["y_train"]
    np.savez(tmp_path / "v.npz", x_train=x, y_train=y, x_val=x[:5], y_val=y[:5])
    assert len(load(tmp_path / "v.npz").test) == 5
    np.savez(tmp_path / "v.npz", x_train=x, y_train=y, x_val=x[:5], y_val=y[:5], x_test=x[:7], y_test=y[:7])
    assert len(load(tmp_path / "v.npz").test) == 7
    assert len(load(tmp_path / "v.npz", split="validation").test) == 5
    np.savez(tmp_path / "v.npz", x_train=x)
    only = load(tmp_path / "v.npz")
    assert only.train is None
    assert len(only.test) == 20
    assert not only.test.is_labelled


def test_string_labels_of_both_splits_share_the_classes(tmp_path: Path) -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    np.savez(tmp_path / "s.npz", x_train=images, y_train=["cat", "dog"], x_test=images, y_test=["cow", "cat"])
    dataset = load(tmp_path / "s.npz")
    assert dataset.class_names == ("cat", "cow", "dog")
    assert dataset.test.labels.tolist() == [1, 0]


@pytest.mark.parametrize("as_float", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_save_npz_and_load_give_the_same_set(
    tmp_path: Path, rng: np.random.Generator, as_float: bool, channels: int
) -> None:
    images = rng.integers(0, 256, (7, channels, 5, 6), dtype=np.uint8)
    original = ImageSet.from_arrays(
        rng.random(images.shape, dtype=np.float32) if as_float else images,
        np.array([0, 1, -1, 0, 1, 0, 1]),
        class_names=["é", "b"],
        layout="NCHW",
        soft_labels=rng.dirichlet([1, 1], 7),
        is_ambiguous=rng.random(7) < 0.5,
        ids=[f"{i}.png" for i in range(7)],
        columns={"kind": np.array(list("abcabca")), "level": rng.random(7)},
    )
    save_npz(original, tmp_path / "deep" / "set.npz")
    loaded = load_images(tmp_path / "deep" / "set.npz")
    assert base_array(loaded).dtype == (np.float32 if as_float else np.uint8)
    assert isinstance(base_array(loaded), np.memmap)
    assert loaded.fingerprint == original.fingerprint
    np.testing.assert_array_equal(loaded.is_ambiguous, original.is_ambiguous)
    assert loaded.ids == original.ids
    np.testing.assert_array_equal(loaded.columns["kind"], original.columns["kind"])
    np.testing.assert_array_equal(loaded.columns["level"], original.columns["level"])
    with np.load(tmp_path / "deep" / "set.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["label"], original.labels)
    first = (tmp_path / "deep" / "set.npz").read_bytes()
    save_npz(original, tmp_path / "deep" / "set.npz")
    assert (tmp_path / "deep" / "set.npz").read_bytes() == first
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["set.npz"], "nothing temporary is left"


def test_what_cannot_be_saved_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    grey = np.zeros((2, 4, 4), np.uint8)
    path = tmp_path / "set.npz"
    path.write_bytes(b"old")
    bad = {
        "holds Python objects": ImageSet.from_arrays(grey, columns={"c": np.array([{}, {}])}),
        "'label' cannot be saved": ImageSet.from_arrays(grey, columns={"label": np.zeros(2)}),
        "2 channels cannot be saved": ImageSet.from_arrays(np.zeros((2, 2, 4, 4), np.uint8), layout="NCHW"),
    }
    for message, image_set in bad.items():
        with pytest.raises(UserError, match=message):
            save_npz(image_set, path)
    with pytest.raises(UserError, match=r"should end in \.npz"):
        save_npz(ImageSet.from_arrays(grey), tmp_path / "set.npy")
    assert path.read_bytes() == b"old"


def test_damaged_and_foreign_archives_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"'images' in .*a\.npz holds Python objects, which are never unpickled"):
        load(path)
    np.savez(path, pictures=arrays["x_test"])
    with pytest.raises(UserError, match="holds pictures, but x_test and y_test"):
        load(path)
    np.savez(path, **arrays)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a complete NumPy archive"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="not a complete NumPy archive"):
        load(path)
    np.savez_compressed(path, **arrays)
    broken = bytearray(path.read_bytes())
    broken[200:260] = bytes(60)
    path.write_bytes(broken)
    with pytest.raises(UserError, match="not a complete NumPy archive"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        header = str({"descr": "|u1", "fortran_order": False, "shape": (99, 9, 9)}).ljust(117) + "\n"
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + b"short")
    with pytest.raises(UserError, match="should hold 8019 bytes but holds 5"):
        load(path)


def test_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 5, 1], class_names=["a", "b"])
    with pytest.raises(UserError, match="run from 0 to 5, but with 2 classes"):
        load(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 1])
    with pytest.raises(UserError, match="3 images but labels"):
        load(tmp_path / "a.npz")


def test_idx_without_labels_and_beside_its_gzipped_copy(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    folder = write_idx(tmp_path / "mnist", {"x_test": arrays["x_test"]}, zipped=False)
    assert not load_images(folder).is_labelled
    write_idx(folder, {"x_test": arrays["x_test"]}, zipped=True)
    assert isinstance(base_array(load_images(folder)), np.memmap)
    (folder / "other-test-images-idx3-ubyte").write_bytes(idx_bytes(arrays["x_test"]))
    with pytest.raises(UserError, match="hold the same split"):
        load(folder)


@pytest.mark.parametrize("zipped", [False, True])
def test_damaged_idx_files_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], zipped: bool) -> None:
    good = idx_bytes(arrays["x_test"])
    path = tmp_path / ("t10k-images-idx3-ubyte" + (".gz" if zipped else ""))

    def write(data: bytes) -> None:
        path.write_bytes(gzip.compress(data) if zipped else data)

    for data, message in (
        (idx_bytes(arrays["x_test"], b"\0\0\x0d"), "00 00 0d 03, which is not an IDX file"),
        (b"", "not an IDX file"),
        (good[:9], "truncated within its header"),
        (good[:-1], "holds 393 bytes, but its header says 394"),
        (good + b"x", "holds 395 bytes"),
    ):
        write(data)
        with pytest.raises(UserError, match=message):
            load(tmp_path)


def test_a_cut_gzip_file_and_missing_images_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    data = gzip.compress(idx_bytes(arrays["x_test"]))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(data[:-9])
    with pytest.raises(UserError, match="not a complete gzip file"):
        load(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(arrays["y_test"]))
    with pytest.raises(UserError, match="IDX labels but no images"):
        load(tmp_path)
