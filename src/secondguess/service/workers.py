"""Several worker processes behind one port, and the process that keeps them going.

The listening socket is bound once and shared: a worker that is free takes the next connection, and one that is killed
takes only its own connections with it, not those that wait to be accepted (with a socket for each, SO_REUSEPORT, it
would). The parent answers no requests and loads no model; it starts the workers, replaces one that ends, and passes a
termination signal on. A worker whose parent is gone ends as well. What is recorded lies in one database for all:
SQLite and PostgreSQL let one of them write at a time. What is counted lies in one folder, see `metrics`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.service.api import Service

__all__ = ["supervise"]

POLL = 0.2  # seconds after which signals are looked for
GRACE = 9.5  # seconds for an orderly end, more than a worker takes for one (`server.PATIENCE`, `api.CLOSING`)
LONGEST = 30.0  # seconds between two attempts to start a worker
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # as in `metrics`, which is imported after this has been set
THREADS = "OMP_NUM_THREADS"

Make = Callable[[], "Service"]


def supervise(
    make: Make,
    listening: socket.socket,
    count: int,
    *,
    announce: Callable[[str], None],
    hosts: Sequence[str] = (),
) -> None:
    """Serve in several processes until a termination signal or Ctrl-C.

    Args:
        make: makes the service of a worker, in its process; it is sent there.
        listening: what `bind` gave; it is closed at the end.
        count: how many workers.
        announce: called with the address once all of them answer.
        hosts: further names under which the service may be called.
    """
    if os.name != "posix":
        listening.close()
        raise UserError("Several workers need Linux or macOS; elsewhere use one worker, and several services.")
    with listening, _Signals() as signals, _environment(count) as metrics:
        workers = [_Worker(make, listening, tuple(hosts), metrics) for _ in range(count)]
        try:
            for worker in workers:
                worker.start()
            address = _first_answer(workers, signals)
            if address is not None:
                announce(address)
                _keep(workers, signals)
        finally:
            _end(workers)
    if signals.received == signal.SIGTERM:  # whoever sent it sees that it was obeyed
        signal.raise_signal(signal.SIGTERM)


def _first_answer(workers: Sequence[_Worker], signals: _Signals) -> str | None:
    """Wait until all workers answer, and return the address; None where a signal came first."""
    while signals.received is None:
        _wait(workers)
        for worker in workers:
            if worker.ended is not None:  # what one cannot do at first, none can
                raise UserError(worker.ended)
        if all(worker.address for worker in workers):
            return workers[0].address
    return None


def _keep(workers: Sequence[_Worker], signals: _Signals) -> None:
    """Replace workers that end, until a signal comes."""
    log = logging.getLogger(__name__)
    while signals.received is None:
        _wait(workers)
        for worker in workers:
            if worker.ended is not None:
                log.error("%s It is replaced.", worker.ended)
                worker.plan()
            if worker.is_due:
                worker.start()
        if signals.hangups:
            signals.hangups = 0
            log.error("Records were not rotated: several workers have them open; use one worker, or PostgreSQL.")


def _wait(workers: Sequence[_Worker]) -> None:
    """Until a worker ends, or a little; then look what they say."""
    wait([worker.process.sentinel for worker in workers if worker.process is not None], POLL)
    for worker in workers:
        worker.look()


def _end(workers: Sequence[_Worker]) -> None:
    """End all workers in good order, and then those that did not."""
    until = time.monotonic() + GRACE
    running = [worker.process for worker in workers if worker.process is not None]
    for process in running:
        process.terminate()
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            logging.getLogger(__name__).error("A worker did not end in time and was killed.")
            process.kill()
            process.join()


class _Worker:
    """A place among the workers, and the process that fills it.

    Attributes:
        process: None while it is waited with the next attempt.
        address: once it answers.
        ended: once the process has, a sentence that says why.
    """

    def __init__(self, make: Make, listening: socket.socket, hosts: tuple[str, ...], metrics: Path) -> None:
        self._make, self._listening, self._hosts, self._metrics = make, listening, hosts, metrics
        self._attempts, self._next = 0, 0.0
        self._said: Connection | None = None
        self._sentence: str | None = None
        self.process: Any = None
        self.address: str | None = None
        self.ended: str | None = None

    def start(self) -> None:
        """Start a process: a fresh interpreter, since a fork would share the locks of other threads."""
        context = multiprocessing.get_context("spawn")
        self._said, saying = context.Pipe(duplex=False)
        self.address = self.ended = self._sentence = None
        process = context.Process(target=_serve, args=(self._make, self._listening, self._hosts, saying))
        try:
            process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise UserError(
                f"The model cannot be sent to other processes ({error}); name its file, or use one worker."
            ) from error
        finally:
            saying.close()
        self.process = process

    def look(self) -> None:
        """See whether the process answers by now, or has ended."""
        if self.process is None:
            return
        over = not self.process.is_alive()  # before its words are read, so that none is missed
        if self._said is not None and self._said.poll():
            try:
                self.address, self._sentence = self._said.recv()
            except EOFError:
                self._said = None
        if over:
            self.ended = self._sentence or f"A worker has ended with the exit code {self.process.exitcode}."

    def plan(self) -> None:
        """Forget a process that has ended; the first attempt to replace it is made at once, others after a while."""
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(self.process.pid, str(self._metrics))  # type: ignore[no-untyped-call]
        self._attempts = 0 if self.address else self._attempts + 1
        self._next = time.monotonic() + (min(LONGEST, 2.0**self._attempts) if self._attempts else 0.0)
        self.process = self.ended = None

    @property
    def is_due(self) -> bool:
        """Whether there is no process, and it is time for one."""
        return self.process is None and time.monotonic() >= self._next


def _serve(make: Make, listening: socket.socket, hosts: tuple[str, ...], saying: Connection) -> None:
    """What a worker does: it says (address, None) once it answers, or (None, sentence) where it cannot."""
    from secondguess.service.server import Hangups, serve_here

    def answers(address: str) -> None:
        saying.send((address, None))

    threading.Thread(target=_follow, daemon=True).start()
    try:
        with Hangups() as hangups:
            serve_here(make, listening, announce=answers, hosts=hosts, hangups=hangups)
    except KeyboardInterrupt:  # Ctrl-C reaches all processes of a terminal
        pass
    except UserError as error:
        saying.send((None, str(error)))


def _follow() -> None:
    """End this process in good order when its parent is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Signals:
    """Within the block, what ends the service is remembered in `received`, and SIGHUP is counted in `hangups`."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.hangups = 0

    def __enter__(self) -> Self:
        known = {signal.SIGINT: self._end, signal.SIGTERM: self._end, signal.SIGHUP: self._hang_up}
        self._before = {number: signal.signal(number, handler) for number, handler in known.items()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.received = number

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        self.hangups += 1


@contextmanager
def _environment(count: int) -> Iterator[Path]:
    """What workers find in their environment: the folder where they count together, and their share of the cores."""
    before = {name: os.environ.get(name) for name in (SHARED, THREADS)}
    with tempfile.TemporaryDirectory(prefix="secondguess-metrics-") as folder:
        os.environ[SHARED] = folder
        os.environ.setdefault(THREADS, str(max(1, _cores() // count)))
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
