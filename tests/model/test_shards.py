"""Observing in shards gives what observing in one go does, and goes on where it was interrupted."""

from __future__ import annotations

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from secondguess import Classifier, ImageSet, Needs
from secondguess.engine import engines
from secondguess.engine.task import perform
from secondguess.errors import UserError
from secondguess.images.encoded import FileSource
from secondguess.images.parquet import ParquetSource
from secondguess.images.sources import ArraySource, ViewSource
from secondguess.model import Trace, orders, shards
from secondguess.model.shards import cut

NEEDS = Needs(traces=frozenset({Trace("penultimate")}), logits=True, samples=3)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)).eval()


@pytest.fixture
def wired(monkeypatch):
    """The engine `local:1`, whose calls and answers are pickled as for another process; counts its calls."""
    monkeypatch.setattr(orders, "_open", {})
    sizes = []

    def wire(call):
        sent = pickle.dumps(call)
        sizes.append(len(sent))
        return pickle.loads(pickle.dumps(perform(pickle.loads(sent))))  # noqa: S301

    monkeypatch.setattr(engines, "perform", wire)
    return sizes


def pictures(count, seed=0):
    rng = np.random.default_rng(seed)
    return ImageSet.from_arrays(rng.integers(0, 256, (count, 4, 4), dtype=np.uint8), rng.integers(0, 3, count))


def assert_same(one, other):
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    np.testing.assert_array_equal(one.logits, other.logits)
    np.testing.assert_array_equal(one.samples, other.samples)
    for trace, values in one.traces.items():
        np.testing.assert_array_equal(values, other.traces[trace])
    np.testing.assert_array_equal(one.labels, other.labels)


@settings(max_examples=12)
@given(count=st.integers(1, 2000), batch=st.integers(1, 90), most=st.integers(1, 700))
def test_shards_cover_every_image_once_and_begin_with_a_batch(count, batch, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "MOST", most)
        rows = cut(count, (1, 4, 4), batch, [])
    assert np.array_equal(np.concatenate([np.arange(count)[one] for one in rows]), np.arange(count))
    assert all(one.start % batch == 0 for one in rows)
    assert all(one.stop - one.start <= max(most + batch, batch) for one in rows)


@pytest.mark.parametrize("most", [64, 300, 10_000])
def test_numbers_do_not_depend_on_the_number_of_shards(module, wired, monkeypatch, most):
    monkeypatch.setattr(shards, "MOST", most)
    images = pictures(1000).take(np.random.default_rng(1).permutation(1000)[:900])
    plain = Classifier(module, mean=0.4, std=0.3, batch_size=64).observe(images, NEEDS, seed=5)
    assert not wired
    many = Classifier(module, mean=0.4, std=0.3, batch_size=64, engine="local:1").observe(images, NEEDS, seed=5)
    assert len(wired) > 1
    assert_same(plain, many)


def test_few_images_are_observed_here(module, wired):
    Classifier(module, batch_size=64, engine="local:1").observe(pictures(128))
    assert not wired


def test_an_interrupted_pass_goes_on_with_the_shards_that_are_missing(module, wired, tmp_path):
    images, done = pictures(1000), []

    def classifier(engine):
        return Classifier(module, batch_size=32, cache=tmp_path / "cache", engine=engine)

    class Interrupted:
        def task(self, label, total):
            def advance(count, total):
                done.append(count)
                if len(done) == 5:
                    raise KeyboardInterrupt

            return nullcontext(advance)

    with pytest.raises(KeyboardInterrupt):
        classifier("local:1").observe(images, progress=Interrupted())
    first = len(wired)
    assert len(list((tmp_path / "cache" / "shards").glob("*.json"))) == first
    seen = classifier("local:1").observe(images)
    assert len(wired) == len(cut(1000, (1, 4, 4), 32, []))
    np.testing.assert_array_equal(seen.probabilities, Classifier(module, batch_size=32).observe(images).probabilities)
    assert not (tmp_path / "cache" / "shards").exists()
    classifier("local:1").observe(images)
    assert len(wired) == len(cut(1000, (1, 4, 4), 32, []))  # the third time everything is in the cache


