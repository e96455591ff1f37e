from __future__ import annotations

import errno
import json
import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import grid_tasks
import joblib
import numpy as np
import pytest

from secondguess import files as _files
from secondguess.contracts.sealed import file_digest, read_json, write_json_sealed
from secondguess.engine import Ledger, Shared, Task, TaskData, TaskFailed, WorkerLost, open_engine, run, shared, task
from secondguess.engine.engines import Processes
from secondguess.errors import UserError


def squares(log, seeds=range(5), function=grid_tasks.logged):
    return [Task(function, {"log": str(log)}, seed) for seed in seeds]


def computed(log):
    return sorted(map(int, Path(log).read_text().split())) if Path(log).exists() else []


def assert_same(entries, others):
    assert len(entries) == len(others)
    for one, other in zip(entries, others, strict=True):
        assert one.result.keys() == other.result.keys()
        for key, value in one.result.items():
            np.testing.assert_array_equal(value, other.result[key])


def test_results_come_in_the_order_of_the_tasks(tmp_path):
    entries = run([Task(grid_tasks.total, {"size": 3}, seed) for seed in (4, 2, 2)], Ledger(tmp_path))
    for entry, seed in zip(entries, (4, 2, 2), strict=True):
        numbers = np.random.default_rng(seed).random(3)
        np.testing.assert_array_equal(entry.result["numbers"], numbers)
        assert entry.result["total"] == numbers.sum()
        assert entry.seconds >= 0


def test_the_second_run_computes_nothing_and_gives_the_same(tmp_path):
    tasks = [Task(grid_tasks.total, {"size": 4}, seed) for seed in range(3)]
    ledger = Ledger(tmp_path)
    first = run(tasks, ledger)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert_same(run(tasks, ledger), first)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert len(files) == 6


def test_a_changed_parameter_seed_or_data_is_computed_and_not_reused(tmp_path):
    def of(**changes):
        settings = {"size": 3, "pause": 0.0} | changes
        return Task(grid_tasks.total, settings, settings.pop("seed", 0))

    ledger = Ledger(tmp_path)
    tasks = [of(), of(size=4), of(seed=1), of(pause=0.001)]
    entries = run(tasks, ledger)
    assert len({one.key for one in tasks}) == 4
    assert [len(entry.result["numbers"]) for entry in entries] == [3, 4, 3, 3]
    assert ledger.get(of(size=5)) is None


def test_data_count_by_their_fingerprint_and_not_by_their_place():
    def key(place, fingerprint):
        return Task(grid_tasks.logged, {"log": TaskData(place, fingerprint)}).key

    assert key("a.npz", "1") == key("b.npz", "1")
    assert key("a.npz", "1") != key("a.npz", "2")


def test_the_key_does_not_depend_on_the_kind_of_number_or_the_order_of_parameters():
    one = Task(grid_tasks.total, {"size": np.int64(3), "pause": 0.5, "shares": (0.1, 0.2)})
    other = Task(grid_tasks.total, {"shares": [0.1, np.float64(0.2)], "pause": 0.5, "size": 3})
    assert one.key == other.key


def test_edited_code_has_another_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_task.py").write_text("def made(*, seed):\n    return {'seed': seed}\n")
    import edited_task

    before = Task(edited_task.made).key
    (tmp_path / "edited_task.py").write_text("def made(*, seed):\n    return {'seed': seed + 1}\n")
    assert Task(edited_task.made).key == before, "this process still runs the code that it read first"
    task.code_version.cache_clear()
    assert Task(edited_task.made).key != before
    task.code_version.cache_clear()


