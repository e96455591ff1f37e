"""Budgets looked at on the way are budgets of their own; parts that were measured are not measured again."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from secondguess import Classifier, ImageSet, zoo
from secondguess.images import Dataset
from secondguess.search import measure_distances
from secondguess.search.attacks import Boundary, HopSkipJump

BUDGETS = (170, 260, 400)


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    return importlib.import_module("search_budgets")


@pytest.fixture
def network():
    """The paper's network, untrained, for small images of noise: half of them are cats to it."""
    pixels = np.random.default_rng(0).random((240, 3, 16, 16), dtype=np.float32)
    model = zoo.make("cats_dogs_cnn", num_classes=2, input_shape=(3, 16, 16), seed=0).eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels))
        model.get_submodule("logits").bias[1] -= (logits[:, 1] - logits[:, 0]).median()
    return model, pixels


@pytest.mark.parametrize("attack", [HopSkipJump(), Boundary()])
def test_a_budget_on_the_way_finds_what_that_budget_finds(experiment, network, attack):
    model, pixels = network
    classifier = Classifier(model, output_kind="logits", batch_size=64)
    rows = np.arange(12)
    watched = experiment.Watched(attack, BUDGETS)
    measure_distances(classifier, pixels, attack=watched, budget=max(BUDGETS), rows=rows)
    for budget in BUDGETS:
        alone = measure_distances(classifier, pixels, attack=attack, budget=budget, rows=rows)
        found = np.array([watched.seen[budget, row] for row in rows])
        expected = np.stack([alone.mae, alone.l2, alone.linf, alone.queries], axis=1)[rows]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        assert alone.queries[rows].max() <= budget


@pytest.fixture
def folder(tmp_path, network):
    """A network as search_networks.py keeps it."""
    model, pixels = network
    test = ImageSet.from_arrays(pixels, np.arange(240) % 2, class_names=("cat", "dog"), layout="NCHW")
    probabilities = Classifier(model, output_kind="logits").predict(test)
    rows = np.flatnonzero(probabilities.argmax(axis=1) == 0)
    about = dict.fromkeys(("share", "seed", "kept_epoch", "validation_accuracy", "test_accuracy"), 0)
    np.savez(
        tmp_path / "share30_seed0.npz",
        about=np.array(json.dumps(about)),
        test_rows=rows,
        labels=test.labels[rows],
        probabilities=probabilities[rows] + np.linspace(0, 1e-3, len(rows))[:, None],
        features=pixels[rows].reshape(len(rows), -1)[:, :5],
    )
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()}, tmp_path / "share30_seed0.safetensors"
    )
    return tmp_path, Dataset("noise", test, test)


def test_all_attacks_are_compared_on_the_same_images(experiment, folder, monkeypatch):
    kept, data = folder
    monkeypatch.setattr(experiment, "unpacked", lambda path: data)
    out = kept / "budgets.json"
    words = ["search_budgets.py", "data.npz", "--kept", str(kept), "--out", str(out), "--images", "108", "--part", "54"]
    words += ["--budgets", "150", "--long", "200", "--every", "2", "--replications", "3"]
    monkeypatch.setattr(sys, "argv", words)
    experiment.main()
    first = json.loads(out.read_text("utf-8"))
    measured = {(row["images"], row["attack"], row["budget"]): row for row in first["rows"]}
    assert len(measured) == 3 + 5
    assert {row["size"] for key, row in measured.items() if key[0] == "all"} == {108}
    assert {row["size"] for key, row in measured.items() if key[0] == "few"} == {54}
    gradient, ours = measured["all", "gradient", None], measured["all", "hop_skip_jump", 150]
    assert gradient["spearman_residuals"] == pytest.approx(1)
    assert gradient["first_20_in_common"] == 20
    assert gradient["replications"] == 3
    assert ours["median_mae"] > gradient["median_mae"]
    assert ours["queries_median"] <= 150
    assert gradient["methods"]["adversarial_distance"]["errors@50"]["pooled"] > 0
    few = [measured["few", "boundary from noise", budget] for budget in (150, 200)]
    ends = [key for key, row in measured.items() if row["unconfirmed"] is not None]
    assert sorted(ends) == [("few", "boundary from noise", 200), ("few", "hop_skip_jump", 200)]
    assert {measured[key]["unconfirmed"] for key in ends} == {0}, "on a processor every last check says yes"
    assert "methods" not in few[0]  # too few to search
    assert few[1]["median_mae"] <= few[0]["median_mae"]

    monkeypatch.setattr(experiment, "measured_part", None)  # a second call would fail if it measured anything
    experiment.main()
    again = json.loads(out.read_text("utf-8"))
    assert again["rows"] == first["rows"]
    monkeypatch.setattr(sys, "argv", [*words, "--part", "30"])
    with pytest.raises(SystemExit, match="holds other images"):
        experiment.main()
    monkeypatch.setattr(sys, "argv", words)
    part = kept / "budgets_share30_seed0_000.npz"
    with np.load(part) as opened:
        older = {name: opened[name] for name in opened.files if "unconfirmed" not in name}
    np.savez(part, **older)
    with pytest.raises(SystemExit, match="older version; remove it"):
        experiment.main()
