from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from secondguess import Classifier, Needs, Trace, UserError
from secondguess.progress import Callback

NEEDS = Needs(logits=True, traces=[Trace("pool"), Trace("hidden")], samples=2)


CANARY = 2 + 19  # two noise images and, since there are fewer than thirty, all of the real ones
SAMPLING = 19 + 2 * 4  # the images once, as far as the first dropout layer, and twice a probe of four


class Counter:
    """How many images a model has been shown, those that tell whether it is still the same left out."""

    def __init__(self, model: nn.Module) -> None:
        self.images = 0
        model.register_forward_pre_hook(self._count)

    def _count(self, _module: nn.Module, args: tuple) -> None:
        self.images += len(args[0])

    def of(self, action: Callable[[], object]) -> int:
        self.images = 0
        action()
        return self.images - CANARY


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".draft-*"))


def same(a: object, b: object) -> None:
    for name in ("probabilities", "logits", "samples"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for trace, values in a.traces.items():
        np.testing.assert_array_equal(b.traces[trace], values)


def test_the_second_look_is_free_and_equal(
    tmp_path: Path, make_cnn: Callable[..., nn.Module], images: np.ndarray
) -> None:
    first = Classifier(make_cnn(), cache=tmp_path).observe(images, NEEDS)
    model = make_cnn()
    counter = Counter(model)
    steps: list[tuple[int, int]] = []
    classifier = Classifier(model, cache=tmp_path, batch_size=3)
    assert counter.of(lambda: classifier.observe(images, NEEDS, progress=Callback(lambda *s: steps.append(s)))) == 0
    assert steps == [(19, 19)]
    again = classifier.observe(images, NEEDS)
    same(first, again)
    same(Classifier(make_cnn()).observe(images, NEEDS), again)
    assert isinstance(again.trace("pool"), np.memmap)
    assert isinstance(first.probabilities, np.memmap)
    assert not again.probabilities.flags.writeable
    assert len(entries(tmp_path)) == 5
    assert drafts(tmp_path) == []


def test_only_what_is_missing_is_computed(tmp_path: Path, cnn: nn.Module, images: np.ndarray) -> None:
    counter = Counter(cnn)
    classifier = Classifier(cnn, cache=tmp_path)
    assert counter.of(lambda: classifier.observe(images)) == 19
    assert counter.of(lambda: classifier.observe(images, Needs(samples=3))) == SAMPLING
    assert counter.of(lambda: classifier.observe(images, Needs(traces=[Trace("pool")], samples=3))) == 19


@pytest.fixture
def misses(tmp_path: Path, make_cnn: Callable[..., nn.Module], images: np.ndarray) -> Callable[..., int]:
    """Fill a cache, then count the images that are shown to a classifier that differs in one respect."""

    def count(
        seed: int = 0,
        needs: Needs | None = None,
        shown: np.ndarray = images,
        sampling: int = 0,
        change: Callable[[nn.Module], object] = lambda model: None,
        **options: object,
    ) -> int:
        Classifier(make_cnn(), cache=tmp_path).observe(images, Needs(traces=[Trace("pool")], samples=2))
        model = make_cnn(seed)
        change(model)
        counter = Counter(model)
        classifier = Classifier(model, cache=tmp_path, **options)
        return counter.of(lambda: classifier.observe(shown, needs, seed=sampling))

    return count


def test_what_is_the_same_is_found(misses: Callable[..., int], images: np.ndarray) -> None:
    assert misses() == 0
    assert misses(needs=Needs(traces=[Trace("pool")], samples=2)) == 0
    assert misses(batch_size=1, name="another name", class_names=["a", "b", "c"], memory_limit=0) == 0
    assert misses(shown=np.moveaxis(images, 1, -1)) == 0
    assert misses(change=lambda model: model.train()) == 0


def test_whatever_matters_makes_it_a_miss(misses: Callable[..., int], images: np.ndarray) -> None:
    def nudge(model: nn.Module) -> None:
        model.head.bias.data[0] += 1e-6

    changed = images.copy()
    changed[-1, 0, -1, -1] = 1 - changed[-1, 0, -1, -1]
    assert misses(seed=1) == 19
    assert misses(change=nudge) == 19
    assert misses(change=lambda model: model.bn.running_mean.add_(1e-6)) == 19
    assert misses(change=lambda model: setattr(model, "relu", nn.ReLU6())) == 19
    assert misses(mean=0.1) == 19
    assert misses(std=2.0) == 19
    assert misses(output_kind="logits") == 0  # what was found out is what is said here
    assert misses(shown=changed) == 19
    assert misses(shown=images[::-1]) == 19
    assert misses(shown=images[:18]) == 18 - 1  # one canary fewer, too
    assert misses(needs=Needs(traces=[Trace("pool", "mean")])) == 19
    assert misses(needs=Needs(traces=[Trace("bn")])) == 19
    assert misses(needs=Needs(samples=2), sampling=1) == SAMPLING
    assert misses(needs=Needs(samples=3)) == SAMPLING


def test_the_device_is_part_of_the_key(tmp_path: Path, cnn: nn.Module, images: np.ndarray) -> None:
    Classifier(cnn, cache=tmp_path).observe(images)
    (entry,) = entries(tmp_path)
    key = json.loads((entry / "entry.json").read_text())["key"]
    assert key["device"] == "cpu"
    assert key["images"] == 19


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], nn.Module]:
    """Write a file of code, import it afresh and give its `Net`, with the same weights each time."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(code: str) -> nn.Module:
        import torch

        (tmp_path / "edited_net.py").write_text(code)
        importlib.invalidate_caches()
        sys.modules.pop("edited_net", None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return importlib.import_module("edited_net").Net()

    yield load
    sys.modules.pop("edited_net", None)


CODE = """
import torch
from torch import nn

