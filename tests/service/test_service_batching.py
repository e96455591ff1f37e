from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from secondguess.service.batching import Batcher, Busy
from secondguess.service.judge_worker import Job, JudgeWorker, Subject
from secondguess.service.records import Record, Records
from service_house import CARD, SHAPE, judgement, subject


def run(work: Any, scenario: Any, **options: Any) -> Any:
    """Run an asynchronous scenario with a started batcher, and close it."""

    async def whole() -> Any:
        batcher: Batcher[int, int] = Batcher(work, **({"size": 8, "wait": 0.01, "capacity": 100} | options))
        batcher.start()
        try:
            return await asyncio.wait_for(scenario(batcher), 20)
        finally:
            await batcher.close()

    return asyncio.run(whole())


def test_everybody_gets_his_own_result_and_batches_are_full() -> None:
    sizes: list[int] = []

    def squares(jobs: Sequence[int]) -> list[int]:
        sizes.append(len(jobs))
        time.sleep(0.005)
        return [job * job for job in jobs]

    async def scenario(batcher: Batcher[int, int]) -> list[int]:
        return await asyncio.gather(*(batcher.submit(k, 1) for k in range(50)))

    assert run(squares, scenario) == [k * k for k in range(50)]
    assert sum(sizes) == 50 and max(sizes) == 8 and len(sizes) == 7


def test_a_single_job_does_not_wait_longer_than_it_must() -> None:
    async def scenario(batcher: Batcher[int, int]) -> int:
        return await asyncio.wait_for(batcher.submit(3, 1), timeout=60)  # nobody else comes to fill the batch

    assert run(list, scenario, wait=0.2) == 3


def test_what_would_not_fit_is_told_to_come_back() -> None:
    def slow(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.1)
        return list(jobs)

    async def scenario(batcher: Batcher[int, int]) -> tuple[int, int]:
        found = await asyncio.gather(*(batcher.submit(k, 2) for k in range(10)), return_exceptions=True)
        assert batcher.images == 0
        return sum(isinstance(one, Busy) for one in found), sum(isinstance(one, int) for one in found)

    assert run(slow, scenario, capacity=9) == (6, 4)


def test_a_failure_reaches_its_caller_only_and_the_service_goes_on() -> None:
    def picky(jobs: Sequence[int]) -> list[int | Exception]:
        if 13 in jobs:
            raise RuntimeError("a defect")
        return [ValueError(f"not {job}") if job == 7 else job for job in jobs]

    async def scenario(batcher: Batcher[int, int]) -> list[Any]:
        first = await asyncio.gather(*(batcher.submit(k, 1) for k in (6, 7, 8)), return_exceptions=True)
        second = await asyncio.gather(batcher.submit(13, 1), return_exceptions=True)
        return [*first, *second, await batcher.submit(1, 1)]

    found = run(picky, scenario)
    assert found[0] == 6 and found[2] == 8 and found[4] == 1
    assert isinstance(found[1], ValueError) and isinstance(found[3], RuntimeError)


