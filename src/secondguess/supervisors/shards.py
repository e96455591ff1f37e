"""Supervisors on an engine: fitted from shards of the training images, and scoring shards of others.

A shard is an observation of some images, or images that a worker observes first (`UnseenShard`), so that no machine
ever holds all traces. Of a training shard only its statistics come back, which are merged in the order of the shards:
what is learnt does not depend on the engine, nor on the order in which shards end. A supervisor that searches its
training traces is cut into parts where these are large; the nearest of all parts are found from those of each.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import put_together, taken_apart
from secondguess.contracts.sealed import digest_of
from secondguess.engine import Entry, Ledger, Sent, Shared, Task, run_each
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.model.shards import UnseenShard
from secondguess.progress import Progress, Silent
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.indexed import IndexedSupervisor

if TYPE_CHECKING:
    from secondguess.contracts.merging import Mergeable

__all__ = ["fit_in_shards", "score_in_shards"]

Shard = Observation | UnseenShard
ROWS, FEWEST = 1 << 16, 16  # of a shard at most; shards at least, where there are enough images
LARGEST = 64 << 20  # bytes of a shard: a cluster is given several ahead for each of its workers
PART = 1 << 30  # bytes of training traces that one worker searches


def fit_in_shards(
    supervisors: Sequence[Supervisor],
    shards: Sequence[Shard],
    *,
    engine: str = "local",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Supervisor]:
    """Fitted copies of supervisors, as `fit` on all training images makes them, to rounding.

    Args:
        supervisors: those that learn nothing are taken as they are.
        shards: the training images, in their order.
        engine: as `secondguess.engine.open_engine` takes it.
        folder: where the statistics of finished shards are kept until all supervisors are fitted, so that an
            interrupted fit goes on; None for nowhere.
        progress: where to report the shards done.

    Raises:
        UserError: for a supervisor that needs all training images at once.
    """
    for one in supervisors:
        if one.requires_fit and not one.merges():
            raise UserError(
                f"The supervisor {one.name!r} learns from all training images at once, so it cannot be fitted in "
                "shards; call its fit() on a sample of them, or leave it out."
            )
    if not shards:
        raise UserError("There is no shard to learn from; give at least one.")
    labelled = any(one.labels is not None and (one.labels >= 0).any() for one in shards)
    fitted = [one.clone() if one.requires_fit else one for one in supervisors]
    learning = [one for one in fitted if one.requires_fit]
    ledger = None if folder is None else Ledger(folder)
    done: list[Task] = []
    while learning:
        order = _shared(learning, labelled)
        tasks = [_learning(order, shard, number, ledger is not None) for number, shard in enumerate(shards)]
        done += tasks
        totals: list[Mergeable] = []
        classes = 0
        for entry in _in_order(tasks, ledger, engine, progress, "Fitting"):
            found = entry.result["statistics"]
            found = found if ledger is None else put_together(found, entry.result)
            totals = [first.merge(second) for first, second in zip(totals, found, strict=True)] if totals else found
            classes = max(classes, entry.result["classes"])
        learning = [one for one, total in zip(learning, totals, strict=True) if one.learn(total, classes)]
    if ledger is not None:
        ledger.forget(done)
    return fitted


def score_in_shards(
    supervisors: Sequence[Supervisor],
    observation: Observation,
    *,
    engine: str = "local",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, NDArray[np.float64]]:
    """The scores (n,) of an observation by each fitted supervisor, by name.

    Args:
        supervisors: fitted.
        observation: of n images.
        engine: as `secondguess.engine.open_engine` takes it; supervisors go to each of its workers once.
        folder: where finished shards are kept until all are done, so that an interrupted run goes on; None for nowhere.
        progress: where to report the shards done.
    """
    cut = {one.name: _parts(one) for one in supervisors}
    together = [one for one in supervisors if len(cut[one.name]) == 1]
    orders: list[Sequence[Supervisor | _Part]] = [
        together,
        *([part] for parts in cut.values() if len(parts) > 1 for part in parts),
    ]
    ledger = None if folder is None else Ledger(folder, tables=True)
    slices = list(rows_of(observation))
    sent = [_shared(order) for order in orders if order]
    tasks = []
    for rows in slices:
        part = _Rows(observation, rows)
        shard = Sent(part, f"{rows.start}" if ledger is None else digest_of(pickle.dumps(part)))
        tasks += [Task(score_shard, {"order": order, "shard": shard}) for order in sent]
    scores = {one.name: np.empty(len(observation)) for one in supervisors}
    found: dict[str, list[NDArray[np.float64]]] = {}
    for place, entry in enumerate(_in_order(tasks, ledger, engine, progress, "Scoring")):
        rows = slices[place // len(sent)]
        for message in entry.result["warnings"]:
            warnings.warn(message, stacklevel=2)
        for name, values in ((name, entry.result[name]) for name in entry.result if name in scores):
            if len(cut[name]) == 1:
                scores[name][rows] = values
            else:
                found.setdefault(name, []).append(values)
        if (place + 1) % len(sent) == 0:
            for one in supervisors:
                if one.name in found:
                    assert isinstance(one, IndexedSupervisor)
                    scores[one.name][rows] = one.combined(observation.take(rows), found.pop(one.name))
    if ledger is not None:
        ledger.forget(tasks)
    return scores


def rows_of(observation: Observation) -> Iterator[slice]:
    """The rows of each shard of an observation."""
    count = len(observation)
    one, two = (len(pickle.dumps(observation.take(slice(0, rows)))) for rows in (1, 2))  # names of classes are in both
    size = max(1, min(ROWS, LARGEST // max(1, two - one), -(-count // FEWEST)))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def learn_shard(*, order: Sent, shard: Sent, kept: bool, seed: int, model: Shared | None = None) -> dict[str, Any]:
    """What a worker does to fit: the statistics of its images for each supervisor, in their order.

    Those that are kept are taken apart, since nothing in a ledger is ever unpickled.
    """
    supervisors, labelled = order.value
    seen = _taken(shard.value) if model is None else UnseenShard(model, shard.value).observe()
    labels = (seen.labels if seen.labels is not None else np.full(len(seen), -1)) if labelled else None
    statistics = [one.statistics(seen, labels) for one in supervisors]
    arrays: dict[str, NDArray[Any]] = {}
    try:
        found = taken_apart(statistics, arrays) if kept else statistics
    except TypeError as error:
        names = ", ".join(one.name for one in supervisors)
        raise UserError(
            f"What {names} learn from a shard cannot be kept in a folder: {error}; mark the class with "
            "secondguess.contracts.merging.keepable, or name no folder."
        ) from error
    return {"statistics": found, "classes": seen.num_classes, **arrays}


def score_shard(*, order: Sent, shard: Sent, seed: int) -> dict[str, Any]:
    """What a worker does to score: the scores of its images by supervisor, or what a part of its traces has nearest."""
    seen = _taken(shard.value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = {one.name: one.nearest(seen) if isinstance(one, _Part) else one.score(seen) for one in order.value}
    return found | {"warnings": [str(one.message) for one in caught if issubclass(one.category, UserWarning)]}


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of an observation. They are taken when they are used or pickled, and nobody holds those of all shards.

    An observation remembers what was computed of it, such as the softmax of its logits; one that is taken anew for each
    task forgets it with the task.
    """

    whole: Observation
    rows: slice

    def taken(self) -> Observation:
        return self.whole.take(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.taken(),)


