"""Several workers behind one port, in real processes: kill -9 of one in the middle, metrics of all, an orderly end."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from secondguess.errors import UserError
from secondguess.service.server import bind
from secondguess.service.workers import supervise
from service_house import Server, client_of, in_time, made, picture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc")
ENDED = -signal.SIGTERM


def workers_of(server: Server) -> list[int]:
    """The processes that answer; Python's own helper of the parent is none of them."""
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text("ascii").split()]
    return sorted(child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())


def value(page: str, name: str) -> float:
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found)


class Callers:
    """Who calls goes on with a new connection where the old one breaks; `acknowledged` are the ids of all answers."""

    def __init__(self, server: Server, count: int) -> None:
        self.acknowledged: list[str] = []
        self.statuses: set[int] = set()
        self.broken = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(server,)) for _ in range(count)]
        for one in self._threads:
            one.start()

    def _call(self, server: Server) -> None:
        file = picture(0.3, first=1)
        while not self._stop.is_set():
            try:
                with client_of(server) as client:
                    while not self._stop.is_set():
                        answer = client.post("/predict", content=file, headers={"content-type": "image/png"})
                        self.statuses.add(answer.status_code)
                        if answer.status_code == 200:
                            self.acknowledged.append(answer.json()["request"])
                        time.sleep(0.02)
            except httpx.ConnectError:
                return
            except httpx.HTTPError:
                self.broken += 1

    def await_more(self, count: int) -> None:
        enough, until = len(self.acknowledged) + count, time.monotonic() + 30
        while len(self.acknowledged) < enough:
            assert time.monotonic() < until
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        for one in self._threads:
            one.join()


def test_a_killed_worker_is_replaced_and_the_end_loses_nothing(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    server = Server(str(records), 0.002, workers=2)
    callers = Callers(server, 4)
    try:
        callers.await_more(30)
        first, second = workers_of(server)
        os.kill(first, signal.SIGKILL)
        callers.await_more(30)
        until = time.monotonic() + 60
        while len(now := workers_of(server)) < 2 or first in now:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert second in now
        server.process.send_signal(signal.SIGHUP)
        callers.await_more(30)
        callers.end()
        with client_of(server) as client:
            page = client.get("/metrics").text
        # What the killed worker had counted is still there, except for what it was about to count.
        counted = value(page, 'secondguess_requests_total{status="200"}')
        assert len(callers.acknowledged) <= counted <= len(callers.acknowledged) + callers.broken
        assert value(page, "secondguess_alarm_rate") == 1.0
        assert value(page, "secondguess_calibrated_alarm_rate") == 0.05
        assert page.count("# TYPE secondguess_waiting_images ") == 1 and "pid=" not in page

        before, callers = callers, Callers(server, 4)
        callers.await_more(20)
        began = time.monotonic()
        code, said = server.end()
        assert time.monotonic() - began < in_time(10)
        callers.end()
    finally:
        callers.end()
        server.process.kill()
    assert code == ENDED
    assert "exit code -9" in said and "It is replaced." in said and "Records were not rotated" in said
    assert "Traceback" not in said and callers.statuses <= {200, 503}
    base = sqlite3.connect(records)
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    kept = [row[0] for row in base.execute("SELECT request FROM secondguess_records")]
    base.close()
    assert {*before.acknowledged, *callers.acknowledged} <= set(kept) and len(set(kept)) == len(kept)
    assert all(not Path(f"/proc/{pid}").exists() for pid in now)


def test_two_workers_record_in_one_postgresql_exactly_once(postgres: str) -> None:
    import psycopg

    server = Server(postgres, 0.002, workers=2)
    asked = 80

    def ask(_number: int) -> str:
        with client_of(server) as client:  # a connection each, so that both workers get some
            answer = client.post("/predict", content=picture(0.3, first=1), headers={"content-type": "image/png"})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["request"])

    try:
        with ThreadPoolExecutor(6) as pool:
            acknowledged = list(pool.map(ask, range(asked)))
        with psycopg.connect(postgres, autocommit=True) as base:

            def kept() -> list[str]:
                return [row[0] for row in base.execute("SELECT request FROM secondguess_records").fetchall()]

            writers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> %s"
            assert base.execute(writers, (base.info.backend_pid,)).fetchone() >= (2,)
            assert len(set(acknowledged)) == asked and sorted(kept()) == sorted(acknowledged)
            assert base.execute("SELECT count(*) FROM secondguess_guards").fetchone() == (1,)
            with client_of(server) as client:
                assert value(client.get("/metrics").text, 'secondguess_requests_total{status="200"}') == asked
            callers = Callers(server, 4)
            callers.await_more(20)
            os.kill(workers_of(server)[0], signal.SIGKILL)
            callers.await_more(40)
            callers.end()
            code, said = server.end()
            found = kept()
        assert code == ENDED and "Traceback" not in said
        assert {*acknowledged, *callers.acknowledged} <= set(found) and len(set(found)) == len(found)
        assert len(found) <= asked + len(callers.acknowledged) + callers.broken
    finally:
        server.process.kill()


def test_what_a_worker_cannot_do_at_first_is_one_sentence() -> None:
    said: list[str] = []
    with pytest.raises(UserError, match="Records cannot be kept at 's3://nowhere'"):
        supervise(partial(made, "s3://nowhere", 0.0, False, 1.0, 1.0), bind("127.0.0.1", 0), 1, announce=said.append)
    with pytest.raises(UserError, match=r"cannot be sent to other processes .* use one worker"):
        supervise(lambda: None, bind("127.0.0.1", 0), 2, announce=said.append)  # type: ignore[arg-type, return-value]
    assert not said and "PROMETHEUS_MULTIPROC_DIR" not in os.environ
