"""Folders of image files in object stores: what `load` makes of a URL is what it makes of the same folder here.

The stores are fsspec's memory and a real S3 server (moto's) on this machine.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import load
from secondguess.images.decode import BadImage
from secondguess.images.encoded import FETCHED, HEAD, FileSource
from secondguess.images.sources import ViewSource

fsspec = pytest.importorskip("fsspec", reason="NO TEST OF OBJECT STORES: pip install secondguess[remote]")
Write = Callable[..., np.ndarray]

CLASSES = ("cat/1.png", "cat/2.PNG", "cat/deep/x.png", "dog/b.png")
TREES = {
    "classes": (*CLASSES, "cat/readme.txt", "cat/.hidden.png", ".git/1.png"),
    "splits": tuple(f"{split}/{name}" for split in ("train", "val") for name in CLASSES),
    "flat": ("3.png", "1.png", "2.png"),
    "a class called train": ("bus/1.png", "train/1.png"),
    "names in an odd order": ("a b/1.png", "a/b.png", "a/b/c.png", "a-b/1.png"),
    "odd names": ("[1] *.png", "größe #1%20.png", "{x}?.png"),
}
MODEL = """
import = "tiny_models:TinyCNN"
weights = "weights.safetensors"

[input]
size = [8, 8]
channels = 1

