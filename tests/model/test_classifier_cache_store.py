from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.files import draft_mark
from secondguess.model.cache import Cache

KEY = {"what": "trace", "shape": (1, 2), "count": 3}


def store(cache: Cache, key: dict, values: np.ndarray) -> np.ndarray:
    draft = cache.draft(key, values.shape, values.dtype)
    draft.array[:] = values
    return draft.keep()


def test_what_is_kept_is_found_under_its_key_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    values = np.arange(6.0).reshape(3, 2)
    assert cache.get(KEY) is None
    np.testing.assert_array_equal(store(cache, KEY, values), values)
    np.testing.assert_array_equal(cache.get(dict(reversed(KEY.items()))), values)
    assert cache.get(KEY | {"count": 4}) is None
    assert cache.get({"what": "trace"}) is None


def test_nothing_is_found_before_it_is_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    draft = cache.draft(KEY, (2,), np.float32)
    assert cache.get(KEY) is None
    draft.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_later_entry_replaces_an_earlier_one_that_is_still_in_use(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = store(cache, KEY, np.zeros(4))
    second = store(cache, KEY, np.ones(4))
    np.testing.assert_array_equal(first, 0)
    np.testing.assert_array_equal(second, 1)
    np.testing.assert_array_equal(cache.get(KEY), 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_entry_that_vanishes_while_it_is_published_is_still_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    draft = cache.draft(KEY, (4,), np.float64)
    draft.array[:] = 1
    monkeypatch.setattr(type(draft), "_publish", lambda self: self.drop())  # as if another had just removed it
    np.testing.assert_array_equal(draft.keep(), 1)


def test_drafts_of_the_living_are_left_alone(tmp_path: Path) -> None:
    here = draft_mark().split("-")[1]
    kept = {f".draft-{here}-1-of-init", ".draft-strange", ".draft-01234567-999999999-of-another-machine", "draft"}
    for name in (*kept, f".draft-{here}-999999999-dead", f".draft-{here}-999999999-dead-old"):
        (tmp_path / name).mkdir()
    (tmp_path / f".a.npz.draft-{here}-999999999-dead.npz").touch()
    mine = Cache(tmp_path).draft(KEY, (2,), np.float32)
    Cache(tmp_path).draft(KEY, (2,), np.float32).drop()
    left = {path.name for path in tmp_path.iterdir()} - kept
    assert [name.split("-")[:3] for name in left] == [[".draft", here, str(os.getpid())]]
    mine.drop()


def test_what_the_disk_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(100, 100, 2**30))
    with pytest.raises(UserError, match=r"2.0 GiB does not fit into the cache folder .* 1.0 GiB are free"):
        Cache(tmp_path).draft(KEY, (2**28,), np.float64)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(UserError, match="cannot be written to: Permission denied"):
        Cache(tmp_path).draft(KEY, (2,), np.float32)
