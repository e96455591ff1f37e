"""The studies of searches: published numbers, tables of records made by hand, tiny runs, and the parts of the task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, load
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.search import Distances, Pool, simulate
from secondguess_lab.studies import get, make_plan, recorded
from secondguess_lab.studies.papers import search as papers
from secondguess_lab.studies.tasks import search as tasks

RESULTS = Path(__file__).parents[3] / "results"
NAMES = [f"search-figure{number}" for number in range(3, 8)]
SMALL = {
    "data": ["cats_dogs", "mnist"],
    "epochs": 15,
    "limit": 50,
    "supervisors": ["knn"],
    "methods": ["random", "adversarial_distance", "coverage_published", "adaptive_without_scores"],
    "replications": 2,
    "subset": 25,
    "budget": 20,
}


@pytest.fixture(scope="module")
def cats(tmp_path_factory):
    """Dark cats and bright dogs of 16 x 16 pixels, some labels of which are wrong, so that there are errors."""
    rng = np.random.default_rng(0)
    arrays = {"class_names": np.array(["cat", "dog"])}
    for split, n, noise in (("train", 300, 0.1), ("test", 60, 0.2)):
        dogs = rng.integers(0, 2, n)
        light = 50 + 150 * dogs[:, None, None, None] + rng.normal(0, 25, (n, 1, 1, 3))
        pixels = np.clip(light + rng.normal(0, 20, (n, 16, 16, 3)), 0, 255)
        arrays |= {f"x_{split}": pixels.astype(np.uint8), f"y_{split}": dogs ^ (rng.random(n) < noise)}
    path = tmp_path_factory.mktemp("data") / "cats.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def words_of(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


# Published numbers.


@pytest.mark.parametrize(
    ("name", "row", "column", "value", "doubtful"),
    [
        ("search-figure3", "cats_dogs, predicted cat, Bansal and Weld", "50 queries, over random's", 1, True),
        ("search-figure4", "cats_dogs, predicted cat, adversarial distance", "20 queries", 4, False),
        ("search-figure4", "cats_dogs, predicted cat, adversarial distance", "50 queries", 2, False),
        ("search-figure4", "cats_dogs, predicted cat, random", "20 queries", 1, False),
        ("search-figure4", "celeba, predicted male, low confidence", "50 queries", 2, True),
        ("search-figure4", "ut_zap50k, predicted not shoe, random", "50 queries", 1, False),
        ("search-figure4", "ut_zap50k, predicted not shoe, Lakkaraju", "50 queries", 1, True),
        ("search-figure7", "celeba, predicted male, adversarial distance", "mean, less random's", 0, True),
    ],
)
def test_published_numbers_are_those_of_the_text(name, row, column, value, doubtful):
    cell = get(name).published.cells[row, column]
    assert cell.value == value
    assert bool(cell.unreliable) == doubtful


def test_figures_without_a_number_in_the_text_have_none():
    assert not get("search-figure5").published.cells
    assert not get("search-figure6").published.cells
    assert all(cell.unreliable for cell in get("search-figure3").published.cells.values()), "measured on wrong rows"


def test_notes_say_what_stands_in():
    for name in NAMES:
        note = get(name).note
        assert "In place of CelebA and UT-Zap50K there are MNIST and Fashion-MNIST" in note
        assert "prints no number" in note


# Tables.


def measures(**values):
    """A line of a record's table, each measure with another mean than its pooled value."""
    return {
        metric: {"mean": value, "pooled": value + 0.25, "median": 9, "low": 9, "high": 9}
        for metric, value in values.items()
    }


def record_row(model, sdr, critical="cat"):
    """A row as search_pools.py writes it: random search, and adversarial distance with twice of everything."""
    table = [
        {"method": method, "queries": queries}
        | measures(
            sdr=factor * sdr,
            lift=factor * 0.5,
            matched_lift=factor * 0.75,
            errors=factor * queries / 10,
            spread=factor * 0.125,
            utility=factor * 3.0,
            confidence=factor * 0.4,
        )
        for method, factor in (("random", 1), ("adversarial_distance", 2))
        for queries in (20, 50)
    ]
    titles = {"random": "Random", "adversarial_distance": "Adversarial distance"}
    return {"model": model, "critical": critical, "study": {"pool_sdr": 1.5 * sdr, "titles": titles, "table": table}}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "search"
    folder.mkdir()
    about = {"script": "lab/experiments/search_pools.py", "hardware": "a box", "settings": {"replications": 3}}
    rows = [record_row(0, 1.0), record_row(1, 3.0)]
    (folder / "cats_dogs.json").write_text(json.dumps(about | {"rows": rows}))
    (folder / "mnist.json").write_text(json.dumps(about | {"rows": [record_row(0, 1.0, "all classes")]}))
    return tmp_path


