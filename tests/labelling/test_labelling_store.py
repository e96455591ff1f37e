from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from secondguess.database import DatabaseFailed
from secondguess.errors import UserError
from secondguess.labelling.store import Event, Seen, Store

SEEN = Seen("a.png", 2, 0.75)
WRITER = """
import itertools, sys, threading
from pathlib import Path
from secondguess.labelling.store import Event, Seen, Store

store = Store(Path(sys.argv[1]))
lock = threading.Lock()

def write(who):
    for i in itertools.count():
        key = f"{who}-{i}"
        store.append(Event("answered", i, who, (i % 3,), key=key), Seen(f"{i}.png", 0, 0.5))
        with lock:
            print(key, flush=True)

threads = [threading.Thread(target=write, args=(who,)) for who in ("ada", "bob", "eve")]
for thread in threads:
    thread.start()
"""


def test_events_come_back_as_they_went_in(tmp_path: Path) -> None:
    store = Store(tmp_path)
    given = [
        Event("asked", 7, "Ada"),
        Event("answered", 7, "Ada", (2,), key="one"),
        Event("undone", 7, "Ada", key="two"),
        Event("answered", 7, "Ada", (0, 2), key="three"),
        Event("asked", 8, "Bob"),
        Event("answered", 8, "Bob", ()),
        Event("skipped", 9, "Bob"),
    ]
    stored = [store.append(event, Seen(f"{event.image}.png", 1, 0.5)) for event in given]
    store.close()
    store = Store(tmp_path)
    assert store.events() == stored
    assert [event.number for event in stored] == [1, 2, 3, 4, 5, 6, 7]
    fields = [(event.kind, event.image, event.annotator, event.classes, event.key) for event in stored]
    assert fields == [(event.kind, event.image, event.annotator, event.classes, event.key) for event in given]
    assert [event.time for event in stored] == sorted(event.time for event in stored)
    assert stored[0].time.endswith("+00:00")
    assert store.seen() == {7: Seen("7.png", 1, 0.5), 8: Seen("8.png", 1, 0.5), 9: Seen("9.png", 1, 0.5)}
    store.close()


def test_the_same_key_counts_once(store: Store) -> None:
    first = store.append(Event("answered", 3, "Ada", (1,), key="k"), SEEN)
    again = store.append(Event("answered", 3, "Ada", (2,), key="k"), SEEN)
    assert again == first == store.find("k")
    assert store.events() == [first]
    assert store.find("other") is None


def test_an_image_is_remembered_as_it_was_first_seen(store: Store) -> None:
    store.append(Event("asked", 1, "Ada"), SEEN)
    store.append(Event("asked", 1, "Bob"), Seen("b.png", 0, 0.1))
    assert store.seen() == {1: SEEN}


def test_the_name_of_a_file_need_not_be_text(store: Store) -> None:
    name = os.fsdecode(b"ph\xe9to.png")
    store.append(Event("asked", 3, "Ada"), Seen(name, 0, 0.9))
    assert store.seen()[3].id == r"ph\udce9to.png"


def test_an_event_about_an_unknown_image_is_not_half_stored(store: Store) -> None:
    with pytest.raises(DatabaseFailed, match="FOREIGN KEY"):
        store.append(Event("answered", 99, "Ada", (1,)))
    assert store.events() == []
    store.append(Event("answered", 1, "Ada", (1,)), SEEN)
    assert len(store.events()) == 1


