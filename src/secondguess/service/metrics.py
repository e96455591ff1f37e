"""Metrics for Prometheus: requests by status, images by verdict, latencies, the alarm rate and the promised one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from secondguess.guard.verdicts import KINDS

if TYPE_CHECKING:
    from secondguess.service.records import Record

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the name is prometheus_client's
LATEST = 1000  # images in the alarm rate
LATEST_IMAGES, LATEST_ALARMS = "secondguess_latest_images", "secondguess_latest_alarms"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one service, in a registry of its own.

    Several workers of one service share a folder, which is named by `SHARED` in the environment before
    `prometheus_client` is imported: whichever of them is asked answers for all. What is kept elsewhere, as the images
    that wait, is copied by `refresh`.

    Args:
        rate: the false-alarm rate that the guard was calibrated for.
        waiting: how many images wait now.
    """

    def __init__(self, rate: float, waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        self._latest: deque[int] = deque(maxlen=LATEST)
        self._waiting = waiting
        self._kept: list[tuple[Counter, Callable[[], Mapping[str, int]]]] = []
        self._copied: dict[tuple[Counter, str], int] = {}
        self._requests = Counter(
            "secondguess_requests", "Requests to /predict by the status of the answer.", ["status"], registry=registry
        )
        self._images = Counter("secondguess_images", "Images judged, by verdict.", ["verdict"], registry=registry)
        self._actions = Counter("secondguess_actions", "Images judged, by action.", ["action"], registry=registry)
        self._alarms = Counter("secondguess_alarms", "Images that raised an alarm.", registry=registry)
        self._seconds = Histogram(
            "secondguess_request_seconds",
            "Seconds from the first byte of a request to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self._batch = Histogram("secondguess_batch_images", "Images judged together.", buckets=SIZES, registry=registry)
        for kind in KINDS:  # a verdict that has not been seen yet is a zero, not a gap
            self._images.labels(kind)
        self._latest_images = self._sum(LATEST_IMAGES, f"Images in the alarm rate, {LATEST} of each worker.")
        self._latest_alarms = self._sum(LATEST_ALARMS, "Alarms among these.")
        self._waiting_images = self._sum("secondguess_waiting_images", "Images taken in and not yet answered.")
        Gauge(
            "secondguess_calibrated_alarm_rate",
            "The rate on nominal images.",
            registry=registry,
            multiprocess_mode="livemax",  # the same in all
        ).set(rate)

    @property
    def are_shared(self) -> bool:
        """Whether the workers of a service count together."""
        return SHARED in os.environ

    def add_counts(self, name: str, help: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Show counts that are kept elsewhere, by the value of a label."""
        self._kept.append((Counter(name, help, [label], registry=self._registry), counts))

    def refresh(self) -> None:
        """Copy what is kept elsewhere; where workers count together, each calls it every second."""
        for counter, counts in self._kept:
            for value, count in counts().items():
                counter.labels(value).inc(count - self._copied.get((counter, value), 0))
                self._copied[counter, value] = count
        latest = list(self._latest)
        self._latest_images.set(len(latest))
        self._latest_alarms.set(sum(latest))
        self._waiting_images.set(self._waiting())

    def request(self, status: int, seconds: float) -> None:
        """A request to /predict was answered."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def judged(self, records: Iterable[Record]) -> None:
        """A batch was judged and recorded."""
        size = 0
        for one in records:
            self._images.labels(one.verdict).inc()
            self._actions.labels(one.action).inc()
            self._alarms.inc(one.alarm)
            self._latest.append(one.alarm)
            size += 1
        self._batch.observe(size)

    def page(self) -> bytes:
        """All of it in the text format of Prometheus, of all workers."""
        self.refresh()
        counted: Collector = self._registry
        if self.are_shared:
            counted = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        shown = CollectorRegistry()
        shown.register(_WithRate(counted))
        return generate_latest(shown)

    def _sum(self, name: str, help: str) -> Gauge:
        """A gauge that is added up over the workers that are alive."""
        return Gauge(name, help, registry=self._registry, multiprocess_mode="livesum")


class _WithRate(Collector):
    """The metrics of another collector, and the alarm rate, which cannot be added up."""

    def __init__(self, counted: Collector) -> None:
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        """The metrics as Prometheus knows them."""
        values: dict[str, float] = {}
        for family in self._counted.collect():
            if family.name in (LATEST_IMAGES, LATEST_ALARMS):
                values[family.name] = sum(sample.value for sample in family.samples)
            yield family
        rate = values.get(LATEST_ALARMS, 0.0) / max(1.0, values.get(LATEST_IMAGES, 0.0))
        yield GaugeMetricFamily(
            "secondguess_alarm_rate", f"Share of alarms among the latest {LATEST} images, of each worker.", value=rate
        )
