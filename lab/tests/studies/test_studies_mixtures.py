"""Mixtures: tables of rows made up by hand, the truth, the windows, the estimators, and a tiny run of all of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from secondguess.accuracy import AverageConfidence, ThresholdedConfidence
from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.images.save import save_npz
from secondguess.model.observation import Observation
from secondguess.stress.ambiguous import PixelBlend
from secondguess_lab.studies import get, make_plan, run_study
from secondguess_lab.studies.papers.ambiguity import KEPT, keeping_folder
from secondguess_lab.studies.papers.mixtures import GENERATOR
from secondguess_lab.studies.tasks.mixture_windows import Combination, Look, try_all, windows_of
from secondguess_lab.studies.tasks.mixtures import ANOMALIES, _by_pairs, _classless, _with_trouble, estimate_mixtures
from secondguess_lab.studies.tasks.score_estimators import CalibratedScore, ThresholdedScore

CELLS = [["nominal", 0.0], ["ambiguous", 0.1], ["ambiguous", 0.5], ["invalid", 0.1], ["invalid", 0.5]]


def result(run, factor, cells=CELLS):
    """A made-up result: two combinations, one of them for both validations."""
    error = factor * np.array([[0.01, 0.1, 0.3, 0.2, 0.4], [0.02, 0.02, 0.04, 0.01, 0.05], [0.0, 0.1, 0.1, 0.1, 0.1]])
    combinations = [
        ["nominal", "calibrated", "dsa"],
        ["rehearsed", "calibrated", "dsa"],
        ["nominal", "thresholded", "x"],
    ]
    return {
        "data": "mnist",
        "run": run,
        "combinations": combinations,
        "cells": cells,
        "truth": np.ones(5),
        "error": error,
        "bias": -error,
        "covered": np.full((3, 5), 0.5 * factor),
        "milliseconds": np.array([1.0, 1.0, 3.0]) * factor,
    }


SETTINGS = {"intervals": 1, "shares": [0.0, 0.1, 0.5]}


def test_table_by_trouble_is_the_one_by_hand():
    table = get("mixtures-accuracy").tabulate([result(0, 1.0), result(1, 2.0)], SETTINGS)
    assert table.rows == ["thresholded, x", "calibrated, dsa"], "the smallest error overall comes first"
    assert table.columns == ["nominal", "ambiguous", "invalid", "overall", "worst", "bias", "ms an image", "coverage"]
    cells = {column: table.cells["calibrated, dsa", column] for column in table.columns}
    # Of the two runs, the means over the shares: nominal .01 and .02, ambiguous .2 and .4, invalid .3 and .6.
    assert cells["nominal"].value == pytest.approx(0.015)
    assert cells["ambiguous"].value == pytest.approx(0.3)
    assert cells["ambiguous"].spread == pytest.approx(np.std([0.2, 0.4], ddof=1))
    assert cells["invalid"].value == pytest.approx(0.45)
    assert cells["overall"].value == pytest.approx((0.51 + 1.02) / 6)
    assert cells["worst"].value == pytest.approx(0.45)
    assert cells["bias"].value == pytest.approx(-(0.51 + 1.02) / 6)
    assert cells["coverage"].value == pytest.approx(0.75)
    assert cells["ms an image"].value == pytest.approx(1.5)


def test_several_data_sets_have_columns_of_their_own():
    results = [result(0, 1.0), result(1, 2.0), result(0, 3.0) | {"data": "fashion_mnist"}]
    cells = get("mixtures-accuracy").tabulate(results, SETTINGS).cells
    assert cells["calibrated, dsa", "overall, mnist"].value == pytest.approx((0.51 + 1.02) / 6)
    assert cells["calibrated, dsa", "overall, mnist"].n == 2
    assert cells["calibrated, dsa", "overall, fashion_mnist"].value == pytest.approx(0.51)
    assert cells["calibrated, dsa", "overall"].value == pytest.approx((0.51 + 1.02 + 1.53) / 9)


def test_rehearsed_validation_has_a_table_of_its_own():
    table = get("mixtures-rehearsed").tabulate([result(0, 1.0)], SETTINGS | {"intervals": 0})
    assert table.rows == ["calibrated, dsa"]
    assert table.cells["calibrated, dsa", "ambiguous"].value == pytest.approx(0.03)
    assert "coverage" not in table.columns, "no interval was made"


def test_table_by_share_is_the_one_by_hand():
    table = get("mixtures-shares").tabulate([result(0, 1.0)], SETTINGS)
    row = "calibrated, dsa, nominal validation"
    assert [table.cells[row, column].value for column in ("0%", "10%", "50%", "mean")] == pytest.approx(
        [0.01, 0.15, 0.35, 0.17]
    )
    assert table.cells["calibrated, dsa, rehearsed validation", "50%"].value == pytest.approx(0.045)


def look(n, seed, accuracy=0.8, classes=5):
    """Predictions that are right that often, and a score that knows something about it."""
    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(0, classes, n), rng.normal(size=(n, classes)).astype(np.float32)
    right = rng.random(n) < accuracy
    logits[np.arange(n), np.where(right, labels, (labels + 1) % classes)] += 6
    seen = np.exp(logits.astype(np.float64))
    seen /= seen.sum(axis=1, keepdims=True)
    return Look(Observation(seen, logits), {"doubt": 1 - seen.max(axis=1)}, rng.normal(size=(n, 2)), labels)


def test_windows_have_exactly_the_share_of_trouble():
    sizes = {"nominal": 80, "ambiguous": 40, "invalid": 35}
    made = list(windows_of(sizes, 60, [0.0, 0.1, 0.5], 4, seed=3))
    assert [cell for cell, _ in made] == [
        ("nominal", 0.0), ("ambiguous", 0.1), ("ambiguous", 0.5), ("invalid", 0.1), ("invalid", 0.5),
    ]  # fmt: skip
    kinds = np.repeat(list(sizes), list(sizes.values()))
    for (kind, share), drawn in made:
        assert len(drawn) == 4
        assert len({tuple(rows) for rows in drawn}) == 4, "every window is drawn anew"
        for rows in drawn:
            found = kinds[rows]
            assert len(set(rows.tolist())) == 60, "no image twice"
            assert (found == "nominal").sum() == 60 - round(60 * share)
            assert share == 0 or (found == kind).sum() == round(60 * share)


def test_windows_depend_on_the_seed_alone():
    def rows(seed):
        return [one for _, drawn in windows_of({"nominal": 50, "x": 50}, 20, [0.5], 3, seed) for one in drawn]

    np.testing.assert_array_equal(rows(1), rows(1))
    assert not np.array_equal(rows(1), rows(2))


def test_too_little_trouble_for_a_window_is_said():
    with pytest.raises(UserError, match=r"share of 0\.5 takes 50 adversarial ones, but there are 30"):
        list(windows_of({"nominal": 100, "adversarial": 30}, 100, [0.5], 1, 0))


def test_invalid_images_are_wrong_even_where_the_prediction_is_their_own_label():
    pixels = np.zeros((4, 1, 2, 2), np.float32)
    invalid = _classless(ImageSet.from_arrays(pixels, [0, 1, 2, 3], class_names=list("abcd"), layout="NCHW"))
    assert not Look(Observation(np.eye(4)), {}, np.zeros((4, 1)), invalid.labels).right.any()


def test_ambiguous_images_are_right_where_the_drawn_label_is_predicted():
    soft = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    pixels = np.zeros((2, 1, 2, 2), np.float32)
    images = ImageSet.from_arrays(pixels, [0, 1], class_names=list("abc"), soft_labels=soft, layout="NCHW")
    seen = Observation(np.eye(3)[[0, 0]])
    assert Look(seen, {}, np.zeros((2, 1)), images.labels).right.tolist() == [True, False]


def test_errors_are_those_of_an_estimator_asked_by_hand():
    validation, pool = look(300, 0), [look(200, 1), look(150, 2, accuracy=0.3)]
    windows = list(windows_of({"nominal": 200, "invalid": 150}, 100, [0.0, 0.3], 3, seed=5))
    one = Combination(("nominal", "thresholded", "doubt"), ThresholdedScore("doubt").fit(validation.observation()), 1.0)
    found = try_all([one], pool, windows, intervals=3, resamples=10)
    assert found["cells"] == [["nominal", 0.0], ["invalid", 0.3]]
    doubts = np.concatenate([part.columns["doubt"] for part in pool])
    right = np.concatenate([part.right for part in pool])
    limit = np.sort(validation.columns["doubt"])[::-1][(~validation.right).sum()]
    for place, (_, drawn) in enumerate(windows):
        off = [(doubts[rows] <= limit).mean() - right[rows].mean() for rows in drawn]
        assert found["error"][0, place] == pytest.approx(np.abs(off).mean())
        assert found["bias"][0, place] == pytest.approx(np.mean(off))
        assert found["truth"][place] == pytest.approx(np.mean([right[rows].mean() for rows in drawn]))
    assert 0 <= found["covered"].min() <= found["covered"].max() <= 1


@pytest.mark.parametrize(
    ("of_score", "of_confidence"),
    [(ThresholdedScore, ThresholdedConfidence("confidence")), (CalibratedScore, AverageConfidence("isotonic"))],
)
def test_with_confidence_as_the_score_estimators_are_those_of_the_accuracy_room(of_score, of_confidence):
    validation, operation = look(400, 0).observation(), look(300, 1, accuracy=0.6).observation()
    ours, theirs = of_score("doubt").fit(validation), of_confidence.fit(validation)
    assert ours.estimate(operation).value == pytest.approx(theirs.estimate(operation).value, abs=1e-9)


def test_calibrated_scores_have_the_accuracy_of_validation_as_their_mean_there():
    validation = look(400, 0)
    estimate = CalibratedScore("doubt").fit(validation.observation()).estimate(validation.observation())
    assert estimate.value == pytest.approx(validation.right.mean())
    curve = IsotonicRegression(increasing=False).fit(validation.columns["doubt"], validation.right)
    assert estimate.value == pytest.approx(curve.predict(validation.columns["doubt"]).mean())


def test_validation_with_trouble_has_its_share_and_only_what_the_panel_did_not_learn_from():
    looks = {"validate": look(300, 0)} | {f"rehearsed {kind}": look(80, k) for k, kind in enumerate(ANOMALIES, 1)}
    looks["rehearsed invalid"] = replace(looks["rehearsed invalid"], labels=np.full(80, -1))
    mixed = _with_trouble(looks, 0.25)
    assert len(mixed.labels) == 400
    np.testing.assert_array_equal(mixed.jury[300:325], looks["rehearsed ambiguous"].jury[1:51:2])
    assert mixed.labels.min() >= 0
    assert not mixed.right[375:].any(), "invalid images are wrong in validation, too"


def test_pairs_of_classes_are_either_rehearsed_or_in_operation():
    soft = np.zeros((9, 4))
    for row, (first, second) in enumerate([(0, 1), (1, 2), (2, 3)] * 3):
        soft[row, [first, second]] = 0.4, 0.6
    images = ImageSet.from_arrays(
        np.zeros((9, 1, 2, 2), np.float32), soft_labels=soft, class_names=list("abcd"), layout="NCHW"
    )
    rehearsed, operation = ({tuple(np.flatnonzero(row)) for row in part.soft_labels} for part in _by_pairs(images))
    assert rehearsed == {(0, 1), (2, 3)}
    assert operation == {(1, 2)}
    one_pair = images.take(np.arange(0, 9, 3))
    assert [len(part) for part in _by_pairs(one_pair)] == [2, 1]


TINY = {
    "models": 2,
    "epochs": 2,
    "supervisors": ["max_softmax", "mdsa"],
    "parameters": {"dissector": {"epochs": 1}, "vim": {"dimension": 64}},
    "sizes": {"fitted": 300, "learnt": 40, "validation": 40, "attacked": 60, "window": 20, "timed": 5},
    "shares": [0.0, 0.5],
    "windows": 2,
    "intervals": 1,
    "resamples": 3,
}


@pytest.fixture(scope="module")
def kept(tiny, tmp_path_factory):
    """Ambiguous images, as plain blends, where the study looks for those that were made before."""
    folder = tmp_path_factory.mktemp("kept")
    train = load(tiny).train
    own = keeping_folder(folder, GENERATOR)
    own.mkdir()
    for seed, (file, count) in enumerate(zip(KEPT, (60, 80), strict=True)):
        save_npz(PixelBlend().generate(train, count, seed=seed).images, own / file)
    return folder


@pytest.fixture(scope="module")
def record(tiny, kept, tmp_path_factory):
    """A tiny run through the engine."""
    study, out = get("mixtures-accuracy"), tmp_path_factory.mktemp("out")
    settings = TINY | {"kept": {"mnist": str(kept)}}
    plan = make_plan(study, quick=True, data={"mnist": str(tiny)}, settings=settings)
    return plan, run_study(study, plan, out), out


def test_a_tiny_run_fills_every_cell(record):
    _, made, out = record
    values = {(cell["row"], cell["column"]): cell["value"] for cell in made["cells"]}
    rows, columns = {row for row, _ in values}, {column for _, column in values}
    assert np.isfinite(list(values.values())).all()
    assert len(values) == len(rows) * len(columns)
    assert {"nominal", *ANOMALIES, "overall", "worst", "bias", "coverage", "ms an image"} == columns
    assert {f"{kind}, panel" for kind in ("thresholded", "corrected", "calibrated")} < rows
    assert {"calibrated, max_softmax", "calibrated, mdsa_global@25%", "validation_accuracy, (probabilities)"} < rows
    assert "ensemble_agreement, (other classifiers)" in rows
    assert all(0 <= values[row, "overall"] <= values[row, "worst"] <= 1 for row in rows)
    assert all(values[row, "ms an image"] > 0 for row in rows)
    assert json.loads((out / "mixtures-accuracy.json").read_text())["settings"]["rehearsed"] == 0.25


def test_studies_share_the_tasks(record):
    plan, first, out = record
    again = run_study(get("mixtures-rehearsed"), plan, out)
    assert again["tasks"] == first["tasks"] == 1
    assert again["seconds"] == first["seconds"], "read from the ledger"
    assert {cell["row"] for cell in again["cells"]} > {"calibrated, panel"}
    by_share = run_study(get("mixtures-shares"), plan, out)
    assert {cell["column"] for cell in by_share["cells"]} == {"0%", "50%", "mean"}


def test_the_same_seed_gives_the_same_errors(record):
    plan, made, _ = record
    (task,) = plan.tasks(get("mixtures-accuracy"))
    found = estimate_mixtures(**task.params, seed=0)
    table = get("mixtures-accuracy").tabulate([found], plan.settings)
    before = {(cell["row"], cell["column"]): cell["value"] for cell in made["cells"]}
    for key, cell in table.cells.items():
        assert key[1] == "ms an image" or cell.value == pytest.approx(before[key], abs=1e-6), key


def test_mistakes_in_settings_are_said():
    study = get("mixtures-accuracy")
    sources = {name: TaskData(name, "0") for name in ("mnist", "fashion_mnist")}
    with pytest.raises(UserError, match="5 runs with 4 models were asked for"):
        study.grid(sources, study.scale | {"runs": 5})
    with pytest.raises(UserError, match=r"There is no file /nowhere/ambiguess_realistic/training\.npz"):
        study.grid(sources, study.scale | {"kept": {"mnist": "/nowhere"}})


def test_nothing_was_published():
    assert all(not get(f"mixtures-{name}").published.cells for name in ("accuracy", "rehearsed", "shares"))