CHANCE, DISTANCE = "cats_dogs, predicted cat, random", "cats_dogs, predicted cat, adversarial distance"
EXPECTED = {
    "search-figure3": {
        (CHANCE, "50 queries"): 0.125,
        (DISTANCE, "20 queries"): 0.25,
        (DISTANCE, "50 queries, over random's"): 2,
    },
    "search-figure4": {
        (CHANCE, "20 queries"): 2,
        (CHANCE, "whole pool"): 3,
        (DISTANCE, "20 queries"): 4,
        (DISTANCE, "50 queries, pooled"): 4.25,
        (DISTANCE, "50 queries, lift"): 1.25,
        (DISTANCE, "20 queries, matched lift"): 1.75,
    },
    "search-figure5": {(DISTANCE, "50 queries"): 6},
    "search-figure6": {(CHANCE, "20 queries"): 2, (DISTANCE, "50 queries"): 10},
    "search-figure7": {(CHANCE, "mean"): 0.4, (DISTANCE, "mean"): 0.8, (DISTANCE, "mean, less random's"): 0.4},
}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_a_record_is_the_one_made_by_hand(results, name):
    found = recorded(get(name), results)
    cells = found.table.cells
    for key, value in EXPECTED[name].items():
        assert cells[key].value == pytest.approx(value), key
        assert cells[key].n == 2
    assert "mnist, all classes, random" in found.table.rows
    assert (CHANCE, "50 queries, over random's") not in cells
    assert [record["file"] for record in found.records] == ["search/cats_dogs.json", "search/mnist.json"]
    assert found.records[0]["hardware"] == "a box"


@pytest.mark.parametrize(
    ("name", "metric", "column"),
    [
        ("search-figure3", "spread", "50 queries"),
        ("search-figure4", "sdr", "50 queries, pooled"),
        ("search-figure4", "matched_lift", "50 queries, matched lift"),
        ("search-figure5", "utility", "50 queries"),
        ("search-figure6", "errors", "50 queries"),
        ("search-figure7", "confidence", "mean"),
    ],
)
def test_the_repository_s_numbers_are_the_summary_of_its_record(name, metric, column):
    summary = json.loads((RESULTS / "search" / "cats_dogs.json").read_text())["summary"]
    cells = recorded(get(name), RESULTS).table.cells
    for critical in ("cat", "dog"):
        for method, title in papers.TITLES.items():
            cell, expected = cells[f"cats_dogs, predicted {critical}, {title}", column], summary[critical][method]
            assert cell.value == pytest.approx(expected[f"{metric}@50"]["mean"], abs=1e-3, rel=1e-3)
            assert cell.spread == pytest.approx(expected[f"{metric}@50"]["std"], abs=1e-3, rel=1e-3)


def test_the_spread_of_a_cell_is_that_over_the_networks(results):
    cell = recorded(get("search-figure4"), results).table.cells[DISTANCE, "20 queries"]
    assert cell.spread == pytest.approx(np.std([2, 6], ddof=1))


def test_a_record_of_another_kind_is_said(results):
    (results / "search" / "mnist.json").write_text(json.dumps({"rows": [{"critical": "cat"}]}))
    message = r"mnist\.json is no record that lab/experiments/search_pools\.py wrote \(KeyError"
    with pytest.raises(UserError, match=message):
        recorded(get("search-figure5"), results)


def test_without_records_there_are_no_numbers(tmp_path):
    with pytest.raises(UserError, match="There are no results of search-figure6 below"):
        recorded(get("search-figure6"), tmp_path)


# Runs.


@pytest.mark.parametrize("name", NAMES)
def test_every_study_runs_from_data_to_table(study, tiny, cats, out, name, monkeypatch):
    # A network that learns within a few epochs.
    monkeypatch.setitem(tasks.SUBJECTS, "cats_dogs", replace(tasks.SUBJECTS["cats_dogs"], architecture="simple_cnn"))
    data = ["--data", f"cats_dogs={cats}", "--data", f"mnist={tiny}"]
    made = study("run", name, "--quick", *data, *words_of(SMALL), "--out", out, "--quiet", "--json")
    assert made.code == 0, made.err
    record = made.json()
    cells = {(cell["row"], cell["column"]): cell["value"] for cell in record["cells"]}
    assert np.isfinite(list(cells.values())).all()
    titles = {papers.TITLES[method] for method in SMALL["methods"]}
    assert {row.partition(", ")[2].partition(", ")[2] for row, _ in cells} == titles
    assert {row.split(", ")[1] for row, _ in cells} == {"predicted cat", "predicted dog", "all classes"}
    assert len(list((out / "ledger").glob("*.json"))) == 2, "the studies share their tasks"
    if name == "search-figure6":
        assert all(0 <= value <= int(column.split()[0]) for (_, column), value in cells.items())
    if name == "search-figure7":
        quartiles = [[cells[row, one] for one in ("lower quartile", "median", "upper quartile")] for row, _ in cells]
        assert all(0.65 < low <= middle <= high <= 1 for low, middle, high in quartiles)