def test_a_full_disk_is_one_sentence_and_what_ended_is_kept(module, wired, monkeypatch, tmp_path):
    from secondguess.engine import ledger

    written = []

    def full(path, *rest, **more):
        written.append(path)
        if len(written) > 3:
            raise UserError(f"{path} cannot be written: No space left on device.")
        return save(path, *rest, **more)

    save = ledger.write_json_sealed
    monkeypatch.setattr(ledger, "write_json_sealed", full)
    classifier = Classifier(module, batch_size=32, cache=tmp_path, engine="local:1")
    with pytest.raises(UserError, match=r"No space left on device\. What ended before is kept in .*shards; run it"):
        classifier.observe(pictures(1000))
    assert len(list((tmp_path / "shards").glob("*.json"))) == 3


def test_a_model_that_differs_at_the_worker_is_refused(wired, tmp_path):
    from safetensors.torch import save_file

    def write(seed):
        torch.manual_seed(seed)
        save_file({"1.weight": torch.randn(3, 16), "1.bias": torch.zeros(3)}, tmp_path / "w.safetensors")

    write(0)
    (tmp_path / "made_here.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))\n"
    )
    (tmp_path / "model.toml").write_text('import = "made_here:make"\nweights = "w.safetensors"\n')
    classifier = Classifier.open(tmp_path / "model.toml", batch_size=32, engine="local:1")
    images = pictures(300)
    expected = Classifier.open(tmp_path / "model.toml", batch_size=32).observe(images).probabilities
    np.testing.assert_array_equal(classifier.observe(images).probabilities, expected)
    assert max(wired) < 10_000  # the model goes by its name
    write(1)
    orders._open.clear()
    with pytest.raises(UserError, match=r"opens another model at made_here:make than this process; put the same"):
        classifier.observe(images)


def test_a_function_of_this_process_is_refused():
    with pytest.raises(UserError, match=r"is a function of this process, which no worker of an engine can call"):
        Classifier(lambda images: np.tile([0.2, 0.8], (len(images), 1)), batch_size=8, engine="local:2").observe(
            pictures(100)
        )


def test_only_the_rows_of_a_view_are_pickled(tmp_path):
    from PIL import Image

    array = np.arange(4000 * 12, dtype=np.uint8).reshape(4000, 2, 2, 3)
    whole = ArraySource(array, "NHWC")
    view = ViewSource(whole, np.array([7, 3, 3999]))
    sent = pickle.dumps(view)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)[0:3], view[0:3])  # noqa: S301
    for number in range(3):
        Image.fromarray(array[number]).save(tmp_path / f"{number}.png")
    files = FileSource([tmp_path / f"{number}.png" for number in range(3)], (3, 2, 2))
    back = pickle.loads(pickle.dumps(ViewSource(files, np.array([2, 0]))))  # noqa: S301
    assert isinstance(back, FileSource)
    np.testing.assert_array_equal(back[0:2], files[np.array([2, 0])])
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = [{"bytes": (tmp_path / f"{number}.png").read_bytes(), "path": None} for number in range(3)] * 20
    parquet.write_table(arrow.table({"image": rows}), tmp_path / "some.parquet", row_group_size=7)
    table = ParquetSource([tmp_path / "some.parquet"], "image", (3, 2, 2))
    table[0:60]
    some = pickle.dumps(ViewSource(table, np.array([59, 8, 8, 0])))
    back = pickle.loads(some)  # noqa: S301
    assert isinstance(back, ParquetSource)
    assert len(back) == 4
    np.testing.assert_array_equal(back[0:4], table[np.array([59, 8, 8, 0])])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ViewSource(back, np.array([1]))))[0], table[8])  # noqa: S301
