"""Archives that unpack to too much, and archives that were damaged."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from secondguess.contracts import archives
from secondguess.contracts.archives import load_npz
from secondguess.contracts.sealed import Damaged
from secondguess.errors import UserError
from secondguess.hubris.files import read_predictions
from secondguess.images import load
from secondguess.model.backends.pt2_check import checked_archive
from secondguess.model.convert import convert_checkpoint
from secondguess.search.distance import Distances


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ratios at a size that a test can make."""
    monkeypatch.setattr(archives, "HARMLESS", 1 << 16)


def bomb(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        content = io.BytesIO()
        np.save(content, np.zeros((1 << 12, 16, 16), dtype=np.uint8))
        archive.writestr(name, content.getvalue())


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("name", "member", "opened"),
    [
        ("a.npz", "images.npy", load),
        ("a.npz", "p.npy", read_predictions),
        ("a.npz", "mae.npy", Distances.load),
        ("a.npz", "a.npy", load_npz),
        ("a.pt2", "a/data/weights/weight_0", checked_archive),
        ("a.pth", "a/data/0", convert_checkpoint),
    ],
)
def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, name: str, member: str, opened) -> None:
    bomb(tmp_path / name, member)
    with pytest.raises(UserError, match=r"was not unpacked: its [\d,]+ bytes would become 1,048,\d+"):
        opened(tmp_path / name)


@pytest.mark.usefixtures("strict")
def test_an_idx_file_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "test-images-idx3-ubyte.gz"
    header = struct.pack(">4B3I", 0, 0, 8, 3, 4096, 16, 16)
    path.write_bytes(gzip.compress(header + bytes(4096 * 256)))
    with pytest.raises(UserError, match="was not unpacked"):
        load(tmp_path)
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 4, 16, 16) + bytes(1 << 20)))
    with pytest.raises(UserError, match="holds 1041 bytes, but its header says 1040"):  # read no further than that
        load(tmp_path)


def test_ordinary_compression_is_no_reason(tmp_path: Path) -> None:
    images = np.repeat(np.arange(200, dtype=np.uint8), 100).reshape(200, 10, 10)
    np.savez_compressed(tmp_path / "a.npz", images=images, labels=np.arange(200) % 2)
    assert len(load(tmp_path / "a.npz").test) == 200


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 2)
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 3, 3)), labels=np.arange(2), third=np.arange(2))
    with pytest.raises(UserError, match="was not unpacked: it has 3 entries, more than 2"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_changed_byte_of_arrays_is_noticed(tmp_path: Path, save) -> None:
    path, arrays = tmp_path / "a.npz", {"a": np.arange(9), "b": np.ones(2)}
    save(path, **arrays)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            read = load_npz(path)
        except Damaged:
            continue
        # A damaged directory may hide an array, which its reader misses by name.
        assert all(array.tolist() == arrays[name].tolist() for name, array in read.items())


def test_a_flipped_pixel_in_a_mapped_data_set_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=np.full((20, 8, 8), 7, dtype=np.uint8), labels=np.arange(20) % 2)
    content = bytearray(path.read_bytes())
    place = content.index(bytes([7]) * 64) + 10
    for step in range(50):
        content[place + step] ^= 8
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is not a complete NumPy archive \(Bad CRC-32 .*images"):
        load(path)
