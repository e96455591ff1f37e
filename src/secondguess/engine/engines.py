"""Where tasks run. An engine takes calls and yields what became of each, in the order in which they end.

All engines treat a lost worker alike: what it had not finished is tried again, and a task that loses its worker more
than `retries` times gives a `WorkerLost`. An engine that is closed before its end drops what is still waiting.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from secondguess.engine.shared import apart, kept_here, map_file, together, write_file
from secondguess.engine.task import Call, Failure, Outcome, WorkerLost, perform
from secondguess.errors import UserError

__all__ = ["AHEAD", "FEWEST", "Engine", "InProcess", "Processes", "lost", "open_engine"]

Ended = tuple[int, Outcome | Failure | WorkerLost]

AHEAD, FEWEST = 4, 16  # calls that a cluster is given ahead, for each of its threads and at least
AHEAD_HERE = 2  # calls of each process of this machine, so that the next one waits there when one has ended
KINDS = "local, local:N for N processes, dask://host:port, ray, or ray://host:port"


class Engine(Protocol):
    """Something that performs calls."""

    def workers(self) -> int:
        """How many calls it performs at once, right now."""

    def run(self, calls: Sequence[Call], *, retries: int) -> Iterator[Ended]:
        """Yield (place of a call in `calls`, what became of it) as they end."""


def open_engine(name: str) -> Engine:
    """The engine of that name.

    Args:
        name: `local` (one task after another in this process), `local:N` (N processes of this machine),
            `dask://host:port` (a Dask scheduler), `ray` (the Ray of this machine, started where there is none) or
            `ray://host:port` (a Ray cluster).
    """
    if name == "local":
        return InProcess()
    if found := re.fullmatch(r"local:(\d+)", name):
        count = int(found[1])
        if count < 1:
            raise UserError(f"The engine {name!r} has no process; give 1 or more.")
        return Processes(count) if count > 1 else InProcess()
    if found := re.fullmatch(r"dask://([^/]+:\d+)/?", name):
        from secondguess.engine.on_dask import OnDask

        return OnDask(f"tcp://{found[1]}")
    if name == "ray" or re.fullmatch(r"ray://[^/]+:\d+/?", name):
        from secondguess.engine.on_ray import OnRay

        return OnRay(None if name == "ray" else name.rstrip("/"))
    raise UserError(f"There is no engine {name!r}; give {KINDS}.")


class InProcess:
    """One task after another in this process, whose resources are assumed to suffice."""

    def workers(self) -> int:
        """One."""
        return 1

    def run(self, calls: Sequence[Call], *, retries: int) -> Iterator[Ended]:
        """Yield what became of each call, in their order."""
        for place, call in enumerate(calls):
            yield place, perform(call)


class Processes:
    """Several processes of this machine, through joblib and loky.

    Calls that need a GPU are performed in this process, one after another, so that they do not compete for it.

    Args:
        count: how many processes, at least 2.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def workers(self) -> int:
        """The processes."""
        return self.count

    def run(self, calls: Sequence[Call], *, retries: int) -> Iterator[Ended]:
        """Yield what became of each call, as they end."""
        for place, call in enumerate(calls):
            if call.resources:
                yield place, perform(call)
        bare, shared = apart(calls)
        waiting = {place: call for place, call in enumerate(bare) if not call.resources}
        losses = 0
        with TemporaryDirectory(prefix="secondguess-shared-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            for fingerprint, value in shared.items() if waiting else ():
                write_file(folder / fingerprint, value)
            while waiting:
                before = len(waiting)
                yield from self._until_lost(waiting, folder)
                losses = losses + 1 if len(waiting) == before else 0
                for place in list(waiting)[: self.count]:  # one of these was fatal; the others go first
                    waiting[place] = waiting.pop(place)
                if losses > retries:
                    place, call = next(iter(waiting.items()))
                    suspect = {place: call}
                    yield from self._until_lost(suspect, folder)
                    if suspect:
                        yield place, lost(call, retries)
                    del waiting[place]

    def _until_lost(self, waiting: dict[int, Call], folder: Path) -> Iterator[Ended]:
        """Take away from `waiting` what ends; return early when a process is lost, which takes the others with it."""
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # loky replaces a process whose memory has grown, as that of tasks does which remember their data, and speaks
        # of a leak; nothing is lost by it.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        ahead = AHEAD_HERE * self.count
        pool = Parallel(n_jobs=self.count, return_as="generator_unordered", pre_dispatch=ahead, batch_size=1)
        try:
            # A process may be lost while the calls are still being handed out, before there is anything to iterate.
            with closing(
                pool(delayed(_numbered)(place, call, folder) for place, call in list(waiting.items()))
            ) as ending:
                for place, outcome in ending:
                    del waiting[place]
                    yield place, outcome
        except TerminatedWorkerError:
            return


def lost(call: Call, retries: int) -> WorkerLost:
    """The error for a task that ends its workers."""
    return WorkerLost(
        f"The worker of {call.name} with {call.params}, seed {call.seed}, was lost again and again, {retries} retries "
        "included, perhaps for lack of memory; inspect the worker's log, give it more, or run fewer at once."
    )


def _numbered(place: int, call: Call, folder: Path) -> tuple[int, Outcome | Failure]:
    """What a process does; what calls share lies in the folder."""

    def shared(fingerprint: str) -> object:
        return kept_here(fingerprint, partial(map_file, folder / fingerprint))

    return place, perform(call, partial(together, value_of=shared))
