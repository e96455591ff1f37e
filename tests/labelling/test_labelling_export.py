from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from label_house import NAMES

from secondguess.errors import MissingExtra, UserError
from secondguess.labelling.export import export_labels, exported, table
from secondguess.labelling.session import LabellingSession
from secondguess.labelling.store import Event, Seen, Store
from secondguess.search.pool import Pool


@pytest.fixture
def said(open_session: Callable[..., LabellingSession]) -> list[tuple[int, tuple[int, ...]]]:
    """Six answers that stand, an undone one and a skip among them: (image, classes)."""
    session, standing = open_session(), []
    for classes in ((1,), (0, 2), (), (2,), (0,), (1,)):
        question = session.next("Ada")
        assert question is not None
        if len(standing) == 2:
            session.answer("Ada", question.image, (1,))
            session.undo("Ada")
        session.answer("Ada", question.image, classes)
        standing.append((question.image, classes))
    question = session.next("Ada")
    assert question is not None
    session.skip("Ada", question.image)
    return standing


def test_the_table_holds_the_answers_that_stand(said: list, store: Store, pool: Pool) -> None:
    columns = table(store)
    images = [image for image, _ in said]
    assert columns["index"].tolist() == images
    assert columns["id"].tolist() == [f"photo {image}.png" for image in images]
    assert columns["label"].tolist() == [1, -1, -1, 2, 0, 1]
    assert columns["answer"].tolist() == ["dog", "cat or owl", "invalid", "owl", "cat", "dog"]
    assert columns["is_ambiguous"].tolist() == [False, True, False, False, False, False]
    assert columns["is_invalid"].tolist() == [False, False, True, False, False, False]
    assert columns["predicted"].tolist() == pool.predictions[images].tolist()
    assert columns["confidence"].tolist() == pool.confidence[images].tolist()
    assert columns["wrong"].tolist() == [pool.predictions[image] not in classes for image, classes in said]
    assert columns["p_label"].tolist()[1:3] == [[0.5, 0, 0.5], [0, 0, 0]]
    assert set(columns["annotator"].tolist()) == {"Ada"}


def test_csv_round_trip(said: list, store: Store) -> None:
    columns, rows = table(store), list(csv.DictReader(io.StringIO(exported(store, "csv").decode())))
    assert len(rows) == len(said)
    for name in ("id", "answer", "annotator", "time", "classes"):
        assert [row[name] for row in rows] == columns[name].tolist()
    for name in ("index", "label", "predicted", "confidence"):
        assert [float(row[name]) for row in rows] == columns[name].tolist()
    assert [tuple(map(int, row["classes"].split())) for row in rows] == [classes for _, classes in said]
    assert [row["wrong"] == "True" for row in rows] == columns["wrong"].tolist()


def test_npz_round_trip(said: list, store: Store) -> None:
    columns = table(store)
    with np.load(io.BytesIO(exported(store, "npz")), allow_pickle=False) as file:
        assert set(file) == set(columns)
        for name, values in columns.items():
            np.testing.assert_array_equal(file[name], values)
            assert file[name].dtype == values.dtype


def test_parquet_round_trip(said: list, store: Store) -> None:
    from pyarrow import parquet

    columns, read = table(store), parquet.read_table(io.BytesIO(exported(store, "parquet")))
    assert json.loads(read.schema.metadata[b"class_names"]) == list(NAMES)
    assert set(read.column_names) == set(columns) - {"class_names"}
    for name in read.column_names:
        assert read.column(name).to_pylist() == columns[name].tolist()


def test_files_lie_in_the_folder_of_the_labels(said: list, store: Store) -> None:
    for kind in ("csv", "npz", "parquet"):
        path, answers = export_labels(store.folder, kind)
        assert path == store.folder / f"labels.{kind}"
        assert answers == len(said)
        assert path.stat().st_size > 0


def test_nothing_answered_is_an_empty_table(store: Store) -> None:
    assert exported(store, "csv").decode().count("\n") == 1
    assert table(store)["p_label"].shape == (0, 3)
    assert exported(store, "parquet")[:4] == b"PAR1"
    assert exported(store, "npz")[:2] == b"PK"


def test_names_that_need_quotes_survive(store: Store, tmp_path: Path) -> None:
    store.append(Event("answered", 4, 'Ada "the, first"', (0,)), Seen('a, "b"\nc.png', 0, 0.5))
    (row,) = csv.DictReader(io.StringIO(exported(store, "csv").decode()))
    assert (row["id"], row["annotator"]) == ('a, "b"\nc.png', 'Ada "the, first"')


def test_two_answers_about_one_image_are_two_rows(store: Store) -> None:
    for who, classes in (("Ada", (0,)), ("Bob", (1,))):
        store.append(Event("answered", 4, who, classes), Seen("4.png", 0, 0.5))
    columns = table(store)
    assert columns["annotator"].tolist() == ["Ada", "Bob"]
    assert columns["wrong"].tolist() == [False, True]


def test_unknown_kinds_and_missing_extras(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cannot be exported as 'xlsx'; there is csv, parquet, npz"):
        exported(store, "xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install \"secondguess\[hub\]\""):
        exported(store, "parquet")
