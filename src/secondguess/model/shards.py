"""A pass over many images on an engine: cut into shards, each of which a worker reads and observes.

A worker is told which model to open and what to do (`orders.py`), and given the images of its shard: files and tables
by their paths, arrays as they are. Where scorers (fitted supervisors) go with the order, it scores what it saw as well,
and traces and dropout samples stay with it unless they were asked for. What comes back goes to this process, which
alone writes: into the arrays of the pass and, where there is a cache to go on from after an interruption, shard by
shard into a ledger beside it, until the arrays are complete.

Shards depend on the images alone, not on the engine. They begin at multiples of the batch size, or of the chunk in
which dropout is sampled, so that the model sees the batches that it would see without an engine.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import Entry, Ledger, Sent, Shared, Task, resources_for, run_each
from secondguess.errors import UserError
from secondguess.images.sources import ViewSource
from secondguess.model.needs import Needs
from secondguess.model.orders import Order, Scorer, opened, order_of, sent_classifier, shared_order
from secondguess.model.recording import SCORE, Item, sample_chunk
from secondguess.progress import Progress, Silent

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource
    from secondguess.model.classifier import Classifier
    from secondguess.model.observation import Observation

__all__ = [
    "Scored",
    "Shards",
    "UnseenShard",
    "goes_to_workers",
    "observe_and_score",
    "observe_shard",
    "unseen_shards",
]

LARGEST = 256 << 20  # bytes of pixels that a shard has, decoded
MOST = 8192  # images that it has
SHARDS = 16  # at least, where there are enough images: as many workers as a machine has cores then share them fairly
FEW_BATCHES = 2  # that are observed here, even where there is an engine
KEPT = "shards"  # the ledger, in the folder of the cache


class Shards:
    """The shards of one pass.

    Args:
        classifier: the system under test, with an engine.
        source: the n images.
        ids: what the images are called, or None where they have only their positions.
        items: what to record.
        keys: what each item depends on, from which the shards that a ledger holds are found again; empty to keep none.
        scorers: who score the images, by the fingerprint that their items name.

    Attributes:
        warnings: what scorers warned of, by their fingerprint.
        failed: the scorers that could not score some shard, by their fingerprint.
    """

    def __init__(
        self,
        classifier: Classifier,
        source: ImageSource,
        ids: Sequence[str] | None,
        items: Sequence[Item],
        keys: Sequence[Any],
        scorers: Mapping[str, Scorer] | None = None,
    ) -> None:
        self._engine, self._source, self._ids, self._items = classifier.engine, source, ids, tuple(items)
        self._rows = cut(len(source), source.shape, classifier.pass_rows(source.shape), items)
        cache = classifier.cache
        self._ledger = Ledger(cache.path / KEPT, tables=True) if cache is not None and keys else None
        self._resources = resources_for(classifier.device)
        order = order_of(classifier, self._items, scorers=scorers or {})
        self._order = shared_order(order, keys)
        self._tasks: list[Task] = []
        self.warnings: dict[str, list[str]] = {}
        self.failed: set[str] = set()

    def __len__(self) -> int:
        """The number of shards."""
        return len(self._rows)

    def run(self) -> Iterator[tuple[slice, dict[Item, NDArray[Any]]]]:
        """Yield the rows of a shard and the values of each item but those of `failed` scorers, as they end."""
        self._tasks = [self._task(rows) for rows in self._rows]
        for place, entry in run_each(self._tasks, self._ledger, self._engine or "local", progress=Silent()):
            yield self._rows[place], self._values(entry)

    def forget(self) -> None:
        """Remove the shards from the ledger, once what they hold is kept elsewhere."""
        if self._ledger is not None:
            self._ledger.forget(self._tasks)

    def _task(self, rows: slice) -> Task:
        part = ViewSource(self._source, np.arange(rows.start, rows.stop))
        ids = None if self._ids is None else tuple(self._ids[rows])
        images = Sent((part, ids), f"{rows.start}:{rows.stop}")  # what they are is in the keys
        return Task(observe_shard, {"order": self._order, "images": images}, rows.start, self._resources)

    def _values(self, entry: Entry) -> dict[Item, NDArray[Any]]:
        for who, messages in entry.result["warnings"].items():
            said = self.warnings.setdefault(who, [])
            said += [message for message in messages if message not in said]
        self.failed |= set(entry.result["failed"])
        items = [item for item in self._items if not (item.what == SCORE and item.layer in self.failed)]
        return {item: entry.result[_column(item, self._order.value)] for item in items}


@dataclass(frozen=True, eq=False)
class UnseenShard:
    """Images that a worker is to observe, once it is given them; nothing but what it makes of them comes back.

    Attributes:
        order: of the pass.
        images: of this shard.
    """

    order: Shared
    images: ImageSet

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,), -1 where unknown."""
        return self.images.labels

    @property
    def resources(self) -> dict[str, float]:
        """What a worker must declare to open the model."""
        return resources_for(self.order.value.how["device"])

    def observe(self) -> Observation:
        """Open the model where this process has not opened it yet, and look at the images."""
        return opened(self.order).observe(self.images, self.order.value.needs)


