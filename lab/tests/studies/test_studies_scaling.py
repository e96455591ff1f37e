"""The page on scaling shows what the record holds, and the record's summaries follow from its measurements."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_scaling", ROOT / "lab/experiments/scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "results/scaling/scaling.json").read_text("utf-8"))


def test_the_page_is_that_of_the_record(script, record):
    page = script.PAGE.read_text("utf-8")
    assert script.filled(page, record) == page, "run python lab/experiments/scaling.py --write-docs"


def test_another_record_gives_another_page(script, record):
    page = script.PAGE.read_text("utf-8")
    row = record["growth"][0]
    changed = record | {"growth": [row | {"exponent": 7.25}, *record["growth"][1:]]}
    line = next(line for line in script.filled(page, changed).splitlines() if line.startswith(f"| {row['part']} |"))
    assert line.split("|")[-3].strip() == "7.25"


def test_a_page_without_a_place_for_a_table_is_refused(script, record):
    with pytest.raises(SystemExit, match="0 places for the table 'about'"):
        script.filled("# Scaling\n", record)


def test_exponents_are_slopes_of_the_measured_seconds(record):
    assert len(record["growth"]) > 20
    for row in record["growth"]:
        logs = np.log(row["sizes"]), np.log(row["seconds"])
        assert len(row["sizes"]) >= 3
        assert row["exponent"] == pytest.approx(np.polyfit(*logs, 1)[0])
        assert row["last_exponent"] == pytest.approx(np.diff(logs[1])[-1] / np.diff(logs[0])[-1])


def test_speed_ups_are_ratios_of_the_measured_seconds(record):
    rows = {(row["kind"], row["workers"]): row for row in record["workers"]["rows"]}
    for kind, alone in (("local", "local"), ("dask", "dask"), ("bare", "local")):
        gained = rows[alone, 1]["seconds"] / rows[kind, 2]["seconds"]
        assert rows[kind, 2]["speed_up"] == pytest.approx(gained)
        assert rows[kind, 2]["efficiency"] == pytest.approx(gained / 2)
    tasks = record["settings"]["workers"]["tasks"]
    assert all(row["workers"] * row["seconds"] > tasks * row["task_seconds"] for row in rows.values())
    assert record["workers"]["same_results"]


def test_the_record_says_where_it_comes_from(script, record):
    assert record["command"].startswith("python ")
    assert "scaling" in record["command"]
    assert {"python", "numpy", "torch", "joblib", "distributed"} <= record["versions"].keys()
    assert record["hardware"]["cores"] >= 2
    assert record["settings"]["threads"] == 1
    assert set(script.IN_OPERATION.values()) <= record["settings"]["held"].keys()


@pytest.mark.parametrize(
    ("value", "text"), [(0.00213, ".0021"), (0.33, ".33"), (4.04, "4"), (29.9, "30"), (512.3, "510"), (12345, "12,300")]
)
def test_numbers_have_two_significant_digits(script, value, text):
    assert script.number(value) == text
    assert float(re.sub(",", "", text)) == pytest.approx(value, rel=0.05)


@pytest.fixture(scope="module")
def bill():
    sys.path.insert(0, str(ROOT / "lab/experiments"))
    try:
        yield importlib.import_module("scaling_bill")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def cost():
    return json.loads((ROOT / "results/scaling/cost.json").read_text("utf-8"))


def test_the_tables_of_cost_are_those_of_the_record(bill, cost):
    page = bill.PAGE.read_text("utf-8")
    assert bill.filled(page, cost) == page, "run python lab/experiments/scaling_cost.py --write-docs"


def test_the_model_of_cost_is_fitted_to_its_rows_and_held_against_runs(bill, cost):
    for name, part in cost["parts"].items():
        errors = []
        for row in part["rows"]:
            assert row["terms"].keys() == part["seconds"].keys(), name
            predicted = sum(part["seconds"][term] * count for term, count in row["terms"].items())
            errors.append(abs(predicted / row["seconds"] - 1))
        assert max(errors) == pytest.approx(part["largest_error"])
        assert len(errors) > len(part["seconds"])
    runs = {(row["job"], row["workers"]) for row in cost["archives"]}
    assert runs == {("archive", 1), ("archive", 2)}
    sizes = bill.PHOTOGRAPHS | {"training": 50_000}
    each = [bill.core_seconds(cost["parts"], sizes, supervisors) for supervisors in (bill.OUTPUT, bill.MATRIX)]
    assert 0 < each[0] < each[1]


def test_a_bill_follows_its_prices(bill, cost):
    prices = {name: default for name, (default, _) in bill.PRICES.items()}
    rows, usual = (
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in bill.bill_table(cost, some).splitlines()[2:]]
        for some in (prices | {"core_hour": 10 * prices["core_hour"]}, prices)
    )
    for row, other in zip(rows, usual, strict=True):
        money, less = (float(cells[6].replace(",", "")) for cells in (row, other))
        assert money == pytest.approx(10 * less, rel=0.06) and row[:6] == other[:6] and row[7] == other[7]
