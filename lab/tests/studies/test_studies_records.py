"""What the adapters make of the records in the repository, against the records' own summaries."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess_lab.studies import Cell, Table, compare, get, names, recorded
from secondguess_lab.studies.coverage import coverage_of, coverage_text, covered
from secondguess_lab.studies.papers.ambiguity import ARCHITECTURES, ENSEMBLES
from secondguess_lab.studies.records import record_tables, recorded_table, results_folder

RESULTS = Path(__file__).parents[3] / "results"


def kept(path):
    return json.loads((RESULTS / path).read_text())


def cells_of(name):
    return recorded(get(name), RESULTS).table.cells


def test_surprise_table1_is_the_summary_of_its_models():
    models, cells = kept("surprise/models.json")["auroc"], cells_of("surprise-table1")
    for method in ("dsa", "lsa"):
        for key, name in (("fgsm", "adversarial"), ("mnist_c", "corrupted")):
            values, row = models[method][key], f"{name}, {method.upper()}"
            assert cells[row, "mean"].value == pytest.approx(np.mean(values))
            assert cells[row, "mean"].spread == cells[row, "std"].value == pytest.approx(np.std(values, ddof=1))
            assert cells[row, "median"].value == pytest.approx(np.median(values))
            assert cells[row, "range"].value == pytest.approx(max(values) - min(values))
            assert {cells[row, column].n for column in ("mean", "std", "median", "min", "max", "range")} == {100}


def test_surprise_figures_are_the_summary_of_their_models():
    models, cells = kept("surprise/models.json")["auroc"], cells_of("surprise-figure3")
    part = np.array(models["dsa, epsilon_free 0.33"]["mnist_c"], dtype=float)  # None becomes NaN
    sampled = np.isfinite(part)
    assert sampled.sum() == cells["DSA, epsilon_free 0.33", "corrupted"].n == 60
    assert cells["DSA, epsilon_free 0.33", "corrupted"].value == pytest.approx(part[sampled].mean())
    whole, third = (np.array(models[method]["fgsm"], dtype=float) for method in ("dsa", "dsa, uniform 0.33"))
    lost = (whole - third)[sampled]
    assert cells["DSA, uniform 0.33", "adversarial lost"].value == pytest.approx(lost.mean())
    assert cells["DSA, uniform 0.33", "adversarial lost"].spread == pytest.approx(lost.std(ddof=1))
    assert cells["DSA, all", "adversarial"].value == pytest.approx(whole[sampled].mean()), "of the same models"
    bandwidths = cells_of("surprise-figure4")
    for bandwidth in ("0.01", "0.1", "1.0", "10.0", "silverman", "scott"):
        values = models[f"lsa, bandwidth {bandwidth}"]["fgsm"]
        assert bandwidths[bandwidth, "mean"].value == pytest.approx(np.mean(values))
        assert bandwidths[bandwidth, "std"].value == pytest.approx(np.std(values, ddof=1))
        assert bandwidths[bandwidth, "mean"].n == 100


def test_a_record_of_fewer_models_says_which_are_missing():
    (record,) = recorded(get("surprise-figure3"), RESULTS).records
    assert record["missing"] == [{"seed": seed} for seed in (5, 6, 7, 9)]
    models = kept("surprise/models.json")
    without = {
        seed
        for (seed, _), value in zip(models["models"], models["auroc"]["dsa, uniform 0.33"]["fgsm"], strict=True)
        if value is None
    }
    assert without == {5, 6, 7, 9}


def test_surprise_table2_is_the_benchmark_of_the_paper_s_size():
    rows = kept("bench/surprise.json")["rows"]
    seconds = {row["work"]: row["seconds"] for row in rows if row["dimension"] == 10}
    cells = cells_of("surprise-table2")
    assert cells["DSA, improved, all threads", "MacBook Pro 2019"].value == seconds["dsa"]
    assert cells["LSA, improved", "Threadripper 1920X"].value == seconds["lsa"]


@pytest.mark.parametrize("data", ["mnist", "fashion_mnist"])
def test_ambiguity_table1_agrees_with_five_simple_cnns_that_were_trained_before(data):
    earlier, cells = kept(f"ambiguity/{data}.json"), cells_of("ambiguity-table1")
    for key, generator in (("as_published", "ambiguess"), ("realism", "ambiguess, realistic")):
        for training in ("clean", "mixed"):
            mean, row = earlier[key]["mean"][training], f"{data}, {generator}, simple_cnn: {training}"
            assert cells[f"{row}, ambiguous", "top-pair"].value == pytest.approx(mean["top_pair"], abs=0.06)
            assert cells[f"{row}, ambiguous", "top-1"].value == pytest.approx(mean["top_1"], abs=0.03)
            assert cells[f"{row}, nominal", "top-1"].value == pytest.approx(mean["nominal_accuracy"], abs=0.01)


def test_ambiguity_table1_is_whole_and_its_means_are_of_four_networks():
    cells, published = cells_of("ambiguity-table1"), get("ambiguity-table1").published.cells
    assert set(published) <= set(cells)
    for (row, column), cell in cells.items():
        about, part, of = row.partition(", mean of four")
        if part:
            four = [cells[f"{about}, {network}{of}", column].value for network in ARCHITECTURES]
            assert cell.value == pytest.approx(np.mean(four))


def test_ambiguity_table2_has_every_cell_and_says_what_is_missing():
    found = recorded(get("ambiguity-table2"), RESULTS)
    assert set(get("ambiguity-table2").published.cells) <= set(found.table.cells)
    (record,) = found.records
    (missing,) = record["missing"]
    assert (missing["name"], missing["architecture"]) == ("fashion_mnist", "densenet_se")
    cells = found.table.cells
    for supervisor, column in get("ambiguity-table2").published.cells:
        whole = cells[supervisor, column]
        single = [cells.get((row, column)) for row in found.table.rows if row.startswith(f"{supervisor}, ")]
        own = [cell.value for cell in single if cell is not None]
        assert whole.value == pytest.approx(np.mean(own))
        assert whole.n == len(own) == (3 if supervisor in ENSEMBLES or column.startswith("fashion") else 4)


def test_oracles_are_the_rates_of_the_records():
    record, votes = kept("oracles/mnist.json"), kept("oracles/votes.json")["detection"]
    photos = kept("oracles/cifar10.json")["rows"]
    oracles = {"ICOS, fine": "icos_fine", "ICOS, equal": "icos_equal"}
    oracles |= {"cross-referencing": "cross_reference", "SelfChecker": "selfchecker"}
    for name, rate in (("table6", "tpr"), ("table7", "fpr"), ("table8", "f1"), ("figure6", "mae")):
        cells = cells_of(f"oracles-{name}")
        crossed = {(network, "cross-referencing") for network in votes} if name.startswith("table") else set()
        assert set(cells) == {(network, title) for network in "ABCDEF" for title in oracles} | crossed
        for (network, title), cell in cells.items():
            trained = record["detection"].get(f"icos_{network.lower()}")
            if network in "DEF":
                mine = [row["detection"] for row in photos if row["network"] == f"icos_{network.lower()}"]
                values = [one[oracles[title]][rate] for one in mine if oracles[title] in one]
                assert (cell.value, cell.n) == (pytest.approx(np.mean(values)), len(values))
                continue
            found = trained[oracles[title]] if trained else votes[network]
            assert cell.value == pytest.approx(found[rate], abs=6e-5)
            assert cell.n == 30


@pytest.fixture
def with_photos(tmp_path):
    """The record of MNIST, and one of two trainings of D and one of E and F, judged in two draws of four images."""
    folder = tmp_path / "oracles"
    folder.mkdir()
    shutil.copy(RESULTS / "oracles/mnist.json", folder)
    judges = {"icos_fine": 0.4, "icos_equal": 0.3, "cross_reference": 0.2, "selfchecker": 0.1}
    judges |= {"icos_fine_criterion_2": 0.5, "icos_fine_criterion_3": 0.8}
    rows = [
        {
            "network": f"icos_{letter}",
            "seed": seed,
            "swap": "",
            "detection": {
                judge: dict.fromkeys(("tpr", "fpr", "f1", "mae"), value + seed / 10) for judge, value in judges.items()
            },
            "errors": {judge: [-value, value] for judge, value in judges.items()},
        }
        for letter, seed in (("d", 0), ("d", 1), ("e", 0), ("f", 0))
    ]
    settings = {"drawn": 20_000, "repetitions": 30, "images": None}
    kept = {"settings": settings, "trained": [{"epochs": 0} for _ in rows], "rows": rows}
    (folder / "cifar10.json").write_text(json.dumps(kept))
    return tmp_path


@pytest.mark.parametrize("name", ["table6", "table7", "table8", "figure6"])
def test_oracles_on_photographs_are_means_over_trainings(with_photos, name):
    found = recorded(get(f"oracles-{name}"), with_photos)
    twice, once = found.table.cells["D", "ICOS, equal"], found.table.cells["E", "SelfChecker"]
    assert (twice.value, twice.n) == (pytest.approx(0.35), 2)
    assert twice.spread == pytest.approx(statistics.stdev([0.3, 0.4]))
    assert (once.value, once.n, once.spread) == (pytest.approx(0.1), 1, None)
    assert [one["file"] for one in found.records] == ["oracles/mnist.json", "oracles/cifar10.json"]
    assert found.records[1]["scale"] == "paper"


def test_ranks_count_one_training_of_each_network(with_photos):
    after = recorded(get("oracles-figure7"), with_photos).table.cells["SelfChecker", "mean rank"]
    (with_photos / "oracles/cifar10.json").unlink()
    before = recorded(get("oracles-figure7"), with_photos).table.cells["SelfChecker", "mean rank"]
    assert after.n == before.n + 3 * 2
    # In the six new blocks SelfChecker is the best of four.
    assert after.value == pytest.approx((before.n * before.value + 6 * 1) / after.n)


def test_criteria_on_photographs_are_relative_to_the_first(with_photos):
    cells = recorded(get("oracles-figure10"), with_photos).table.cells
    means = [statistics.mean(value + seed / 10 for seed in (0, 1, 0, 0)) for value in (0.4, 0.8)]
    assert cells["CIFAR-10, criterion 3 against 1", "FPR, relative"].value == pytest.approx(means[1] / means[0])


@pytest.mark.parametrize("change", [{"drawn": 400}, {"images": 1500}, {"repetitions": 3}])
def test_fewer_photographs_than_in_the_paper_are_no_full_scale(with_photos, change):
    path = with_photos / "oracles/cifar10.json"
    found = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(found | {"settings": found["settings"] | change}))
    assert recorded(get("oracles-table6"), with_photos).records[1]["scale"] == "smaller"


def test_errors_of_estimated_accuracy_have_the_spread_over_draws():
    record, cells = kept("oracles/mnist.json"), cells_of("oracles-figure6")
    (row,) = (one for one in record["rows"] if (one["network"], one["column"]) == ("icos_c", "no shift"))
    offsets = [abs(error) for error in row["errors"]["selfchecker"]]
    assert cells["C", "SelfChecker"].spread == pytest.approx(statistics.stdev(offsets))


def test_label_shift_and_criteria_are_those_of_the_record():
    record = kept("oracles/mnist.json")
    cells = cells_of("oracles-figure11")
    for swap in ("2/7", "5/6", "6/8"):
        networks = record["errors"]["icos_equal"]["networks"][f"labels {swap} swapped"]
        assert cells[f"C, labels {swap} swapped", "ICOS, equal"].value == pytest.approx(networks[2], abs=1e-4)
    found = record["detection"]
    fpr = [np.mean([found[net][judge]["fpr"] for net in found]) for judge in ("icos_fine_criterion_3", "icos_fine")]
    assert cells_of("oracles-figure10")["criterion 3 against 1", "FPR, relative"].value == pytest.approx(
        fpr[0] / fpr[1]
    )


def test_ranks_are_those_of_scipy():
    from scipy.stats import rankdata

    record, cells = kept("oracles/mnist.json"), cells_of("oracles-figure7")
    rows = [row["errors"] for row in record["rows"] if row["column"] == "no shift"]
    rows += [row["errors"] for row in kept("oracles/cifar10.json")["rows"] if row["seed"] == 0]
    judges = ("icos_fine", "icos_equal", "cross_reference", "selfchecker")
    offsets = np.concatenate([np.abs([row[judge] for judge in judges]).T for row in rows])
    ranks = np.mean([rankdata(block) for block in offsets], axis=0)
    shown = [
        cells[name, "mean rank"].value for name in ("ICOS, fine", "ICOS, equal", "cross-referencing", "SelfChecker")
    ]
    np.testing.assert_allclose(shown, ranks)
    assert cells["Nemenyi", "critical difference"].value == pytest.approx(
        2.569 * np.sqrt(4 * 5 / (6 * len(offsets))), abs=1e-3
    )


def test_a_record_of_a_run_comes_before_earlier_ones(tmp_path):
    (tmp_path / "mine").mkdir()
    cells = [{"row": "adversarial, DSA", "column": "mean", "value": 0.5}]
    path = tmp_path / "mine" / "surprise-table1.json"
    path.write_text(json.dumps({"cells": cells, "scale": "quick", "hardware": ["a box"]}))
    found = recorded(get("surprise-table1"), tmp_path)
    assert found.table.cells["adversarial, DSA", "mean"].value == 0.5
    assert found.records == [{"file": "mine/surprise-table1.json", "scale": "quick", "hardware": ["a box"]}]
    path.with_name("copy").mkdir()
    (path.parent / "copy" / path.name).write_text(path.read_text())
    with pytest.raises(UserError, match="There are 2 records of surprise-table1 below"):
        recorded(get("surprise-table1"), tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '{"cells": [{"row": "a"}]}'])
def test_a_broken_record_is_said(tmp_path, text):
    (tmp_path / "oracles-table6.json").write_text(text)
    with pytest.raises(
        UserError, match=r"oracles-table6\.json (cannot be read as JSON|holds no JSON object|is no record)"
    ):
        recorded(get("oracles-table6"), tmp_path)


def test_no_results_are_said(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="There are no results of surprise-table2 below"):
        recorded(get("surprise-table2"), tmp_path)
    with pytest.raises(UserError, match="There is no folder"):
        results_folder(tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    assert results_folder(None) == RESULTS
    (tmp_path / "results").mkdir()
    assert results_folder(None) == Path("results")


def test_a_record_with_cells_is_a_table_of_its_own(tmp_path):
    assert recorded_table("photos-mine", tmp_path) is None and recorded_table("photos", tmp_path) is None
    (tmp_path / "photos").mkdir()
    table = Table({("resnet20", "error"): Cell(0.04), ("resnet20", "given"): Cell(0.8, n=45)})
    card = {"title": "Mine", "command": "python mine.py", "cells": table.tidy(), "secret": 1}
    (tmp_path / "photos/mine.json").write_text(json.dumps(card))
    (tmp_path / "photos/other.json").write_text("{}")
    title, found = recorded_table("photos-mine", tmp_path)
    assert (title, found.table) == ("Mine", table)
    assert found.records == [{"file": "photos/mine.json", "command": "python mine.py"}]
    assert record_tables(tmp_path) == {"photos-mine": "Mine"}
    with pytest.raises(UserError, match="holds no table of its own"):
        recorded_table("photos-other", tmp_path)


def test_coverage_counts_the_published_cells():
    """Against a count over the lines that `study compare` prints."""
    study = get("oracles-table7")
    found = coverage_of(study, RESULTS)
    lines = compare(recorded(study, RESULTS).table, study.published)
    both = [line for line in lines if line.ours and line.paper]
    assert (found.published, found.beside) == (len(study.published.cells), len(both))
    assert found.ours == len(recorded(study, RESULTS).table.cells)
    assert found.beside + len(found.missing) == found.published
    trusted = [line for line in both if not line.paper.unreliable]
    differences = [abs(line.difference) for line in trusted if line.paper.relation == "="]
    assert found.near == sum(size <= 0.05 for size in differences)
    assert found.median == pytest.approx(np.median(differences))
    assert abs(found.largest.difference) == max(differences)
    times = coverage_of(get("surprise-table2"), RESULTS)
    assert times.beside and not times.compared and times.median is None
    both_studies = covered([found, times])
    assert both_studies["published"] == found.published + times.published
    assert "all" in coverage_text([found, times]) and "without ours" in coverage_text([found, times])
    json.dumps(found.to_dict())
    unpublished = coverage_of(get("ambiguity-orders"), RESULTS)
    assert unpublished.ours > 50 and not unpublished.published


def test_coverage_says_what_the_data_at_hand_allow():
    cells = {(cell["row"], cell["column"]): cell for cell in coverage_of(get("oracles-table6"), RESULTS).cells}
    assert cells["G", "SelfChecker"]["not_at_hand"] == "ImageNet is not at hand."
    assert "predictions only" in cells["M", "ICOS, fine"]["not_at_hand"]
    assert not cells["M", "cross-referencing"]["not_at_hand"]
    assert not cells["D", "SelfChecker"]["not_at_hand"] and cells["D", "SelfChecker"]["beside"]
    for study in map(get, names()):
        found = coverage_of(study, RESULTS)
        assert len(found.cells) == found.published
        assert not any(cell["beside"] and cell["not_at_hand"] for cell in found.cells), study.name
        assert found.allowed >= found.beside >= found.at_scale


def test_coverage_says_at_which_scale_ours_were_measured():
    def scales(name):
        return {cell["scale"] for cell in coverage_of(get(name), RESULTS).cells if cell["beside"]}

    assert scales("surprise-table1") == {"paper"}
    assert scales("oracles-table6") == {"paper"}
    assert scales("surprise-figure3") == {"smaller"}, "60 models instead of 100"
    assert scales("ambiguity-table2") == {"smaller"}, "one run instead of five"
    assert scales("hubris-table1") == {"paper", "smaller"}, "three whole runs on MNIST, else one and shorter"
    assert scales("hubris-table3") == {"smaller"}, "models from scratch"
    assert scales("search-figure4") == {"smaller"}, "200 draws instead of 1,000"