def unseen_shards(classifier: Classifier, images: ImageSet, needs: Needs) -> list[UnseenShard]:
    """Shards of images, to be observed where they are used.

    Args:
        classifier: the system under test; its own engine and cache play no part.
        images: all of them.
        needs: what to record; dropout samples cannot be among it.
    """
    if needs.samples:
        raise UserError("Dropout samples depend on an image's place in the whole set; observe the whole set for them.")
    sent = sent_classifier(classifier, images, needs)
    rows = cut(len(images), images.shape, classifier.batch_size, sent.value.items)
    return [UnseenShard(sent, images.take(np.arange(one.start, one.stop))) for one in rows]


@dataclass(frozen=True, eq=False)
class Scored:
    """Images as workers saw and scored them.

    Attributes:
        observation: of n images, with what was asked for and no more.
        scores: (n,), or (n, m) where there are several, by the name of the scorer; one that failed on some worker is
            not among them.
        seconds: that scoring took on the workers together, by name.
        warnings: what scorers warned of, by name.
    """

    observation: Observation
    scores: dict[str, NDArray[np.float64]]
    seconds: dict[str, float]
    warnings: dict[str, list[str]]


def goes_to_workers(classifier: Classifier, count: int) -> bool:
    """Whether so many images are worth sending to an engine."""
    return classifier.engine is not None and count > FEW_BATCHES * classifier.batch_size


def observe_and_score(
    classifier: Classifier,
    images: ImageSet,
    scorers: Sequence[Scorer],
    needs: Needs | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Scored:
    """Have workers observe images and score them in one pass, for images that `goes_to_workers`.

    Args:
        classifier: the system under test, with an engine.
        images: all of them.
        scorers: who score them; what they need is observed on the workers.
        needs: what is to come back of it, beside probabilities.
        seed: of dropout samples.
        progress: where to report the images done.
    """
    from secondguess.model.passes import Pass

    wanted = needs or Needs()
    classifier.check(Needs.union([wanted, *scorers]))
    by_digest = {one.fingerprint: one for one in scorers}
    made = Pass(classifier, classifier.source(images), wanted, seed, images.ids, scorers=by_digest)
    seen = made.run(f"Scoring {images.name}", progress or Silent())
    found = {by_digest[item.layer].name: values for item, values in seen.items() if item.what == SCORE}
    return Scored(
        classifier.observation(images, seen),
        {name: np.array(values[:, 1] if values.shape[1] == 2 else values[:, 1:]) for name, values in found.items()},
        {name: float(values[:, 0].sum()) for name, values in found.items()},
        {by_digest[who].name: said for who, said in made.warnings.items()},
    )


def observe_shard(*, order: Sent, images: Sent, seed: int) -> dict[str, Any]:
    """What a worker does: the arrays of a shard, named after the items of the order; `seed` is where it begins."""
    from secondguess.model.passes import Pass

    wanted: Order = order.value
    source, ids = images.value
    classifier = opened(order)
    seen = Pass(classifier, source, wanted.needs, wanted.seed, ids, start=seed).run("", Silent())
    said: dict[str, list[str]] = {}
    failed: list[str] = []
    observation = classifier.observation(source, seen)
    for item in wanted.items:
        if item.what == SCORE:
            scores, said[item.layer] = _scores(wanted.scorers[item.layer], observation)
            if scores is None:
                failed.append(item.layer)
            else:
                seen[item] = scores
        elif item.what == "samples" and observation.samples is not None:  # a scorer may need more than come back
            seen[item] = observation.samples[:, : item.count]
    arrays = {_column(item, wanted): np.asarray(seen[item]) for item in wanted.items if item in seen}
    return arrays | {"warnings": said, "failed": failed}


def _column(item: Item, order: Order) -> str:
    """What an array is called in the result of a shard."""
    if item.what == SCORE:
        return f"score {order.scorers[item.layer].name}"
    return f"trace {item.trace}" if item.trace else item.what


def _scores(scorer: Scorer, observation: Observation) -> tuple[NDArray[np.float64] | None, list[str]]:
    """The seconds that an image took and its scores, (n, 1 + m), and what the scorer warned of; None where it failed.

    One that fails must not cost the others the pass: whoever wants its scores has it fail where it can be said.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        began = time.perf_counter()
        try:
            scores = np.asarray(scorer.score(observation), dtype=np.float64)
        except Exception:
            scores = np.full(len(observation), np.nan)
    if np.isnan(scores).any():
        return None, []
    seconds = np.full(len(observation), (time.perf_counter() - began) / len(observation))
    said = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    return np.column_stack([seconds, scores]), list(said)


def cut(count: int, shape: tuple[int, ...], batch_size: int, items: Sequence[Item]) -> list[slice]:
    """The rows of each shard of `count` images (C, H, W)."""
    unit = sample_chunk(shape) if any(item.count for item in items) else batch_size
    most = min(MOST, LARGEST // (4 * prod(shape)), -(-count // SHARDS))
    size = max(1, -(-most // unit)) * unit
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
