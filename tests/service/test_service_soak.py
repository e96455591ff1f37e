"""A few seconds of `secondguess bench soak`, with a judge that needs no model."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from secondguess_lab.bench.soak import _memory, lines, soak
from secondguess_lab.bench.soak_callers import Tally
from service_house import TOKEN, picture

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from service_house import TOKEN, subject
from secondguess.cli.options import print_json
from secondguess.service.api import Service
from secondguess.service.records import Records
from secondguess.service.server import bind, run

def announce(address):
    print_json({"address": address})
    sys.stdout.flush()

run(Service(subject(), Records(sys.argv[3]), TOKEN, thumbnails=True), bind("127.0.0.1", 0), announce=announce)
"""
IMAGES = [picture(0.2), picture(0.5, first=1), picture(0.8)]


def test_some_seconds_of_it_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1])]
    found = soak(command, TOKEN, IMAGES, tmp_path, seconds=8, rate=30, bad_rate=10, life=2)
    assert found["acknowledged"] > 100 and found["kills"] >= 1 and found["rotations"] >= 2
    assert (found["lost"], found["doubled"], found["5xx"], found["surprises"]) == (0, 0, 0, [])
    assert found["unsound_files"] == [] and found["files_of_records"] > 2
    assert found["tracebacks"] == 0
    assert 0 < found["p50"] <= found["p99"]
    assert found["file_descriptors"]["most"] < 300
    assert 0 <= found["load"]["median"] <= found["load"]["most"]
    assert found["statuses"]["200"] >= found["acknowledged"]
    text = "\n".join(lines(found))
    assert f"acknowledged {found['acknowledged']:,}   lost 0" in text and "lost met" in text


def test_the_slope_is_that_of_the_time_after_the_warm_up() -> None:
    samples = [(float(second), 100 + (50 * second if second < 30 else 1500 + second / 3600), 9) for second in range(90)]
    found = _memory(samples)
    assert found["slope"] == pytest.approx(1, abs=1e-6)
    assert found["begin"] == pytest.approx(1600, abs=0.1)


def test_only_announced_answers_503_are_forgiven() -> None:
    tally = Tally(statuses=Counter({200: 9, 404: 3, 500: 1, 503: 4}), announced=3)
    assert tally.failures == 2
