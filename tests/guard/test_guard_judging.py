"""Judging in shards gives the judgements of judging in one go; files that are there are not made again."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from secondguess.engine import engines
from secondguess.errors import UserError
from secondguess.guard import judging
from secondguess.guard.inputs import judge_places
from secondguess.guard.judging import ShardedJudging

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def folder(guard, tmp_path_factory):
    return guard.save(tmp_path_factory.mktemp("guard"))


@pytest.fixture(scope="module")
def pictures(digits, tmp_path_factory):
    made = tmp_path_factory.mktemp("pictures")
    for number, image in enumerate(digits.test.images[:30]):
        Image.fromarray(np.rint(255 * image[0]).astype(np.uint8)).save(made / f"{number:02}.png")
    return made


@pytest.fixture
def calls(monkeypatch, guard):
    """The shards that were judged, seven images each."""
    seen = []

    def noted(call, perform=engines.perform):
        seen.append(call.seed)
        return perform(call)

    monkeypatch.setattr(engines, "perform", noted)
    monkeypatch.setattr(judging, "_opened", lambda order: guard)
    monkeypatch.setattr(judging, "SHARD", 7)
    return seen


def test_shards_give_the_same_judgements_in_order(guard, folder, pictures, calls):
    plain = [(name, one.to_dict(), str(one)) for name, one in judge_places(guard, [str(pictures)])]
    sharded = list(ShardedJudging.of(guard, folder, [str(pictures)]).rows())
    assert calls == [0, 7, 14, 21, 28]
    for (name, row, line), (own, said) in zip(plain, sharded, strict=True):
        assert own["image"] == name and said == f"{name}: {line}"
        assert own["verdict"] == row["verdict"] and own["p_value"] == pytest.approx(row["p_value"], abs=1e-9)


def test_rows_come_in_order_whatever_ends_first(guard, folder, pictures, calls, monkeypatch):
    judged = ShardedJudging.of(guard, folder, [str(pictures)])
    names = [row["image"] for row, _ in judged.rows()]

    def backwards(self, calls, *, retries):
        for place in reversed(range(len(calls))):
            yield place, engines.perform(calls[place])

    monkeypatch.setattr(engines.InProcess, "run", backwards)
    assert [row["image"] for row, _ in judged.rows()] == names


def test_files_are_made_once_and_anew_where_an_image_changed(guard, folder, pictures, calls, tmp_path):
    def written():
        return ShardedJudging.of(guard, folder, [str(pictures)]).write(tmp_path / "out")

    first = written()
    assert [part.name for part in first.parts] == [f"part-0000{number}.parquet" for number in range(5)]
    rows = [row for part in first.parts for row in parquet.read_table(part).to_pylist()]
    expected = [row for row, _ in ShardedJudging.of(guard, folder, [str(pictures)]).rows()]
    assert [row | {"evidence": dict(row["evidence"]), "anomalies": dict(row["anomalies"])} for row in rows] == expected
    assert sum(first.verdicts.values()) == 30 and first.summary().startswith("30 images: ")
    calls.clear()
    assert written().verdicts == first.verdicts and not calls
    (tmp_path / "out" / "part-00001.parquet").write_bytes(b"half a file")
    os.utime(pictures / "29.png", (1, 1))
    written()
    assert calls == [7, 28]


def test_tables_of_somebody_else_stay(guard, folder, pictures, calls, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("part-00000.parquet", "part-00007-c000.snappy.parquet"):
        parquet.write_table(pyarrow.table({"mine": [1]}), out / name)
    with pytest.raises(UserError, match=r"holds tables of somebody else \(part-00000.parquet\); name a folder"):
        ShardedJudging.of(guard, folder, [str(pictures)]).write(out)
    assert not calls
    assert all(parquet.read_table(path).column_names == ["mine"] for path in out.iterdir())


def test_parts_of_more_images_go_and_a_copy_onto_itself_is_no_error(guard, folder, pictures, calls, tmp_path):
    ShardedJudging.of(guard, folder, [str(pictures)]).write(tmp_path / "out")
    some = [str(pictures / f"{number:02}.png") for number in range(7)]
    fewer = ShardedJudging.of(guard, folder, some).write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-00000.parquet"]
    assert fewer.save(tmp_path / "out") == tmp_path / "out"
    assert fewer.save(tmp_path / "copy").joinpath("part-00000.parquet").is_file()


def test_a_folder_at_a_url_is_judged_as_here_and_known_by_what_was_listed(guard, folder, pictures, calls, tmp_path):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for file in pictures.iterdir():
        memory.pipe_file(f"/judged/{file.name}", file.read_bytes())

    def judged(place):
        return ShardedJudging.of(guard, folder, [str(place)])

    assert [row for row, _ in judged("memory://judged").rows()] == [row for row, _ in judged(pictures).rows()]
    judged("memory://judged").write(tmp_path / "out")
    calls.clear()
    memory.pipe_file("/judged/29.png", (pictures / "28.png").read_bytes())
    judged("memory://judged").write(tmp_path / "out")
    assert calls == [28]
    (one,) = judge_places(guard, ["memory://judged/03.png"])
    (other,) = judge_places(guard, [str(pictures / "03.png")])
    assert one[0] == "memory://judged/03.png" and one[1].to_dict() == other[1].to_dict()


def test_a_worker_without_the_guard_says_so(guard, folder, pictures, monkeypatch):
    monkeypatch.setattr(judging, "_open", {})
    judged = ShardedJudging.of(guard, folder, [str(pictures)])
    card = folder / judging.CARD
    card.rename(folder / "elsewhere")
    try:
        with pytest.raises(UserError, match=r"has no such guard in .*; put the folder there, too"):
            list(judged.rows())
    finally:
        (folder / "elsewhere").rename(card)


@pytest.mark.parametrize(("device", "resources"), [("cpu", {}), ("cuda", {"GPU": 1})])
def test_what_is_judged_on_a_gpu_goes_to_workers_with_one(guard, folder, pictures, monkeypatch, device, resources):
    monkeypatch.setattr(guard.classifier, "device", device)
    assert [task.resources for task in ShardedJudging.of(guard, folder, [str(pictures)]).tasks] == [resources]
