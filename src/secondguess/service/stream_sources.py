"""Where a stream of images comes from: JSON lines on standard input, a folder that is watched, a Kafka topic.

A source hands out events and is told when those it handed out are recorded. Each event has an id, by which it is known
again when the stream is read once more:

    JSON lines    {"id": ..., "image": a file or base64}: the id
    folder        the path within it, with the time of change and the size: a file that is replaced is another image
    Kafka         that of the JSON object in the message; for a message that is a picture, topic/partition/offset
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from secondguess.accuracy.watched_folder import File, files_within
from secondguess.database import storable
from secondguess.errors import UserError, require
from secondguess.web.logs import Outage

__all__ = ["Event", "FolderSource", "JsonLines", "KafkaSource", "StreamSource", "open_source"]

MOMENT = 0.2  # seconds that a source waits before it says that nothing has come
BRIEFLY = 0.05  # seconds that a topic is waited for, as long as the batch is not full
EVERY = 1.0  # seconds between two looks at a folder
CONNECTING = 10.0  # seconds for the brokers of a topic
LONGEST_LINE = 32 << 20  # bytes
LONGEST_ID = 1000  # letters
LONGEST_PATH = 4096
CHUNK = 1 << 20
GROUP = "secondguess"


@dataclass(frozen=True)
class Event:
    """An image that has come.

    Attributes:
        id: by which it is known again.
        image: a file, or the bytes of one.
        trouble: why there is none, as a sentence.
    """

    id: str
    image: Path | bytes = b""
    trouble: str = ""


class StreamSource(Protocol):
    """What hands out events."""

    def take(self, most: int) -> list[Event] | None:
        """At most so many events; none where nothing has come for a moment, None where nothing will come any more."""

    def done(self) -> None:
        """All events that were taken are recorded."""

    def close(self) -> None:
        """Nothing more will be taken."""


def open_source(place: str) -> StreamSource:
    """The source at a place: `-` for standard input, a folder, or `kafka://host:9092/topic`."""
    if place == "-":
        return JsonLines()
    if place.startswith("kafka://"):
        return KafkaSource(place)
    if Path(place).is_dir():
        return FolderSource(Path(place))
    raise UserError(
        f"{place} is no stream; give - for JSON lines on standard input, a folder, or kafka://host:9092/topic."
    )


class JsonLines:
    """JSON lines from a file descriptor.

    Args:
        descriptor: by default that of standard input.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._over = False
        self._number = 0

    def take(self, most: int) -> list[Event] | None:
        """What has come, without waiting for more than there is."""
        patience = MOMENT
        while not self._over and len(self._lines) < most and self._has_come(patience):
            self._read()
            patience = 0.0
        if self._over and not self._lines:
            return None
        taken = [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
        return [event for line in taken if (event := self._event(line)) is not None]

    def done(self) -> None:
        """Lines are not given back."""

    def close(self) -> None:
        """Standard input is closed by others."""

    def _has_come(self, patience: float) -> bool:
        if os.name != "posix":  # there only sockets can be waited for
            return True
        return bool(select.select([self._descriptor], [], [], patience)[0])

    def _read(self) -> None:
        chunk = os.read(self._descriptor, CHUNK)
        first, *others = chunk.split(b"\n")
        self._rest += first
        if others or (not chunk and self._rest):
            self._lines.append(bytes(self._rest))
            self._lines.extend(others[:-1])
            self._rest = bytearray(others[-1] if others else b"")
        del self._rest[LONGEST_LINE + 1 :]  # enough to see that it is too long
        self._over = not chunk

    def _event(self, line: bytes) -> Event | None:
        self._number += 1
        return event_of(line, f"line {self._number}") if line.strip() else None


def event_of(line: bytes, name: str) -> Event:
    """The event in a JSON object; `name` is what to call one that has no id."""
    if len(line) > LONGEST_LINE:
        return Event(name, trouble=f"It is longer than {LONGEST_LINE >> 20} MiB; name a file instead.")
    try:
        known = json.loads(line)
        given, image = known["id"], known["image"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return Event(name, trouble='It is no JSON object {"id": ..., "image": ...}.')
    if not isinstance(given, str | int) or isinstance(given, bool) or not 0 < len(str(given)) <= LONGEST_ID:
        return Event(name, trouble=f'Its "id" must be a text of at most {LONGEST_ID:,} letters, or a whole number.')
    name = storable(str(given))
    if not isinstance(image, str) or not image:
        return Event(name, trouble='Its "image" must be the path of a file, or a file in base64.')
    if len(image) <= LONGEST_PATH and os.path.isfile(image):  # noqa: PTH113 - Path raises where a name is too long
        return Event(name, Path(image))
    try:
        encoded = image.partition("base64,")[2] if image.startswith("data:") else image
        return Event(name, base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        return Event(name, trouble='Its "image" is neither a file nor base64.')


class FolderSource:
    """A folder in which images arrive; it is looked through every second, folders below included.

    A file is taken when it has not changed from one look to the next, so that it is complete. Files stay where they
    are; each look takes the longer the more there are.

    Args:
        folder: where they arrive.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: set[File] = set()
        self._taken: set[str] = set()
        self._waiting: deque[File] = deque()
        self._next = 0.0

    def take(self, most: int) -> list[Event] | None:
        """Files that are complete."""
        if not self._waiting:
            if time.monotonic() < self._next:
                time.sleep(MOMENT)
                return []
            self._look()
        files = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        events = [Event(self._id(file), file[0]) for file in files]
        self._taken.update(event.id for event in events)
        return events

    def done(self) -> None:
        """What was taken is not taken again."""

    def close(self) -> None:
        """There is nothing to close."""

    def _look(self) -> None:
        if not self._folder.is_dir():
            raise UserError(f"The folder {self._folder} is gone.")
        files, _ = files_within(self._folder)
        self._waiting.extend(file for file in files if file in self._before and self._id(file) not in self._taken)
        self._before = set(files)
        self._next = time.monotonic() + EVERY

    def _id(self, file: File) -> str:
        path, changed, size = file
        return storable(f"{path.relative_to(self._folder).as_posix()}@{changed}-{size}")


class KafkaSource:
    """A topic of Apache Kafka or of what speaks its protocol, through `confluent-kafka` (extra `kafka`).

    Offsets are committed after the records: a killed consumer is handed the last messages again, and knows their ids.
    Several consumers of one group share the partitions.

    Args:
        url: `kafka://host:9092,other:9092/topic?group=NAME`; further parameters are settings of the client, and
            `config=FILE` names a file of them, a `name=value` on each line, for what others must not read.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._topic = parts.path.strip("/")
        if not parts.netloc or not self._topic or "/" in self._topic:
            raise UserError(f"{url} names no topic; give kafka://host:9092/topic.")
        library = require("confluent_kafka", "kafka")
        self._failure: type[Exception] = library.KafkaException
        self._brokers = parts.netloc
        log = logging.getLogger(__name__)
        self._outage = Outage(log, "The topic cannot be read", "The topic is read again")
        self._consumer = library.Consumer(self._settings(dict(parse_qsl(parts.query))))
        try:
            self._consumer.list_topics(self._topic, timeout=CONNECTING)  # a consumer would wait for brokers silently
            self._consumer.subscribe([self._topic])
        except self._failure as error:
            self._consumer.close()
            raise UserError(
                f"The brokers {self._brokers} cannot be reached ({error}); start them, or name others."
            ) from None

    def take(self, most: int) -> list[Event] | None:
        """Messages of the partitions that this consumer has."""
        messages = self._consumer.consume(num_messages=most, timeout=BRIEFLY)
        events = []
        for message in messages:
            if (error := message.error()) is None:
                self._outage.worked()
                events.append(self._event(message))
            elif error.fatal():
                raise UserError(f"The topic {self._topic} cannot be read ({error}).")
            else:
                self._outage.failed(error)
        return events

    def done(self) -> None:
        """Commit the offsets; where that fails, the messages come again and are known."""
        try:
            self._consumer.commit(asynchronous=False)
        except self._failure as error:
            logging.getLogger(__name__).warning("Offsets of %s were not committed (%s).", self._topic, error)

    def close(self) -> None:
        """Leave the group, so that others take the partitions over at once."""
        self._consumer.close()

    def _event(self, message: Any) -> Event:
        name = f"{message.topic()}/{message.partition()}/{message.offset()}"
        value = message.value() or b""
        return event_of(value, name) if value.lstrip()[:1] == b"{" else Event(name, value)

    def _settings(self, given: dict[str, str]) -> dict[str, Any]:
        group, file = given.pop("group", GROUP), given.pop("config", None)
        ours = {"bootstrap.servers": self._brokers, "group.id": group, "auto.offset.reset": "earliest"}
        return ours | (_properties(Path(file)) if file else {}) | given | {"enable.auto.commit": False}


def _properties(file: Path) -> dict[str, str]:
    try:
        lines: Sequence[str] = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The settings {file} cannot be read ({type(error).__name__}).") from error
    pairs = [line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}
