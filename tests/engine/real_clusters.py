"""Real Dask and Ray clusters of two worker processes, and what tests do to them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

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


@pytest.fixture(scope="module")
def ray_of_two():
    """Ray with two processors, whose workers find the tasks of these tests."""
    ray = pytest.importorskip("ray", reason="NO RAY: pip install secondguess[ray]")
    found = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else a token is written into the home folder
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": found}}
        )
        yield ray
        ray.shutdown()


def engine_of(cluster):
    """The cluster, as `--engine` names it."""
    return cluster.scheduler_address.replace("tcp://", "dask://")
