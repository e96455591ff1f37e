"""What the studies of sections 4.2 and 4.3 and those beyond surprise adequacy make of their tasks' results."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import ImageSet
from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.metrics import apfd
from secondguess_lab.studies import get
from secondguess_lab.studies.base import Sources
from secondguess_lab.studies.tasks import ambiguity, ambiguous_orders, surprise_beyond


def pair(lean, excess, through):
    return {"pair": "3 or 8", "through": through, "on_a": 0.5 + lean, "lean": lean, "excess": excess, "images": 20}


def test_what_a_boundary_foretells_is_counted_where_test_images_can_show_it():
    pairs = [pair(0.5, 0.1, False), pair(-0.5, 0.1, False), pair(0.45, 0.0, False), pair(0.1, -0.1, True)]
    pairs.append(pair(0.5, None, False))
    look = {"data": "mnist", "run": 0, "accuracy": 0.9, "frontier": {"ambiguous": 0.5, "clear": 0.1}, "pairs": pairs}
    sorts = {"ambiguous": {"images": 300, "accuracy": 0.9}, "any clear": {"images": 300, "accuracy": 0.92}}
    more = {"data": "mnist", "run": 0, "start": 1000, "accuracy": 0.88, "sorts": sorts}
    cells = get("ambiguity-boundary").tabulate([look, more], {}).cells
    found = {column: cell.value for (row, column), cell in cells.items() if row == "mnist"}
    assert (found["pairs"], found["through"]) == (5, 0.2)
    assert (found["beside, with clear errors"], found["of these as foretold"]) == (2, 1)
    assert found["ambiguous at the frontier"] == 0.5 and "wrong at the frontier" not in found
    assert cells["mnist, few images", "accuracy"].value == 0.88
    assert cells["mnist, and any clear", "accuracy"].value == 0.92


def test_orders_are_measured_on_both_sets_together():
    scores = np.array([0.1, 0.9, 0.2, 0.8, 0.7])
    wrong, chances = np.array([False, True, False]), np.array([0, 1, 0, 0.4, 0.6])
    avoidable = np.array([False, True, False, False, True])
    found = ambiguous_orders.order_row(scores, wrong, chances, avoidable)
    assert found["nominal"] == apfd(scores[:3], wrong)
    assert found["testing"] == apfd(scores, chances)
    assert found["learning"] == apfd(scores, avoidable)
    assert found["first"] == 0, "the first of five images is nominal"
    rows = [{"data": "mnist", "run": run, "supervisor": "dsa"} | found for run in (0, 1)]
    cell = get("ambiguity-orders").tabulate([{"rows": rows}], {}).cells["mnist, dsa", "APFD, for testing"]
    assert (cell.value, cell.spread, cell.n) == (found["testing"], 0, 2)


def test_the_table_of_orders_says_what_was_looked_at():
    runs = [
        {"rows": [{"data": data, "supervisor": "dsa", "run": 0, "nominal": 0.8}], "accuracy": right, "share": 0.4}
        for data, right in (("mnist", 0.9), ("fashion_mnist", 0.7))
    ]
    cells = get("ambiguity-orders").tabulate(runs, {}).cells
    assert cells["mnist", "right on nominal images"].value == 0.9
    assert cells["fashion_mnist", "right on nominal images"].value == 0.7
    assert cells["fashion_mnist", "ambiguous, of all images"].value == 0.4


def test_more_is_learnt_from_as_many_training_images_as_the_study_uses():
    study, sources = get("ambiguity-boundary"), Sources(fashion_mnist=TaskData("fashion_mnist.npz", "0"))
    tasks = study.grid(sources, dict(study.scale) | {"data": ["fashion_mnist"], "runs": 1, "train": 5000})
    assert [task.params["train"] for task in tasks] == [5000, 5000]


def test_generation_may_say_which_autoencoders_are_accepted_and_where_they_are_kept(tmp_path):
    usual = get("ambiguity-orders").scale["generation"]
    assert (ambiguity._ambiguess(usual).acceptance, ambiguity._ambiguess(usual).folder) == ("paper", None)
    made = ambiguity._ambiguess(usual | {"acceptance": "achievable", "folder": str(tmp_path)}, delta_max=0.4)
    assert (made.acceptance, made.folder, made.delta_max) == ("achievable", tmp_path, 0.4)


def test_labels_are_spoilt_as_said():
    labels = np.arange(4000) % 10
    images = ImageSet.from_arrays(np.zeros((4000, 1, 2, 2), np.float32), labels, layout="NCHW")
    noisy = surprise_beyond._spoilt(images, "noisy labels", 0).labels
    assert (noisy != labels).mean() == pytest.approx(0.2, abs=0.02)
    rare = np.bincount(surprise_beyond._spoilt(images, "unbalanced classes", 0).labels, minlength=10)
    assert rare[5:].tolist() == [400] * 5 and rare[:5].mean() == pytest.approx(40, abs=8)
    assert surprise_beyond._spoilt(images, "clean", 0) is images


def test_what_is_missing_is_said():
    study = get("surprise-beyond")
    with pytest.raises(UserError, match=r"There is no model resnet20/model\.toml"):
        study.grid(Sources(), dict(study.scale) | {"data": ["cifar10"]})
    with pytest.raises(UserError, match="network is for grey images"):
        study.grid(Sources(), dict(study.scale) | {"data": ["cifar10"], "networks": {}})
    orders = get("ambiguity-orders")
    with pytest.raises(UserError, match="There is no model nowhere"):
        orders.grid(Sources(), dict(orders.scale) | {"models": {"mnist": "nowhere"}})