@pytest.mark.parametrize("name", ["search-figure3", "search-figure4", "search-figure7"])
def test_rows_and_columns_are_called_as_the_published_ones(name):
    row = record_row(0, 1.0)
    cells = papers._table([row | {"data": "cats_dogs"}], {
        "search-figure3": papers._figure3, "search-figure4": papers._figure4, "search-figure7": papers._figure7
    }[name]).cells  # fmt: skip
    mine = {key for key in get(name).published.cells if key[0].startswith((CHANCE, DISTANCE))}
    assert mine
    assert mine <= set(cells)


def test_another_setting_is_another_task(tiny):
    study_ = get("search-figure4")

    def keys(**settings):
        plan = make_plan(study_, quick=True, data={"mnist": str(tiny)}, settings=settings)
        return {task.key for task in plan.tasks(study_)}

    usual = keys()
    assert keys() == usual
    changes = [{"epochs": 1}, {"queries": 200}, {"replications": 5}, {"methods": ["random"]}, {"attack": "boundary"}]
    assert all(usual.isdisjoint(keys(**change)) for change in changes)
    assert usual < keys(models=2)
    assert {task.params["name"] for task in make_plan(study_, quick=True).tasks(study_)} == {"mnist"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data": ["celeba"]},
            r"There is no data set 'celeba' in this study; choose among: cats_dogs, mnist",
        ),
        ({"data": []}, "No data set was named in this study"),
        (
            {"methods": ["random", "lucky"]},
            "There is no method 'lucky' in this study; choose among: random",
        ),
    ],
)
def test_settings_that_cannot_be_are_said(settings, message):
    study_ = get("search-figure3")
    with pytest.raises(UserError, match=message):
        make_plan(study_, quick=True, settings=settings).tasks(study_)


def test_names_of_paper_and_task_agree():
    assert set(papers.TITLES) == set(tasks.METHODS)
    assert set(papers.STAND_INS) == set(tasks.SUBJECTS)


# The task.


def test_brightness_is_the_luma_of_pillow():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (5, 12, 8, 3), dtype=np.uint8)
    images = ImageSet.from_arrays(pixels)
    grey = np.stack([np.asarray(Image.fromarray(one).convert("L")) for one in pixels]) / 255
    np.testing.assert_allclose(tasks.brightness(images, middle=False), grey.mean(axis=(1, 2)), atol=0.003)
    np.testing.assert_allclose(tasks.brightness(images, middle=True), grey[:, 3:9, 2:6].mean(axis=(1, 2)), atol=0.003)
    one_channel = ImageSet.from_arrays(pixels[..., 0])
    np.testing.assert_allclose(
        tasks.brightness(one_channel, middle=False), pixels[..., 0].mean(axis=(1, 2)) / 255, rtol=1e-5
    )


@pytest.mark.parametrize("dark", [True, False])
def test_the_darkest_or_brightest_images_of_one_class_are_left_out(dark):
    rng = np.random.default_rng(2)
    light, labels = rng.permutation(100) / 100, np.arange(100) % 2
    pixels = np.broadcast_to(light[:, None, None].astype(np.float32), (100, 4, 4))
    images = ImageSet.from_arrays(pixels, labels, class_names=("cat", "dog"))
    subject = tasks.Subject("cats_dogs_cnn", "cat", share=0.3, dark=dark, middle=False, critical=("cat",))
    training, test = tasks.biased(Dataset("made", images, images), subject)
    order = np.sort(light[labels == 0])
    kept = order[15:] if dark else order[:-15]
    found = training.materialise()[:, 0, 0, 0]
    np.testing.assert_allclose(np.sort(found[training.labels == 0]), kept, rtol=1e-6)
    assert (training.labels == 1).sum() == 50
    assert len(test) == 100


@pytest.mark.parametrize(
    ("biased", "names", "message"),
    [
        ("cat", ("bird", "fish"), "have the classes bird, fish, but not cat; give data with what is to be searched"),
        (3, ("bird", "fish"), "have the classes bird, fish, but not 3"),
        (2, ("bird", "fish", "horse"), "have no training images of the class horse"),
    ],
)
def test_data_without_the_class_are_refused(biased, names, message):
    images = ImageSet.from_arrays(np.zeros((4, 4, 4), np.uint8), [0, 1, 0, 1], class_names=names)
    critical = (biased,) if isinstance(biased, str) else (None,)
    subject = tasks.Subject("simple_cnn", biased, share=0.3, dark=True, middle=False, critical=critical)
    with pytest.raises(UserError, match=message):
        tasks.biased(Dataset("made", images, images), subject)


