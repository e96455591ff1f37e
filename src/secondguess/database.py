"""Durable storage in SQLite or PostgreSQL behind the same few calls: what was committed is on disk in either.

SQLite: a write-ahead log with `synchronous=FULL`, so a commit has reached the disk when it returns, and a killed
process leaves a file that opens as if it had been closed; files are made for their owner only, since records may hold
pictures. PostgreSQL: its own promise, `synchronous_commit` as the server has it; a lost connection is opened anew by
the next transaction, and one whose server is silent for longer than `SILENCE` is cut, because a time-out that the
server keeps does not help against a server that has stopped. Statements are written once, with `?` for a value.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from secondguess.errors import UserError, require
from secondguess.files import make_folder, sync_folder

__all__ = ["Database", "DatabaseFailed", "Postgres", "Sqlite", "open_database", "public_name", "storable"]

URLS = ("postgresql://", "postgres://")
PATIENCE = 4.0  # seconds that a writer waits for another one
BRIEFLY = 500  # milliseconds that a file which is to be renamed is waited for
SILENCE = 2.5  # seconds that a PostgreSQL server may take over a transaction; with `CONNECTING` less than five
CONNECTING = 2  # seconds for a connection, the fewest that libpq knows
DURABLE = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")  # a killed process loses nothing
LOCK = 0x5EC06E55  # any number, the same in every process that writes records


class DatabaseFailed(UserError):
    """The database failed: the disk is full, the server is gone; what was committed before is kept."""


class Database(ABC):
    """A connection at which the threads of a process take turns.

    Attributes:
        words: what the two databases call differently, for `str.format` in a schema.
        marker: stands for a value in a statement.
        begin: the statements that open a transaction with an exclusive right to write.
        errors: what the library raises.
        name: what to call it in an error; no secret.
    """

    words: ClassVar[dict[str, str]]
    name: str
    marker: str
    begin: tuple[str, ...]
    errors: tuple[type[Exception], ...]

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._begun = False  # whether a transaction is open, which must not go on over another connection
        self._connection = self._connect()

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._turn, self._failing():
            if self._begun:
                return list(self._connection.execute(self._spoken(query), values).fetchall())
            self._revive()
            with self._in_time():
                return list(self._connection.execute(self._spoken(query), values).fetchall())

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        """Execute a statement."""
        with self._turn, self._failing():
            self._connection.execute(self._spoken(statement), values)

    def run_many(self, statement: str, values: Sequence[Sequence[object]]) -> None:
        """Execute a statement for each row of values."""
        with self._turn, self._failing():
            self._connection.cursor().executemany(self._spoken(statement), values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing of it; one writer at a time, so that numbers grow in the order of commits."""
        with self._turn:
            self._revive()
            with self._in_time():
                self._begun = True
                try:
                    for statement in self.begin:
                        self.run(statement)
                    yield
                    self.run("COMMIT")
                except BaseException:
                    with suppress(*self.errors):
                        self._connection.execute("ROLLBACK")
                    raise
                finally:
                    self._begun = False

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._connection.close()

    def put_aside(self) -> Path:
        """Rename the file and begin an empty one under its name; return the other name."""
        raise UserError(f"{self.name} is no file; how long rows are kept there is for its own tools.")

    @property
    def identity(self) -> object:
        """Something that differs once another file has come to this name."""
        return None

    @abstractmethod
    def _connect(self) -> Any:
        """A connection of the library's, each statement a transaction of its own unless one was begun."""

    @property
    def _is_lost(self) -> bool:
        """Whether there is need to connect again; a file is not lost."""
        return False

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """What must not last for ever."""
        yield

    def _revive(self) -> None:
        if self._is_lost:
            try:
                self._connection = self._connect()
            except UserError as error:
                raise DatabaseFailed(str(error)) from None

    def _spoken(self, statement: str) -> str:
        return statement.replace("?", self.marker)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            reason = " ".join(str(error).split())
            raise DatabaseFailed(f"{self.name} cannot be read or written now ({reason}).") from error