def helper(x):
    return x.flatten(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(helper(x))
"""


@pytest.mark.parametrize(
    "edit",
    [
        ("self.head(helper(x))", "self.head(helper(x)) * (x.max() <= 1)"),  # the same answer, other code
        ("return x.flatten(1)", "return x.flatten(1).flip(1)"),  # other code outside the class
    ],
)
def test_edited_code_makes_it_a_miss(
    tmp_path: Path, images: np.ndarray, module_of: Callable[[str], nn.Module], edit: tuple[str, str]
) -> None:
    for code, expected in [(CODE, 19), (CODE, 0), (CODE.replace(*edit), 19)]:
        model = module_of(code)
        counter = Counter(model)
        classifier = Classifier(model, cache=tmp_path / "cache")
        assert counter.of(lambda classifier=classifier: classifier.observe(images)) == expected


def test_constants_of_code_without_a_file_make_it_a_miss(tmp_path: Path, images: np.ndarray) -> None:
    code = CODE.replace("self.head(helper(x))", "self.head(helper(x)) * SCALE")
    found = set()
    for scale in ("2", "3"):
        names: dict[str, object] = {"__name__": "prompt"}
        exec(code.replace("SCALE", scale), names)
        model = names["Net"]()
        nn.init.ones_(model.head.weight)
        nn.init.zeros_(model.head.bias)
        found.add(Classifier(model).fingerprint)
    assert len(found) == 2


def refreshed(tmp_path: Path, cnn: nn.Module, images: np.ndarray, damage: Callable[[Path, Path], None]) -> int:
    """Damage two entries; count the images shown afterwards, and check that the answer is right again."""
    classifier = Classifier(cnn, cache=tmp_path)
    expected = np.array(classifier.observe(images, NEEDS).probabilities)
    damage(*entries(tmp_path)[:2])
    counter = Counter(cnn)
    count = counter.of(lambda: same(Classifier(cnn).observe(images, NEEDS), classifier.observe(images, NEEDS)))
    np.testing.assert_array_equal(classifier.observe(images, NEEDS).probabilities, expected)
    assert drafts(tmp_path) == []
    assert counter.of(lambda: classifier.observe(images, NEEDS)) == 0
    return count - 19 - SAMPLING  # what the classifier without a cache saw


def flip_a_byte(entry: Path, _other: Path) -> None:
    data = bytearray((entry / "array.npy").read_bytes())
    data[-2] ^= 1
    (entry / "array.npy").write_bytes(bytes(data))


def truncate(entry: Path, _other: Path) -> None:
    data = (entry / "array.npy").read_bytes()
    (entry / "array.npy").write_bytes(data[: len(data) // 2])


def swap(entry: Path, other: Path) -> None:
    shutil.copytree(other, entry, dirs_exist_ok=True)


def other_format(entry: Path, _other: Path) -> None:
    card = json.loads((entry / "entry.json").read_text())
    (entry / "entry.json").write_text(json.dumps(card | {"format": 0}))


def pickled(entry: Path, _other: Path) -> None:
    import hashlib

    np.save(entry / "array.npy", np.array([{}], dtype=object), allow_pickle=True)
    card = json.loads((entry / "entry.json").read_text())
    digest = hashlib.blake2b((entry / "array.npy").read_bytes(), digest_size=16).hexdigest()
    (entry / "entry.json").write_text(json.dumps(card | {"digest": digest}))


def no_json(entry: Path, _other: Path) -> None:
    (entry / "entry.json").write_text("{")


def list_json(entry: Path, _other: Path) -> None:
    (entry / "entry.json").write_text("[]")


def no_card(entry: Path, _other: Path) -> None:
    (entry / "entry.json").unlink()


def no_array(entry: Path, _other: Path) -> None:
    (entry / "array.npy").unlink()


@pytest.mark.parametrize(
    "damage", [flip_a_byte, truncate, swap, other_format, pickled, no_json, list_json, no_card, no_array]
)
def test_a_damaged_or_foreign_entry_is_recomputed(
    tmp_path: Path, cnn: nn.Module, images: np.ndarray, damage: Callable[[Path, Path], None]
) -> None:
    assert refreshed(tmp_path, cnn, images, damage) in (19, 2 * 19)  # a plain pass, one with dropout, or both


def test_an_interrupted_pass_leaves_nothing(tmp_path: Path, cnn: nn.Module, images: np.ndarray) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Classifier(cnn, cache=tmp_path, batch_size=4).observe(images, NEEDS, progress=Callback(interrupt))
    assert list(tmp_path.iterdir()) == []
    Classifier(cnn, cache=tmp_path).observe(images, NEEDS)


PROGRAM = """
import os, signal, sys
import numpy as np
import tiny_models
from secondguess import Classifier, Needs, Trace
from secondguess.progress import Callback

images = np.random.default_rng(5).random((19, 1, 8, 8), dtype=np.float32)

def report(done, total):
    if sys.argv[2] == "kill" and done > 8:
        os.kill(os.getpid(), signal.SIGKILL)

classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN), cache=sys.argv[1], batch_size=4)
for _ in range(1 if sys.argv[2] == "kill" else 30):
    seen = classifier.observe(images, Needs(traces=[Trace("pool")]), progress=Callback(report))
    assert np.isfinite(seen.trace("pool")).all()
    if sys.argv[2] == "race":
        for path in sorted(classifier.cache.path.glob("*/entry.json")):
            path.unlink(missing_ok=True)
