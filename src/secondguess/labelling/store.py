"""Durable storage of the answers of annotators: one SQLite file, one row per event.

Rows are only ever added. An answer is on disk before `append` returns, a killed process leaves a file that opens as if
it had been closed (see `secondguess.database`), and the state of a session is what its events say, read from the first
to the last. An event may carry the key of the request that caused it: the same key twice is one event, so a
browser that does not know whether a request arrived can send it again.

One process at a time may write to a folder. The lock is an open transaction on a second, empty SQLite file, which the
operating system releases when the process ends, however it ends; readers need no lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from secondguess.database import DatabaseFailed, Sqlite, storable
from secondguess.errors import UserError
from secondguess.files import make_folder

__all__ = ["Event", "Kind", "Seen", "Store"]

Kind = Literal["asked", "answered", "skipped", "undone"]
VERSION = 1
FILE, LOCK = "labels.sqlite", "labels.lock"
SCHEMA = (
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE images (
  image INTEGER PRIMARY KEY,      -- its position in the set of images
  id TEXT NOT NULL,               -- its file name, say
  predicted INTEGER NOT NULL,     -- the class that the model said
  confidence REAL NOT NULL
)""",
    """CREATE TABLE events (
  number INTEGER PRIMARY KEY,     -- events happened in this order
  kind TEXT NOT NULL CHECK (kind IN ('asked', 'answered', 'skipped', 'undone')),
  image INTEGER NOT NULL REFERENCES images (image),
  annotator TEXT NOT NULL,
  time TEXT NOT NULL,             -- UTC, ISO 8601
  classes TEXT,                   -- of an answer, a JSON list: one class, several if ambiguous, none if invalid
  key TEXT UNIQUE                 -- of the request, so that it counts once
)""",
    f"PRAGMA user_version = {VERSION}",
)


@dataclass(frozen=True)
class Event:
    """Something that happened in a session.

    Attributes:
        kind: an image was asked about, answered, skipped, or its answer or skip was undone.
        image: position of the image in its set.
        annotator: who caused it.
        classes: of an answer: one class, several where the image is ambiguous, none where it is invalid.
        time: UTC, ISO 8601; set by the store.
        key: identifies the request, or None.
        number: place among all events, from 1; set by the store.
    """

    kind: Kind
    image: int
    annotator: str
    classes: tuple[int, ...] | None = None
    time: str = ""
    key: str | None = None
    number: int = 0


@dataclass(frozen=True)
class Seen:
    """What is stored of an image: its id, the model's answer and the confidence of that."""

    id: str
    predicted: int
    confidence: float


