from __future__ import annotations

import os
import resource
import signal

import grid_tasks
import numpy as np
import pytest
from real_clusters import At, engine_of

from secondguess.engine import Ledger, Shared, Task, run
from secondguess.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

TASKS = [Task(grid_tasks.total, {"size": 4, "pause": 0.05}, seed) for seed in range(16)]


def assert_equal_to_local(entries, tmp_path):
    local = run(TASKS, Ledger(tmp_path / "local"))
    assert len(entries) == len(local)
    for one, other in zip(entries, local, strict=True):
        assert one.result["total"] == other.result["total"]
        np.testing.assert_array_equal(one.result["numbers"], other.result["numbers"])


def test_a_dask_worker_killed_in_the_middle_changes_nothing(cluster, tmp_path):
    victim = next(iter(cluster.workers.values())).pid
    entries = run(
        TASKS, Ledger(tmp_path / "dask"), engine_of(cluster), progress=At(4, lambda: os.kill(victim, signal.SIGKILL))
    )
    assert_equal_to_local(entries, tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)


def sharing(log, count=12, pause=0.05):
    value = Shared(grid_tasks.Weighty(str(log), np.arange(1000.0)), f"numbers of {log}")
    return [Task(grid_tasks.weighed, {"order": value, "pause": pause}, seed) for seed in range(count)]


def assert_shared_once(entries, log):
    """Every worker unpickled once what all tasks share."""
    assert [entry.result["total"] for entry in entries] == [np.arange(1000.0).sum() + k for k in range(len(entries))]
    unpickled = list(map(int, log.read_text().split()))
    assert len(unpickled) == len(set(unpickled)) <= 2
    assert {entry.result["pid"] for entry in entries} <= set(unpickled)
    assert os.getpid() not in unpickled


def test_dask_brings_what_tasks_share_to_each_worker_once(cluster, tmp_path):
    cluster.wait_for_workers(2)
    log = tmp_path / "log"
    assert_shared_once(run(sharing(log), Ledger(tmp_path / "ledger"), engine_of(cluster)), log)


@pytest.mark.parametrize("victims", [1, 2])
def test_what_tasks_share_outlives_the_workers_that_had_it(cluster, tmp_path, victims):
    cluster.wait_for_workers(2)
    pids = [worker.pid for worker in cluster.workers.values()][:victims]
    killed = At(3, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])
    entries = run(sharing(tmp_path / "log"), Ledger(tmp_path / "ledger"), engine_of(cluster), progress=killed)
    assert [entry.result["total"] for entry in entries] == [np.arange(1000.0).sum() + k for k in range(12)]
    cluster.wait_for_workers(2)


def observed(engine, progress=None, cache=None):
    """What a small network gives for 3,000 images that are observed in shards."""
    import torch
    from torch import nn

    from secondguess import Classifier, ImageSet

    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 4, 4), dtype=np.uint8)
    classifier = Classifier(network, batch_size=64, device="cpu", engine=engine, cache=cache)
    return classifier.observe(ImageSet.from_arrays(pixels), progress=progress).probabilities


def scored(engine):
    """Scores of supervisors that are fitted from shards, and score shards, on an engine."""
    from secondguess import Observation
    from secondguess.supervisors import fit_in_shards, make, score_in_shards

    rows = np.random.default_rng(0).normal(size=(90, 6))
    seen = Observation(logits=rows[:, :3] - rows[:, 3:], traces={"penultimate": rows})
    parts = [seen.take(slice(start, start + 30)) for start in (0, 30, 60)]
    fitted = fit_in_shards([make("vim"), make("mdsa_global", squared=True)], parts, engine=engine)
    return score_in_shards(fitted, seen, engine=engine)


def test_dask_fits_and_scores_in_shards(cluster):
    there, here = scored(engine_of(cluster)), scored("local")
    for name, values in here.items():
        np.testing.assert_allclose(there[name], values, rtol=1e-9)