def test_closing_finishes_what_was_taken_and_takes_nothing_more() -> None:
    def slow(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        return list(jobs)

    async def whole() -> list[Any]:
        batcher: Batcher[int, int] = Batcher(slow, size=2, wait=5, capacity=100)
        batcher.start()
        taken = [asyncio.create_task(batcher.submit(k, 1)) for k in range(5)]
        await asyncio.sleep(0.01)
        await batcher.close()
        late = await asyncio.gather(batcher.submit(9, 1), return_exceptions=True)
        return [*[await one for one in taken], *late]

    *results, late = asyncio.run(whole())
    assert results == [0, 1, 2, 3, 4] and isinstance(late, Busy)


def test_a_caller_who_has_gone_away_harms_nobody() -> None:
    done: list[int] = []

    def slow(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        done.extend(jobs)
        return list(jobs)

    async def scenario(batcher: Batcher[int, int]) -> int:
        leaving = asyncio.create_task(batcher.submit(1, 1))
        await asyncio.sleep(0.02)
        leaving.cancel()
        return await batcher.submit(2, 1)

    assert run(slow, scenario) == 2
    assert done == [1, 2]


@pytest.fixture
def records(tmp_path):  # type: ignore[no-untyped-def]
    opened = Records(str(tmp_path / "r.sqlite"))
    opened.begin(CARD)
    yield opened
    opened.close()


def test_the_clerk_judges_together_and_records_each_image(records: Records) -> None:
    images = np.random.default_rng(0).random((5, *SHAPE), dtype=np.float32)
    images[3].flat[0] = 1
    told: list[Record] = []
    clerk = JudgeWorker(subject(), records, thumbnails=True, recorded=told.extend)
    first, second = clerk([Job(images[:2], "a"), Job(images[2:], "b")])
    assert not isinstance(first, Exception) and not isinstance(second, Exception)
    expected = [judgement(image) for image in images]
    assert [one["prediction"] for one in first + second] == [one.prediction for one in expected]
    assert [one.request for one in told] == ["a", "a", "b", "b", "b"]
    assert [one.thumbnail is not None for one in told] == [False, False, False, True, False]
    assert len({one.pixels for one in told}) == 5
    assert records.count() == 5


def test_a_model_sees_few_numbers_of_images(records: Records) -> None:
    """Each would cost memory for as long as the service runs."""
    seen: set[int] = set()

    def judge(images: np.ndarray) -> list[Any]:
        seen.add(len(images))
        return [judgement(image) for image in images]

    images = np.random.default_rng(0).random((130, *SHAPE), dtype=np.float32)
    expected = [judgement(image).prediction for image in images]
    clerk = JudgeWorker(Subject(judge, SHAPE, 0.05, CARD), records)
    for number in range(1, 131):
        (found,) = clerk([Job(images[:number], None)])
        assert [one["prediction"] for one in found] == expected[:number]  # type: ignore[index]
    assert sorted(seen) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192]


def test_the_clerk_does_not_let_one_request_spoil_the_others(records: Records) -> None:
    def judge(images: np.ndarray) -> list[Any]:
        if images.max() > 0.9:
            raise RuntimeError("too bright")
        return [judgement(image) for image in images]

    dark, bright = np.zeros((1, *SHAPE), np.float32), np.ones((1, *SHAPE), np.float32)
    clerk = JudgeWorker(Subject(judge, SHAPE, 0.05, CARD), records)
    found = clerk([Job(dark, "a"), Job(bright, "b"), Job(dark, "c")])
    assert [isinstance(one, Exception) for one in found] == [False, True, False]
    assert records.count() == 2


def test_hedging_gives_all_probabilities_and_others_do_not(records: Records) -> None:
    image = np.full((1, *SHAPE), 0.5, np.float32)
    (hedged,) = JudgeWorker(subject(), records)([Job(image, "a")])
    (plain,) = JudgeWorker(subject(), records)([Job(image * 0.8, "b")])
    assert hedged[0]["verdict"] == ["ambiguous", "invalid"] and len(hedged[0]["probabilities"]) == 3  # type: ignore[index]
    assert "probabilities" not in plain[0] and "anomalies" not in plain[0]  # type: ignore[index,operator]


def test_a_shared_failure_reaches_those_who_wait_as_well() -> None:
    calls: list[int] = []

    def fails(jobs: Sequence[int]) -> list[int]:
        calls.append(len(jobs))
        time.sleep(0.1)
        raise OSError("the disk is gone")

    async def scenario(batcher: Batcher[int, int]) -> list[Any]:
        found = await asyncio.gather(*(batcher.submit(k, 1) for k in range(30)), return_exceptions=True)
        assert batcher.images == 0
        return found

    assert [type(one) for one in run(fails, scenario, shared=(OSError,))] == [OSError] * 30
    assert calls == [8]  # the others would only have waited for the same


def test_what_nobody_waits_for_is_not_done() -> None:
    done: list[int] = []

    def slow(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.1)
        done.extend(jobs)
        return list(jobs)

    async def scenario(batcher: Batcher[int, int]) -> int:
        first = asyncio.create_task(batcher.submit(1, 8))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(batcher.submit(k, 8)) for k in (2, 3)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await first
        assert await batcher.submit(4, 1) == 4
        return batcher.images

    assert run(slow, scenario) == 0
    assert done == [1, 4]