class Store:
    """The events of one labelling session, in a folder.

    Args:
        folder: where `labels.sqlite` lies or will lie; None keeps events in memory only.
        read_only: read what exists, even while another process labels; nothing can be added.
    """

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.path = None if folder is None else folder / FILE
        if read_only and not (self.path is not None and self.path.is_file()):
            raise UserError(
                f"There are no labels in {folder}: {FILE} is missing; name the folder of a labelling session."
            )
        self._lock = None if read_only or folder is None else _locked(make_folder(folder))
        try:
            self._base = Sqlite(self.path, read_only=read_only, holds="labels")
            self._check_format(read_only)
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Merge the log into the file and release the folder."""
        self._base.close()
        self._release()

    @property
    def settings(self) -> dict[str, Any]:
        """What the session was begun with; empty before `begin`."""
        rows = self._base.rows("SELECT key, value FROM settings")
        return {key: json.loads(value) for key, value in rows}

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Make sure that the labels in the folder, if there are any, are about the same model, images and so on.

        Args:
            settings: values that JSON can hold; events mean nothing under other ones.
        """
        known, given = self.settings, json.loads(json.dumps(dict(settings)))
        for key in dict.fromkeys([*given, *known]) if known else ():
            if given.get(key) != known.get(key):
                raise UserError(
                    f"The labels in {self.folder} were begun with {key} {_short(known.get(key))}, not "
                    f"{_short(given.get(key))}; go on with that, or name another folder."
                )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store what the session is about, or check that it is the same."""
        self.agree(settings)
        if not self.settings:
            rows = [(key, json.dumps(value)) for key, value in settings.items()]
            with self._base.transaction():
                self._base.run_many("INSERT INTO settings VALUES (?, ?)", rows)

    def append(self, event: Event, seen: Seen | None = None) -> Event:
        """Add an event; it is on disk when this returns.

        Args:
            event: its time and number are set here.
            seen: what to store of the image, the first time that it is asked about.

        Returns:
            The event as stored. Where the key is known already, the old event: nothing is added.
        """
        with self._base.transaction():
            return self._append(event, seen)

    def append_all(self, events: Sequence[Event]) -> list[Event]:
        """Add several events about images that were asked about, all of them or none."""
        with self._base.transaction():
            return [self._append(event, None) for event in events]

    def _append(self, event: Event, seen: Seen | None) -> Event:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        classes = None if event.classes is None else json.dumps(list(event.classes))
        if event.key is not None and (old := self.find(event.key)) is not None:
            return old
        if seen is not None:
            row = (event.image, storable(seen.id), seen.predicted, seen.confidence)
            self._base.run("INSERT OR IGNORE INTO images VALUES (?, ?, ?, ?)", row)
        self._base.run(
            "INSERT INTO events (kind, image, annotator, time, classes, key) VALUES (?, ?, ?, ?, ?, ?)",
            (event.kind, event.image, event.annotator, now, classes, event.key),
        )
        ((number,),) = self._base.rows("SELECT last_insert_rowid()")
        return Event(event.kind, event.image, event.annotator, event.classes, now, event.key, int(number))

    def find(self, key: str) -> Event | None:
        """The event of the request with this key."""
        return next(iter(self._events("WHERE key = ?", (key,))), None)

    def events(self) -> list[Event]:
        """All events, in the order in which they happened."""
        return self._events()

    def seen(self) -> dict[int, Seen]:
        """What is stored of every image that was asked about."""
        rows = self._base.rows("SELECT image, id, predicted, confidence FROM images ORDER BY image")
        return {image: Seen(name, predicted, confidence) for image, name, predicted, confidence in rows}

    def _events(self, where: str = "", values: Sequence[object] = ()) -> list[Event]:
        query = f"SELECT kind, image, annotator, classes, time, key, number FROM events {where} ORDER BY number"
        rows = self._base.rows(query, values)
        return [
            Event(kind, image, annotator, None if classes is None else tuple(json.loads(classes)), time, key, number)
            for kind, image, annotator, classes, time, key, number in rows
        ]

    def _check_format(self, read_only: bool) -> None:
        try:
            self._check_sound()
            ((version,),) = self._base.rows("PRAGMA user_version")
            if version == 0 and not read_only:
                with self._base.transaction():
                    for statement in SCHEMA:
                        self._base.run(statement)
            elif version != VERSION:
                raise UserError(
                    f"{self.path} has format {version}, but this version of secondguess reads format {VERSION}; "
                    "use the version that wrote it, or name another folder."
                )
        except BaseException:
            self._base.close()
            raise

    def _check_sound(self) -> None:
        """Raise a `UserError` if the file is damaged: answers would be missing, or others than were given."""
        try:
            found = [row[0] for row in self._base.rows("PRAGMA integrity_check(1)")]
        except DatabaseFailed as error:
            found = [str(error)]
        if found != ["ok"]:
            raise UserError(
                f"{self.path} is damaged ({found[0].splitlines()[0]}); put a copy in its place, or take out what can "
                "be read with `sqlite3 FILE .recover`."
            )

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()


def _locked(folder: Path) -> sqlite3.Connection:
    """An open transaction that keeps other processes out of the folder until the connection is closed."""
    lock = None
    try:
        lock = sqlite3.connect(folder / LOCK, isolation_level=None, timeout=0, check_same_thread=False)
        lock.execute("PRAGMA journal_mode = MEMORY")  # there is nothing to recover
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if lock is not None:
            lock.close()
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
            raise UserError(
                f"Labels cannot be kept in {folder} ({error}); make room, or name another folder."
            ) from error
        raise UserError(
            f"Another process is labelling into {folder}; go on in its page, stop it, or name another folder."
        ) from error
    return lock


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
