"""A real Dask cluster of two worker processes, and what tests do to it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest


class At:
    """Does something when so many tasks have ended."""

    def __init__(self, when, what):
        self.when, self.what = when, what

    @contextmanager
    def task(self, label, total):
        def advance(done, total):
            if done == self.when:
                self.what()

        yield advance


@pytest.fixture(scope="session")
def cluster():
    """Two workers of one thread each, of which one declares a GPU; a worker that is killed is started again."""
    distributed = pytest.importorskip("distributed", reason="NO DASK: pip install secondguess[distributed]")
    plain = {"cls": distributed.Nanny, "options": {"nthreads": 1}}
    gifted = {"cls": distributed.Nanny, "options": {"nthreads": 1, "resources": {"GPU": 1}}}
    ports = {"port": 0, "dashboard_address": ":0"}  # several tests at once have a cluster each
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, **ports}}
    with distributed.SpecCluster(workers={"plain": plain, "gifted": gifted}, scheduler=scheduler) as made:
        yield made


def engine_of(cluster):
    """The cluster, as `--engine` names it."""
    return cluster.scheduler_address.replace("tcp://", "dask://")
