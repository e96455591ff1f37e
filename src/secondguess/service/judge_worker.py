"""Judges the images of several requests at once, writes the judgements down, and only then hands them out."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.database import DatabaseFailed, storable
from secondguess.errors import UserError
from secondguess.images.fitting import fit_image
from secondguess.images.sources import Floats, Shape
from secondguess.service.records import Record, Records
from secondguess.service.writer import Writer
from secondguess.web.logs import Outage
from secondguess.web.pictures import png

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard
    from secondguess.guard.judgements import Judgement

__all__ = ["Job", "JudgeWorker", "Subject"]

LIKELIEST = 5  # classes whose probabilities are answered and recorded
THUMBNAIL = 96  # pixels, the longer side

Judge = Callable[[Floats], Iterable["Judgement"]]


@dataclass(frozen=True)
class Subject:
    """What the service serves.

    Attributes:
        judge: images (n, C, H, W) in [0, 1] -> n judgements.
        shape: (C, H, W).
        rate: the false-alarm rate it was calibrated for.
        card: what records remember of it: names, fingerprints, the rate with its interval.
    """

    judge: Judge
    shape: Shape
    rate: float
    card: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, guard: Guard) -> Subject:
        """A fitted guard."""
        rate = guard.false_alarms if guard.risk is None else guard.report.false_alarms.value
        card = {
            "model": guard.classifier.name,
            "fingerprint": guard.classifier.fingerprint,
            "class_names": list(guard.class_names),
            "rate": rate,
            "false_alarms": guard.report.expected_alarms.to_dict(),
            "calibration": guard.record["calibrations"][-1],
        }
        return cls(guard.judge, guard.shape, rate, card)


@dataclass(frozen=True, eq=False)
class Job:
    """The images (n, C, H, W) of one request, and its id; without one it is a trial, which is not recorded."""

    images: Floats
    request: str | None


class JudgeWorker:
    """Judges jobs and records them.

    Args:
        subject: judges.
        records: keep the judgements.
        thumbnails: whether a small picture of every image with an alarm is kept.
        recorded: called with the records of every batch once they are on disk.
    """

    def __init__(
        self,
        subject: Subject,
        records: Records,
        *,
        thumbnails: bool = False,
        recorded: Callable[[Sequence[Record]], None] = lambda records: None,
    ) -> None:
        self._subject, self._records, self._thumbnails, self._recorded = subject, records, thumbnails, recorded
        self.writer = Writer()
        self.rotates = False  # whether the records are to be rotated before the next one is written
        self._outage = Outage(
            logging.getLogger(__name__),
            "Records cannot be written, nothing is answered",
            "Records are written again",
        )

    def __call__(self, jobs: Sequence[Job]) -> list[list[dict[str, Any]] | Exception]:
        """The answers to each job, or what went wrong with it; those of one job never depend on another's failure."""
        now = int(1000 * time.time())
        judged = list(self._judged(jobs))
        kept = [
            self._record(judgement, image, job.request, now)
            for job, found in zip(jobs, judged, strict=True)
            if job.request is not None and not isinstance(found, Exception)
            for judgement, image in zip(found, job.images, strict=True)
        ]
        if kept or any(job.request is None for job in jobs):
            self._write(kept)
        return [found if isinstance(found, Exception) else [_answer(one) for one in found] for found in judged]

    def _write(self, records: Sequence[Record]) -> None:
        """Record judgements; without any, see whether that could be done."""
        try:
            self.writer.do(lambda: self._write_now(records))
        except DatabaseFailed as error:
            self._outage.failed(error)
            raise
        self._outage.worked()
        if records:
            self._recorded(records)

    def _write_now(self, records: Sequence[Record]) -> None:
        if self.rotates:
            self.rotates = False
            self._rotate()
        if records:
            self._records.append(records)
        else:
            self._records.try_to_write()

    def _rotate(self) -> None:
        log = logging.getLogger(__name__)
        try:
            log.warning("Records until now are in %s.", self._records.rotate())
        except UserError as error:  # somebody else has the file open, say: it stays in use
            log.error("Records were not rotated: %s", error)

    def _judged(self, jobs: Sequence[Job]) -> Iterator[list[Judgement] | Exception]:
        """All in one pass; should that fail, job by job, so that only the one at fault fails."""
        try:
            found = iter(list(self._subject.judge(_filled(np.concatenate([job.images for job in jobs])))))
        except Exception as error:
            if len(jobs) == 1:
                yield error
            else:
                for job in jobs:
                    yield from self._judged([job])
            return
        for job in jobs:
            yield [next(found) for _ in job.images]

    def _record(self, judgement: Judgement, image: Floats, request: str, now: int) -> Record:
        alarm = not judgement.verdict.is_nominal
        return Record(
            time=now,
            request=request,
            pixels=hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest(),
            prediction=judgement.prediction,
            label=storable(judgement.class_name),
            confidence=float(judgement.probabilities[judgement.prediction]),
            p_value=judgement.p_value,
            verdict=str(judgement.verdict),
            action=judgement.action,
            alarm=int(alarm),
            likeliest=json.dumps(_likeliest(judgement), ensure_ascii=False),
            thumbnail=_thumbnail(image) if self._thumbnails and alarm else None,
        )


def _filled(images: Floats) -> Floats:
    """The last image repeated until there are 2^k or 3 * 2^k.

    What a library sets up for a number of images it keeps (oneDNN a megabyte or so of programs for each): with every
    number that ever waited together, memory would grow with the load for hours.
    """
    size = next(size for k in count() for size in (2**k, 3 * 2**k // 2) if size >= len(images))
    return images if size == len(images) else np.concatenate([images, *[images[-1:]] * (size - len(images))])


def _answer(judgement: Judgement) -> dict[str, Any]:
    """What a caller gets for an image; the probabilities of all classes where the action is to hedge."""
    answer = judgement.to_dict()
    if judgement.action != "hedge":
        del answer["probabilities"]
    answer["confidence"] = float(judgement.probabilities[judgement.prediction])
    answer["likeliest"] = _likeliest(judgement)
    if judgement.verdict.is_nominal:
        del answer["anomalies"]
    return answer


def _likeliest(judgement: Judgement) -> list[list[Any]]:
    """The most probable classes, the first first: `[number, probability]`."""
    values = judgement.probabilities
    best = np.argsort(-values, kind="stable")[:LIKELIEST]
    return [[int(place), round(float(values[place]), 6)] for place in best]


def _thumbnail(image: Floats) -> bytes:
    channels, height, width = image.shape
    scale = min(1.0, THUMBNAIL / max(height, width))
    shape = (channels, max(1, round(scale * height)), max(1, round(scale * width)))
    return png(fit_image(image, shape, "stretch"))
