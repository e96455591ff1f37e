"""WebDataset archives and object stores: images are read from their place, and nothing else of them is held."""

from __future__ import annotations

import io
import json
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import load
from secondguess.images.remote import stamp
from secondguess.images.sources import ViewSource
from secondguess.images.tars import TarSource

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3), dtype=np.uint8)


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def archive(path, members, mode="w"):
    with tarfile.open(path, mode) as opened:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def examples(rows, label):
    return [pair for row in rows for pair in ((f"a/{row:03}.png", png(PIXELS[row])), label(row))]


@pytest.fixture
def shards(tmp_path):
    def number(row):
        return (f"a/{row:03}.cls", str(row % 3).encode())

    archive(tmp_path / "train-000.tar", examples(range(4), number))
    archive(tmp_path / "train-001.tar", examples(range(4, 8), number))
    archive(tmp_path / "val-000.tar", examples(range(8, 12), number))
    return tmp_path


def test_archives_are_splits_in_order(shards):
    data = load(shards)
    assert (len(data.train), len(data.test)) == (8, 4)
    assert data.train.ids == tuple(f"a/{row:03}" for row in range(8))
    assert data.train.labels.tolist() == [row % 3 for row in range(8)]
    expected = PIXELS.transpose(0, 3, 1, 2) / np.float32(255)
    np.testing.assert_array_equal(data.train.materialise(), expected[:8])
    np.testing.assert_array_equal(data.train.images[np.array([7, 0, 5])], expected[[7, 0, 5]])
    assert load(shards / "train-001.tar").test.ids == tuple(f"a/{row:03}" for row in range(4, 8))


def test_a_part_goes_by_its_place(shards, monkeypatch):
    monkeypatch.chdir(shards)
    images = load("train-000.tar").test.images
    sent = pickle.dumps(ViewSource(images, np.array([3, 1])))
    assert len(sent) < 2000
    monkeypatch.chdir("/")
    part = pickle.loads(sent)  # noqa: S301
    assert isinstance(part, TarSource)
    np.testing.assert_array_equal(part[0:2], images[np.array([3, 1])])


def test_labels_are_names_or_lie_in_json_or_are_missing(tmp_path):
    names = ["cat", "dog", None]

    def named(row):
        return (f"a/{row:03}.json", json.dumps({"label": names[row % 3]}).encode())

    loaded = load(archive(tmp_path / "some.tar", examples(range(6), named))).test
    assert loaded.class_names == ("cat", "dog")
    assert loaded.labels.tolist() == [0, 1, -1, 0, 1, -1]
    assert not load(archive(tmp_path / "bare.tar", [("1.png", png(PIXELS[0]))])).test.is_labelled


def test_an_archive_beside_folders_of_images_is_no_shard(shards):
    for name in ("cat", "dog"):
        (shards / name).mkdir()
        (shards / name / "1.png").write_bytes(png(PIXELS[0]))
    assert load(shards).test.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: archive(path, [("1.png", png(PIXELS[0]))], "w:gz"), "give a plain one, not a compressed one"),
        (lambda path: archive(path, [("1.txt", b"0")]), "There is no image in"),
        (lambda path: archive(path, [("1.json", b"{"), ("1.png", b"")]), "is no label that could be read"),
        (lambda path: archive(path, [("1.png", b"no image")]), r"1 in .*bad\.tar"),
    ],
)
def test_what_is_wrong_with_an_archive_is_said(tmp_path, make, message):
    make(tmp_path / "bad.tar")
    with pytest.raises(UserError, match=message):
        load(tmp_path / "bad.tar")


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_a_url_gives_what_a_path_gives(shards, kind):
    fsspec = pytest.importorskip("fsspec")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if kind == "parquet":
        for file in shards.glob("*.tar"):
            rows = range(4) if "train-000" in file.name else range(4, 8)
            if "train" in file.name:
                cells = [{"bytes": png(PIXELS[row]), "path": f"a/{row:03}"} for row in rows]
                table = arrow.table({"image": cells, "label": [row % 3 for row in rows]})
                parquet.write_table(table, shards / f"{file.stem}.parquet", row_group_size=2)
            file.unlink()
    memory = fsspec.filesystem("memory")
    for file in shards.iterdir():
        memory.pipe(f"/bucket/{kind}/{file.name}", file.read_bytes())
    here, there = load(shards), load(f"memory://bucket/{kind}")
    assert there.test.ids == here.test.ids
    assert there.fingerprint == here.fingerprint
    part = pickle.loads(pickle.dumps(ViewSource(there.test.images, np.array([2]))))  # noqa: S301
    np.testing.assert_array_equal(part[0], here.test.images[2])
    assert load(f"file://{shards}").fingerprint == here.fingerprint
    assert len(part.files) == 1 and stamp(part.files[0])[0] == memory.size(part.files[0])


def test_what_is_wrong_with_a_url_is_said():
    pytest.importorskip("fsspec")
    with pytest.raises(UserError, match=r"There is nothing at memory://nowhere/at/all"):
        load("memory://nowhere/at/all")
    with pytest.raises(UserError, match=r"nosuch://bucket/x\.tar cannot be opened"):
        load("nosuch://bucket/x.tar")


def test_a_bucket_of_s3_gives_what_a_path_gives(shards, s3):
    for file in shards.iterdir():
        s3.put_file(str(file), f"bucket/shards/{file.name}")
    assert load("s3://bucket/shards").fingerprint == load(shards).fingerprint
