"""The caller of `secondguess bench guard` counts what a service answers, and what it does not."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path

import pytest

from secondguess_lab.bench.http_load import call
from service_house import TOKEN, Server, picture

IMAGES = [picture(0.2), picture(0.5), picture(0.8)]


def test_every_request_is_answered_and_counted(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "r.sqlite"))
    found = asyncio.run(call(server.address, TOKEN, IMAGES, 100, 1))
    refused = asyncio.run(call(server.address, "another-token", IMAGES, 50, 0.2))
    server.end()
    assert (found["requests"], found["errors"], found["statuses"]) == (100, 0, {"200": 100})
    assert 0.9 < found["seconds"] < 10
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
    assert (refused["errors"], refused["statuses"]) == (10, {"401": 10})
    base = sqlite3.connect(tmp_path / "r.sqlite")
    assert base.execute("SELECT COUNT(*) FROM secondguess_records").fetchone() == (100,)
    base.close()


def test_a_service_that_falls_behind_cannot_hide_it(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "r.sqlite"), 0.2)
    found = asyncio.run(call(server.address, TOKEN, IMAGES, 100, 0.5))
    server.end()
    assert found["p99"] > 200


def test_no_answer_is_an_error(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "r.sqlite"), 0.5)

    async def killed() -> dict[str, object]:
        calling = asyncio.create_task(call(server.address, TOKEN, IMAGES, 50, 0.4))
        await asyncio.sleep(0.2)
        server.process.send_signal(signal.SIGKILL)
        return await calling

    found = asyncio.run(killed())
    server.end()
    assert found["errors"] == found["requests"] == 20


@pytest.mark.slow
def test_the_benchmark_runs() -> None:
    from secondguess_lab.bench.guard import run

    found = run(seconds=3, repeats=3)
    assert [row["batch"] for row in found["overhead"]] == [1, 256]
    assert all(row["guard_ms"] > 0 < row["bare_ms"] for row in found["overhead"] + found["photographs"])
    assert list(found["parts_ms"]) == ["session", "max_softmax", "mdsa", "decision"]
    assert all(took > 0 for took in found["parts_ms"].values())
    assert found["service"]["requests"] == 600 and found["service"]["errors"] == 0