[output]
kind = "logits"
"""


@dataclass
class Remote:
    """A store with the files of a folder put into it."""

    system: object
    url: str

    def put(self, folder: Path) -> str:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.pipe(file.relative_to(folder).as_posix(), file.read_bytes())
        return self.url

    def pipe(self, name: str, content: bytes) -> None:
        self.system.pipe_file(self.at(name), content)  # type: ignore[attr-defined]

    def at(self, name: str) -> str:
        return f"{self.url.partition('://')[2]}/{name}"


@pytest.fixture(params=["memory", "s3"])
def remote(request: pytest.FixtureRequest) -> Iterator[Remote]:
    system = fsspec.filesystem("memory") if request.param == "memory" else request.getfixturevalue("s3")
    store = Remote(system, f"{request.param}://bucket/{uuid4().hex}")
    yield store
    if system.exists(store.at("")):
        system.rm(store.at("").rstrip("/"), recursive=True)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """What is read of the memory's files: their names, and where reading ends."""
    from fsspec.implementations.memory import MemoryFileSystem

    found: list[tuple[str, int | None]] = []
    bare = MemoryFileSystem.cat_file

    def noted(self, path, start=None, end=None, **options):
        found.append((path.rpartition("/")[2], end))
        return bare(self, path, start, end, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", noted)
    return found


@pytest.mark.parametrize("tree", TREES)
def test_a_url_gives_what_the_folder_gives(tmp_path: Path, write_image: Write, remote: Remote, tree: str) -> None:
    for number, name in enumerate(TREES[tree]):
        if name.endswith(".txt"):
            (tmp_path / name).write_text("not an image")
        else:
            write_image(tmp_path / name, (6, 8, 3) if number else (5, 8))
    here, there = load(tmp_path), load(remote.put(tmp_path) + "/")
    assert there.fingerprint == here.fingerprint
    assert there.splits.keys() == here.splits.keys()
    for split, part in here.splits.items():
        for name in ("ids", "class_names", "notes", "shape"):
            assert getattr(there.splits[split], name) == getattr(part, name)
        assert there.splits[split].labels.tolist() == part.labels.tolist()
        assert there.splits[split].name.startswith(remote.url)


def test_folders_that_exist_as_empty_objects_only(tmp_path: Path, write_image: Write, s3: object) -> None:
    store = Remote(s3, "s3://bucket/marked")
    write_image(tmp_path / "cat" / "1.png")
    store.put(tmp_path)
    for name in ("", "cat/"):
        store.pipe(name, b"")  # as the console of AWS makes a folder
    assert load(store.url).test.ids == ("cat/1.png",)
    store.pipe("dog/", b"")
    with pytest.raises(UserError, match=r"class folder s3://bucket/marked/dog holds no image"):
        load(store.url)


def test_what_makes_no_sense_is_said_with_its_url(tmp_path: Path, write_image: Write, remote: Remote) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(UserError, match=rf"There is no image \(.png, .*\) in the folder {remote.url}"):
        load(remote.put(tmp_path))
    write_image(tmp_path / "cat" / "1.png")
    write_image(tmp_path / "loose.png")
    with pytest.raises(UserError, match=r"both images \(such as loose.png\) and class folders \(such as cat\)"):
        load(remote.put(tmp_path))
    with pytest.raises(UserError, match=r"There is nothing at .*nowhere|no folder with anything in it at .*nowhere"):
        load(f"{remote.url}/nowhere")
    with pytest.raises(UserError, match=r"There is no folder with anything in it at .*loose\.png"):
        load(f"{remote.url}/loose.png")


def test_bad_images_are_named_or_left_out(tmp_path: Path, write_image: Write, remote: Remote) -> None:
    for name in ("cat/1.png", "cat/3.png", "dog/1.png"):
        write_image(tmp_path / name)
    (tmp_path / "cat/2.png").write_bytes(b"no image")
    (tmp_path / "dog/0.png").write_bytes(b"")
    url = remote.put(tmp_path)
    with pytest.raises(BadImage, match=rf"The image at {remote.url}/cat/2\.png could not be read .*--skip-bad"):
        load(url)
    here, there = load(tmp_path, skip_bad=True), load(url, skip_bad=True)
    assert there.skipped == tuple(f"{url}/{name}" for name in ("cat/2.png", "dog/0.png"))
    assert (there.fingerprint, there.test.ids) == (here.fingerprint, here.test.ids)
    remote.system.rm_file(remote.at("cat/3.png"))  # type: ignore[attr-defined]
    with pytest.raises(BadImage, match=r"cat/3\.png is missing"):
        there.test.materialise()


def test_a_store_that_fails_is_no_bad_image(
    tmp_path: Path, write_image: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    for number in range(3):
        write_image(tmp_path / f"{number}.png")
    url = Remote(fsspec.filesystem("memory"), "memory://failing").put(tmp_path)

    def refused(self, path, *others, **options):
        raise PermissionError("The token has expired")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", refused)
    with pytest.raises(UserError, match=r"0\.png cannot be opened \(The token has expired\)") as caught:
        load(url, skip_bad=True)
    assert not isinstance(caught.value, BadImage)


def test_only_what_is_needed_is_fetched(tmp_path: Path, fetched: list[tuple[str, int | None]]) -> None:
    store = Remote(fsspec.filesystem("memory"), "memory://needed")
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    for number in range(3 * FETCHED):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG" if number else "WEBP", lossless=True)
        assert len(file.getvalue()) > HEAD
        store.pipe(f"{number:03}.{'png' if number else 'webp'}", file.getvalue())
    images = load(store.url).test.images
    # Pillow wants all of a WebP file for its header.
    assert [name for name, end in fetched if end is None] == ["000.webp"]
    assert len(fetched) == 3 * FETCHED + 1 and {end for _, end in fetched} == {None, HEAD}
    fetched.clear()
    np.testing.assert_array_equal(images[5], pixels.transpose(2, 0, 1) / np.float32(255))
    assert fetched == [("005.png", None)]
    fetched.clear()
    assert isinstance(images, FileSource)
    cells = images.cells(np.arange(len(images)))
    next(cells)
    cells.close()  # type: ignore[attr-defined]
    assert len(fetched) <= 2 * FETCHED


def test_a_part_goes_by_its_url_and_is_known_by_its_stamps(
    tmp_path: Path, write_image: Write, remote: Remote, fetched: list[tuple[str, int | None]]
) -> None:
    for number in range(4):
        write_image(tmp_path / f"cat/{number}.png")
    images = load(remote.put(tmp_path)).test.images
    sent = pickle.dumps(ViewSource(images, np.array([3, 1])))
    assert len(sent) < 1000
    part = pickle.loads(sent)  # noqa: S301
    assert isinstance(part, FileSource)
    np.testing.assert_array_equal(part[0:2], images[np.array([3, 1])])
    before = dict(part.stamps())
    assert list(before) == [f"{remote.url}/cat/3.png", f"{remote.url}/cat/1.png"]
    fetched.clear()
    assert dict(load(remote.url, size=(6, 8), channels=3).test.images.stamps()).items() >= before.items()
    assert not fetched  # names and stamps are listed, the size is given
    write_image(tmp_path / "cat/1.png", (6, 8))
    after = dict(load(remote.put(tmp_path)).test.images.stamps())
    assert after[f"{remote.url}/cat/1.png"] != before[f"{remote.url}/cat/1.png"]


def test_a_command_on_two_processes_reads_a_bucket(
    tmp_path: Path, s3: object, run: Callable[..., Any], make_cnn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file

    save_file(make_cnn().state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "model.toml").write_text(MODEL)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    for number, image in enumerate(pixels):
        file = tmp_path / "photos" / "abc"[number % 3] / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    url = Remote(s3, "s3://bucket/photos").put(tmp_path / "photos")
    words = "audit", "--model", tmp_path / "model.toml", "--supervisors", "max_softmax", "--sections", "accuracy,risk"
    words = *words, "--stress", "corrupted:brightness", "--full", "--batch-size", "8", "--device", "cpu", "--quiet"
    numbers = []
    for place, engine in ((tmp_path / "photos", "local"), (url, "local:2")):
        done = run(*words, "--test", place, "--engine", engine, "--out", engine.replace(":", "-"))
        assert done.code == 0, done.err
        found = json.loads(Path(engine.replace(":", "-"), "audit.json").read_text("utf-8"))["numbers"]
        numbers.append({name: value for name, value in found.items() if not name.endswith("seconds")})
    assert len(numbers[0]) > 5 and numbers[0] == numbers[1]