def test_dask_observes_in_shards_and_a_lost_worker_changes_nothing(cluster):
    cluster.wait_for_workers(2)
    victim = cluster.workers["plain"].pid
    killed = At(576, lambda: os.kill(victim, signal.SIGKILL))
    np.testing.assert_array_equal(observed(engine_of(cluster), killed), observed(None))
    cluster.wait_for_workers(2)


def test_dask_gives_gpu_tasks_to_workers_that_declare_one(cluster, tmp_path):
    cluster.wait_for_workers(2)

    def pids(resources, folder):
        tasks = [Task(grid_tasks.whereabouts, {}, seed, resources) for seed in range(8)]
        return {entry.result["pid"] for entry in run(tasks, Ledger(tmp_path / folder), engine_of(cluster))}

    assert pids({"GPU": 1}, "gpu") == {cluster.workers["gifted"].pid}
    assert pids({}, "any") == {worker.pid for worker in cluster.workers.values()}


def test_dask_says_when_no_worker_may_take_a_task(cluster, tmp_path):
    with pytest.raises(UserError, match=r"None of the \d Dask workers declares TPU=1; start one with"):
        run([Task(grid_tasks.total, {"size": 1}, 0, {"TPU": 1})], Ledger(tmp_path), engine_of(cluster))


def test_a_failure_on_dask_reads_like_a_local_one(cluster, tmp_path):
    tasks = [Task(grid_tasks.mistaken, {"log": str(tmp_path / "log")}, 1)]
    with pytest.raises(UserError, match=r"^The data are missing; give --data\.$"):
        run(tasks, Ledger(tmp_path / "ledger"), engine_of(cluster))


@pytest.mark.parametrize(("most", "why"), [(None, "No space left on device"), (4096, "File too large")])
def test_a_full_disk_of_a_dask_worker_is_one_sentence(cluster, tmp_path, most, why):
    cluster.wait_for_workers(2)
    tasks = [Task(grid_tasks.filling, {"folder": str(tmp_path), "most": most}, seed) for seed in range(3)]
    with pytest.raises(
        UserError, match=rf"^The worker on \S+ cannot write.*: {why}; make room there, and run it again"
    ):
        run(tasks, Ledger(tmp_path / "ledger"), engine_of(cluster))


def test_a_full_disk_of_the_process_that_runs_a_command_is_one_sentence(cluster, tmp_path):
    cluster.wait_for_workers(2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(UserError, match=r"(cannot be written to|could not be written): File too large\."):
            observed(engine_of(cluster), cache=tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    np.testing.assert_array_equal(observed(engine_of(cluster), cache=tmp_path / "cache"), observed(None))


def test_nobody_at_the_address_is_said(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="NO DASK: pip install secondguess[distributed]")
    from secondguess.engine import on_dask

    monkeypatch.setattr(on_dask, "TIMEOUT", 1)
    with pytest.raises(UserError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9; start one with"):
        run(TASKS[:1], Ledger(tmp_path), "dask://127.0.0.1:9")


def test_a_ray_worker_killed_in_the_middle_changes_nothing(ray_of_two, tmp_path):
    deadly = [Task(grid_tasks.deadly, {"marker": str(tmp_path / "marker")}, seed) for seed in range(6)]
    entries = run(deadly, Ledger(tmp_path / "deadly"), "ray")
    assert (tmp_path / "marker").exists()
    assert [entry.result["square"] for entry in entries] == [seed**2 for seed in range(6)]
    assert_equal_to_local(run(TASKS, Ledger(tmp_path / "ray"), "ray"), tmp_path)
    log = tmp_path / "log"
    assert_shared_once(run(sharing(log), Ledger(tmp_path / "shared"), "ray"), log)
    np.testing.assert_array_equal(observed("ray"), observed(None))
    there, at_home = scored("ray"), scored("local")
    assert all(np.allclose(there[name], at_home[name], rtol=1e-9, atol=0) for name in at_home)
    with pytest.raises(UserError, match="Ray has 0 of GPU, but grid_tasks:total needs 1"):
        run([Task(grid_tasks.total, {"size": 1}, 0, {"GPU": 1})], Ledger(tmp_path / "gpu"), "ray")
