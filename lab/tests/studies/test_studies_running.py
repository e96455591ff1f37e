"""Every study from data to table, on data so small that the numbers mean nothing."""

from __future__ import annotations

import json

import pytest

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess_lab.studies import get, make_plan, names
from secondguess_lab.studies.tasks.opening import opened

# Networks that have seen so little do not predict every class, and supervisors say so.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

GENERATION = {"pairs": "3-8", "autoencoders": 2, "autoencoder_epochs": 30, "mixture_epochs": 2, "judge_epochs": 1}
GENERATION |= {"train": 40, "test": 30}
ORACLES = {"training": 300, "validation": 120, "drawn": 100, "repetitions": 3, "epochs": 1}
SURPRISE = {"models": 2, "together": 1, "epochs": 1}
SMALL = {
    "ambiguity-table1": {"members": 1, "epochs": {"simple_cnn": 1}, "generators": ["ambiguess", "latent mixture"]},
    "ambiguity-table2": {"runs": 1, "epochs": {"simple_cnn": 1}, "attacked": 8, "limit": 40}
    | {"supervisors": ["entropy", "mc_dropout_mi", "mdsa", "ensemble_ms"]},
    "ambiguity-orders": {"runs": 1, "epochs": 1, "supervisors": ["entropy", "mdsa"], "generator": "ambiguess"},
    "ambiguity-boundary": {"runs": 1, "epochs": 1, "start": 100, "added": 20, "generator": "ambiguess"},
    "surprise-table1": SURPRISE,
    "surprise-table2": {},
    "surprise-figure2": {"train": 100},
    "surprise-beyond": {"models": 1, "epochs": 1, "train": 200, "test": 60, "layers": ["50%", "penultimate"]},
    "surprise-figure3": SURPRISE | {"shares": [0.5]},
    "surprise-figure4": SURPRISE | {"bandwidths": ["scott", 0.1]},
}
COVERED = [name for name in names() if name.partition("-")[0] in ("ambiguity", "surprise", "oracles")]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def settings_of(name):
    paper = name.partition("-")[0]
    small = SMALL.get(name, ORACLES) | ({"generation": GENERATION} if paper == "ambiguity" else {})
    return [word for key, value in small.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@pytest.mark.parametrize("name", COVERED)
def test_every_study_runs_from_data_to_table(study, tiny, out, name):
    made = study(
        "run", name, "--quick", "--data", f"mnist={tiny}", *settings_of(name), "--out", out, "--quiet", "--json"
    )
    assert made.code == 0, made.err
    record = made.json()
    assert record["study"] == name
    assert record["cells"]
    assert record["data"]["mnist"]["name"] == "tiny.npz"
    assert str(tiny.parent) not in json.dumps(record["data"])
    assert record["hardware"]
    assert record["versions"]["torch"]
    assert {"command", "commit", "settings"} < record.keys()
    assert record["seconds"] > 0
    assert (out / f"{name}.csv").read_text().startswith("row,column,value")
    paper = get(name).published
    shared = {(cell["row"], cell["column"]) for cell in record["cells"]} & set(paper.cells)
    assert shared or not paper.cells, "the rows and columns of ours and of the paper have the same names"


def test_studies_of_one_paper_share_their_tasks(study, tiny, tmp_path):
    words = ["--quick", "--data", tiny, *settings_of("oracles-table6"), "--out", tmp_path, "--quiet"]
    assert study("run", "oracles-table6", *words).code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "ledger").iterdir()}
    again = study("run", "oracles-table7", *words)
    assert "Tasks: 3, " in again.out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "ledger").iterdir()} == before


def test_another_setting_is_another_run(study, tiny, out):
    words = ["--quick", "--data", tiny, *settings_of("surprise-table1"), "--set", "models=1", "--out", out]
    other = study("run", "surprise-table1", *words, "--quiet", "--json").json()
    assert other["tasks"] == 1
    assert study("status", "surprise-table1", "--out", out, "--json").json()["tasks"] == 1


def test_an_interrupted_study_is_resumed(study, tiny, tmp_path):
    words = ["--quick", "--data", tiny, *settings_of("surprise-table1"), "--out", tmp_path, "-q"]
    whole = study("run", "surprise-table1", *words, "--json").json()
    entries = sorted((tmp_path / "ledger").glob("*.json"))
    assert len(entries) == 2
    entries[0].unlink()
    status = study("status", "surprise-table1", "--out", tmp_path)
    assert "1 of 2 tasks done" in status.out
    assert "--resume" in status.out
    again = study("run", "surprise-table1", "--out", tmp_path, "--resume", "-q", "--json").json()
    assert again["cells"] == whole["cells"]
    assert again["seeds"] == [0, 1]
    table = study("table", "surprise-table1", "--results", tmp_path)
    assert "adversarial, DSA" in table.out
    assert "from surprise-table1.json, quick scale" in table.out
    shown = study("compare", "surprise-table1", "--results", tmp_path)
    assert "[1] unreliable: minimum, maximum and range" in shown.out