def _itself(observation: Observation) -> Observation:
    """What the rows are for a worker."""
    return observation


@dataclass(frozen=True)
class _Part:
    """A part of a supervisor, whose answer is not yet a score."""

    whole: IndexedSupervisor

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def fingerprint(self) -> str:
        return f"part of {self.whole.fingerprint}"

    def nearest(self, observation: Observation) -> NDArray[np.float64]:
        return self.whole.nearest(observation)


def _parts(supervisor: Supervisor) -> Sequence[Supervisor | _Part]:
    """The supervisor, or parts of it that a worker can hold."""
    if not isinstance(supervisor, IndexedSupervisor) or supervisor.traces_.nbytes <= PART:
        return [supervisor]
    parts = supervisor.in_parts(-(-supervisor.traces_.nbytes // PART))
    return [supervisor] if len(parts) == 1 else [_Part(part) for part in parts]


def _taken(shard: Observation | _Rows) -> Observation:
    return shard.taken() if isinstance(shard, _Rows) else shard


def _learning(order: Shared, shard: Shard, number: int, kept: bool) -> Task:
    """The task of a training shard, recognised by its content where its statistics are kept."""
    params: dict[str, Any] = {"order": order, "kept": kept}
    if isinstance(shard, UnseenShard):
        images = shard.images
        what = digest_of(images.fingerprint.encode() + images.labels.tobytes()) if kept else ""
        params |= {"model": shard.order, "shard": Sent(images, what)}
        return Task(learn_shard, params, number, shard.resources)
    return Task(learn_shard, params | {"shard": Sent(shard, digest_of(pickle.dumps(shard)) if kept else "")}, number)


def _shared(supervisors: Sequence[Supervisor | _Part], labelled: bool | None = None) -> Shared:
    """Supervisors that go to each worker once, those of a fit with whether there are labels to learn from."""
    what = digest_of(repr(([one.fingerprint for one in supervisors], labelled)).encode())
    return Shared(list(supervisors) if labelled is None else (list(supervisors), labelled), what)


def _in_order(
    tasks: Sequence[Task], ledger: Ledger | None, engine: str, progress: Progress | None, label: str
) -> Iterator[Entry]:
    """The entries of tasks in their order, whatever the order in which they end."""
    made: dict[int, Entry] = {}
    following = 0
    for place, entry in run_each(tasks, ledger, engine, progress=progress or Silent(), label=label):
        made[place] = entry
        while following in made:
            yield made.pop(following)
            following += 1
