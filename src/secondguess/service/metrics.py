"""Metrics for Prometheus: requests by status, images by verdict, latencies, the alarm rate and the promised one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from secondguess.guard.verdicts import KINDS

if TYPE_CHECKING:
    from secondguess.service.records import Record

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
LATEST = 1000  # images in the alarm rate
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class _Counts(Collector):
    """Counts that are kept elsewhere, read when somebody asks."""

    def __init__(self, name: str, help: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        self._name, self._help, self._label, self._counts = name, help, label, counts

    def collect(self) -> Iterable[Metric]:
        """The counts as Prometheus knows them."""
        family = CounterMetricFamily(self._name, self._help, labels=[self._label])
        for value, count in self._counts().items():
            family.add_metric([value], count)
        yield family


class Metrics:
    """Counters of one service, in a registry of its own.

    Args:
        rate: the false-alarm rate that the guard was calibrated for.
        waiting: how many images wait now.
    """

    def __init__(self, rate: float, waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        self._latest: deque[int] = deque(maxlen=LATEST)
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
        Gauge(
            "secondguess_alarm_rate", f"Share of alarms among the latest {LATEST} images.", registry=registry
        ).set_function(self._rate)
        Gauge("secondguess_calibrated_alarm_rate", "The rate on nominal images.", registry=registry).set(rate)
        Gauge("secondguess_waiting_images", "Images taken in and not yet answered.", registry=registry).set_function(
            waiting
        )

    def add_counts(self, name: str, help: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Show counts that are kept elsewhere, by the value of a label."""
        self._registry.register(_Counts(name, help, label, counts))

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
        """All of it in the text format of Prometheus."""
        return generate_latest(self._registry)

    def _rate(self) -> float:
        latest = list(self._latest)
        return sum(latest) / len(latest) if latest else 0.0
