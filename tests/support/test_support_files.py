from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from secondguess.errors import UserError
from secondguess.files import atomic_path, make_folder, sync_folder, write_bytes, write_json, write_text


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    write_bytes(tmp_path / "new" / "folder" / "a.bin", b"\x00\xff")
    write_text(tmp_path / "b.txt", "zwölf\n")
    write_json(tmp_path / "c.json", {"name": "Grün", "numbers": [1, 2.5, None]})
    assert (tmp_path / "new" / "folder" / "a.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b.txt").read_bytes() == "zwölf\n".encode()
    assert json.loads((tmp_path / "c.json").read_text("utf-8")) == {"name": "Grün", "numbers": [1, 2.5, None]}
    assert (tmp_path / "c.json").read_text("utf-8").endswith("}\n")
    assert names(tmp_path) == ["b.txt", "c.json", "new"]
    assert names(tmp_path / "new" / "folder") == ["a.bin"]


def test_nothing_is_seen_under_the_name_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt"
    assert path.read_text() == "half"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, UserError])
def test_a_failure_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(UserError, match=r"a.txt could not be written: No space left on device."), atomic_path(path):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UserError, match=r"a.txt could not be written: Is a directory."):
        write_text(tmp_path / "a.txt", "text")
    assert names(tmp_path) == ["a.txt"]


def test_a_name_that_the_file_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"could not be written: File name too long."):
        write_text(tmp_path / ("a" * 300), "text")


def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    write_text(tmp_path / "a.txt", "text")
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask
    assert os.umask(umask) == umask, "the umask itself is left as it was"


@pytest.mark.parametrize("value", [math.nan, math.inf, {"deep": [-math.inf]}])
def test_json_refuses_what_json_has_not(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(tmp_path / "a.json", value)
    assert names(tmp_path) == []


def test_folders(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert make_folder(str(tmp_path / "a" / "b")).is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file, but a folder is needed there; name another folder"):
        make_folder(tmp_path / "file")
    with pytest.raises(UserError, match=r"The folder .*below could not be created: Not a directory."):
        make_folder(tmp_path / "file" / "below")
    sync_folder(tmp_path / "missing")  # where a folder cannot be opened, there is nothing to do
