"""Commands on a real Dask cluster give what they give without one, and a lost worker changes nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from real_clusters import engine_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

MODULE = """
from torch import nn


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
"""
MODEL = """
import = "clustered_models:make_model"
weights = "weights.safetensors"

[input]
size = [8, 8]
channels = 1

[output]
kind = "logits"
"""
AUDIT = (
    "audit", "--full", "--stress", "corrupted,adversarial:fgsm,invalid", "--supervisors", "max_softmax,vim,knn",
    "--sections", "accuracy,calibration,risk,supervisors",
)  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A model that has learnt a little, and its images and traces as files."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    from secondguess import load
    from secondguess.images import save_npz

    folder = tmp_path_factory.mktemp("house")
    digits = load("digits")
    train, test = digits.train.head(400, seed=0), digits.test.head(160, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
        images, labels = torch.from_numpy(train.materialise()), torch.from_numpy(train.labels)
        optimiser = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(30):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    save_file(net.state_dict(), folder / "weights.safetensors")
    save_file({name: 0.9 * value for name, value in net.state_dict().items()}, folder / "other.safetensors")
    (folder / "clustered_models.py").write_text(MODULE)
    (folder / "model.toml").write_text(MODEL)
    (folder / "other.toml").write_text(MODEL.replace("weights.safetensors", "other.safetensors"))
    for name, some in (("train", train), ("test", test)):
        save_npz(some, folder / f"{name}.npz")
        with torch.no_grad():
            traces = net[:3](torch.from_numpy(some.materialise()))
            np.savez(folder / f"{name}_traces.npz", traces=traces, logits=net[3](traces), labels=some.labels)
    return folder


@pytest.fixture
def model(house):
    """Small batches: sets of up to two of them never leave the process."""
    return ["--model", str(house / "model.toml"), "--device", "cpu", "--batch-size", "16", "--quiet"]


@pytest.fixture
def sent(monkeypatch):
    """The names of the tasks that ended on a cluster; calls in `sent.then` are made as each ends."""
    from secondguess.engine.on_dask import OnDask

    ended, bare = Sent(), OnDask.run

    def noted(self, calls, *, retries):
        for place, outcome in bare(self, calls, retries=retries):
            ended.append(calls[place].name.rpartition(":")[2])
            ended.then(ended)
            yield place, outcome

    monkeypatch.setattr(OnDask, "run", noted)
    return ended


class Sent(list):
    """Names of tasks."""

    def then(self, names):
        """Nothing."""


@pytest.fixture
def both(run, cluster, sent):
    """Run a command here and on the cluster, into two folders; nothing of it may fail."""

    def called(*words):
        cluster.wait_for_workers(2)
        for folder, engine in (("here", "local"), ("there", engine_of(cluster))):
            done = run(*words, "--engine", engine, "--out", folder)
            assert done.code == 0, done.err + done.out
            assert bool(sent) == (folder == "there")
        return Path("here"), Path("there")

    return called


def numbers(folder, least=100):
    """What an audit found, but for how long it took."""
    content = json.loads((folder / "audit.json").read_text("utf-8"))
    assert {one["name"]: one["status"] for one in content["sections"]} == dict.fromkeys(AUDIT[-1].split(","), "done")
    found = {name: one for name, one in content["numbers"].items() if not name.endswith("seconds")}
    assert len(found) > least
    return content["verdict"], content["summary"], found


def assert_same_arrays(one, other):
    with np.load(one) as left, np.load(other) as right:
        assert left.files == right.files
        for name in left.files:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.fixture
def rows_here(monkeypatch, sent):
    """How many images were scored, or inspected by an oracle, at a time in this process: workers are others.

    By whether anything had been sent to a cluster by then.
    """
    from secondguess.accuracy.oracles.icos import Icos
    from secondguess.supervisors.knn import KNN

    rows = {False: [], True: []}

    def noted(bare):
        return lambda self, seen: rows[bool(sent)].append(len(seen)) or bare(self, seen)

    monkeypatch.setattr(KNN, "_score", noted(KNN._score))
    monkeypatch.setattr(Icos, "inspect", noted(Icos.inspect))
    return rows


def test_an_audit_that_loses_a_worker_has_the_same_numbers(both, cluster, sent, house, model, rows_here):
    victim = cluster.workers["plain"].pid
    sent.then = lambda names: os.kill(victim, signal.SIGKILL) if len(names) == 12 else None
    words = *AUDIT, *model, "--test", house / "test.npz", "--train", house / "train.npz"
    here, there = both(*words)
    assert numbers(there) == numbers(here)
    assert_same_arrays(here / "predictions.npz", there / "predictions.npz")
    assert len(sent) > 12 and {"observe_shard", "spoil_shard", "attack_shard"} == set(sent)
    assert rows_here[False].count(160) == 4 and max(rows_here[True]) == 8  # the test images and three stress sets
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)


def test_an_audit_and_an_estimate_on_ray_are_the_same(run, house, model, ray_of_two, monkeypatch):
    from secondguess.engine.on_ray import OnRay

    ended, bare = set(), OnRay.run

    def noted(self, calls, *, retries):
        ended.update(call.name.rpartition(":")[2] for call in calls)
        return bare(self, calls, retries=retries)

    monkeypatch.setattr(OnRay, "run", noted)
    sets = "--test", house / "test.npz", "--train", house / "train.npz"
    audit = "audit", "--full", "--stress", "corrupted", *AUDIT[4:], *model, *sets
    guess = "estimate", "--full", *model, "--images", house / "test.npz", *sets[2:], "--max-train", "200"
    for engine in ("local", "ray"):
        for words in (audit, guess):
            done = run(*words, "--engine", engine, "--out", f"{words[0]}-{engine}")
            assert done.code == 0, done.err + done.out
    assert numbers(Path("audit-ray"), 50) == numbers(Path("audit-local"), 50)
    assert_same_arrays(Path("audit-local/predictions.npz"), Path("audit-ray/predictions.npz"))
    here, there = (json.loads(Path(f"estimate-{one}/estimate.json").read_text("utf-8")) for one in ("local", "ray"))
    assert here["estimates"] == there["estimates"] and here["judged_wrong"] == there["judged_wrong"]
    assert ended == {"observe_shard", "spoil_shard"}


def test_a_comparison_of_two_models_is_the_same(both, sent, house, model):
    how = "--test", house / "test.npz", "--stress", "corrupted", *model[2:]
    folders = both("compare", house / "model.toml", house / "other.toml", *how)
    here, there = (json.loads((folder / "compare.json").read_text("utf-8")) for folder in folders)
    assert set(sent) == {"observe_shard", "spoil_shard"}
    assert here["numbers"] == there["numbers"] and len(here["numbers"]) > 10


def written(archive, folder):
    """The images of an archive as files of a folder."""
    from PIL import Image

    from secondguess import load

    folder.mkdir()
    for number, pixels in enumerate(load(archive).test.materialise()[:, 0]):
        Image.fromarray(np.rint(255 * pixels).astype(np.uint8)).save(folder / f"{number:03}.png")
    return folder


@pytest.mark.parametrize("form", ["arrays", "files"])
def test_an_estimate_is_the_same(both, sent, house, model, rows_here, form, tmp_path):
    place = house / "test.npz"
    if form == "files":
        place = written(place, tmp_path / "files")
    images = "--images", place, "--train", house / "train.npz", "--max-train", "200"
    words = "estimate", "--full", *model, *images, *(["--selfchecker"] if form == "arrays" else [])
    here, there = (json.loads((folder / "estimate.json").read_text("utf-8")) for folder in both(*words))
    assert set(sent) == {"observe_shard"}
    assert 160 in rows_here[False] and 160 not in rows_here[True]
    for found in ("answer", "shift", "estimates", "oracle", "judged_wrong"):
        assert here[found] == there[found]


def test_a_search_for_errors_is_the_same(cluster, sent, house, rows_here):
    from secondguess import Classifier, find_errors, load

    cluster.wait_for_workers(2)
    images, train = load(house / "test.npz").test, load(house / "train.npz").test
    how = {"supervisors": ["knn", "vim"], "train": train, "min_confidence": 0.0, "budget": 140, "max_images": 100}
    found = []
    for engine in (None, engine_of(cluster)):
        classifier = Classifier.open(house / "model.toml", device="cpu", batch_size=16, engine=engine)
        found.append(find_errors(classifier, images, **how).pool)
    here, there = found
    assert {"observe_shard", "measure_shard"} == set(sent)
    assert rows_here == {False: [100], True: []}
    for name in ("knn", "vim"):
        np.testing.assert_allclose(there.scores[name], here.scores[name], rtol=1e-6)
    np.testing.assert_array_equal(there.distances.failed, here.distances.failed)
    np.testing.assert_allclose(there.distances.mae, here.distances.mae, rtol=1e-6)


def test_scores_are_the_same(both, sent, house):
    words = "score", house / "test_traces.npz", "--train", house / "train_traces.npz", "--quiet"
    here, there = both(*words, "--supervisor", "vim", "--supervisor", "knn", "--supervisor", "entropy")
    assert set(sent) == {"learn_shard", "score_shard"}
    one, other = (np.genfromtxt(folder / "scores.csv", delimiter=",", skip_header=1) for folder in (here, there))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_judgements_are_the_same(run, both, sent, house, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    images = "--train", house / "train.npz", "--validation", house / "test.npz"
    fitted = run(
        "guard", "fit", *model, *images, "--supervisors", "entropy,mdsa", "--rule", "bonferroni",
        "--false-alarms", "0.05", "--out", "g",
    )  # fmt: skip
    assert fitted.code == 0, fitted.err
    here, there = both("guard", "judge", "g", house / "test.npz", "--batch-size", "16", "--device", "cpu", "--quiet")
    assert set(sent) == {"judge_shard"}
    one, other = (parquet.read_table(folder / "part-00000.parquet").to_pylist() for folder in (here, there))
    assert len(one) == 160 and one == other


@pytest.mark.parametrize("what", ["corrupted", "adversarial"])
def test_stress_images_are_the_same(both, sent, house, model, what):
    how = ["--corruptions", "fog,gaussian_noise"] if what == "corrupted" else [*model, "--attacks", "fgsm,pgd"]
    here, there = both("generate", what, "--data", house / "test.npz", *how, "--quiet")
    assert set(sent) == {"spoil_shard" if what == "corrupted" else "attack_shard"}
    (name,) = (path.name for path in here.glob("*.npz"))
    assert_same_arrays(here / name, there / name)