def test_a_package_counts_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "packed_tasks"
    package.mkdir()
    for name, text in {"__init__": "", "first": "def made(*, seed):\n    return {}\n", "helper": "A = 1\n"}.items():
        (package / f"{name}.py").write_text(text)
    before = task.code_version("packed_tasks.first")
    (package / "helper.py").write_text("A = 2\n")
    task.code_version.cache_clear()
    assert task.code_version("packed_tasks.first") != before


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    class Impatient:
        @contextmanager
        def task(self, label, total):
            def advance(done, total):
                if done == 2:
                    raise KeyboardInterrupt

            yield advance

    log = tmp_path / "log"
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(KeyboardInterrupt):
        run(squares(log), ledger, progress=Impatient())
    assert computed(log) == [0, 1]
    entries = run(squares(log), ledger)
    assert computed(log) == [0, 1, 2, 3, 4]
    assert [entry.result["square"] for entry in entries] == [0, 1, 4, 9, 16]


def test_a_full_disk_is_said_and_leaves_the_ledger_intact(tmp_path, monkeypatch):
    log = tmp_path / "log"
    ledger = Ledger(tmp_path / "ledger")
    sync, left = _files._sync, [2]

    def full(path):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    with monkeypatch.context() as patched:
        patched.setattr(_files, "_sync", full)
        with pytest.raises(UserError, match=r"No space left on device\. What ended before is kept in .*; run it again"):
            run(squares(log), ledger)
    assert sorted(path.suffix for path in ledger.path.iterdir()) == [".json", ".json"]
    for path in ledger.path.iterdir():
        assert json.loads(path.read_text())["result"]["square"] in (0, 1)
    assert len(run(squares(log), ledger)) == 5
    assert computed(log) == [0, 1, 2, 2, 3, 4]


