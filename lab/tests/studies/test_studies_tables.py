from __future__ import annotations

import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess_lab.studies import Cell, Table, compare, get, names, recorded
from secondguess_lab.studies.comparison import comparison_text
from secondguess_lab.studies.tables import cell_of, grid_text, short

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


def test_a_table_survives_csv(tmp_path):
    table = Table(
        {
            ("a, b", "x"): Cell(0.5, 0.1, 3),
            ("a, b", "y"): Cell(1.0, unreliable="odd"),
            ("c", "x"): Cell(2, relation="<"),
            ("c", "y"): Cell(2, relation=">"),
        }
    )
    (tmp_path / "table.csv").write_text(table.to_csv())
    assert Table.read(tmp_path / "table.csv") == table
    assert Table.from_tidy(table.tidy()) == table
    assert table.rows == ["a, b", "c"]
    assert table.columns == ["x", "y"]


def test_an_unreadable_table_is_said(tmp_path):
    (tmp_path / "table.csv").write_text("row,column,value\na,b,many\n")
    with pytest.raises(UserError, match="holds no table that can be read"):
        Table.read(tmp_path / "table.csv")
    with pytest.raises(UserError, match="holds no table that can be read"):
        Table.read(tmp_path / "none.csv")


def test_mean_and_spread_are_those_of_the_standard_library():
    values = [0.2, 0.5, 0.9]
    cell = cell_of(values)
    assert cell.value == pytest.approx(statistics.mean(values))
    assert cell.spread == pytest.approx(statistics.stdev(values))
    assert cell.n == 3
    assert cell_of([1.0]).spread is None


def test_text_lines_up_and_says_what_is_missing():
    table = Table({("long name", "x"): Cell(0.5, 0.25), ("b", "y"): Cell(0.0012, 0.0004)})
    assert table.text().splitlines() == [
        "                       x                y",
        "long name  0.500 ± 0.250                -",
        "b                      -  0.0012 ± 0.0004",
    ]
    assert grid_text(["", "", "n"], [["a", "long", "1"]], left=2).splitlines()[1] == "a  long  1"


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0.000"), (0.01, "0.010"), (-0.5, "-0.500"), (0.00123, "0.0012"), (1e-20, "1e-20")]
)
def test_numbers_are_short(value, shown):
    assert short(value) == shown


def test_the_comparison_has_all_cells_of_both():
    ours = Table({("a", "x"): Cell(0.5, 0.1, 3), ("a", "z"): Cell(0.7)})
    paper = Table(
        {
            ("a", "y"): Cell(0.1),
            ("a", "x"): Cell(0.4, 0.2, unreliable="a typo"),
            ("b", "x"): Cell(0.3, relation="<"),
            ("b", "y"): Cell(0.6, relation=">"),
        }
    )
    lines = compare(ours, paper)
    assert [(line.row, line.column) for line in lines] == [("a", "y"), ("a", "x"), ("b", "x"), ("b", "y"), ("a", "z")]
    assert [line.difference for line in lines] == [None, pytest.approx(0.1), None, None, None]
    assert lines[1].tidy() == {
        "row": "a",
        "column": "x",
        "ours": 0.5,
        "ours_spread": 0.1,
        "ours_n": 3,
        "paper": 0.4,
        "paper_relation": "=",
        "paper_spread": 0.2,
        "difference": pytest.approx(0.1),
        "unreliable": "a typo",
    }
    shown = comparison_text(lines).splitlines()
    assert shown[2].split() == ["a", "x", "0.500", "±", "0.100", "0.400", "±", "0.200", "+0.100", "[1]"]
    assert [line.split() for line in shown[3:5]] == [["b", "x", "-", "<0.300"], ["b", "y", "-", ">0.600"]]
    assert shown[-1] == "[1] unreliable: a typo."


STUDIES = {
    "ambiguity": ("table1", "table2", "orders", "boundary"),
    "surprise": ("table1", "table2", "figure2", "figure3", "figure4", "beyond"),
    "oracles": ("table6", "table7", "table8", "figure6", "figure7", "figure10", "figure11"),
    "hubris": ("table1", "table2", "table3"),
    "search": ("table1", "figure3", "figure4", "figure5", "figure6", "figure7", "released"),
    "mixtures": ("accuracy", "rehearsed", "shares"),
}


def test_there_are_the_studies_of_five_papers_and_ours():
    assert set(names()) == {f"{paper}-{table}" for paper, tables in STUDIES.items() for table in tables}
    with pytest.raises(UserError, match=r"There is no study 'surprise-table9'; did you mean 'surprise-table"):
        get("surprise-table9")


