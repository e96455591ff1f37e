"""Records on disk, read back with nothing but SQL; the same on a PostgreSQL server where one can be started."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from secondguess import database
from secondguess.database import DatabaseFailed, Postgres, Sqlite, public_name
from secondguess.errors import MissingExtra, UserError
from secondguess.service.once import OnceRecords
from secondguess.service.records import Record, Records
from service_house import CARD, Server, client_of, in_time, picture


def record(k: int, **changes: object) -> Record:
    values = {
        "time": 1_000 * k, "request": f"r{k}", "pixels": f"{k:032x}", "prediction": k % 3, "label": "dark",
        "confidence": 0.25 + k / 1000, "p_value": 0.5, "verdict": "nominal", "action": "accept", "alarm": 0,
        "likeliest": "[[0, 0.25]]", "thumbnail": None,
    }  # fmt: skip
    return Record(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "records.sqlite")
    return str(request.getfixturevalue("postgres"))


def test_what_is_recorded_is_read_back(where: str) -> None:
    records = Records(where)
    period = records.begin(CARD)
    records.append([record(1), record(2, alarm=1, verdict="invalid", thumbnail=b"\x89PNG\x00")])
    records.append([record(3, confidence=1 / 3, label="größe 'x'; --")])
    records.close()

    again = Records(where, read_only=True)
    assert again.count() == again.count(period) == 3
    found = again.alarms_after(period)
    assert (found.times.tolist(), found.alarms.tolist()) == ([1000, 2000, 3000], [0, 1, 0])
    assert len(again.alarms_after(period, after=int(found.numbers[1]))) == 1
    assert again.mix(period, 1000, 2000) == [(0, "invalid", 1), (0, "nominal", 1), (1, "nominal", 1)]
    (alarm,) = again.alarms(period, 10)
    assert alarm["pictured"] and alarm["verdict"] == "invalid" and "thumbnail" not in alarm
    assert again.thumbnail(alarm["number"]) == b"\x89PNG\x00"
    assert again.thumbnail(int(found.numbers[0])) is None
    predictions, confidences = again.latest(period, 2)
    assert predictions.tolist() == [0, 2]
    np.testing.assert_array_equal(confidences, [1 / 3, 0.252])
    assert [one.card for one in again.periods()] == [CARD]
    again.close()


def test_an_id_of_a_stream_is_recorded_once(where: str) -> None:
    one, other = OnceRecords(where), OnceRecords(where)
    for records in (one, other):
        records.begin(CARD)
    service = Records(where)
    service.begin(CARD)
    one.append([record(1, request="a"), record(2, request="b"), record(3, request="a", prediction=7)])
    service.append([record(4, request="c")])  # ids of requests are another matter
    other.append([record(5, request="b", prediction=7), record(6, request="c")])
    other.append([record(7, request="c", prediction=7)])
    found = one.recorded(["a", "b", "c", "d"])
    assert {name: found[name].time for name in found} == {"a": 1000, "b": 2000, "c": 6000}
    assert one.count() == 4
    for records in (one, other, service):
        records.close()


def test_another_guard_begins_another_chapter_and_the_same_one_goes_on(where: str) -> None:
    for card, expected in ((CARD, 1), (CARD, 1), (CARD | {"rate": 0.01}, 2), (CARD, 3)):
        records = Records(where)
        records.begin(card)
        assert len(records.periods()) == expected
        records.close()


def test_all_rows_of_a_batch_or_none(where: str) -> None:
    records = Records(where)
    records.begin(CARD)
    with pytest.raises(DatabaseFailed):
        records.append([record(1), record(2, label=None)])
    assert records.count() == 0
    records.append([record(3)])
    assert records.count() == 1
    records.close()


def test_two_writers_lose_nothing_and_numbers_follow_commits(where: str) -> None:
    def write(offset: int) -> None:
        records = Records(where)
        records.begin(CARD)
        for k in range(20):
            records.append([record(offset + k)])
        records.close()

    first = Records(where)
    period = first.begin(CARD)
    writers = [threading.Thread(target=write, args=(100 * k,)) for k in (1, 2)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    found = first.alarms_after(period)
    assert len(found) == 40
    assert sorted(found.times.tolist()) == [1000 * (100 * w + k) for w in (1, 2) for k in range(20)]
    first.close()


def test_sqlite_is_asked_to_be_safe(tmp_path: Path) -> None:
    base = Sqlite(tmp_path / "r.sqlite")
    assert base.rows("PRAGMA journal_mode") == [("wal",)]
    assert base.rows("PRAGMA synchronous") == [(2,)]  # FULL
    base.close()


def test_plain_sql_finds_the_rows(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "r.sqlite"))
    records.begin(CARD)
    records.append([record(k) for k in range(5)])
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        assert base.execute("SELECT COUNT(*), SUM(confidence) FROM secondguess_records").fetchone() == (
            5,
            pytest.approx(1.26),
        )
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    base.close()
    records.close()


def test_what_is_no_file_of_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 50)
    with pytest.raises(UserError, match=r"text\.sqlite is not a file of records"):
        Records(str(tmp_path / "text.sqlite"))
    with pytest.raises(UserError, match=r"There is no file of records .*nope\.sqlite"):
        Records(str(tmp_path / "nope.sqlite"), read_only=True)
    sqlite3.connect(tmp_path / "empty.sqlite").execute("CREATE TABLE x (y)").connection.close()
    with pytest.raises(UserError, match="holds no records of `secondguess guard serve`"):
        Records(str(tmp_path / "empty.sqlite"), read_only=True)
    with pytest.raises(UserError, match="Records cannot be kept at 'mysql://x'"):
        Records("mysql://x")
    Records(str(tmp_path / "later.sqlite")).close()
    with sqlite3.connect(tmp_path / "later.sqlite") as base:
        base.execute("UPDATE secondguess_format SET version = 9")
    base.close()
    with pytest.raises(UserError, match=r"later\.sqlite has format 9, but this version of secondguess knows format 1"):
        Records(str(tmp_path / "later.sqlite"))


def test_a_record_belongs_to_a_guard(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "r.sqlite"))
    with pytest.raises(ValueError, match="every record belongs to a guard"):
        records.append([record(1)])
    records.close()


def test_postgresql_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"secondguess\[postgres\]"):
        Records("postgresql://me:secret@nowhere/records")


def test_an_unreachable_server_is_a_sentence_without_the_password() -> None:
    pytest.importorskip("psycopg", reason="NO POSTGRESQL TEST: psycopg is not installed (secondguess[postgres])")
    with pytest.raises(UserError, match=r"postgresql://127\.0\.0\.1:1/records cannot be reached") as caught:
        Records("postgresql://me:secret@127.0.0.1:1/records")
    assert "secret" not in str(caught.value)


def test_what_is_shown_of_a_database_holds_no_secret() -> None:
    assert public_name("postgresql://me:se@cret@db:5432/records?password=secret") == "postgresql://db:5432/records"
    assert public_name("postgresql:///records?host=/tmp") == "postgresql:///records"
    assert public_name("a@b/records.sqlite") == "a@b/records.sqlite"


class Flaky(Sqlite):
    """A database whose connection somebody else may end."""

    lost = False

    @property
    def _is_lost(self) -> bool:
        return self.lost

    def _connect(self) -> sqlite3.Connection:
        self.lost = False
        return super()._connect()


def test_a_reader_connects_again_but_never_within_a_transaction(tmp_path: Path) -> None:
    base = Flaky(tmp_path / "some.sqlite")
    base.run("CREATE TABLE numbers (number INTEGER)")
    base._connection.close()
    base.lost = True
    assert base.rows("SELECT COUNT(*) FROM numbers") == [(0,)]

    def loses() -> None:
        with base.transaction():
            base.run("INSERT INTO numbers VALUES (1)")
            base._connection.close()
            base.lost = True
            base.rows("SELECT COUNT(*) FROM numbers")

    with pytest.raises(DatabaseFailed, match="closed"):
        loses()
    assert base.rows("SELECT COUNT(*) FROM numbers") == [(0,)]
    base.close()


@pytest.mark.skipif(os.name == "nt", reason="files have no such permissions there")
def test_records_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        fresh, known = tmp_path / "fresh.sqlite", tmp_path / "known.sqlite"
        sqlite3.connect(known).close()
        known.touch()
        known.chmod(0o644)
        for path in (fresh, known):
            records = Records(str(path))
            records.begin(CARD)
            records.append([record(1)])
            files = sorted(path.parent.glob(f"{path.name}*"))
            assert len(files) == 3  # with the log and its index
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            records.close()
        fresh.chmod(0o640)  # a group that may look is somebody's decision
        Records(str(fresh)).close()
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o640
    finally:
        os.umask(old)


def test_a_file_of_another_kind_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "text.sqlite"
    file.write_text("not a database, but long enough to be looked at" * 50)
    file.chmod(0o644)
    with pytest.raises(UserError, match="is not a file of records"):
        Records(str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o644 or os.name == "nt"


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that lets clients in as PostgreSQL does and then says nothing more: its URL, and the connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    lines: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                line, _ = listening.accept()
                lines.append(line)
                line.recv(8)
                line.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")  # authenticated; ready

    thread = threading.Thread(target=serve)
    thread.start()
    port = listening.getsockname()[1]
    yield f"postgresql://me@127.0.0.1:{port}/records?sslmode=disable&gssencmode=disable", lines
    listening.shutdown(socket.SHUT_RDWR)
    thread.join()
    for line in (listening, *lines):
        line.close()


def test_a_postgresql_that_falls_silent_is_given_up(
    silent: tuple[str, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg", reason="NO POSTGRESQL TEST: psycopg is not installed (secondguess[postgres])")
    monkeypatch.setattr(database, "SILENCE", 0.3)
    url, lines = silent
    base = Postgres(url)

    def write() -> None:
        with base.transaction():
            base.run("INSERT INTO numbers VALUES (1)")

    for ask in (write, lambda: base.rows("SELECT 1"), write):
        with pytest.raises(DatabaseFailed, match=r"The database at postgresql://127\.0\.0\.1:\d+/records cannot be "):
            ask()
    assert len(lines) == 3  # each time on a new connection
    base.close()


def test_a_postgresql_that_lets_nobody_in_is_given_up() -> None:
    pytest.importorskip("psycopg", reason="NO POSTGRESQL TEST: psycopg is not installed (secondguess[postgres])")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        with pytest.raises(UserError, match="cannot be reached"):
            Postgres(f"postgresql://me@127.0.0.1:{mute.getsockname()[1]}/records")
        assert time.monotonic() - began < in_time(5)  # the promise


def test_databases_are_given_less_time_than_callers_are_promised() -> None:
    assert database.SILENCE + database.CONNECTING < 5 and database.PATIENCE < 5


def test_a_frozen_postgresql_is_a_503_in_time_and_does_not_hold_up_the_end(postgres: str) -> None:
    """The backend of the service is stopped, as a server that swaps or a virtual machine that is paused would be."""
    import psycopg

    def freeze() -> None:
        with psycopg.connect(postgres, autocommit=True) as base:
            found = base.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE '%COMMIT%' OR query LIKE 'BEGIN%'")
            for (pid,) in found.fetchall():
                if pid != base.info.backend_pid and pid not in stopped:
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)

    def ask() -> int:
        with client_of(server) as client:
            answer = client.post("/predict", content=picture(), headers={"content-type": "image/png"})
        acknowledged.extend([answer.json()["request"]] if answer.status_code == 200 else [])
        return int(answer.status_code)

    stopped: list[int] = []
    acknowledged: list[str] = []
    server = Server(postgres)
    try:
        assert ask() == 200
        freeze()
        assert stopped
        began = time.monotonic()
        with ThreadPoolExecutor(8) as callers:
            assert set(callers.map(lambda _: ask(), range(8))) == {503}
        assert time.monotonic() - began < in_time(5)  # the promise
        assert ask() == 200  # on a new connection
        freeze()
        caller = threading.Thread(target=ask)
        caller.start()
        with client_of(server) as client:
            while "secondguess_waiting_images 1.0" not in client.get("/metrics").text:
                time.sleep(0.02)
        began = time.monotonic()
        _, said = server.end()
        assert time.monotonic() - began < in_time(10)  # the promise
        caller.join()
        assert said.count("Records cannot be written") == 2 and said.count("\n") <= 4, said
    finally:
        server.process.kill()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    with psycopg.connect(postgres, autocommit=True) as base:
        kept = {row[0] for row in base.execute("SELECT request FROM secondguess_records").fetchall()}
    assert set(acknowledged) <= kept and len(acknowledged) == 2


def requests_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as base:
        return [one for (one,) in base.execute("SELECT request FROM secondguess_records")]


def test_records_are_rotated_and_nothing_is_lost(tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    records = Records(str(where))
    records.begin(CARD)
    records.append([record(k) for k in range(5)])
    reader = Records(str(where), read_only=True)
    assert reader.count() == 5
    before = reader.identity
    aside = [records.rotate(), records.rotate()]  # within one second
    records.append([record(9)])
    assert reader.count() == 1 and reader.identity not in (before, None)
    assert [one.card for one in reader.periods()] == [CARD]
    records.close()
    assert [len(requests_in(one)) for one in aside] == [5, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["records.sqlite", *(one.name for one in aside)])
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_file_that_another_process_has_open_is_not_renamed(tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    records, other = Records(str(where)), Records(str(where))
    records.begin(CARD)
    other.begin(CARD)
    with pytest.raises(DatabaseFailed, match="locked"):
        records.rotate()
    for one in (records, other):
        one.append([record(1)])
    assert other.count() == 2
    other.close()
    assert len(requests_in(records.rotate())) == 2
    records.close()


def test_a_full_disk_after_a_rotation_is_got_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "records.sqlite"
    records = Records(str(where))
    records.begin(CARD)

    def full(self: Records) -> None:
        raise UserError("Records cannot be kept.")

    with monkeypatch.context() as patched:
        patched.setattr(Records, "_make", full)
        with pytest.raises(DatabaseFailed, match="cannot be kept"):
            records.rotate()
        with pytest.raises(DatabaseFailed, match="cannot be kept"):
            records.append([record(1)])
    records.append([record(1)])
    assert records.count() == 1
    records.close()


def test_a_database_of_a_server_is_not_rotated(postgres: str) -> None:
    records = Records(postgres)
    with pytest.raises(UserError, match="is no file"):
        records.rotate()
    records.close()


def test_a_hang_up_signal_rotates_while_requests_are_answered(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "records.sqlite"))
    answered: set[str] = set()
    with client_of(server) as client:
        for turn in range(40):
            answer = client.post("/predict", content=picture(), headers={"content-type": "image/png"})
            assert answer.status_code == 200
            answered.add(answer.json()["request"])
            if turn in (10, 20):
                server.process.send_signal(signal.SIGHUP)
    code, said = server.end()
    assert code == -signal.SIGTERM
    assert said.count("Records until now are in") == 2
    files = list(tmp_path.glob("*.sqlite"))
    assert len(files) == 3
    kept = [one for file in files for one in requests_in(file)]
    assert set(kept) == answered and len(kept) == 40