def test_a_real_file_system_without_room(tmp_path):
    resource = pytest.importorskip("resource")
    ledger = Ledger(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)  # a limit on the size of files stands for a full disk
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(UserError, match="could not be written: File too large"):
            run([Task(grid_tasks.total, {"size": size}) for size in (10, 50_000)], ledger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert len(list(tmp_path.iterdir())) == 2
    assert ledger.get(Task(grid_tasks.total, {"size": 10})) is not None


@pytest.mark.parametrize("damage", ["text", "array", "card", "number"])
def test_a_damaged_entry_is_made_again(tmp_path, damage):
    ledger, one = Ledger(tmp_path), Task(grid_tasks.total, {"size": 3})
    (first,) = run([one], ledger)
    path = tmp_path / f"{one.key}.json"
    if damage == "text":
        path.write_text(path.read_text()[:40])
    elif damage == "card":
        path.write_text(path.read_text().replace('"size": 3', '"size": 4'))
    elif damage == "number":
        kept = json.loads(path.read_text())
        path.write_text(json.dumps(kept | {"seconds": kept["seconds"] + 1}))
    else:
        np.savez(tmp_path / f"{one.key}.npz", numbers=np.zeros(3))
    with pytest.warns(UserWarning, match="is damaged and will be made again"):
        (again,) = run([one], ledger)
    assert_same([again], [first])


def test_an_entry_with_objects_is_not_unpickled(tmp_path):
    ledger, one = Ledger(tmp_path), Task(grid_tasks.total, {"size": 3})
    run([one], ledger)
    arrays = tmp_path / f"{one.key}.npz"
    np.savez(arrays, numbers=np.array([{"any": "thing"}], dtype=object))
    path = tmp_path / f"{one.key}.json"
    write_json_sealed(path, read_json(path) | {"arrays": file_digest(arrays)})
    with pytest.warns(UserWarning, match="Object arrays cannot be loaded when allow_pickle=False"):
        assert ledger.get(one) is None


def test_a_task_that_fails_does_not_stop_the_others(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(
        TaskFailed, match=r"broken failed with .*seed 1(.|\n)*ZeroDivisionError: one is too few"
    ) as info:
        run(squares(log, function=grid_tasks.broken), Ledger(tmp_path / "ledger"))
    assert info.value.__notes__ == [f"1 of 5 tasks failed; the others are in {tmp_path / 'ledger'}."]
    assert computed(log) == [0, 2, 3, 4]


def test_a_mistake_of_the_user_stops_at_once(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(UserError, match=r"^The data are missing; give --data\.$"):
        run(squares(log, function=grid_tasks.mistaken), Ledger(tmp_path / "ledger"))
    assert computed(log) == [0]


def test_a_task_that_returns_nan_is_told_so(tmp_path):
    with pytest.raises(TypeError, match=r"returned nan as row.auroc\[1\]"):
        run([Task(grid_tasks.numberless)], Ledger(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_kept_does_not_stop_the_others(tmp_path):
    tasks = [Task(grid_tasks.numberless, seed=seed) for seed in range(3)]
    with pytest.raises(TypeError, match="returned nan") as info:
        run(tasks, Ledger(tmp_path))
    first, last = info.value.__notes__
    assert first == "That was grid_tasks:numberless with {}, seed 0."
    assert last == f"2 of 3 tasks failed; the others are in {tmp_path}."
    assert [Ledger(tmp_path).get(task) is not None for task in tasks] == [False, True, False]


def test_arrays_may_have_any_name(tmp_path):
    (entry,) = run([Task(grid_tasks.oddly_named, seed=4)], Ledger(tmp_path))
    kept = Ledger(tmp_path).get(Task(grid_tasks.oddly_named, seed=4))
    assert kept is not None
    for one in (entry, kept):
        assert one.result["file"].tolist() == [4, 5, 6] and one.result["allow_pickle"].shape == (2, 2)


def test_only_functions_that_a_worker_can_import_are_tasks():
    def local(*, seed):
        return {}

    with pytest.raises(UserError, match="cannot be imported by a worker; put the function into a module"):
        _ = Task(local).key


def test_parameters_are_what_json_can_hold():
    for value in (float("inf"), np.zeros(2), {1: 2}, object()):
        with pytest.raises(UserError, match="among its parameters; give numbers, texts"):
            _ = Task(grid_tasks.total, {"size": value}).key


def test_a_worker_with_other_code_refuses(tmp_path):
    call = Task(grid_tasks.total, {"size": 1}).call()
    other = task.Call(call.name, call.params, call.seed, "0+old", {})
    failure = task.perform(other)
    assert isinstance(failure, task.Failure)
    assert "has another version of grid_tasks than this process; install the same code" in failure.message


@pytest.mark.parametrize("name", ["", "cluster", "local:x", "dask://nowhere", "ray://", "tcp://a:1", "local:-1"])
def test_an_unknown_engine_is_refused(name):
    with pytest.raises(UserError, match=r"There is no engine .*; give local, local:N"):
        open_engine(name)


def test_no_process_is_refused():
    with pytest.raises(UserError, match="has no process; give 1 or more"):
        open_engine("local:0")


def test_processes_give_what_one_gives(tmp_path):
    tasks = [Task(grid_tasks.total, {"size": 5}, seed) for seed in range(6)]
    assert_same(run(tasks, Ledger(tmp_path / "a"), "local:2"), run(tasks, Ledger(tmp_path / "b")))


def test_a_process_that_grows_is_replaced_without_a_word(tmp_path, recwarn):
    pytest.importorskip("psutil", reason="without it joblib does not look at the memory")
    entries = run([Task(grid_tasks.hoarding, {}, seed) for seed in range(6)], Ledger(tmp_path), "local:2")
    assert [entry.result["square"] for entry in entries] == [seed**2 for seed in range(6)]
    assert not [one for one in recwarn if "worker stopped" in str(one.message)]


def test_a_lost_process_is_replaced(tmp_path):
    tasks = [Task(grid_tasks.deadly, {"marker": str(tmp_path / "marker")}, seed) for seed in range(6)]
    entries = run(tasks, Ledger(tmp_path / "ledger"), "local:2")
    assert (tmp_path / "marker").exists()
    assert [entry.result["square"] for entry in entries] == [seed**2 for seed in range(6)]


def test_a_process_lost_while_calls_are_handed_out_is_replaced(tmp_path, monkeypatch):
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    hand_out, attempts = joblib.Parallel.__call__, []

    def loses_the_first(pool, calls):
        attempts.append(pool)
        if len(attempts) == 1:
            raise TerminatedWorkerError("lost before there was anything to iterate over")
        return hand_out(pool, calls)

    monkeypatch.setattr(joblib.Parallel, "__call__", loses_the_first)
    tasks = [Task(grid_tasks.total, {"size": 5}, seed) for seed in range(3)]
    assert len(run(tasks, Ledger(tmp_path / "ledger"), "local:2")) == 3
    assert len(attempts) == 2


def test_a_task_that_always_ends_its_process_is_given_up(tmp_path):
    ledger = Ledger(tmp_path)
    with pytest.raises(
        WorkerLost, match=r"fatal with .*, seed 1, was lost again and again.* perhaps for lack of memory"
    ):
        run([Task(grid_tasks.fatal, seed=seed) for seed in (1, 0, 2)], ledger, "local:2", retries=1)
    assert [ledger.get(Task(grid_tasks.fatal, seed=seed)) is None for seed in range(3)] == [False, True, False]


def test_gpu_tasks_stay_in_this_process(tmp_path):
    tasks = [Task(grid_tasks.whereabouts, {}, seed, {"GPU": 1} if seed else {}) for seed in range(2)]
    entries = run(tasks, Ledger(tmp_path), Processes(2))
    assert [entry.result["pid"] == os.getpid() for entry in entries] == [False, True]


def test_what_tasks_share_is_brought_to_each_process_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes leave their files in the usual place
    log = tmp_path / "log"
    numbers = [np.arange(1000.0), np.arange(70_001.0)]
    common = [Shared(grid_tasks.Weighty(str(log), one), f"numbers{place}") for place, one in enumerate(numbers)]
    tasks = [Task(grid_tasks.weighed, {"order": common[seed % 2]}, seed) for seed in range(12)]
    entries = run(tasks, Ledger(tmp_path / "ledger"), "local:2")
    for seed, entry in enumerate(entries):
        assert entry.result["total"] == numbers[seed % 2][1:].sum() + seed
    assert numbers[0][0] == 0  # a process writes into its own copy
    workers = {entry.result["pid"] for entry in entries}
    unpickled = log.read_text().split()
    assert os.getpid() not in workers and set(map(int, unpickled)) == workers
    assert len(unpickled) <= 2 * len(workers)  # each of two values once in each process
    assert not list(tmp_path.glob("secondguess-shared-*"))


def test_a_value_goes_to_a_file_and_back(tmp_path):
    value = {"a": np.arange(7.0), "none": np.zeros((0, 3)), "fortran": np.asfortranarray(np.eye(5)), "plain": "text"}
    shared.write_file(tmp_path / "value", value)
    back = shared.map_file(tmp_path / "value")
    assert back["plain"] == "text"
    for name in ("a", "none", "fortran"):
        np.testing.assert_array_equal(back[name], value[name])
    back["a"][0] = 5.0
    assert shared.map_file(tmp_path / "value")["a"][0] == 0


def test_a_full_disk_is_said_where_tasks_share_something(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    plain_open = Path.open

    def full(self, mode="r", **given):
        if "w" in mode and "secondguess-shared-" in str(self):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain_open(self, mode, **given)

    monkeypatch.setattr(Path, "open", full)
    tasks = [Task(grid_tasks.weighed, {"order": Shared(np.arange(3), "few")}, seed) for seed in range(2)]
    with pytest.raises(UserError, match=r"could not be written to .*: No space left on device; name another folder"):
        run(tasks, Ledger(tmp_path / "ledger"), "local:2")


def test_a_process_keeps_only_the_latest_of_what_was_shared(monkeypatch):
    monkeypatch.setattr(shared, "_kept", {})
    fetched = []

    def fetch(name):
        return lambda: fetched.append(name) or name.upper()

    for name in "abcdea":
        assert shared.kept_here(name, fetch(name)) == name.upper()
    assert fetched == list("abcdea")  # a was dropped for e
    assert shared.kept_here("e", fetch("e")) == "E"
    assert fetched == list("abcdea")
