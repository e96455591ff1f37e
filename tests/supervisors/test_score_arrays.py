"""From arrays in a file to scores and verdicts, in Python and by command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secondguess import Observation, UserError
from secondguess.accuracy.oracles import judge_arrays
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.cli import main
from secondguess.metrics import auroc
from secondguess.model.arrays import load_observation
from secondguess.supervisors import make, score_arrays

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 3
TRACES = (RNG.normal(size=(120, 6)) + 3 * LABELS[:, None]).astype(np.float32)
WRONG = RNG.random(120) < 0.2
PREDICTIONS = np.where(WRONG, (LABELS + 1) % 3, LABELS)
TRAINING = {"train_traces": TRACES + 0.01, "train_predictions": LABELS}


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_every_array_finds_its_place(tmp_path: Path) -> None:
    p = RNG.dirichlet(np.ones(3), 4)
    raw = RNG.normal(size=(4, 2, 5, 5)).astype(np.float32)
    samples = RNG.dirichlet(np.ones(3), (4, 2))
    file = saved(
        tmp_path / "a.npz", probabilities=p, traces=np.ones((4, 2)), traces_conv1=raw, samples=samples,
        labels=[0, 1, 2, -1], class_names=["a", "b", "c"], camera=np.arange(4),
        train_logits=np.eye(3), train_labels=[0, 1, 2],
    )  # fmt: skip
    seen = load_observation(file)
    assert seen is not None
    np.testing.assert_array_equal(seen.probabilities, p)
    assert seen.trace("penultimate").shape == (4, 2) and seen.trace("conv1").shape == (4, 50)
    assert seen.samples is not None and seen.samples.shape == (4, 2, 3)
    assert seen.class_names == ("a", "b", "c") and seen.labels is not None and seen.labels.tolist() == [0, 1, 2, -1]
    assert set(seen.columns) == {"camera"}
    learnt = load_observation(file, "train")
    assert learnt is not None and learnt.labels is not None and len(learnt) == 3
    assert load_observation(file, "validation") is None
    assert load_observation(seen) is seen


@pytest.mark.parametrize("how", ["one file", "two files", "mappings", "observations"])
def test_scores_are_those_of_the_supervisor(tmp_path: Path, how: str) -> None:
    learnt = Observation(predictions=LABELS, traces={"penultimate": TRACES + 0.01})
    seen = Observation(predictions=PREDICTIONS, traces={"penultimate": TRACES}, labels=LABELS)
    test = {"traces": TRACES, "predictions": PREDICTIONS, "labels": LABELS}
    train = {"traces": TRACES + 0.01, "predictions": LABELS}
    given: dict[str, Any] = {
        "one file": lambda: (saved(tmp_path / "all.npz", **test, **TRAINING), None),
        "two files": lambda: (saved(tmp_path / "test.npz", **test), saved(tmp_path / "train.npz", **train)),
        "mappings": lambda: (test | TRAINING, None),
        "observations": lambda: (seen, learnt),
    }
    arrays, other = given[how]()
    found = score_arrays(arrays, ["dsa", "mdsa"], train=other)
    for name in ("dsa", "mdsa"):
        scores = make(name).fit(learnt).score(seen)
        np.testing.assert_array_equal(found.scores[name], scores)
        assert found.auroc(name) == auroc(scores[~WRONG], scores[WRONG])
    assert len(found) == 120 and "AUROC of wrong predictions" in found.summary()


def test_the_test_images_may_have_classes_that_training_has_not() -> None:
    test = {"traces": TRACES[:2], "predictions": [0, 7]}
    with pytest.warns(UserWarning, match=r"classes \(7\) that no training image"):
        found = score_arrays(test | TRAINING, "dsa")
    assert np.isinf(found.scores["dsa"][1]) and found.to_dict()["scores"]["dsa"][1] is None
    assert found.labels is None and found.auroc("dsa") is None
    few = score_arrays({"traces": TRACES[:1], "predictions": [0]} | TRAINING, "dsa")
    assert np.isfinite(few.scores["dsa"]).all()


def test_results_are_saved(tmp_path: Path) -> None:
    p = np.array([[0.9, 0.1], [0.4, 0.6]])
    found = score_arrays({"probabilities": p, "labels": [0, 0]}, "max_softmax")
    folder = found.save(tmp_path / "out")
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    assert [row["prediction"] for row in rows] == ["0", "1"] and [row["label"] for row in rows] == ["0", "0"]
    np.testing.assert_allclose([float(row["max_softmax"]) for row in rows], found.scores["max_softmax"])
    assert json.loads((folder / "scores.json").read_text()) == found.to_dict()
    assert sorted(path.name for path in folder.iterdir()) == ["scores.csv", "scores.json"]


def test_several_networks_are_cross_referenced(tmp_path: Path) -> None:
    others = {"predictions_b": [0, 2, 1, 3], "predictions_c": [0, 2, 1, 0]}
    arrays = {"predictions": [0, 1, 1, 2], "labels": [0, 2, 1, 2], **others}
    found = judge_arrays(arrays, "cross-reference")
    assert found.verdicts.wrong.tolist() == [0, 1, 0, -1] and found.verdicts.advice.tolist() == [-1, 2, -1, -1]
    assert found.verdicts.reasons[1] == "2 of 3 models say '2'"
    assert found.summary().splitlines() == [
        "cross_reference: 1 of 4 predictions judged wrong, 1 undecided",
        "  by the labels: accuracy 75.0%, estimated 75.0%; 1 wrong predictions found, 0 false alarms",
    ]
    folder = found.save(tmp_path)
    assert json.loads((folder / "verdicts.json").read_text()) == found.to_dict()
    assert (folder / "verdicts.csv").read_text().splitlines()[2] == "1,1,2,2 of 3 models say '2'"
    two = CrossReference(["predictions_b", "predictions_c"])
    assert judge_arrays(arrays, two).verdicts.wrong.tolist() == [0, 1, 0, -1]
    bare = judge_arrays({key: value for key, value in arrays.items() if key != "labels"})
    assert bare.confusion is None and "labels" not in bare.summary()


def test_an_oracle_that_learns_finds_its_arrays() -> None:
    p = np.eye(3)[PREDICTIONS] * 0.9 + 0.1 / 3
    part = {"probabilities": p, "traces": TRACES, "labels": LABELS}
    arrays = part | {f"{key}_{name}": array for key in ("train", "validation") for name, array in part.items()}
    found = judge_arrays(arrays, "selfchecker:layers=penultimate")
    assert found.confusion is not None and found.confusion.tpr > found.confusion.fpr
    with pytest.raises(UserError, match="'selfchecker' learns from training and validation images"):
        judge_arrays(part, "selfchecker:layers=penultimate")


@pytest.mark.parametrize(
    ("arrays", "supervisor", "says"),
    [
        ({}, "entropy", "holds no arrays"),
        ({"traces": TRACES}, "dsa", "holds traces of penultimate; one of the arrays probabilities"),
        ({"predictions": LABELS}, "entropy", "neither probabilities nor logits, which are needed here"),
        ({"logits": np.eye(3)}, "dsa", "'dsa' learns from training images; give their arrays"),
        ({"probabilities": np.eye(3) * 7}, "entropy", "every row must sum to 1"),
        ({"probabilities": np.eye(3)}, "energy", "'energy' needs logits"),
        ({"predictions": LABELS, "traces": TRACES, "train_traces": TRACES}, "dsa", "with train_ before its name"),
        ({"probabilities": np.eye(3)}, ["entropy", "entropy"], "'entropy' was given more than once"),
        ({"probabilities": np.eye(3)}, [], "No supervisor was named"),
        ({"predictions": LABELS, "traces": TRACES} | TRAINING, "dsa:layers=conv1", "no trace of 'conv1/flatten'"),
    ],
)
def test_what_is_lacking_is_said(arrays: Any, supervisor: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        score_arrays(arrays, supervisor)


def test_too_few_networks_are_refused() -> None:
    with pytest.raises(UserError, match="there are 1 of them"):
        judge_arrays({"predictions": [0, 1], "camera": [1, 2], "predictions_b": [0, 1]})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path / "all.npz", traces=TRACES, predictions=PREDICTIONS, labels=LABELS, **TRAINING)
    assert main(["score", str(file), "--supervisor", "dsa", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("120 predictions; larger scores are more suspicious\n  dsa ")
    assert (tmp_path / "out" / "scores.csv").is_file()
    assert main(["score", str(file), "--supervisor", "dsa", "--supervisor", "knn", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["images"] == 120 and set(shown["scores"]) == {"dsa", "knn"}
    words = ["score", str(file), "--supervisor", "dsa", "--coverage", str(tmp_path / "dsa.json")]
    assert main([*words, "--buckets", "10", "--upper", "2"]) == 0
    assert "of 10 buckets from 0 to 2 covered" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["coverage"]
    assert again["before"] == again["together"] == again["coverage"] > 0
    votes = saved(tmp_path / "votes.npz", predictions=[0, 1], predictions_b=[0, 0], predictions_c=[0, 0])
    assert main(["score", str(votes), "--oracle", "cross-reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Say who scores with --supervisor"),
        (["--supervisor", "dsa", "--oracle", "icos"], "--supervisor and --oracle were both given; one of them scores"),
        (["--supervisor", "dsb"], "dsb"),
        (["--supervisor", "entropy", "--validation", "v.npz"], "--validation is for oracles"),
        (["--supervisor", "dsa", "--train", "nowhere.npz"], "There is no file nowhere.npz"),
        (["--supervisor", "entropy", "--upper", "2"], "name its file with --coverage"),
        (["--supervisor", "entropy", "--supervisor", "pcs", "--coverage", "c.json"], "and 2 were named; name one"),
        (["--oracle", "cross-reference", "--coverage", "c.json"], "an oracle gives verdicts, no scores"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    file = saved(tmp_path / "p.npz", probabilities=np.eye(3), traces=np.eye(3))
    assert main(["score", str(file), *words]) == 2
    assert says in capsys.readouterr().err
