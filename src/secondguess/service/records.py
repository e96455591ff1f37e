"""Records of the service's judgements, written before they are answered: one row per image.

Rows are only ever added, a micro-batch at a time, in one transaction. Every row belongs to the guard that judged it:
a service that is started with another guard, or with the same one calibrated anew, begins a new period, since alarm
rates are only comparable within one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.database import DatabaseFailed, open_database, public_name, storable
from secondguess.errors import UserError

__all__ = ["Period", "Record", "RecordedAlarms", "Records"]

VERSION = 1
SCHEMA = (
    "CREATE TABLE secondguess_format (version INTEGER NOT NULL)",
    f"INSERT INTO secondguess_format VALUES ({VERSION})",
    "CREATE TABLE secondguess_guards (id {identity}, begun BIGINT NOT NULL, card TEXT NOT NULL)",
    """CREATE TABLE secondguess_records (
      number {identity},
      guard BIGINT NOT NULL REFERENCES secondguess_guards (id),
      time BIGINT NOT NULL,
      request TEXT NOT NULL,
      pixels TEXT NOT NULL,
      prediction INTEGER NOT NULL,
      label TEXT NOT NULL,
      confidence DOUBLE PRECISION NOT NULL,
      p_value DOUBLE PRECISION NOT NULL,
      verdict TEXT NOT NULL,
      action TEXT NOT NULL,
      alarm INTEGER NOT NULL,
      likeliest TEXT NOT NULL,
      thumbnail {bytes}
    )""",
    "CREATE INDEX secondguess_by_time ON secondguess_records (guard, time)",
    "CREATE INDEX secondguess_by_alarm ON secondguess_records (guard, alarm, number)",
)


@dataclass(frozen=True)
class Record:
    """The judgement of one image.

    Attributes:
        time: milliseconds since 1970, UTC.
        request: the id that the answer carries; the images of one request share it.
        pixels: a digest of the image as the model saw it.
        prediction: the class, by number.
        label: its name.
        confidence: its probability.
        p_value: how unusual the image is among nominal ones.
        verdict: in words, `nominal` where there was no alarm.
        action: what follows from it.
        alarm: 1 or 0.
        likeliest: the most probable classes, JSON: `[[name, probability], ...]`.
        thumbnail: a small PNG, where one is kept.
    """

    time: int
    request: str
    pixels: str
    prediction: int
    label: str
    confidence: float
    p_value: float
    verdict: str
    action: str
    alarm: int
    likeliest: str = "[]"
    thumbnail: bytes | None = None


@dataclass(frozen=True)
class Period:
    """The period during which one guard served.

    Attributes:
        id: of the period.
        begun: milliseconds since 1970, UTC.
        card: the description of the guard: see `service.subject.card`.
    """

    id: int
    begun: int
    card: dict[str, Any]


@dataclass(frozen=True)
class RecordedAlarms:
    """Rows of a period as arrays (n,), in the order in which they were recorded."""

    numbers: NDArray[np.int64]
    times: NDArray[np.int64]
    alarms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)


COLUMNS = ", ".join(field.name for field in fields(Record))
SHOWN = ", ".join(field.name for field in fields(Record) if field.name != "thumbnail")
INSERT = f"INSERT INTO secondguess_records (guard, {COLUMNS}) VALUES ({', '.join('?' * (len(fields(Record)) + 1))})"


class Records:
    """The records of a service.

    Args:
        where: an SQLite file, or the URL of a PostgreSQL database.
        read_only: open for reading only; the records must exist.
    """

    def __init__(self, where: str, *, read_only: bool = False) -> None:
        self.where = where
        self._base = open_database(where, read_only=read_only)
        self._period: int | None = None
        self._card: Mapping[str, Any] = {}
        self._is_empty = False  # a file that was just begun, until it has its tables
        try:
            self._check_format(read_only)
        except BaseException:
            self._base.close()
            raise

    def begin(self, card: Mapping[str, Any]) -> int:
        """Begin a period for a guard, or continue the last one if it has the same card; return its id."""
        self._card = card
        text = storable(json.dumps(dict(card), sort_keys=True, ensure_ascii=False))
        with self._base.transaction():
            last = self._base.rows("SELECT id, card FROM secondguess_guards ORDER BY id DESC LIMIT 1")
            if not last or last[0][1] != text:
                now = int(1000 * time.time())
                self._base.run("INSERT INTO secondguess_guards (begun, card) VALUES (?, ?)", (now, text))
                last = self._base.rows("SELECT id, card FROM secondguess_guards ORDER BY id DESC LIMIT 1")
        self._period = int(last[0][0])
        return self._period

    def append(self, records: Sequence[Record]) -> None:
        """Add rows; they are on disk when this returns, all of them, or none if it raises `DatabaseFailed`."""
        if self._period is None:
            raise ValueError("call begin first: every record belongs to a guard")
        self._prepare()
        with self._base.transaction():
            self._base.run_many(INSERT, [(self._period, *astuple(one)) for one in records])

    def try_to_write(self) -> None:
        """Write what is there already; raises `DatabaseFailed` where records could not be written either."""
        self._prepare()
        with self._base.transaction():
            self._base.run("UPDATE secondguess_format SET version = version")

    def rotate(self) -> Path:
        """Put the file aside under a name with the time, go on in an empty one, and return that name."""
        aside = self._base.put_aside()
        self._is_empty = True
        self._prepare()
        return aside

    @property
    def identity(self) -> object:
        """Something that differs once the records have been rotated."""
        return self._base.identity

    def close(self) -> None:
        """Close the database."""
        self._base.close()

    def periods(self) -> list[Period]:
        """The periods of all guards that have served, the latest last."""
        rows = self._base.rows("SELECT id, begun, card FROM secondguess_guards ORDER BY id")
        return [Period(int(number), int(begun), json.loads(card)) for number, begun, card in rows]

    def count(self, period: int | None = None) -> int:
        """The number of rows, of one period or of all."""
        where, values = ("", ()) if period is None else (" WHERE guard = ?", (period,))
        return int(self._base.rows(f"SELECT COUNT(*) FROM secondguess_records{where}", values)[0][0])

    def alarms_after(self, period: int, after: int = 0, limit: int = 200_000) -> RecordedAlarms:
        """Number, time and alarm of the rows behind the number `after`, at most `limit` of them."""
        rows = self._base.rows(
            "SELECT number, time, alarm FROM secondguess_records WHERE guard = ? AND number > ? "
            "ORDER BY number LIMIT ?",
            (period, after, limit),
        )
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return RecordedAlarms(*columns)

    def mix(self, period: int, start: int, width: int) -> list[tuple[int, str, int]]:
        """(interval, verdict, how many) since `start`, the time cut into intervals of `width` milliseconds."""
        rows = self._base.rows(
            "SELECT (time - ?) / ? AS part, verdict, COUNT(*) FROM secondguess_records "
            "WHERE guard = ? AND time >= ? GROUP BY part, verdict ORDER BY part, verdict",
            (start, width, period, start),
        )
        return [(int(part), str(verdict), int(count)) for part, verdict, count in rows]

    def alarms(self, period: int, limit: int) -> list[dict[str, Any]]:
        """The latest alarms, newest first: the fields of `Record`, the number, and whether there is a thumbnail."""
        rows = self._base.rows(
            f"SELECT number, thumbnail IS NOT NULL, {SHOWN} FROM secondguess_records "
            "WHERE guard = ? AND alarm = 1 ORDER BY number DESC LIMIT ?",
            (period, limit),
        )
        found = []
        for number, pictured, *values in rows:
            shown = asdict(Record(*values))
            del shown["thumbnail"]
            found.append({"number": int(number), "pictured": bool(pictured), **shown})
        return found

    def latest(self, period: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Predictions (n,) and confidences (n,) of the latest images."""
        rows = self._base.rows(
            "SELECT prediction, confidence FROM secondguess_records WHERE guard = ? ORDER BY number DESC LIMIT ?",
            (period, limit),
        )
        predictions, confidences = zip(*rows, strict=True) if rows else ((), ())
        return np.array(predictions, dtype=np.int64), np.array(confidences, dtype=np.float64)

    def thumbnail(self, number: int) -> bytes | None:
        """The picture of a row, where there is one."""
        rows = self._base.rows("SELECT thumbnail FROM secondguess_records WHERE number = ?", (number,))
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def _prepare(self) -> None:
        """Make the tables of a file that was begun by a rotation, unless that is done."""
        if not self._is_empty:
            return
        try:
            self._check_format(read_only=False)
            self.begin(self._card)
        except UserError as error:
            raise DatabaseFailed(str(error)) from error
        self._is_empty = False

    def _check_format(self, read_only: bool) -> None:
        try:
            found = self._base.rows("SELECT version FROM secondguess_format")
        except DatabaseFailed:  # there is no such table, so these are no records, or none yet
            if read_only:
                raise UserError(f"{public_name(self.where)} holds no records of `secondguess guard serve`.") from None
            found = self._make()
        if found[0][0] != VERSION:
            raise UserError(
                f"{public_name(self.where)} has format {found[0][0]}, but this version of secondguess knows format "
                f"{VERSION}; use the version that wrote it, or keep records elsewhere."
            )

    def _make(self) -> list[tuple[Any, ...]]:
        try:
            with self._base.transaction():
                for statement in SCHEMA:
                    self._base.run(statement.format(**self._base.words))
        except DatabaseFailed as error:
            try:  # another process may have made them first
                return self._base.rows("SELECT version FROM secondguess_format")
            except DatabaseFailed:
                raise UserError(f"Records cannot be kept in {public_name(self.where)} ({error}).") from error
        return [(VERSION,)]
