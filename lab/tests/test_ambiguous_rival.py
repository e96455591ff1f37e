"""The rival's sets and the networks that are asked about them are made once; what is of other settings is refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secondguess.images import load
from secondguess.stress.ambiguous.base import AmbiguousImages, ambiguous_set
from secondguess_lab.rivals.latent_mixture import TrainedMixture

SMALL = ["--count", "60", "--mixture-epochs", "2", "--judge-epochs", "3", "--epochs", "1", "--architectures", "lenet"]


@pytest.fixture
def rival(monkeypatch, tmp_path):
    """Runs the script with a generator that needs no training, and says what was made."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    script = importlib.import_module("ambiguous_rival")
    made = SimpleNamespace(generators=[], trained=0, networks=[], stretched=[])

    class Generator:
        def __init__(self, **settings):
            self.settings = settings

        def train(self, images, *, progress):
            made.trained += 1
            return TrainedMixture(vae=None, calibration="fitted", ensemble=None, device=torch.device("cpu"))

        def generate(self, images, count, *, trained, progress):
            made.generators.append(self.settings)
            made.stretched.append(trained.calibration)
            soft = np.zeros((count, 10))
            soft[:, 3], soft[:, 8] = 0.5, 0.5
            soft[: count // 2, [3, 8]] = 1, 0
            few = images.head(count)
            pixels = np.round(few.materialise() * 255).astype(np.uint8)
            columns = {"class_1": np.full(count, 3), "class_2": np.full(count, 8)}
            return AmbiguousImages(
                ambiguous_set(images, pixels, soft.argmax(1), soft, columns, "fake"), {"kind": "fake"}
            )

    plain = script.train_classifiers
    monkeypatch.setattr(script, "LatentMixture", Generator)
    monkeypatch.setattr(script.GreyLevels, "fit", lambda vae, images, *, stretch, seed: stretch)
    monkeypatch.setattr(
        script, "train_classifiers", lambda *some, **how: made.networks.append(some[1:]) or plain(*some, **how)
    )
    data = load("mnist5k")
    parts = [data.train.head(300), data.test.head(100)]
    pixels = [np.round(part.materialise()[:, 0] * 255).astype(np.uint8) for part in parts]
    np.savez(tmp_path / "d.npz", x_train=pixels[0], y_train=parts[0].labels, x_test=pixels[1], y_test=parts[1].labels)

    def run(*words):
        out = tmp_path / "record.json"
        script.main([str(tmp_path / "d.npz"), "--folder", str(tmp_path / "kept"), "--out", str(out), *SMALL, *words])
        return json.loads(out.read_text("utf-8"))

    return run, made


def test_one_autoencoder_makes_all_sets_and_nothing_is_made_twice(rival):
    run, made = rival
    first = run("--sets", "10 candidates")
    assert (made.trained, len(made.networks), len(first["rows"])) == (1, 2, 2)
    assert made.generators == [{"epochs": 2, "member_epochs": 3, "pool": 10}]
    whole = run("--sets", "10 candidates", "as published")
    assert [row["training"] for row in whole["rows"]] == ["clean", "10 candidates", "as published"]
    assert whole["rows"][:2] == first["rows"] and len(made.networks) == 3
    assert made.stretched == [None, (1.2, -0.15)]
    assert (made.generators[1]["mode"], made.generators[1]["labels"]) == ("legacy", "draws")
    assert run("--sets", "10 candidates", "as published")["rows"] == whole["rows"] and len(made.networks) == 3


def test_networks_learn_from_one_half_and_are_asked_about_the_other(rival):
    run, made = rival
    record = run("--sets", "10 candidates")
    (_, extra), about = made.networks[1], record["sets"]["10 candidates"]
    assert len(extra) == 30 and about["test"]["images"] == 30
    assert extra.fingerprint != about["test"]["fingerprint"]
    assert set(record["rows"][0]) >= {"architecture", "training", "set", "member", "nominal", "ambiguous"}


def test_labels_that_are_draws_already_are_not_drawn_once_more(rival):
    run, _ = rival
    about = run("--sets", "350 candidates", "as published")["sets"]
    # Half of the labels are split evenly: ten draws are not, and are taken as they are where they are draws already.
    drawn, split = about["as published"]["test"], about["350 candidates"]["test"]
    assert drawn["entropy_bits_of_ten_draws"] == drawn["label_entropy_bits"]
    assert split["entropy_bits_of_ten_draws"] < split["label_entropy_bits"]


def test_sets_and_records_of_other_settings_are_refused(rival):
    run, _ = rival
    run("--sets", "10 candidates")
    with pytest.raises(SystemExit, match=r"record\.json was made of other data or with other settings"):
        run("--sets", "10 candidates", "--members", "2")