@pytest.mark.parametrize("name", names())
def test_every_study_is_complete(name):
    study = get(name)
    assert study.name == name
    assert study.paper
    assert study.table
    assert study.summary.endswith(".")
    assert set(study.quick) <= set(study.scale)
    assert all(np.isfinite(cell.value) for cell in study.published.cells.values())


@pytest.mark.parametrize("name", names())
def test_the_repository_has_numbers_for_every_study(name):
    found = recorded(get(name), RESULTS)
    assert found.table.cells
    assert found.records
    assert all((RESULTS / record["file"]).is_file() and record["hardware"] for record in found.records)


# Read from the papers, cell by cell.
PRINTED = [
    ("ambiguity-table1", "mnist, ambiguess, mean of four: mixed, ambiguous", "top-pair", 0.95),
    ("ambiguity-table1", "mnist, ambiguess, simple_cnn: clean, ambiguous", "entropy", 1.07),
    ("ambiguity-table1", "mnist, latent mixture, resnet50: clean, nominal", "top-2", 1.00),
    ("ambiguity-table1", "fashion_mnist, ambiguess, fully_connected: mixed, nominal", "top-1", 0.82),
    ("ambiguity-table2", "mdsa", "fashion_mnist: invalid", 0.95),
    ("ambiguity-table2", "autoencoder", "mnist: invalid", 1.00),
    ("ambiguity-table2", "ensemble_mi", "fashion_mnist: ambiguous", 0.57),
    ("surprise-table1", "corrupted, LSA", "range", 0.037),
    ("surprise-table1", "adversarial, DSA", "median", 0.974),
    ("surprise-table2", "DSA, original", "MacBook Pro 2019", 4 * 60 + 44),
    ("oracles-table6", "A", "cross-referencing", 0.5042),
    ("oracles-table7", "N", "SelfChecker", 0.1946),
    ("oracles-table8", "C", "ICOS, fine", 0.7895),
]


@pytest.mark.parametrize(("name", "row", "column", "value"), PRINTED)
def test_published_numbers_are_the_printed_ones(name, row, column, value):
    assert get(name).published.cells[row, column].value == value


def test_doubtful_cells_are_those_of_the_fact_sheets():
    cells = get("ambiguity-table2").published.cells
    doubtful = {key for key, cell in cells.items() if cell.unreliable}
    expected = {
        key
        for key in cells
        if "adversarial" in key[1]
        or key[0] == "lsa"
        or (key[0].startswith("ensemble") and key[1].startswith("fashion_mnist"))
    }
    assert doubtful == expected
    assert ("ensemble_ms", "mnist: adversarial") not in cells
    reasons = cells["lsa", "mnist: adversarial"].unreliable
    assert "attacked" in reasons
    assert "infinity" in reasons
    doubtful = {key for key, cell in get("surprise-table1").published.cells.items() if cell.unreliable}
    assert doubtful == {("adversarial, DSA", "min"), ("adversarial, DSA", "range")}


def test_published_bounds_say_on_which_side_a_number_lies():
    bounds = {
        (name, *key): cell.relation
        for name in names()
        for key, cell in get(name).published.cells.items()
        if cell.relation != "="
    }
    lost = "adversarial lost"
    assert bounds == {
        ("surprise-figure3", "DSA, uniform 0.33", lost): "<",
        ("surprise-figure3", "DSA, epsilon_free 0.33", lost): "<",
        ("surprise-figure3", "DSA, unsurprising_first 0.33", lost): "<",
        ("search-figure4", "cats_dogs, predicted cat, adversarial distance", "50 queries"): ">",
    }


def test_implied_errors_follow_from_the_printed_rates():
    """F1 gives the share of failures p, and |TPR p + FPR (1 - p) - p| is how far the estimated accuracy is off."""
    tpr, fpr, f1 = (get(f"oracles-table{number}").published.cells for number in (6, 7, 8))
    for key, cell in get("oracles-figure6").published.cells.items():
        hits, alarms, score = (cells[key].value for cells in (tpr, fpr, f1))
        failing = score * alarms / (2 * hits - score * (1 + hits) + score * alarms)
        assert cell.value == pytest.approx(abs(hits * failing + alarms * (1 - failing) - failing), abs=6e-4)


def test_every_study_stands_in_the_documentation():
    text = (ROOT / "docs" / "evidence" / "studies.md").read_text(encoding="utf-8")
    listed = set()
    for first, more in re.findall(r"^\| `([a-z]+-[a-z]+\d*)`((?:, `\d+`)*) \|", text, re.MULTILINE):
        listed |= {first, *(first.rstrip("0123456789") + number for number in re.findall(r"\d+", more))}
    assert listed == set(names())
