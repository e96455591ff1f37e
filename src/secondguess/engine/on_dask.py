"""Tasks on the workers of a Dask scheduler, which also notices lost workers and gives their tasks to others.

What calls share is scattered to all workers, so that the loss of one leaves it with the others; where all of them were
lost at once, Dask gives up the calls that need it, and they are sent again with it.
"""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import islice
from typing import Any
from uuid import uuid4

from secondguess.engine.engines import AHEAD, FEWEST, Ended, lost
from secondguess.engine.shared import Parcel, apart, named_by, together
from secondguess.engine.task import Call, Failure, Outcome, perform
from secondguess.errors import UserError, require

__all__ = ["OnDask"]

TIMEOUT = 20  # seconds for a scheduler to answer
CALLED, SOON = 3, 1.0  # workers that are called to see whether they can be, and seconds for them to answer
SCATTERED_AGAIN = 5  # times


class OnDask:
    """A Dask cluster. How often a task may lose its worker is the scheduler's setting (`allowed-failures`, 3).

    Args:
        address: of the scheduler, such as "tcp://10.0.0.1:8786".
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._dask = require("distributed", "distributed")

    def workers(self) -> int:
        """The threads of all workers."""
        client = self._connect()
        try:
            return max(1, sum(client.nthreads().values()))
        finally:
            client.close()

    def run(self, calls: Sequence[Call], *, retries: int) -> Iterator[Ended]:
        """Yield what became of each call, as they end."""
        client = self._connect()
        futures: dict[Any, int] = {}
        try:
            _check_resources(client, calls)
            bare, values = apart(calls)
            shared: dict[str, Any] = {}
            rest, lost_with_all = deque(enumerate(bare)), Counter[int]()
            ended = self._dask.as_completed(loop=client.loop)
            while True:
                # Calls bring what they need with them, so no more of them wait at the scheduler than keep it busy.
                busy = max(FEWEST, AHEAD * sum(client.nthreads().values()))
                while rest and len(futures) < busy:
                    place, call = rest.popleft()
                    brought = {name: _scattered(client, shared, name, values[name]) for name in named_by(call)}
                    future = client.submit(_performed, call, brought, pure=False, resources=call.resources or None)
                    futures[future] = place
                    ended.add(future)
                if not futures:
                    return
                future = next(ended)
                place = futures.pop(future)
                try:  # a call's own errors are in its outcome: what is raised here is the cluster's
                    outcome = future.result()
                except CancelledError:  # what the call needs, or its finished result, was lost with the last worker
                    if lost_with_all[place] < retries:
                        lost_with_all[place] += 1
                        rest.append((place, bare[place]))
                        continue
                    outcome = lost(calls[place], retries)
                except Exception:
                    outcome = lost(calls[place], retries)
                yield place, outcome
        finally:
            client.cancel(list(futures))
            client.close()

    def _connect(self) -> Any:
        try:
            client = self._dask.Client(self.address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise UserError(
                f"No Dask scheduler answers at {self.address}; start one with `dask scheduler`, and workers with "
                "`dask worker ADDRESS`."
            ) from error
        client.direct_to_workers = _are_within_reach(client.scheduler_info(n_workers=-1)["workers"])
        return client


def _are_within_reach(workers: Iterable[str]) -> bool:
    """Whether this process can call the first of the workers itself, so that results need not go by the scheduler."""
    for address in islice(workers, CALLED):
        _, _, place = address.rpartition("://")
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=SOON).close()
        except (OSError, ValueError):
            return False
    return True


def _scattered(client: Any, known: dict[str, Any], name: str, value: Any) -> Any:
    """A value as all workers have it, scattered where they do not, or do not any more."""
    attempts = 0
    while name not in known or known[name].cancelled():
        client.wait_for_workers(1)
        key = f"{name}-{uuid4().hex}"  # what was lost may not come back under its old name
        try:
            known[name] = client.scatter({key: Parcel(value)}, broadcast=True)[key]
        except OSError:  # a worker was lost that was to have it
            attempts += 1
            if attempts > SCATTERED_AGAIN:
                raise
    return known[name]


def _performed(call: Call, brought: Mapping[str, Parcel]) -> Outcome | Failure:
    """Perform a call in the worker, which was brought what the call shares."""
    return perform(call, partial(together, value_of=lambda name: brought[name].value))


def _check_resources(client: Any, calls: Sequence[Call]) -> None:
    """Refuse what would wait for ever: a task that none of the workers may take. A cluster may begin with no worker."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    for needed in {tuple(sorted(call.resources.items())) for call in calls}:
        if workers and not any(all(worker["resources"].get(name, 0) >= n for name, n in needed) for worker in workers):
            wanted = ",".join(f"{name}={n:g}" for name, n in needed)
            raise UserError(
                f"None of the {len(workers)} Dask workers declares {wanted}; start one with `dask worker ADDRESS "
                f'--resources "{wanted}"`.'
            )
