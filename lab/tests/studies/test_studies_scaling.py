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
    filled = bill.filled(page, cost, bill.beside("gpu"), bill.beside("network"))
    assert filled == page, "run python lab/experiments/scaling_cost.py --write-docs"


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


@pytest.fixture
def gpu():
    """A GPU that passes 100 images a second alone, 80 with scores and 50 from main memory; 1,000 x 1,000 pixels."""
    rates = {"bare": 100, "scored": 80, "from memory": 50, "observe, score": 2}
    rows = {name: {"images a second": rate} for name, rate in rates.items()}
    return {"settings": {"side": 1000, "traces": 10_000}, "rows": rows}


def test_the_terms_of_a_gpu_add_up_to_what_was_measured(bill, gpu):
    terms = bill.gpu_terms(gpu)
    assert terms["gflop"] * bill.PHOTOGRAPHS["gflop"] == pytest.approx(0.01)
    assert terms["scores"] == pytest.approx(0.0025) and terms["megabyte"] == pytest.approx(0.0075 / 3)
    assert bill.gpu_seconds(gpu, bill.ALL, 10_000) == pytest.approx(1 / 50)
    assert bill.gpu_seconds(gpu, bill.ALL, 100) == pytest.approx(1 / 50)  # never less than measured
    assert bill.gpu_seconds(gpu, bill.ALL, 40_000) == pytest.approx(1 / 50 + 3 * 0.0025)
    assert bill.gpu_seconds(gpu, bill.OUTPUT, 40_000) == pytest.approx(1 / 50)
    twice = bill.gpu_seconds(gpu, bill.ALL, 10_000, gflop=2 * bill.PHOTOGRAPHS["gflop"], side=500)
    assert twice == pytest.approx(0.02 + 0.0025 + 0.0075 / 4)
    real = bill.beside("gpu")
    measured = real["rows"]["from memory"]["images a second"]
    assert 1 / bill.gpu_seconds(real, bill.ALL, real["settings"]["traces"]) == pytest.approx(measured)


def test_a_month_on_gpus(bill, cost):
    month = bill.SECONDS_A_MONTH
    price = {"images": 10 * month, "peak": 3, "busy": 0.5, "cores": 4, "core_hour": 0.1, "gpu_hour": 2}
    # 30 images a second in the busiest minute: .1 s of a GPU each at half its time, .35 s of a core.
    spent = bill.gpu_month(0.1, 0.35, price)
    assert spent == {"gpus": 6, "machines": 6, "gpu_money": 6 * 720 * 2, "machine_money": pytest.approx(6 * 4 * 72)}
    assert bill.gpu_month(0.1, 0.35, price | {"images": 20 * month})["gpus"] == 12
    fed = bill.feeding_seconds(cost, bill.ALL, 50_000)
    parts = bill.by_part(cost["parts"], bill.PHOTOGRAPHS | {"training": 50_000, "batch": 256}, bill.ALL)
    on_cores = bill.core_seconds(cost["parts"], bill.PHOTOGRAPHS | {"training": 50_000}, bill.ALL)
    assert parts["decode"] + bill.request_seconds(cost) < fed < on_cores + bill.request_seconds(cost)


def test_a_network_carries_as_many_images_as_its_bits_hold(bill, cost, gpu):
    assert bill.images_a_second(1000, 8) == pytest.approx(1e6)
    network = {
        "store": {"listed": 300, "read": 40_000, "asked": 800},
        "workers": {"by name": 40, "as pixels": 150_000, "probabilities": 8000, "trace": 8192},
    }
    price = {name: default for name, (default, _) in bill.PRICES.items()}
    price |= {"images": bill.SECONDS_A_MONTH, "peak": 1, "gigabits": 10, "thousand_requests": 0.5}
    gpu["settings"]["traces"] = 50_000
    table = bill.network_table(cost, gpu, network, price)
    rows = {
        cells[0]: cells[1:] for line in table.splitlines()[2:-2] if (cells := [*map(str.strip, line[1:-1].split("|"))])
    }
    # 40,800 bytes: one a second, 50 a second from one GPU, and what 1, 10 and 25 gigabits hold.
    assert rows["its JPEG file, from an object store"] == ["40,800", ".00033", ".016", "3,060", "30,600", "76,600"]
    assert table.endswith("requests to the object store: 1,300 of money a month, at an assumed .5 for a thousand.")


def test_what_the_page_says_of_gpus_and_networks_in_words(bill, cost):
    gpu, network = bill.beside("gpu"), bill.beside("network")
    price = {name: default for name, (default, _) in bill.PRICES.items()}
    for training in (50_000, 1_281_167):
        spent = bill.gpu_month(
            bill.gpu_seconds(gpu, bill.ALL, training), bill.feeding_seconds(cost, bill.ALL, training), price
        )
        assert spent["gpus"] == 1
        assert spent["machine_money"] / (spent["machine_money"] + spent["gpu_money"]) == pytest.approx(1 / 3, abs=0.04)
    sent = bill.network_bytes(cost, network)
    file, pixels = sent["its JPEG file, from an object store"], sent["to a worker, as 224 x 224 pixels"]
    peak, rate = price["images"] / bill.SECONDS_A_MONTH * price["peak"], 1 / bill.gpu_seconds(gpu, bill.ALL, 50_000)
    assert bill.images_a_second(file, 1) > 2 * peak
    assert bill.images_a_second(file, 1) < rate < bill.images_a_second(file, 10)
    assert bill.images_a_second(pixels, 10) < rate
