"""The studies of hubris: what the paper printed, what tables make of records, and tiny runs from data to table."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.metrics.realism import frechet_distance
from secondguess.stress.ambiguous.companion import Rejection
from secondguess_lab.studies import get, make_plan, recorded
from secondguess_lab.studies.coverage import coverage_of
from secondguess_lab.studies.tasks import companion_measures, companion_models, hubris

RESULTS = Path(__file__).parents[3] / "results"
STUDIES = [f"hubris-table{number}" for number in (1, 2, 3)]
TINY = {
    "epochs": [1, 1],
    "latent": 4,
    "filters": 2,
    "members": 2,
    "estimator_epochs": 2,
    "variances": [0.1],
    "selected_on": 40,
    "count": 60,
    "draws": 1,
    "extractor_epochs": 1,
    "families": ["lenet", "fully_connected"],
    "models": 2,
    "model_epochs": 1,
}


# Read from the paper, cell by cell.
PRINTED = [
    ("hubris-table1", "mnist, ambigan", "loss weight", 0.5, None),
    ("hubris-table1", "fashion_mnist, ambigan", "ACD", 0.06, 0.0),
    ("hubris-table1", "chest_xray, ambigan", "FID", 20.21, 2.41),
    ("hubris-table2", "mnist, ambiguous-mnist", "companion FID", 74.4, None),
    ("hubris-table2", "mnist, ambigan", "companion FID", 17.67, 0.18),
    ("hubris-table2", "fashion_mnist, ambigan", "baseline DS", 0.83, 0.02),
    ("hubris-table2", "chest_xray, ambigan", "baseline FID", 17.32, 0.26),
    ("hubris-table2", "chest_xray, ambigan", "companion QS", 0.83, 0.01),
    ("hubris-table3", "ConvNeXt: mnist, ambigan", "accuracy", 0.9995, None),
    ("hubris-table3", "ConvNeXt: chest_xray, ambigan", "H_R", 0.94, 0.0),
    ("hubris-table3", "ViT: fashion_mnist, ambigan", "ACD", 0.33, 0.03),
    ("hubris-table3", "ViT: mnist, ambiguous-mnist", "H_A", 0.92, 0.02),
]


@pytest.mark.parametrize(("name", "row", "column", "value", "spread"), PRINTED)
def test_published_numbers_are_the_printed_ones(name, row, column, value, spread):
    cell = get(name).published.cells[row, column]
    assert (cell.value, cell.spread) == (value, spread)


def test_all_cells_are_there_and_the_doubtful_ones_are_marked():
    first, second, third = (get(name).published.cells for name in STUDIES)
    assert [len(cells) for cells in (first, second, third)] == [3 * 4, 3 * 6 + 3, 8 * 4 - 2]
    assert {column for (_, column), cell in first.items() if cell.unreliable} == {"loss weight", "FID"}
    assert all(cell.unreliable for cell in second.values())
    doubtful = {key for key, cell in third.items() if cell.unreliable}
    assert doubtful == {key for key in third if key[0].startswith("ViT") or key[1] == "H_R"}


def test_published_hubris_is_possible_for_its_confusion_distance():
    """Jensen: at a given ACD, hubris is least for equal predictions and most for a mixture of 1/2 and certainty."""
    cells = get("hubris-table3").published.cells
    normaliser = np.log(2) - 0.5
    for row in dict.fromkeys(row for row, _ in cells):
        low, high = (cells[row, "ACD"].value + slack for slack in (-0.005, 0.005))
        p = 0.5 + low
        divergence = np.log(2) + p * np.log(p) + (1 - p) * np.log(1 - p)
        least, most = 1 - np.exp(-divergence / normaliser), 1 - np.exp(-2 * high * np.log(2) / normaliser)
        assert least - 0.005 <= cells[row, "H_A"].value <= most + 0.005


def measured(**frechet):
    return {"realism": {space: {"frechet": value} for space, value in frechet.items()}}


def seen(family, seed, which, acd, absolute, relative, **more):
    return {"family": family, "seed": seed, "set": which, "acd": acd, "absolute": absolute, "relative": relative} | more


AUTHORS, OURS = "ambigan alternate disjoint", "agreement guarded batch"
MNIST = {
    "hardware": "a box",
    "command": "python make.py",
    "training": {
        AUTHORS: {"epochs": [50, 25]},
        "grid": [
            {"variant": AUTHORS, "alpha": 1.0, "variance": 0.1, "frechet": 9.0, "acd": 0.2, "disagreement": 0.1}
            | {"chosen": False},
            {"variant": AUTHORS, "alpha": 1.0, "variance": 0.01, "frechet": 12.0, "acd": 0.07, "disagreement": 0.1}
            | {"chosen": True},
            {"variant": OURS, "alpha": 4.0, "variance": 0.01, "frechet": 6.0, "acd": 0.05, "disagreement": 0.01}
            | {"chosen": True},
        ],
    },
    "sets": {
        "stage1": measured(all=2.0, others=4.0),
        AUTHORS: measured(all=40.0, others=10.0)
        | {"judged": {"disjoint": {"own": {"acd": 0.07}, "held_out": {"acd": 0.09}}}},
        OURS: measured(all=50.0, others=6.0) | {"giqa": {"quality": 0.7, "diversity": 0.6}},
        f"{OURS}, accepted": measured(all=30.0, others=5.0),
        "floor": measured(all=1.0, others=1.0),
    },
    "hubris": {
        "rows": [
            seen("vit", 0, AUTHORS, 0.30, 0.80, 0.70),
            seen("vit", 1, AUTHORS, 0.36, 0.90, 0.76),
            seen("vit", 0, f"{AUTHORS}, accepted", 0.1, 0.1, 0.1),
            seen("vit", 0, "stage1", 0.4, 0.9, 0.2),
            seen("vit", 0, "ambiguess", 0.2, 0.4, 0.3),
            seen("vit", 0, "real", 0.49, 0.97, 0.1, accuracy=0.98),
            seen("vit", 1, "real", 0.49, 0.97, 0.1, accuracy=0.96),
            seen("lenet", 0, OURS, 0.25, 0.6, 0.5),
            seen("lenet", 0, "real", 0.49, 0.97, 0.1, accuracy=0.99),
        ]
    },
}
XRAY = {"hardware": "a box", "sets": {"stage1": measured(all=5.0), AUTHORS: measured(all=15.0)}}


@pytest.fixture
def results(tmp_path):
    (tmp_path / "hubris").mkdir()
    for name, record in (("mnist", MNIST), ("pneumoniamnist", XRAY)):
        (tmp_path / "hubris" / f"{name}.json").write_text(json.dumps(record))
    return tmp_path


def test_table1_is_what_was_chosen(results):
    cells = recorded(get("hubris-table1"), results).table.cells
    assert {key: cell.value for key, cell in cells.items()} == {
        ("mnist, ambigan", "loss weight"): 1.0,
        ("mnist, ambigan", "variance"): 0.01,
        ("mnist, ambigan", "ACD"): 0.07,
        ("mnist, ambigan", "FID"): 12.0,
        ("mnist, ambigan", "disagreement"): 0.1,
        ("mnist, agreement guarded batch", "loss weight"): 4.0,
        ("mnist, agreement guarded batch", "variance"): 0.01,
        ("mnist, agreement guarded batch", "ACD"): 0.05,
        ("mnist, agreement guarded batch", "FID"): 6.0,
        ("mnist, agreement guarded batch", "disagreement"): 0.01,
    }


def test_table2_is_the_distance_in_the_space_that_decides(results):
    found = recorded(get("hubris-table2"), results)
    over, ours = "FID, companion over baseline", "mnist, agreement guarded batch"
    assert {key: cell.value for key, cell in found.table.cells.items()} == {
        ("mnist, ambigan", "baseline FID"): 4.0,
        ("mnist, ambigan", "companion FID"): 10.0,
        ("mnist, ambigan", over): 2.5,
        ("mnist, ambigan", "companion ACD, held out"): 0.09,
        (ours, "baseline FID"): 4.0,
        (ours, "companion FID"): 6.0,
        (ours, "companion QS"): 0.7,
        (ours, "companion DS"): 0.6,
        (ours, over): 1.5,
        (f"{ours}, accepted", "companion FID"): 5.0,
        (f"{ours}, accepted", over): 1.25,
        ("chest_xray, ambigan", "baseline FID"): 5.0,
        ("chest_xray, ambigan", "companion FID"): 15.0,
        ("chest_xray, ambigan", over): 3.0,
    }
    assert [one["file"] for one in found.records] == ["hubris/mnist.json", "hubris/pneumoniamnist.json"]
    assert found.records[0]["command"] == "python make.py"
    assert found.records[0]["settings"] == {AUTHORS: {"epochs": [50, 25], "tried": [[1.0, 0.1], [1.0, 0.01]]}}


def test_several_runs_at_the_papers_size_have_the_last_word_of_their_rows(results):
    def run(place, alpha, distance, acd):
        row = {"variant": AUTHORS, "alpha": alpha, "variance": 0.1, "frechet": distance, "acd": acd}
        grid = [row | {"disagreement": 0.1, "chosen": True}, row | {"disagreement": 0.1, "chosen": False, "acd": 9.0}]
        sets = {"stage1": measured(all=1.0, others=2.0), AUTHORS: measured(all=1.0, others=distance)}
        return {"run": place, "training": {"grid": grid}, "sets": sets}

    rows = [
        seen("vit", 0, "real", 0.4, 0.9, 0.1, accuracy=0.9),
        *(seen("vit", 0, AUTHORS, 0.3, one, 0.5) | {"run": place} for place, one in enumerate((0.5, 0.7))),
    ]
    runs = [run(0, 0.5, 20.0, 0.07), run(1, 1.5, 30.0, 0.08)]
    record = {"hardware": "a GPU", "settings": {"epochs": [100, 50]}, "scale": "paper", "runs": runs}
    record["hubris"] = {"rows": rows}
    (results / "hubris" / "mnist_runs.json").write_text(json.dumps(record))
    first, second, third = (recorded(get(study), results) for study in STUDIES)
    cell = first.table.cells["mnist, ambigan", "ACD"]
    assert (cell.value, cell.n, cell.spread) == (pytest.approx(0.075), 2, pytest.approx(statistics.stdev([0.07, 0.08])))
    assert first.table.cells["mnist, agreement guarded batch", "ACD"].value == 0.05, "of the other record"
    assert second.table.cells["mnist, ambigan", "FID, companion over baseline"].value == pytest.approx(12.5)
    assert third.table.cells["ViT: mnist, ambigan", "H_A"].value == pytest.approx(0.6)
    accuracy = third.table.cells["ViT: mnist, ambigan", "accuracy"]
    assert (accuracy.value, accuracy.n, accuracy.spread) == (0.9, 1, None), "one model, asked about two runs"
    assert third.table.cells["lenet: mnist, agreement guarded batch", "accuracy"].value == 0.99
    for found in (first, second, third):
        assert (found.records[-1]["hardware"], found.records[-1]["settings"]) == ("a GPU", {"epochs": [100, 50]})
    assert ("mnist, ambigan", "ACD") in first.full and ("mnist, ambigan", "companion FID") in second.full
    assert ("mnist, ambigan", "companion ACD, held out") in second.table.cells, "by the other record,"
    assert ("mnist, ambigan", "companion ACD, held out") not in second.full, "which is not of the paper's size"
    assert {row for row, _ in (*first.full, *second.full)} == {"mnist, ambigan"} and not third.full
    scales = {(one["row"], one["scale"]) for one in coverage_of(get("hubris-table1"), results).cells}
    assert ("mnist, ambigan", "paper") in scales and ("chest_xray, ambigan", "paper") not in scales
    (results / "hubris" / "mnist_runs.json").write_text(json.dumps(record | {"scale": "own"}))
    assert not recorded(get("hubris-table1"), results).full


def test_table3_is_the_mean_over_models_with_its_spread(results):
    cells = recorded(get("hubris-table3"), results).table.cells
    rows = list(dict.fromkeys(row for row, _ in cells))
    assert rows == ["ViT: mnist, ambigan", "ViT: mnist, ambiguess", "lenet: mnist, agreement guarded batch"]
    expected = {"accuracy": [0.98, 0.96], "ACD": [0.30, 0.36], "H_A": [0.80, 0.90], "H_R": [0.70, 0.76]}
    for column, values in expected.items():
        cell = cells["ViT: mnist, ambigan", column]
        assert cell.value == pytest.approx(statistics.mean(values))
        assert cell.spread == pytest.approx(statistics.stdev(values))
        assert cell.n == 2
    assert cells["lenet: mnist, agreement guarded batch", "accuracy"].value == 0.99
    assert cells["ViT: mnist, ambiguess", "accuracy"].value == 0.98


def test_models_that_were_asked_later_are_said_to_be(results):
    later = {"command": "python ask.py", "hardware": "another box"}
    (results / "hubris" / "mnist.json").write_text(json.dumps(MNIST | {"asked_later": later}))
    shown = [(one["command"], one["hardware"]) for one in recorded(get("hubris-table3"), results).records[:2]]
    assert shown == [("python make.py", "a box"), ("python ask.py", "another box")]
    assert len(recorded(get("hubris-table2"), results).records) == 2, "nobody was asked for this table"


def test_an_interrupted_record_gives_what_it_has(results):
    (results / "hubris" / "mnist.json").unlink()
    assert recorded(get("hubris-table2"), results).table.rows == ["chest_xray, ambigan"]
    with pytest.raises(UserError, match="There are no results of hubris-table3 below"):
        recorded(get("hubris-table3"), results)


@pytest.mark.parametrize(
    ("name", "file"), [("mnist", "mnist"), ("fashion_mnist", "fashion_mnist"), ("chest_xray", "pneumoniamnist")]
)
def test_tables_of_the_repository_are_the_summaries_of_its_records(name, file):
    record = json.loads((RESULTS / "hubris" / f"{file}.json").read_text())
    several = RESULTS / "hubris" / f"{file}_runs.json"
    kept = json.loads(several.read_text()) if several.exists() else {}
    runs = kept.get("runs", [record])
    first, second, third = (recorded(get(study), RESULTS).table.cells for study in STUDIES)
    for variant, label in ((AUTHORS, "ambigan"), (OURS, OURS)):
        row, made = f"{name}, {label}", runs if variant == AUTHORS else [record]
        for column, key in (("loss weight", "alpha"), ("variance", "variance")):
            chosen = [one["training"][variant][key] for one in made]
            assert first[row, column].value == pytest.approx(statistics.mean(chosen))
        ratio = statistics.mean(list(one["ratios"][variant].values())[-1] for one in made)
        assert second[row, "FID, companion over baseline"].value == pytest.approx(ratio, rel=1e-4)
        asked = kept if variant == AUTHORS and "hubris" in kept else record
        mine = [one for one in asked["hubris"]["rows"] if (one["family"], one["set"]) == ("lenet", variant)]
        assert third[f"lenet: {row}", "H_A"].value == pytest.approx(statistics.mean(one["absolute"] for one in mine))
        assert third[f"lenet: {row}", "H_A"].n == len(mine)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def words_of(tiny, out):
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return ["--quick", "--data", f"mnist={tiny}", *settings, "--out", out, "--quiet", "--json"]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_from_data_to_table_and_shares_its_tasks(study, tiny, out, name):
    made = study("run", name, *words_of(tiny, out))
    assert made.code == 0, made.err
    record = made.json()
    assert record["tasks"] == 1
    assert len(list((out / "ledger").glob("*.json"))) == 1
    assert all(np.isfinite(cell["value"]) for cell in record["cells"])
    cells = {(cell["row"], cell["column"]): cell for cell in record["cells"]}
    if name == "hubris-table3":
        rows = [f"{family}: mnist, {one}" for family in TINY["families"] for one in ("ambigan", OURS)]
        assert [cells[row, column]["n"] for row in rows for column in ("accuracy", "ACD", "H_A", "H_R")] == [2] * 16
    else:
        shared = set(cells) & set(get(name).published.cells)
        assert {column for _, column in shared} == set(get(name).published.columns)
        assert {row for row, _ in cells} == {"mnist, ambigan", "mnist, agreement guarded batch"}


def test_the_same_task_gives_the_same_table(study, tiny, out):
    kept = study("run", "hubris-table3", *words_of(tiny, out)).json()["cells"]
    chosen = get("hubris-table3")
    plan = make_plan(chosen, quick=True, data={"mnist": str(tiny)}, settings=TINY)
    again = [task.function(**task.params, seed=task.seed) for task in plan.tasks(chosen)]
    assert chosen.tabulate(again, plan.settings).tidy() == kept


def test_a_changed_setting_is_another_task(tiny):
    chosen = get("hubris-table1")

    def keys(data=("mnist",), **settings):
        plan = make_plan(
            chosen, quick=True, data=dict.fromkeys(data, str(tiny)), settings={"data": list(data)} | settings
        )
        return [task.key for task in plan.tasks(chosen)]

    (before,) = keys()
    assert keys() == [before]
    assert keys(("mnist", "chest_xray"), runs=2)[0] == before
    assert len(set(keys(("mnist", "chest_xray"), runs=2))) == 4
    classes = {"mnist": [3, 5]}
    for settings in ({"members": 3}, {"classes": classes}, {"recipe": {"lr": 1e-4}}, {"variants": ["ambigan"]}):
        assert before not in keys(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": {}}, "No classes of mnist are named; add them to the setting classes"),
        ({"classes": {"mnist": [1, 2, 3]}}, r"The classes are \[1, 2, 3\] and the epochs .* give two classes"),
        ({"epochs": [5]}, r"the epochs \[5\]; give two classes, and the epochs of stage 1 and stage 2"),
        ({"variants": []}, "No variant was given; give some as METHOD:COMBINE:SUBSETS"),
        ({"variants": ["magic"]}, "There is no method 'magic'"),
        ({"variants": ["ambigan:sometimes"]}, "combine is 'sometimes'"),
        ({"variants": ["ambigan:sum:some"]}, "subsets is 'some'"),
        ({"data": ["cifar10"]}, "No classes of cifar10 are named"),
        ({"families": ["lenet", "crystal_ball"]}, "crystal_ball"),
    ],
)
def test_mistakes_are_said_in_one_sentence(tiny, settings, message):
    chosen = get("hubris-table1")
    plan = make_plan(chosen, quick=True, data={"mnist": str(tiny)}, settings=TINY | settings)
    with pytest.raises(UserError, match=message):
        for task in plan.tasks(chosen):
            task.function(**task.params, seed=task.seed)


def test_a_missing_library_is_said_before_anything_is_trained(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r'transformers.*pip install "secondguess\[models\]"'):
        hubris.Companions(load(str(tiny)), hubris.CompanionPlan((9, 8), families=("vit",)))


@pytest.mark.parametrize(
    ("text", "name", "judge"),
    [
        ("ambigan:alternate:disjoint", AUTHORS, "disjoint"),
        ("ambigan:alternate", AUTHORS, "disjoint"),
        ("agreement", OURS, "batch, calibrated"),
        ("gasten2::batch", "gasten2 sum batch", "batch"),
    ],
)
def test_variants_are_completed(text, name, judge):
    variant = hubris.Variant.parse(text)
    assert (str(variant), variant.judge) == (name, judge)


@dataclass(frozen=True)
class TakeAll(Rejection):
    """Rejects nothing: an untrained generator makes no acceptable image."""

    tolerance: float | None = None
    disagreement: float | None = None
    realism: bool = False


@pytest.fixture(scope="module")
def made(tiny):
    settings = {
        key: value for key, value in get("hubris-table1").scale.items() if key not in ("data", "classes", "runs")
    }
    small = TINY | {"alphas": [1.0], "guarded_alphas": [4.0], "recipe": {"lr": 1e-3}, "collapse": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hubris, "Rejection", TakeAll)
        one = hubris.Companions(load(str(tiny)), hubris.CompanionPlan.of([9, 8], settings | small, 1))
        return one, dict(one.parts())


def test_parts_say_what_was_made(made):
    one, parts = made
    assert set(one.sets) == {"stage1", AUTHORS, OURS, f"{AUTHORS}, accepted", f"{OURS}, accepted"}
    assert parts["estimators"]["disjoint"][0]["seed"] == 2
    assert parts["estimators"]["disjoint"][1]["seed"] == 3, "the held-out estimator is another one in every run"
    assert [row["chosen"] for row in parts["training"]["grid"] if row["variant"] == AUTHORS].count(True) == 1
    assert parts["training"][AUTHORS]["epochs"] == [1, 1]
    assert parts["ratios"]["stage1"] == {"all": 1.0, "others": 1.0}
    json.dumps(parts, allow_nan=False)


def test_sets_are_measured_on_their_own_pixels(made):
    one, parts = made
    pixels, row = one.sets[OURS].images / np.float32(255), parts["sets"][OURS]
    members = one.judges["batch, calibrated"][1].members(pixels)
    told = row["judged"]["batch, calibrated"]["held_out"]
    assert told["acd"] == pytest.approx(np.abs(members.mean(axis=0) - 0.5).mean())
    assert told["acd_of_members"] == pytest.approx(np.abs(members - 0.5).mean())
    # In float32 the probabilities of both classes, whose variances are averaged, do not quite add up to 1.
    assert told["variance"] == pytest.approx(members.var(axis=0).mean(), rel=1e-4)
    real = one.train.images[np.flatnonzero(np.isin(one.train.labels, (8, 9)))]
    distance = frechet_distance(one.spaces.features(real), one.spaces.features(pixels))
    assert row["realism"]["others"]["frechet"] == pytest.approx(distance)
    test = one.test.images[np.flatnonzero(np.isin(one.test.labels, (8, 9)))]
    ours, theirs = (np.mean([image.std() for image in images]) for images in (pixels, test))
    assert row["contrast"] == pytest.approx(ours / theirs, rel=1e-5)


def test_two_classes_leave_one_space(tiny):
    whole = load(str(tiny))
    pair = [part.take(np.flatnonzero(np.isin(part.labels, (8, 9)))) for part in (whole.train, whole.test)]
    spaces = companion_measures.Spaces(*pair, (9, 8), epochs=1)
    assert spaces.deciding == "all"
    assert list(spaces.test) == ["all"]


def test_images_of_two_classes_are_numbered_in_their_order():
    images = ImageSet.from_arrays(
        np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1) / 5, np.array([3, 0, 7, 3, -1]), layout="NCHW"
    )
    pixels, which = companion_measures.of_classes(images, (7, 3))
    np.testing.assert_allclose(pixels.ravel() * 5, [0, 2, 3])
    assert which.tolist() == [1, 0, 1]


# Mean divergence and absolute hubris of some predictions, from the closed form.
@pytest.mark.parametrize(
    ("p", "acd", "divergence", "absolute"),
    [
        ([0.5] * 3, 0.0, 0.0, 0.0),
        ([0.1, 0.5, 0.9], 0.8 / 3, 0.245376, 0.719284),
        ([0.9] * 3, 0.4, 0.368064, 0.851269),
        ([0.0, 1.0, 1.0], 0.5, 0.693147, 0.972366),
    ],
)
def test_scores_are_those_of_the_closed_form(p, acd, divergence, absolute):
    row = companion_models.scored(np.array(p))
    assert row["acd"] == pytest.approx(acd)
    assert row["mean_kl"] == pytest.approx(divergence, abs=1e-6)
    assert row["absolute"] == pytest.approx(absolute, abs=1e-6)
    assert row["low"] <= row["absolute"] <= row["high"]


def halves(count, seed):
    """Noise, brighter on the left for class 9 and on the right for class 8."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([8, 9], count)
    pixels = rng.random((count, 1, 28, 28), dtype=np.float32) / 2
    pixels[labels == 9, :, :, :14] += 0.5
    pixels[labels == 8, :, :, 14:] += 0.5
    return ImageSet.from_arrays(pixels, labels, layout="NCHW")


@pytest.mark.parametrize(("family", "epochs"), [("convnext", 4), ("vit", 4), ("lenet", 20)])
def test_models_learn_the_two_classes(made, family, epochs):
    if family != "lenet":
        pytest.importorskip("transformers")
    train, test, reference = halves(128, 0), halves(40, 1), made[0].judges["disjoint"][1]
    grey = np.full((20, 1, 28, 28), 0.5, np.float32)
    options = {"families": [family], "models": 1, "epochs": epochs}
    rows = companion_models.ask_models(train, test, {"grey": grey}, reference, **options)
    assert [(row["family"], row["set"]) for row in rows] == [(family, "grey"), (family, "real")]
    assert rows[1]["accuracy"] > 0.9, "the first class of the pair is the first output"
    assert "accuracy" not in rows[0]