def test_the_table_so_far_says_what_is_missing(study, tiny, tmp_path):
    words = ["run", "surprise-table1", "--quick", "--data", tiny, *settings_of("surprise-table1"), "--out", tmp_path]
    nothing = study(*words, "--so-far")
    assert nothing.code == 2
    assert "0 of 2 tasks of surprise-table1 have ended, and there is nothing" in nothing.err
    whole = study(*words, "-q", "--json").json()
    assert "missing" not in whole
    next(path for path in (tmp_path / "ledger").glob("*.json") if json.loads(path.read_text())["task"]["seed"]).unlink()
    part = study("run", "surprise-table1", "--out", tmp_path, "--resume", "--so-far", "--json").json()
    assert part["missing"] == [{"seed": 1}]
    assert "wall_seconds" not in part, "it is not the time that the work took"
    assert 0 < part["seconds"] < whole["seconds"], "that of the task that ended"
    assert part["tasks"] == 2
    assert {cell["n"] for cell in part["cells"]} == {1}
    assert len(list((tmp_path / "ledger").glob("*.json"))) == 1, "nothing was run"
    assert (
        "Tasks: 2, 1 missing; the record is"
        in study("run", "surprise-table1", "--out", tmp_path, "--resume", "--so-far").out
    )
    assert "tasks missing: 1" in study("table", "surprise-table1", "--results", tmp_path).out


def test_looking_at_a_run_leaves_its_plan_alone(study, tiny, tmp_path):
    words = ["run", "surprise-table1", "--quick", "--data", tiny, *settings_of("surprise-table1"), "--out", tmp_path]
    assert study(*words, "-q").code == 0
    plan = (tmp_path / "surprise-table1.plan.json").read_text()
    assert study(*words, "--set", "epochs=3", "--so-far").code == 2, "another run, of which nothing has ended"
    assert (tmp_path / "surprise-table1.plan.json").read_text() == plan


def test_a_record_names_all_software_that_made_it(study, tiny, tmp_path):
    words = ["run", "surprise-table1", "--quick", "--data", tiny, *settings_of("surprise-table1"), "--out", tmp_path]
    here = study(*words, "-q", "--json").json()["versions"]
    entry = sorted((tmp_path / "ledger").glob("*.json"))[0]
    other = read_json(entry)
    other["versions"]["torch"] = "elsewhere"
    write_json_sealed(entry, other)
    found = study(*words, "--so-far", "--json").json()["versions"]
    assert sorted(one["torch"] for one in found) == sorted([here["torch"], "elsewhere"])


def test_a_table_that_needs_all_tasks_is_not_made_of_some(study, tiny, tmp_path):
    words = ["--quick", "--data", tiny, *settings_of("oracles-figure6"), "--out", tmp_path, "-q"]
    assert study("run", "oracles-figure6", *words).code == 0
    for path in sorted((tmp_path / "ledger").glob("*.json"))[1:]:
        path.unlink()
    part = study("run", "oracles-figure6", "--out", tmp_path, "--resume", "--so-far")
    assert part.code == 2
    assert "1 of 3 tasks of oracles-figure6 have ended, and its tasks need each other" in part.err


