"""What the studies of true ambiguity plan, and ambiguous images that were made before."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import load
from secondguess.images.save import save_npz
from secondguess.stress.ambiguous import PixelBlend
from secondguess_lab.studies import get, make_plan, run_study
from secondguess_lab.studies.papers.ambiguity import ENSEMBLES, KEPT, keeping_folder, kept_sets

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SOURCES = {name: TaskData(name, "0") for name in ("mnist", "fashion_mnist")}


@pytest.fixture(scope="module")
def kept(tiny, tmp_path_factory):
    """Plain blends where the studies look for the images of AmbiGuess and of its rival."""
    folder, train = tmp_path_factory.mktemp("kept"), load(tiny).train
    for seed, generator in enumerate(("ambiguess", "latent mixture")):
        keeping_folder(folder, generator).mkdir()
        for file, count in zip(KEPT, (60, 40), strict=True):
            save_npz(PixelBlend().generate(train, count, seed=seed).images, keeping_folder(folder, generator) / file)
    return folder


def plan(name, **settings):
    study = get(name)
    return study.grid(SOURCES, dict(study.scale) | settings)


def test_a_clean_network_is_trained_once_for_all_generators():
    tasks = plan("ambiguity-table1", architectures=["simple_cnn", "resnet50"])
    ways = [(t.params["name"], t.params["architecture"], t.params["training"], *t.params["generators"]) for t in tasks]
    assert len(ways) == len(set(ways)) == 2 * (1 + 3) + 2 * (1 + 2)
    assert ("mnist", "resnet50", "clean", "ambiguess", "ambiguess, realistic", "latent mixture") in ways
    assert ("fashion_mnist", "resnet50", "mixed", "ambiguess, realistic") in ways
    assert not any("fashion_mnist" in way and "latent mixture" in way for way in ways), "the paper has none"


def test_ensembles_are_tasks_of_their_own_and_trained_as_the_network_is():
    given = {"ensemble_mi": {"epochs": 2}, "dsa": {"subsampling": 0.5}}
    members = {"simple_cnn": 20, "fully_connected": 5}
    tasks = plan(
        "ambiguity-table2",
        data=["mnist"],
        architectures=[*members, "resnet50"],
        runs=1,
        members=members,
        epochs={"simple_cnn": 3},
        parameters=given,
    )
    parts = {
        (task.params["architecture"], tuple(task.params["supervisors"])): task.params["parameters"] for task in tasks
    }
    others = tuple(name for name in get("ambiguity-table2").scale["supervisors"] if name not in ENSEMBLES)
    assert set(parts) == {
        ("simple_cnn", ENSEMBLES), ("simple_cnn", others), ("fully_connected", ENSEMBLES), ("fully_connected", others),
        ("resnet50", others),
    }  # fmt: skip
    assert parts["simple_cnn", ENSEMBLES]["ensemble_ms"] == {"members": 20, "epochs": 3, "batch_size": 128}
    assert {task.params["epochs"] for task in tasks if task.params["architecture"] == "simple_cnn"} == {3}
    assert parts["fully_connected", ENSEMBLES] == {
        "ensemble_ms": {"members": 5, "epochs": 30, "batch_size": 128},
        "ensemble_mi": {"members": 5, "epochs": 2, "batch_size": 128},
        "ensemble_pe": {"members": 5, "epochs": 30, "batch_size": 128},
    }
    assert parts["resnet50", others] == {"dsa": {"subsampling": 0.5}}


def test_kept_images_are_taken_as_they_are(tiny, kept, tmp_path):
    settings = {
        "members": 1,
        "epochs": {"simple_cnn": 1},
        "generators": ["ambiguess", "latent mixture"],
        "kept": {"mnist": str(kept)},
    }
    study = get("ambiguity-table1")
    made = run_study(study, make_plan(study, quick=True, data={"mnist": str(tiny)}, settings=settings), tmp_path)
    values = {(cell["row"], cell["column"]): cell["value"] for cell in made["cells"]}
    assert made["tasks"] == 3
    assert len(values) == 2 * 2 * (4 + 3), "generators x trainings x columns of ambiguous and nominal images"
    assert np.isfinite(list(values.values())).all()
    clean = [values[f"mnist, {one}, simple_cnn: clean, nominal", "top-1"] for one in settings["generators"]]
    assert clean[0] == clean[1], "the same network"


def test_supervisors_see_kept_images(tiny, kept, tmp_path):
    settings = {
        "runs": 1,
        "epochs": {"simple_cnn": 1},
        "supervisors": ["entropy", "ensemble_ms"],
        "attacked": 8,
        "attacks_see": "softmax",
        "limit": 40,
    }
    study = get("ambiguity-table2")
    chosen = make_plan(study, quick=True, data={"mnist": str(tiny)}, settings=settings | {"kept": {"mnist": str(kept)}})
    made = run_study(study, chosen, tmp_path)
    assert made["tasks"] == 2
    assert {cell["row"] for cell in made["cells"]} == {"entropy", "ensemble_ms"}
    assert all(0 <= cell["value"] <= 1 for cell in made["cells"])


@pytest.mark.parametrize("name", ["ambiguity-table1", "ambiguity-table2"])
def test_a_folder_without_images_is_said(name):
    with pytest.raises(UserError, match=r"There is no file /nowhere/ambiguess/training\.npz; make it with"):
        plan(name, kept={"mnist": "/nowhere"})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ambiguity-table1", {"epochs": {"resnet_50": 10}}, "There is no network 'resnet_50' in this study"),
        ("ambiguity-table1", {"generators": ["ambigues"]}, "There is no generator 'ambigues' in this study"),
        ("ambiguity-table1", {"kept": {"minst": "kept"}}, "There is no data set 'minst' in this study"),
        ("ambiguity-table1", {"architectures": []}, "No network was named in this study"),
        ("ambiguity-table2", {"members": {"resnet_50": 20}}, "There is no network 'resnet_50' in this study"),
        ("ambiguity-table2", {"attacks_see": "pixels"}, "There is no way to attack 'pixels' in this study"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, settings, message):
    with pytest.raises(UserError, match=message):
        plan(name, **settings)


def test_settings_that_leave_nothing_to_do_are_refused(tiny):
    study = get("ambiguity-table2")
    settings = {"supervisors": ["ensemble_ms"], "members": {}}
    nothing = make_plan(study, quick=True, data={"mnist": str(tiny)}, settings=settings)
    with pytest.raises(UserError, match="With these settings ambiguity-table2 has no task"):
        nothing.tasks(study)


def test_no_epochs_are_those_of_the_recipe_for_ensembles_too():
    tasks = plan("ambiguity-table2", architectures=["resnet50"], epochs={"resnet50": 0})
    given = next(task.params["parameters"] for task in tasks if "ensemble_ms" in task.params["supervisors"])
    assert given["ensemble_ms"]["epochs"] == 30


def test_sets_are_made_where_the_studies_look_for_them(tiny, tmp_path):
    script = runpy.run_path(str(Path(__file__).parents[3] / "lab/experiments/ambiguous_sets.py"))
    small = {"mixture_epochs": 2, "judge_epochs": 1, "train": 40, "test": 30}
    script["main"]([str(tiny), "--out", str(tmp_path / "kept"), "--generators", "latent mixture"], small)
    training, test = (load(source.place).test for source in kept_sets(str(tmp_path / "kept"), "latent mixture"))
    assert (len(training), len(test)) == (40, 30)
    about = json.loads((tmp_path / "kept/latent_mixture/about.json").read_text())
    assert about["seconds"] > 0
    h = -(test.soft_labels * np.log2(np.clip(test.soft_labels, 1e-300, None))).sum(axis=1)
    assert about["test"]["label_entropy_bits"] == pytest.approx(h.mean(), rel=1e-6)
    assert about["test"]["entropy_bits_of_ten_draws"] <= about["test"]["label_entropy_bits"] + 0.1
