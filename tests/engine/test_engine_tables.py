"""Results of shards as Parquet files: what was written is what is read, by us and by anybody."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from secondguess import Classifier, ImageSet
from secondguess.engine import Ledger, Task, ledger
from secondguess.engine.tables import are_columns, read_table, write_table
from secondguess.engine.task import Outcome

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install secondguess[hub]")
KINDS = st.sampled_from(["<f4", "<f8", "<i8", "|i1", "|u1"])


def counted(*, seed):
    """A task that is never run."""
    raise AssertionError


@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=st.integers(1, 9), kinds=st.lists(KINDS, min_size=1, max_size=3))
def test_arrays_come_back_as_they_were(data, rows, kinds, tmp_path_factory):
    shapes = [data.draw(st.sampled_from([(rows,), (rows, 1), (rows, 4)])) for _ in kinds]
    drawn = [data.draw(arrays.arrays(kind, shape)) for kind, shape in zip(kinds, shapes, strict=True)]
    given = {f"column {number}": array for number, array in enumerate(drawn)}
    assert are_columns(given)
    path = tmp_path_factory.mktemp("tables") / "some.parquet"
    write_table(path, given)
    back = read_table(path)
    assert list(back) == list(given)
    for name, array in given.items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape and back[name].flags.writeable
        assert back[name].tobytes() == array.tobytes()  # NaN, infinity and -0.0, too


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"empty": np.zeros(0)},
        {"few": np.zeros(2), "more": np.zeros(3)},
        {"samples": np.zeros((2, 3, 4))},
        {"texts": np.array(["a", "b"])},
        {"nothing": np.zeros((2, 0))},
        {"images": np.zeros((1, 20_000), dtype=np.float32)},
    ],
)
def test_what_is_no_table_stays_an_archive(given, tmp_path):
    assert not are_columns(given)
    kept, task = Ledger(tmp_path, tables=True), Task(counted)
    kept.put(task, Outcome(dict(given), 0.0, "here"))
    assert not list(tmp_path.glob("*.parquet"))
    found = kept.get(task).result
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_damaged_table_and_one_that_cannot_be_read_are_made_again(tmp_path, monkeypatch):
    kept, task = Ledger(tmp_path, tables=True), Task(counted)
    kept.put(task, Outcome({"numbers": np.arange(3.0), "name": "a"}, 0.0, "here"))
    (path,) = tmp_path.glob("*.parquet")
    np.testing.assert_array_equal(Ledger(tmp_path).get(task).result["numbers"], np.arange(3.0))
    monkeypatch.setattr(ledger, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="Parquet file, and pyarrow is not installed"):
        assert kept.get(task) is None
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match="its arrays have changed"):
        assert kept.get(task) is None
    kept.forget([task])
    assert not tmp_path.exists()


def test_others_can_read_the_shards_of_an_interrupted_pass(tmp_path):
    class Interrupted:
        def task(self, label, total):
            def advance(done, total):
                raise KeyboardInterrupt

            return nullcontext(advance)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    images = ImageSet.from_arrays(np.random.default_rng(0).random((90, 4, 4)).astype(np.float32))
    how = {"batch_size": 8, "device": "cpu", "output_kind": "logits", "engine": "local:1"}
    with pytest.raises(KeyboardInterrupt):
        Classifier(network, cache=tmp_path, **how).observe(images, progress=Interrupted())
    (path,) = Path(tmp_path, "shards").glob("*.parquet")
    there = np.array(parquet.read_table(path).column("probabilities").to_pylist())
    np.testing.assert_array_equal(there, Classifier(network, **how).observe(images).probabilities[: len(there)])
