from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secondguess import UserError
from secondguess.hubris import read_predictions, score


def test_one_column_and_many(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("id,p,r0,r1\na.png,0.25,0.1,0.9\nb.png, 1 ,0.5,0.5\n\n")
    assert read_predictions(file) == pytest.approx([0.25, 1])
    assert read_predictions(file, "r") == pytest.approx(np.array([[0.1, 0.9], [0.5, 0.5]]))


def test_columns_are_sorted_by_number(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    names = [f"p{k}" for k in range(11)]
    file.write_text(",".join(reversed(names)) + "\n" + ",".join(str(k / 55) for k in reversed(range(11))) + "\n")
    assert read_predictions(file)[0] == pytest.approx(np.arange(11) / 55)


def test_arrays(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 5)
    np.savez(tmp_path / "whole.npz", p=rows, names=np.array(["x"] * 5))
    np.savez(tmp_path / "parts.npz", **{f"p{k}": rows[:, k] for k in range(4)})
    assert read_predictions(tmp_path / "whole.npz") == pytest.approx(rows)
    assert read_predictions(tmp_path / "parts.npz") == pytest.approx(rows)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_bytes(b"\xef\xbb\xbfp\r\n0.5\r\n")
    assert read_predictions(file) == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.csv", "q\n0.5\n", "has the columns q; a column 'p' is needed"),
        ("p.csv", "p0,p2\n0.5,0.5\n", "a column 'p' is needed, or p0, p1"),
        ("p.csv", "p0\n0.5\n", "a column 'p' is needed"),
        ("p.csv", "p\n", "no rows"),
        ("p.csv", "p\n0.5\nhalf\n", "Row 3 of p.csv has 'half' in the column 'p'"),
        ("p.csv", "p,q\n0.5,0.1\n0.5\n", "Row 3 of p.csv has not 2 cells"),
        ("p.npz", "not an archive", "cannot be read as an .npz file"),
        ("p.csv", b"\xff\xfe\x00", "cannot be read as a CSV file"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words):
        read_predictions(file)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(UserError, match=r"There is no file nowhere\.csv"):
        read_predictions("nowhere.csv")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", p=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"cannot be read as an \.npz file of numbers"):
        read_predictions(tmp_path / "evil.npz")


def test_the_scores_of_a_file_as_json() -> None:
    found = score([0.1, 0.5, 0.9], seed=1).to_dict()
    assert list(found) == ["absolute", "relative", "acd", "mean_kl", "over", "under", "rescaled", "n"]
    assert found["absolute"]["value"] == pytest.approx(0.719284, abs=1e-6)
    assert set(found["absolute"]) == {"value", "low", "high"}
    assert found["relative"] is None and found["n"] == 3
    assert found["over"] == pytest.approx(found["mean_kl"]) and found["under"] == 0
    against = score([0.5, 0.5], 0.9).to_dict()
    assert against["relative"]["value"] == pytest.approx(0.51598, abs=6e-6)
    assert against["over"] == 0 and against["under"] == pytest.approx(against["mean_kl"])
    assert against["absolute"]["value"] == 0
