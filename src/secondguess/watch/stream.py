"""The records of a service, read as they arrive, and their summary for the page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.verdicts import KINDS, SUSPICIOUS
from secondguess.metrics import wilson
from secondguess.service.records import Period, RecordedAlarms, Records
from secondguess.watch.change import RateTest

__all__ = ["SPANS", "Watch"]

SPANS: dict[str, int | None] = {"hour": 3_600_000, "day": 86_400_000, "week": 604_800_000, "all": None}
INTERVALS = 48  # in which the time is cut
RECENT = 1000  # images of "now"
SHOWN = 24  # alarms
UNDECIDED = "two kinds"
ORDER = tuple(dict.fromkeys((*KINDS, SUSPICIOUS, UNDECIDED)))

Estimate = Callable[[NDArray[np.int64], NDArray[np.float64]], list[dict[str, Any]]]


class Watch:
    """What the page shows.

    Args:
        records: of the service, for reading.
        estimate: predictions (n,) and confidences (n,) -> estimates of the accuracy; None where none can be made.
        missed: the kinds of anomaly that the guard is known to miss, in words; None if unknown.
        alpha: the probability of ever announcing a change where there is none.
    """

    def __init__(
        self,
        records: Records,
        *,
        estimate: Estimate | None = None,
        missed: Sequence[str] | None = None,
        alpha: float = 0.01,
    ) -> None:
        self._records, self._estimate, self._missed, self._alpha = records, estimate, missed, alpha
        self._turn = threading.Lock()
        self._reading: _Reading | None = None
        self._identity: object = None

    def state(self, span: str = "all") -> dict[str, Any]:
        """Everything on the page, over one of the `SPANS`, which end with the latest image."""
        if span not in SPANS:
            raise UserError(f"There is no span {span!r}; there is {', '.join(SPANS)}.")
        with self._turn:
            reading = self._catch_up()
            if reading is None or reading.test.images == 0:
                return {"images": 0, "guard": None if reading is None else _about(reading.period)}
            length = SPANS[span]
            start = reading.first if length is None else max(reading.first, reading.last - length)
            period = reading.period
            return {
                "images": reading.test.images,
                "guard": _about(period),
                "first": reading.first,
                "last": reading.last,
                "change": reading.changed(),
                "recent": _rate(reading.recent),
                "start": start,
                "intervals": self._intervals(period.id, start, reading.last),
                "alarms": self._records.alarms(period.id, SHOWN),
                "estimates": self._estimates(period.id),
                "missed": self._missed,
                "order": ORDER,
            }

    def thumbnail(self, number: int) -> bytes | None:
        """The picture of a record, where one was kept."""
        return self._records.thumbnail(number)

    def _catch_up(self) -> _Reading | None:
        """Read new records; where another guard or another file of records has begun, begin with that one."""
        identity, periods = self._records.identity, self._records.periods()
        if not periods:
            return None
        if self._reading is None or (self._identity, self._reading.period.id) != (identity, periods[-1].id):
            self._identity, self._reading = identity, _Reading(periods[-1], self._alpha)
        while len(new := self._records.alarms_after(periods[-1].id, self._reading.number)):
            self._reading.take(new)
        return self._reading

    def _intervals(self, period: int, start: int, last: int) -> list[dict[str, Any]]:
        """Images, alarms with their interval, and verdicts in equal stretches of time; empty ones are left out."""
        width = max(1000, -(-(last - start + 1) // INTERVALS))
        found: dict[int, dict[str, int]] = {}
        for part, verdict, count in self._records.mix(period, start, width):
            kind = verdict if verdict in ORDER else UNDECIDED
            mixed = found.setdefault(part, {})
            mixed[kind] = mixed.get(kind, 0) + count
        return [
            _interval(start + part * width, start + (part + 1) * width, mixed) for part, mixed in sorted(found.items())
        ]

    def _estimates(self, period: int) -> list[dict[str, Any]] | None:
        if self._estimate is None:
            return None
        return self._estimate(*self._records.latest(period, RECENT))


class _Reading:
    """The part of a period that has been read, and the state of its test."""

    def __init__(self, period: Period, alpha: float) -> None:
        self.period = period
        self.test = RateTest(float(period.card["false_alarms"]["high"]), alpha)
        self.number = self.first = self.last = 0
        self.recent = np.zeros(0, dtype=np.int64)
        self._times = np.zeros(0, dtype=np.int64)  # of all images, as long as the test may want them
        self._change: dict[str, int] = {}

    def take(self, new: RecordedAlarms) -> None:
        """Go on with the next rows; when the test speaks, its two images become times."""
        if self.test.images == 0:
            self.first = int(new.times[0])
        self.number, self.last = int(new.numbers[-1]), int(new.times[-1])
        self.recent = np.concatenate([self.recent, new.alarms])[-RECENT:]
        if self._change:
            self.test.update(new.alarms)
            return
        self._times = np.concatenate([self._times, new.times])
        self.test.update(new.alarms)
        if (found := self.test.change) is not None:
            self._change = {"since": int(self._times[found.since]), "noticed": int(self._times[found.noticed])}
            self._times = self._times[:0]

    def changed(self) -> dict[str, Any]:
        """What the test says; `since` and `noticed` are there if something has changed."""
        return {"rate": self.test.rate, "alpha": self.test.alpha, "p_value": self.test.p_value, **self._change}


def _interval(start: int, end: int, mixed: dict[str, int]) -> dict[str, Any]:
    images = sum(mixed.values())
    known = wilson(images - mixed.get(KINDS[0], 0), images)
    rate = {"rate": known.value, "low": known.low, "high": known.high}
    return {"start": start, "end": end, "images": images, "verdicts": mixed, **rate}


def _rate(alarms: NDArray[np.int64]) -> dict[str, Any]:
    return wilson(int(alarms.sum()), len(alarms)).to_dict() | {"alarms": int(alarms.sum())}


def _about(period: Period) -> dict[str, Any]:
    """What the page says of the guard."""
    card = period.card
    return {
        "begun": period.begun,
        "model": card["model"],
        "class_names": card["class_names"],
        "rate": card["rate"],
        "false_alarms": card["false_alarms"],
    }
