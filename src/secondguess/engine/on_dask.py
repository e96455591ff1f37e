"""Tasks on the workers of a Dask scheduler, which also notices lost workers and gives their tasks to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from secondguess.engine.engines import AHEAD, FEWEST, Ended, lost
from secondguess.engine.task import Call, perform
from secondguess.errors import UserError, require

__all__ = ["OnDask"]

TIMEOUT = 20  # seconds for a scheduler to answer


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
            rest = iter(enumerate(calls))
            ended = self._dask.as_completed(loop=client.loop)
            while True:
                # Calls bring what they need with them, so no more of them wait at the scheduler than keep it busy.
                busy = max(FEWEST, AHEAD * sum(client.nthreads().values()))
                for place, call in islice(rest, max(0, busy - len(futures))):
                    future = client.submit(perform, call, pure=False, resources=call.resources or None)
                    futures[future] = place
                    ended.add(future)
                if not futures:
                    return
                future = next(ended)
                place = futures.pop(future)
                error = future.exception()
                yield place, future.result() if error is None else lost(calls[place], retries)
        finally:
            client.cancel(list(futures))
            client.close()

    def _connect(self) -> Any:
        try:
            return self._dask.Client(self.address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise UserError(
                f"No Dask scheduler answers at {self.address}; start one with `dask scheduler`, and workers with "
                "`dask worker ADDRESS`."
            ) from error


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