def test_a_calibrated_network_needs_no_other_temperature(cats):
    from secondguess.model.classifier import Classifier
    from secondguess.training import fit_temperature

    training = load(cats).train
    model, fitting, about = tasks.calibrated(training, "cats_dogs_cnn", seed=0, epochs=2)
    _, held_out = training.split(0.9, seed=0)
    logits = Classifier(model, class_names=training.class_names).observe(held_out, Needs(logits=True)).logits
    assert about["temperature"] != pytest.approx(1, abs=0.01)
    assert fit_temperature(logits, held_out.labels) == pytest.approx(1, abs=0.02)
    assert len(fitting) == len(training) - len(held_out)


def test_a_network_without_errors_is_said(cats, monkeypatch):
    monkeypatch.setattr(tasks, "search_pool", lambda *words, **named: iter(()))
    settings = papers.SCALE | SMALL | {"queries": 130, "epochs": 1, "limit": 10}
    own = {key: value for key, value in settings.items() if key not in ("data", "models")}
    monkeypatch.setattr(tasks, "make_pool", lambda *words, **named: (pool(), None, {}))
    with pytest.raises(UserError, match=r"The network 4 for cats_dogs makes no error above the confidence 0\.65"):
        tasks.hunt(data=TaskData(str(cats), load(cats).fingerprint), name="cats_dogs", seed=4, **own)


def distances(mae):
    n = len(mae)
    zeros = np.zeros(n)
    blank = np.zeros((n, 1, 1, 1), np.float32)
    return Distances(mae, zeros, zeros, zeros.astype(int), zeros.astype(bool), blank, zeros.astype(int))


def pool(n=300, seed=3):
    """Two classes, features, scores and distances at random."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.66, 1, n)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    flipped = rng.random(n) < 0.5
    probabilities[flipped] = probabilities[flipped, ::-1]
    return Pool(
        observation=Observation(probabilities, class_names=("cat", "dog")),
        images=ImageSet.from_arrays(np.zeros((n, 1, 1, 1), np.uint8), layout="NCHW"),
        features=rng.normal(size=(n, 3)),
        eligible=np.ones(n, dtype=bool),
        distances=distances(rng.lognormal(size=n)),
        scores={"knn": rng.normal(size=n)},
    )


def test_every_method_sees_what_it_should_on_the_same_parts_of_the_pool():
    whole, gradient = pool(), distances(np.random.default_rng(9).lognormal(size=300))
    labels = np.where(np.random.default_rng(4).random(300) < 0.3, 1 - whole.predictions, whole.predictions)
    common = {"replications": 3, "subset": 80, "budget": 10}
    methods = ["adversarial_distance_gradient", "adaptive_without_scores", "random", "adversarial_distance", "adaptive"]
    (row,) = tasks.search_pool(whole, labels, gradient, ("cat",), methods=methods, **common)
    cats_only = replace(whole, eligible=whole.predictions == 0)
    worlds = {
        "adversarial_distance_gradient": replace(cats_only, distances=gradient),
        "adaptive_without_scores": replace(cats_only, scores={}),
    }
    assert list(row["study"]["titles"]) == methods
    assert row["study"]["size"] == cats_only.size
    for method in methods:
        search = tasks.METHODS[method].search
        alone = simulate(worlds.get(method, cats_only), labels, {method: (search, {})}, **common)
        mine = [line for line in row["study"]["table"] if line["method"] == method]
        assert mine == alone.table()
        expected = np.quantile(alone.outcomes[method].confidence, (0.25, 0.5, 0.75))
        np.testing.assert_allclose(row["confidence_quartiles"][method], expected)


def test_the_median_distance_is_that_of_the_attacks_that_succeeded():
    failed = np.array([False, True, False, True, True])
    found = replace(distances(np.where(failed, np.inf, [1.0, 0, 4, 0, 0])), failed=failed)
    assert tasks._median_mae(found) == 2.5
    assert tasks._median_mae(replace(found, failed=np.ones(5, dtype=bool))) is None


def test_classes_without_errors_are_passed_over():
    whole = pool()
    labels = np.where(whole.predictions == 1, 0, whole.predictions)
    named = {"methods": ["random"], "replications": 2, "subset": 50, "budget": 5}
    rows = list(tasks.search_pool(whole, labels, None, ("cat", "dog"), **named))
    assert [row["critical"] for row in rows] == ["dog"]
    assert rows[0]["spearman_residuals"] is None


def test_distances_that_agree_have_the_correlation_one():
    whole = pool()
    labels = 1 - whole.predictions
    named = {"methods": ["random"], "replications": 1, "subset": 50, "budget": 5}
    (row,) = tasks.search_pool(whole, labels, distances(7 * whole.distances.mae), (None,), **named)
    assert row["spearman_residuals"] == pytest.approx(1)
    assert row["critical"] == "all classes"