@pytest.mark.slow
def test_processes_give_the_table_of_one(study, tiny, tmp_path):
    words = ["--quick", "--data", tiny, *settings_of("surprise-table1"), "-q", "--json"]
    one = study("run", "surprise-table1", *words, "--out", tmp_path / "one").json()
    two = study("run", "surprise-table1", *words, "--out", tmp_path / "two", "--engine", "local:2").json()
    assert two["engine"] == "local:2"
    for cell, other in zip(one["cells"], two["cells"], strict=True):
        assert cell["value"] == pytest.approx(other["value"], abs=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nothing"], "There is no study 'nothing'; known are: "),
        (["run", "surprise-table1"], "needs data: give --data mnist=PLACE, or --quick"),
        (
            ["run", "ambiguity-table1", "--data", "mnist.npz"],
            "has several: give ROLE=PLACE with one of mnist, fashion_mnist",
        ),
        (["run", "surprise-table1", "--quick", "--set", "model=3"], "has no setting 'model'; it has: models"),
        (["run", "surprise-table1", "--quick", "--set", "models=many"], "is 'many'; give something like 2"),
        (["run", "surprise-table1", "--quick", "--set", "models"], "give KEY=VALUE, such as models=10"),
        (["run", "surprise-table1", "--data", "nowhere.npz"], "There is no data set 'nowhere.npz'"),
        (["run", "surprise-table1", "--resume"], "There is no run of surprise-table1 in"),
        (["run", "surprise-table1", "--resume", "--quick"], "leave --quick, --data, --set and --gpu out"),
        (["run", "surprise-table2", "--quick", "--engine", "cloud"], "There is no engine 'cloud'"),
        (["status", "oracles-table6"], "There is no run of oracles-table6 in"),
    ],
)
def test_mistakes_are_said_in_one_sentence(study, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = study(*words)
    assert done.code == 2
    assert message in done.err


def test_a_study_says_which_data_it_lacks(study, tiny, tmp_path):
    done = study("run", "ambiguity-table2", "--data", f"mnist={tiny}", "--out", tmp_path)
    assert done.code == 2
    assert "needs the data 'fashion_mnist' for this; give --data fashion_mnist=PLACE" in done.err


def test_a_plan_that_cannot_be_read_is_said(study, tmp_path):
    (tmp_path / "surprise-table1.plan.json").write_text("{}")
    assert "remove it and start the run again" in study("status", "surprise-table1", "--out", tmp_path).err


def test_other_data_at_the_same_place_are_refused(tiny):
    with pytest.raises(UserError, match="are not those that the study was planned with; put the same data there"):
        opened(TaskData(str(tiny), "another"))


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"quick": True}, "quick"),
        ({}, "paper"),
        ({"settings": {"models": 3}}, "own"),
        ({"settings": {"models": 100}}, "paper"),
    ],
)
def test_the_scale_is_called_the_paper_s_only_if_it_is(tiny, options, scale):
    assert make_plan(get("surprise-table1"), data={"mnist": str(tiny)}, **options).scale == scale


def test_gpu_tasks_are_declared(tiny):
    study_ = get("surprise-table1")
    assert {task.resources.get("GPU") for task in make_plan(study_, quick=True, gpu=True).tasks(study_)} == {1}
    plain, gpu = (make_plan(study_, quick=True, gpu=flag).tasks(study_) for flag in (False, True))
    assert [task.key for task in plain] == [task.key for task in gpu]


def test_the_list_is_exactly_as_documented(study):
    listed = study("list", "--json").json()
    assert list(listed) == ["studies", "records"]
    assert all(list(one) == ["name", "title"] for one in listed["records"])
    assert [list(one) for one in listed["studies"]] == [["name", "paper", "table"]] * len(names())
    assert [one["name"] for one in listed["studies"]] == names()


@pytest.mark.parametrize("name", names())
def test_every_comparison_prints_numbers_of_the_repository(study, name):
    shown = study("compare", name)
    assert shown.code == 0, shown.err
    assert "ours" in shown.out
    assert "from " in shown.out
    compared = study("compare", name, "--json").json()
    assert any(cell["ours"] is not None for cell in compared["cells"])


def test_a_comparison_is_of_cells_that_both_have(study):
    compared = study("compare", "ambiguity-table2", "--json").json()["cells"]
    both = sum(cell["ours"] is not None and cell["paper"] is not None for cell in compared)
    shown, whole = study("compare", "ambiguity-table2").out, study("compare", "ambiguity-table2", "--all").out
    assert f"Left out: {len(compared) - both} cells" in shown
    assert "dsa, resnet50" in whole and "dsa, resnet50" not in shown
    assert len(whole.splitlines()) - len(shown.splitlines()) == len(compared) - both - 2, "that line and a blank one"
    assert "calibrated, panel" in study("compare", "mixtures-accuracy").out, "a study of no paper is shown as it is"


def test_a_study_of_a_script_says_so(study, tmp_path):
    made = study("run", "search-released", "--quick", "--out", tmp_path)
    assert made.code == 2
    assert "is made by lab/experiments/search_released.py; run that." in made.err


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if not get(name).script])
def test_every_study_runs_quickly(study, out, name):
    made = study("run", name, "--quick", "--out", out / "quick", "--quiet", "--json").json()
    assert made["scale"] == "quick"
    assert made["cells"]


def test_a_plan_that_was_changed_is_not_believed(study, tiny, tmp_path):
    words = ["run", "surprise-table1", "--quick", "--data", tiny, *settings_of("surprise-table1"), "--out", tmp_path]
    assert study(*words, "-q").code == 0
    path = tmp_path / "surprise-table1.plan.json"
    path.write_text(path.read_text().replace('"quick"', '"paper"'))
    done = study("status", "surprise-table1", "--out", tmp_path)
    assert done.code == 2
    assert "does not hold what was written" in done.err
