"""Judging a stream: every image is judged and recorded once, also where the process is killed and begun anew.

    source -> ids not recorded yet -> judge -> records and ids in one transaction -> lines -> the source may forget

A line may therefore be printed twice, after a kill between the record and the next batch: what is known already is
answered from its record, with `"again": true`. What cannot be read has a line with the reason, and no record.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.database import DatabaseFailed, public_name
from secondguess.errors import UserError
from secondguess.files import make_folder, write_json
from secondguess.images import read
from secondguess.images.decode import BadImage
from secondguess.images.fitting import Resizing, check_resize
from secondguess.images.sources import Floats
from secondguess.results import Result
from secondguess.service.judge_worker import Job, JudgeWorker, Subject
from secondguess.service.once import OnceRecords
from secondguess.service.stream_sources import Event, StreamSource, open_source

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard
    from secondguess.service.records import Record

__all__ = ["RECORDS", "Stream", "Streamed", "judge_stream"]

RECORDS = "stream.sqlite"  # in the folder of the guard
DECODERS = 2  # threads
PAUSE = 1.0  # seconds between two attempts to write records

Line = dict[str, Any]


@dataclass(frozen=True)
class Streamed(Result):
    """How a stream went.

    Attributes:
        judged: images that were judged and recorded.
        again: those whose ids had been recorded before.
        failed: those that could not be read or judged.
        records: where they are, without passwords.
    """

    judged: int
    again: int
    failed: int
    records: str

    def summary(self) -> str:
        """How many, and where the records are."""
        return (
            f"{self.judged:,} images judged, {self.again:,} recorded before, {self.failed:,} not judged.\n"
            f"Records: {self.records}; watch them: secondguess guard watch {self.records}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The same, as JSON can hold it."""
        return {"judged": self.judged, "again": self.again, "failed": self.failed, "records": self.records}

    def save(self, folder: str | Path) -> Path:
        """Write `stream.json` into a folder."""
        write_json(make_folder(folder) / "stream.json", self.to_dict())
        return Path(folder)


def judge_stream(
    guard: Guard,
    place: str,
    *,
    records: str,
    resize: str | None = None,
    batch_size: int = 256,
    said: Callable[[list[Line]], None] = lambda lines: None,
) -> Streamed:
    """Judge a stream until it ends, or until a termination signal or Ctrl-C; the batch in progress is finished.

    Args:
        guard: fitted.
        place: `-` for JSON lines on standard input, a folder, or `kafka://host:9092/topic`.
        records: an SQLite file or `postgresql://...`, which remembers the ids, too.
        resize: how images are resized; by default as those that the guard was fitted on.
        batch_size: images judged together at most.
        said: called with the lines of every batch, one for each image.
    """
    resizing = check_resize(resize or guard.resized_by)
    source = open_source(place)
    try:
        with _ending() as is_ending:
            stream = Stream(Subject.of(guard), OnceRecords(records), resize=resizing, said=said)
            try:
                return stream.run(source, batch_size, is_ending)
            finally:
                stream.close()
    finally:
        source.close()


class Stream:
    """Judges what comes.

    Args:
        subject: judges.
        records: where judgements and ids are kept; closed with the stream.
        resize: how pictures of other proportions are brought to the model's shape.
        said: called with the lines of every batch, one for each image.
    """

    def __init__(
        self,
        subject: Subject,
        records: OnceRecords,
        *,
        resize: Resizing = "stretch",
        said: Callable[[list[Line]], None] = lambda lines: None,
    ) -> None:
        self._subject, self._records, self._resize, self._said = subject, records, resize, said
        self._worker = JudgeWorker(subject, records)
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="secondguess-decode")
        self._counts: Counter[str] = Counter()

    def run(self, source: StreamSource, batch_size: int, is_ending: Callable[[], bool] = lambda: False) -> Streamed:
        """Judge batch after batch until the source ends, or somebody wants it to."""
        self._records.begin(self._subject.card)
        while not is_ending() and (events := source.take(batch_size)) is not None:
            if events:
                self._said(self._lines(events, is_ending))
                source.done()
        counts = self._counts
        return Streamed(counts["judged"], counts["again"], counts["failed"], public_name(self._records.where))

    def close(self) -> None:
        """Close the records, unless a write still hangs."""
        self._decoders.shutdown()
        self._worker.writer.close()
        if not self._worker.writer.hangs:
            self._records.close()

    def _lines(self, events: Sequence[Event], is_ending: Callable[[], bool]) -> list[Line]:
        """What there is to say of some events, in their order; when this returns, it is recorded."""
        known = self._until_it_works(lambda: self._records.recorded(event.id for event in events), is_ending)
        new: dict[str, Event] = {}
        for event in events:
            if not event.trouble and event.id not in known:
                new.setdefault(event.id, event)
        judged = dict(zip(new, self._judged(list(new.values()), is_ending), strict=True))
        lines = []
        for event in events:
            if event.trouble:
                lines.append(_failed(event, event.trouble))
            elif event.id in known:
                lines.append(_again(event, known[event.id]))
            else:
                twice = {} if new[event.id] is event else {"again": True}
                lines.append(judged[event.id] | twice)
        self._counts.update(map(_kind, lines))
        return lines

    def _judged(self, events: Sequence[Event], is_ending: Callable[[], bool]) -> Iterator[Line]:
        """The lines of events that are new; they are recorded."""
        images = list(self._decoders.map(self._read, events))
        jobs = [
            Job(image[None], event.id)
            for event, image in zip(events, images, strict=True)
            if not isinstance(image, UserError)
        ]
        answers = iter(self._until_it_works(lambda: self._worker(jobs), is_ending) if jobs else [])
        for event, image in zip(events, images, strict=True):
            if isinstance(image, UserError):
                yield _failed(event, str(image))
                continue
            answer = next(answers)
            if isinstance(answer, Exception):
                yield _failed(event, f"The model fails on it ({type(answer).__name__}: {answer}).")
            else:
                yield {"id": event.id, **answer[0]}

    def _read(self, event: Event) -> Floats | UserError:
        try:
            return read(event.image, self._subject.shape, self._resize, name=event.id)
        except BadImage:
            return BadImage("It cannot be read; send a picture file that is whole.")
        except UserError as error:
            return error

    def _until_it_works(self, do: Callable[[], Any], is_ending: Callable[[], bool]) -> Any:
        """Nobody waits for an answer, so a database that fails is waited for; what was written in part is known."""
        while True:
            try:
                return do()
            except DatabaseFailed:
                if is_ending():
                    raise
                time.sleep(PAUSE)


def _again(event: Event, record: Record) -> Line:
    return {
        "id": event.id,
        "prediction": record.prediction,
        "class_name": record.label,
        "confidence": record.confidence,
        "p_value": record.p_value,
        "verdict": record.verdict.split(" or "),
        "action": record.action,
        "again": True,
    }


def _failed(event: Event, reason: str) -> Line:
    return {"id": event.id, "error": reason}


def _kind(line: Line) -> str:
    return "failed" if "error" in line else "again" if "again" in line else "judged"


@contextmanager
def _ending() -> Iterator[Callable[[], bool]]:
    """Within the block, a termination signal or Ctrl-C is remembered instead of ending the process."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: received.append(number)) for number in numbers]
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