"""


def start(folder: Path, how: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(folder), how]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def test_a_killed_process_leaves_a_draft_that_the_next_one_sweeps(
    tmp_path: Path, cnn: nn.Module, images: np.ndarray
) -> None:
    process = start(tmp_path, "kill")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert entries(tmp_path) == []
    assert len(drafts(tmp_path)) == 2
    counter = Counter(cnn)
    classifier = Classifier(cnn, cache=tmp_path)
    assert counter.of(lambda: classifier.observe(images, Needs(traces=[Trace("pool")]))) == 19
    assert drafts(tmp_path) == []
    assert len(entries(tmp_path)) == 2


def test_processes_that_write_the_same_entries_do_not_disturb_each_other(tmp_path: Path) -> None:
    # Each spoils the entries after every pass, so that all of them write all the time.
    processes = [start(tmp_path, "race") for _ in range(2)]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert drafts(tmp_path) == []


def test_a_callable_needs_a_version_to_be_cached(tmp_path: Path, images: np.ndarray) -> None:
    calls: list[int] = []

    def model(batch: np.ndarray) -> np.ndarray:
        calls.append(len(batch))
        return np.tile([0.25, 0.75], (len(batch), 1))

    with pytest.raises(UserError, match=r"A callable cannot be recognised again.*version='v3'"):
        Classifier(model, cache=tmp_path).observe(images)
    assert Classifier(model).fingerprint is None
    for version, expected in [("v1", [CANARY, 19]), ("v1", [CANARY]), ("v2", [CANARY, 19])]:
        calls.clear()
        Classifier(model, cache=tmp_path, version=version).observe(images)
        assert calls == expected


def test_the_cache_folder_must_be_a_folder(tmp_path: Path, cnn: nn.Module, images: np.ndarray) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="cache is a file, but a folder is needed there"):
        Classifier(cnn, cache=tmp_path / "cache").observe(images)