def test_threads_may_write_at_once(store: Store) -> None:
    def write(who: str) -> None:
        for i in range(25):
            store.append(Event("answered", i, who, (1,), key=f"{who}{i % 20}"), SEEN)

    threads = [threading.Thread(target=write, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(event.key or "" for event in store.events()) == sorted(
        f"{who}{i}" for who in "abc" for i in range(20)
    )


def test_a_killed_process_loses_no_acknowledged_answer(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(150)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += process.stdout.read().split()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    store = Store(tmp_path)  # the lock went with the process
    kept = {event.key for event in store.events()}
    assert set(acknowledged) <= kept
    assert len(kept) <= len(acknowledged) + 3  # at most what each thread had not yet acknowledged
    assert store.append(Event("answered", 10**6, "Ada", (1,)), SEEN).number == len(kept) + 1
    store.close()
    checked = sqlite3.connect(tmp_path / "labels.sqlite")
    assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    checked.close()


def test_a_second_process_is_refused(tmp_path: Path, store: Store) -> None:
    program = (
        "import sys; from pathlib import Path; from secondguess.labelling.store import Store; Store(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, store.folder], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"UserError: Another process is labelling into {store.folder}; go on in its page" in done.stderr
    with pytest.raises(UserError, match="Another process is labelling"):
        Store(store.folder)
    reader = Store(store.folder, read_only=True)  # looking is allowed
    assert reader.settings == store.settings
    with pytest.raises(DatabaseFailed, match="readonly"):
        reader.append(Event("asked", 1, "Ada"), SEEN)
    reader.close()


def test_other_settings_are_refused(store: Store) -> None:
    store.begin({"classes": ["cat", "dog", "owl"]})
    message = r'were begun with classes \["cat", "dog", "owl"\], not \["cat"\]; go on with that, or name another folder'
    with pytest.raises(UserError, match=message):
        store.begin({"classes": ["cat"]})
    with pytest.raises(UserError, match=r"begun with min_confidence null, not 0\.5"):
        store.agree({"classes": ["cat", "dog", "owl"], "min_confidence": 0.5})


def test_agreeing_writes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.agree({"min_confidence": 0.5})
    assert store.settings == {}
    store.close()


def test_a_file_of_another_format_or_kind_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    base = sqlite3.connect(tmp_path / "labels.sqlite")
    base.execute("PRAGMA user_version = 9")
    base.commit()
    base.close()
    with pytest.raises(UserError, match=r"has format 9, but this version of secondguess reads format 1"):
        Store(tmp_path)
    (tmp_path / "labels.sqlite").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(UserError, match="is not a file of labels"):
        Store(tmp_path)
    (tmp_path / "labels.sqlite").unlink()
    Store(tmp_path).close()  # a refusal leaves no lock behind
    with pytest.raises(UserError, match=r"There are no labels in .*: labels.sqlite is missing"):
        Store(tmp_path / "nowhere", read_only=True)


def test_answers_are_flushed_to_the_disk(store: Store) -> None:
    assert store._base.rows("PRAGMA journal_mode") == [("wal",)]
    assert store._base.rows("PRAGMA synchronous") == [(2,)]  # FULL


def test_without_a_folder_events_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(None)
    store.begin({"classes": ["cat"]})
    told = store.append(Event("answered", 1, "Ada", (0,)), SEEN)
    assert store.events() == [told] and store.settings == {"classes": ["cat"]}
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_not_called_busy(tmp_path: Path) -> None:
    (tmp_path / "labels.lock").mkdir()
    with pytest.raises(UserError, match="Labels cannot be kept in"):
        Store(tmp_path)


def test_several_events_are_stored_together_or_not_at_all(store: Store) -> None:
    store.append(Event("answered", 3, "Ada", (1,)), SEEN)
    with pytest.raises(DatabaseFailed):
        store.append_all([Event("undone", 3, "Ada"), Event("answered", 99, "Ada", (2,))])
    assert [event.kind for event in store.events()] == ["answered"]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for image in range(300):
        store.append(Event("asked", image, "Ada", key=f"key-{image}-{'x' * 40}"), Seen(f"{image}.png", 1, 0.9))
    store.close()
    file = tmp_path / "labels.sqlite"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    file.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(UserError, match=r"labels.sqlite is damaged \(.*\); put a copy in its place"):
            Store(tmp_path, read_only=read_only)
