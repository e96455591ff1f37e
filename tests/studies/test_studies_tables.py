from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.studies import Cell, Table, compare, get, names, recorded
from secondguess.studies.comparison import comparison_text
from secondguess.studies.tables import cell_of, grid_text, short

RESULTS = Path(__file__).parents[2] / "results"


def test_a_table_survives_csv(tmp_path):
    table = Table(
        {
            ("a, b", "x"): Cell(0.5, 0.1, 3),
            ("a, b", "y"): Cell(1.0, unreliable="odd"),
            ("c", "x"): Cell(2, relation="<"),
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
    table = Table({("long name", "x"): Cell(0.5, 0.25), ("b", "y"): Cell(0.0012)})
    assert table.text().splitlines() == [
        "                       x       y",
        "long name  0.500 ± 0.250       -",
        "b                      -  0.0012",
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
        {("a", "y"): Cell(0.1), ("a", "x"): Cell(0.4, 0.2, unreliable="a typo"), ("b", "x"): Cell(0.3, relation="<")}
    )
    lines = compare(ours, paper)
    assert [(line.row, line.column) for line in lines] == [("a", "y"), ("a", "x"), ("b", "x"), ("a", "z")]
    assert [line.difference for line in lines] == [None, pytest.approx(0.1), None, None]
    shown = comparison_text(lines).splitlines()
    assert shown[2].split() == ["a", "x", "0.500", "±", "0.100", "0.400", "±", "0.200", "+0.100", "[1]"]
    assert shown[3].split() == ["b", "x", "-", "<0.300"]
    assert shown[-1] == "[1] unreliable: a typo."


def test_there_are_the_studies_of_three_papers_at_least():
    wanted = {"ambiguity-table1", "ambiguity-table2", "surprise-table1", "surprise-table2", "surprise-figure3"}
    wanted |= {"surprise-figure4", "oracles-table6", "oracles-table7", "oracles-table8"}
    assert wanted <= set(names())
    with pytest.raises(UserError, match=r"There is no study 'surprise-table9'; did you mean 'surprise-table"):
        get("surprise-table9")


@pytest.mark.parametrize("name", names())
def test_every_study_is_complete(name):
    study = get(name)
    assert study.name == name
    assert name.startswith(
        tuple(f"{paper}-" for paper in ("ambiguity", "surprise", "oracles", "hubris", "search", "mixtures"))
    )
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
    doubtful = {key for key, cell in get("surprise-table1").published.cells.items() if cell.unreliable}
    assert doubtful == {("adversarial, DSA", "min"), ("adversarial, DSA", "range")}