class Sqlite(Database):
    """A file.

    Args:
        path: of the file, which is made where there is none; None keeps everything in memory.
        read_only: read what exists, while another process may write.
        holds: what the file contains, for error messages.
    """

    words: ClassVar = {"identity": "INTEGER PRIMARY KEY", "bytes": "BLOB"}
    marker = "?"
    begin = ("BEGIN IMMEDIATE",)
    errors = (sqlite3.Error,)

    def __init__(self, path: Path | None, *, read_only: bool = False, holds: str = "records") -> None:
        self._path, self._read_only, self._holds = path, read_only, holds
        self.name = f"The file of {holds} {path}"
        self._closed = False
        super().__init__()

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; who only reads holds the file no longer than that, so that it can be renamed."""
        with self._turn:
            try:
                return super().rows(query, values)
            finally:
                if self._read_only:
                    self._connection.close()
                    self._closed = True

    @property
    def identity(self) -> object:
        """The number of the file on its disk."""
        try:
            status = self._path.stat() if self._path is not None else None
        except OSError:  # it is just being replaced
            return None
        return status and (status.st_dev, status.st_ino)

    def put_aside(self) -> Path:
        """Rename the file, for example to `records-20260131T235959Z.sqlite`, and begin an empty one under its name.

        Nobody else may have it open: what another process writes would go into a log without a file.

        Raises:
            DatabaseFailed: somebody has; nothing has changed.
        """
        if self._path is None or self._read_only:
            raise UserError(f"{self.name} cannot be put aside: it is open for reading, or kept in memory.")
        with self._turn, self._failing():
            self._revive()
            try:
                self._connection.execute(f"PRAGMA busy_timeout = {BRIEFLY}")
                self._connection.execute("PRAGMA journal_mode = DELETE")  # refused where others have the file open
            finally:
                self._connection.close()
                self._closed = True  # the next call opens it anew
            aside = _free_name(self._path)
            try:
                self._path.rename(aside)
                sync_folder(self._path.parent)
            except OSError as error:
                raise DatabaseFailed(f"{self._path} cannot be renamed ({error.strerror or error}).") from error
        return aside

    @property
    def _is_lost(self) -> bool:
        return self._closed

    def _connect(self) -> sqlite3.Connection:
        if self._path is not None and not self._read_only:
            make_folder(self._path.parent)
            self._make_private(self._path)
        # Never made here: for its owner only by `_make_private`, and not at all by who reads.
        where = ":memory:" if self._path is None else f"{self._path.absolute().as_uri()}?mode=rw"
        try:
            base = sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=PATIENCE, uri=True)
            try:
                for pragma in ("query_only = ON",) if self._read_only else DURABLE:
                    base.execute(f"PRAGMA {pragma}")
                base.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
            except BaseException:
                base.close()
                raise
        except sqlite3.Error as error:
            raise UserError(f"{self._path} is not a file of {self._holds} ({error}); name another one.") from error
        if self._path is not None and not self._read_only:
            _shut_out(self._path)
        self._closed = False
        return base

    def _make_private(self, path: Path) -> None:
        """Make the file, for its owner only; those beside it that SQLite makes get the permissions of this one."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"The file of {self._holds} {path} cannot be written ({reason}); name another.") from error


def _free_name(path: Path) -> Path:
    """The name of a file with the time of now in it, and a number where that is taken."""
    stem = f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    endings = chain([""], (f"-{number}" for number in count(1)))
    return next(name for ending in endings if not (name := path.with_name(f"{stem}{ending}{path.suffix}")).exists())


def _shut_out(path: Path) -> None:
    """Keep a database that everybody could read to its owner; access for a group is somebody's decision."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # there is none, or it is not ours
            if os.name == "posix" and file.stat().st_mode & 0o007:
                file.chmod(0o600)


class Postgres(Database):
    """A database of a PostgreSQL server, with the extra `postgres`.

    Args:
        url: `postgresql://user:password@host:port/database`.
    """

    words: ClassVar = {"identity": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytes": "BYTEA"}
    marker = "%s"
    # Numbers are drawn before rows are seen: without the lock a reader could skip one that is committed late.
    begin = ("BEGIN", f"SELECT pg_advisory_xact_lock({LOCK})")

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"The database at {public_name(url)}"
        self._library = require("psycopg", "postgres")
        self.errors = (self._library.Error,)
        super().__init__()

    def _connect(self) -> Any:
        try:
            return self._library.connect(self._url, autocommit=True, connect_timeout=CONNECTING)
        except self.errors as error:
            where = public_name(self._url)
            reason = " ".join(str(error).split())
            raise UserError(
                f"The database at {where} cannot be reached ({reason}); start it, or name another."
            ) from None

    @property
    def _is_lost(self) -> bool:
        return bool(self._connection.closed or self._connection.broken)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Cut the connection after `SILENCE`: whoever waits for an answer is then told that there is none."""
        connection, turn, over = self._connection, threading.Lock(), False

        def cut() -> None:
            with turn:
                if not over:  # else the number may belong to another connection by now
                    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
                        line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(SILENCE, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            with turn:
                over = True
            timer.cancel()


def public_name(name: str) -> str:
    """The name of a database without user and password, which may be shown."""
    if not name.startswith(URLS):
        return name
    parts = urlsplit(name)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def storable(text: str) -> str:
    """A text in which bytes of a file name that are not UTF-8 are written out, since databases take UTF-8 only."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def open_database(name: str, *, read_only: bool = False) -> Database:
    """The database of a `postgresql://` URL, or of an SQLite file.

    Args:
        name: the URL, or the path of the file.
        read_only: nothing will be written; a file must be there already.
    """
    if name.startswith(URLS):
        return Postgres(name)
    path = Path(name)
    if "://" in name:
        raise UserError(f"Records cannot be kept at {name!r}; give an SQLite file or a URL postgresql://...")
    if path.is_dir() or (read_only and not path.is_file()):
        raise UserError(f"There is no file of records {path}; name the one given to `secondguess guard serve`.")
    return Sqlite(path, read_only=read_only)
