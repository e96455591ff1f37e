"""Folders with links, pipes, and names that are not text."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.images import as_batch, load

Write = Callable[..., np.ndarray]


@pytest.fixture
def pets(tmp_path: Path, write_image: Write) -> Path:
    root = tmp_path / "pets"
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        write_image(root / name)
    return root


def link(path: Path, target: str | Path) -> None:
    path.symlink_to(target)


@pytest.mark.parametrize(
    "links",
    [
        {"cat/loop": ".."},
        {"cat/loop": "..", "dog/loop": ".."},
        {"loop": "."},
        {"cat/loop": "../.."},
        {"cat/dogs": "../dog"},
        {"a": "dog"},
        {"cat/x": "../dog/y", "dog/y": "../cat"},
        {"cat/0.png": "1.png", "cat/9.png": "1.png"},
        {"dog/2.png": "../cat/2.png"},
    ],
)
def test_links_to_what_is_counted_already_are_left_out(pets: Path, links: dict[str, str]) -> None:
    for name, target in links.items():
        link(pets / name, target)
    test = load(pets).test
    assert test.ids == ("cat/1.png", "cat/2.png", "dog/1.png")
    assert test.labels.tolist() == [0, 0, 1]
    assert test.class_names == ("cat", "dog")
    first = min(links)
    assert test.notes == (f"{len(links)} links to what is counted already were left out (such as {first}).",)


def test_links_to_other_places_are_followed_once(pets: Path, tmp_path: Path, write_image: Write) -> None:
    write_image(tmp_path / "store" / "b" / "3.png")
    write_image(tmp_path / "store" / "4.png")
    link(tmp_path / "store" / "again", ".")
    link(pets / "cat" / "4.png", "../../store/4.png")
    link(pets / "cat" / "more", "../../store")
    link(pets / "dog" / "more", "../../store")
    test = load(pets).test
    assert test.ids == ("cat/1.png", "cat/2.png", "cat/more/4.png", "cat/more/b/3.png", "dog/1.png")
    assert test.notes == ("3 links to what is counted already were left out (such as cat/4.png).",)


def test_a_link_out_of_a_split_does_not_bring_the_other_split_in(tmp_path: Path, write_image: Write) -> None:
    for name in ("train/cat/1.png", "train/dog/1.png", "test/cat/2.png", "test/dog/2.png"):
        write_image(tmp_path / "data" / name)
    link(tmp_path / "data" / "train" / "cat" / "up", "../../..")
    link(tmp_path / "data" / "extra", "..")
    data = load(tmp_path / "data")
    assert data.train is not None
    assert (data.train.ids, data.test.ids) == (
        ("train/cat/1.png", "train/dog/1.png"),
        ("test/cat/2.png", "test/dog/2.png"),
    )


def test_a_link_that_leads_nowhere_is_an_image_that_cannot_be_read(pets: Path) -> None:
    link(pets / "cat" / "lost.png", "nowhere.png")
    link(pets / "cat" / "self.png", "self.png")
    with pytest.raises(UserError, match=r"The image at .*(lost|self)\.png could not be read"):
        load(pets)
    assert load(pets, skip_bad=True).test.ids == ("cat/1.png", "cat/2.png", "dog/1.png")


def test_what_is_no_file_is_never_opened(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(pets / "cat" / "pipe.png")
    link(pets / "cat" / "null.png", "/dev/null")
    monkeypatch.chdir(pets / "dog")  # the address of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jpg")
        test = load(pets).test
    assert test.ids == ("cat/1.png", "cat/2.png", "dog/1.png")
    assert test.notes == ("3 things named like images that are no files were left out (such as cat/null.png).",)


@pytest.mark.parametrize("name", ["p.png", "p.npz", "p.parquet", "test-images-idx3-ubyte", "test-images-idx3-ubyte.gz"])
def test_a_pipe_is_refused_wherever_a_file_is_expected(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="There is no image"):
        load(tmp_path)
    with pytest.raises(UserError, match="neither a file nor a folder"):
        load(tmp_path / name)
    with pytest.raises(UserError, match="it is no file"):
        as_batch(tmp_path / name)


def test_a_folder_of_nothing_but_a_pipe_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.png")
    with pytest.raises(UserError, match=r"no image .* 1 things named like images that are no files .*p\.png"):
        load(tmp_path)
