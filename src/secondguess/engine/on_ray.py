"""Tasks on Ray, which also notices lost workers and tries their tasks again.

Calls and outcomes travel pickled. Left to itself, Ray hands arrays over as read-only views of its store, and code that
works on every other engine (PyTorch's, which warns of such memory, and whatever writes in place) would not on this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from secondguess.engine.engines import AHEAD, FEWEST, Ended, lost
from secondguess.engine.shared import apart, kept_here, named_by, together
from secondguess.engine.task import Call, perform
from secondguess.errors import UserError, require

__all__ = ["OnRay"]

_chosen: list[str | None] = []  # the address that this process has connected to, if it was done here


class OnRay:
    """A Ray cluster, or the Ray of this machine.

    A Ray that this process is already connected to is used. One that is started or connected to here is left on until
    the process ends, since a command makes several passes, and starting takes seconds.

    Args:
        address: such as "ray://10.0.0.1:10001"; None for this machine.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._ray = require("ray", "ray")

    def workers(self) -> int:
        """The processors of the cluster; those of this machine where Ray is yet to be started."""
        if self.address is None and not self._ray.is_initialized():
            return os.cpu_count() or 1
        self._connect()
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(self, calls: Sequence[Call], *, retries: int) -> Iterator[Ended]:
        """Yield what became of each call, as they end."""
        ray = self._ray
        self._connect()
        pending: dict[Any, int] = {}
        try:
            self._check_resources(calls)
            bare, values = apart(calls)
            shared = {name: ray.put(ray.cloudpickle.dumps(value)) for name, value in values.items()}
            rest = iter(enumerate(bare))
            while True:
                # Calls bring what they need with them, so no more of them are in Ray's store than keep it busy.
                busy = max(FEWEST, AHEAD * int(ray.cluster_resources().get("CPU", 0)))
                for place, call in islice(rest, max(0, busy - len(pending))):
                    remote = ray.remote(_performed).options(max_retries=retries, num_cpus=1, **_options(call))
                    brought = {name: shared[name] for name in named_by(call)}
                    pending[remote.remote(ray.cloudpickle.dumps(call), brought)] = place
                if not pending:
                    return
                (done, *_), _ = ray.wait(list(pending))
                place = pending.pop(done)
                try:
                    outcome = ray.cloudpickle.loads(ray.get(done))
                except ray.exceptions.RayError:
                    outcome = lost(calls[place], retries)
                yield place, outcome
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            if _chosen and self.address not in (None, *_chosen):
                raise UserError(
                    f"This process works on Ray at {_chosen[0] or 'this machine'} already; use another process for "
                    f"{self.address}."
                )
            return
        quiet = {"log_to_driver": False, "logging_level": "error"}
        try:
            if self.address:
                self._ray.init(self.address, **quiet)
            else:
                self._ray.init(include_dashboard=False, **quiet)
            _chosen[:] = [self.address]
        except (ConnectionError, OSError, RuntimeError) as error:
            raise UserError(
                f"No Ray answers at {self.address or 'this machine'}; start it with `ray start --head`."
            ) from error

    def _check_resources(self, calls: Sequence[Call]) -> None:
        """Refuse what would wait for ever: a task for which there is no worker."""
        there = self._ray.cluster_resources()
        for call in calls:
            for name, needed in call.resources.items():
                if there.get(name, 0) < needed:
                    raise UserError(
                        f"Ray has {there.get(name, 0):g} of {name}, but {call.name} needs {needed:g}; add a node."
                    )


def _performed(call: bytes, brought: Mapping[str, Any]) -> bytes:
    """Perform a pickled call in the worker; the outcome, pickled.

    What it shares comes as references by fingerprint: a value is fetched from Ray's store only where this process has
    none yet.
    """
    ray: Any = require("ray", "ray")

    def shared(fingerprint: str) -> Any:
        return kept_here(fingerprint, lambda: ray.cloudpickle.loads(ray.get(brought[fingerprint])))

    outcome = perform(ray.cloudpickle.loads(call), partial(together, value_of=shared))
    return bytes(ray.cloudpickle.dumps(outcome))


def _options(call: Call) -> dict[str, Any]:
    """Ray counts GPUs apart from what else a node declares."""
    others = dict(call.resources)
    return {"num_gpus": others.pop("GPU", 0), "resources": others}
