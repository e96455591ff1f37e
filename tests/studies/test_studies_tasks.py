"""The parts of tasks that can be held against somebody else's code or a closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from secondguess.data import ImageSet
from secondguess.observation import Observation
from secondguess.oracles import Evidence
from secondguess.oracles.cross_reference import CrossReference
from secondguess.oracles.icos import InputRules
from secondguess.studies.papers import oracles
from secondguess.studies.papers.ambiguity import _table1
from secondguess.studies.tasks.surprise import fgsm


def looks(n=200):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 10, n)
    made = []
    for network in oracles.NETWORKS:
        wrong = rng.random(n) < 0.3
        predictions = np.where(wrong, rng.integers(0, 10, n), labels)
        masks = {
            key: rng.random(n) < 0.1 for key in ("pixel_rules", "forest", "criterion_2", "criterion_3", "selfchecker")
        }
        made.append({"network": network, "labels": labels, "predictions": predictions} | masks)
    return made


def evidence(look, others):
    columns = {f"referee_{k}": other["predictions"] for k, other in enumerate(others, start=1)}
    names = [str(digit) for digit in range(10)]
    pixels = np.zeros((len(look["labels"]), 1, 2, 2), np.float32)
    images = ImageSet.from_arrays(pixels, look["labels"], class_names=names, columns=columns, layout="NCHW")
    return Evidence(Observation(np.eye(10)[look["predictions"]]), images)


def test_verdicts_are_those_of_the_oracles_themselves():
    first, *others = looks()
    found = oracles._objections(first, others)
    seen = evidence(first, others)
    np.testing.assert_array_equal(found["cross_reference"], CrossReference().judge(seen).wrong)
    for name in ("fine", "equal"):
        rules = InputRules.example(f"mnist_{name}")
        rules = InputRules([replace(one, column="source") for one in rules.partitions], rules.class_names)
        broken = rules.violated(Evidence(seen.observation, rules.simulate(seen.images))) >= 0
        np.testing.assert_array_equal(found[f"icos_{name}"], broken | first["pixel_rules"] | first["forest"])


def test_swapped_labels_are_two_outputs_exchanged():
    first, *others = looks()
    swapped = oracles._objections(first, others, (2, 7))
    exchange = {2: 7, 7: 2}
    renamed = [
        look | {"predictions": np.array([exchange.get(k, k) for k in look["predictions"]])} for look in (first, *others)
    ]
    by_hand = oracles._objections(renamed[0], renamed[1:])
    for judge, verdicts in swapped.items():
        np.testing.assert_array_equal(verdicts, by_hand[judge])


def test_rates_of_a_whole_pool_are_those_counted_by_hand():
    made = looks()
    settings = {"drawn": 200, "repetitions": 2}
    cells = oracles._rates("tpr")(made, settings).cells
    first, *others = made
    wrong = first["predictions"] != first["labels"]
    alarms = oracles._objections(first, others)["icos_fine"] == 1
    assert cells["A", "ICOS, fine"].value == (alarms & wrong).sum() / wrong.sum()
    assert cells["A", "ICOS, fine"].spread == 0, "both draws are the whole pool"


def test_fgsm_is_the_sign_of_the_gradient_of_a_linear_model():
    rng = np.random.default_rng(0)
    images = ImageSet.from_arrays(
        rng.random((7, 1, 3, 3), dtype=np.float32), rng.integers(0, 4, 7), class_names=list("abcd"), layout="NCHW"
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 4))
    weights, bias = (part.detach().numpy().astype(float) for part in model[1].parameters())
    pixels = images.materialise().reshape(7, 9).astype(float)
    logits = pixels @ weights.T + bias
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gradient = (softmax - np.eye(4)[images.labels]) @ weights
    expected = np.clip(pixels + 0.1 * np.sign(gradient), 0, 1)
    np.testing.assert_allclose(fgsm(model, images, 0.1).materialise().reshape(7, 9), expected, atol=1e-6)


def test_the_mean_of_four_networks_needs_all_four():
    def row(architecture, value):
        about = {"data": "mnist", "generator": "ambiguess", "architecture": architecture, "training": "mixed"}
        return about | {"ambiguous": {"top-1": value}, "nominal": {}}

    mean = ("mnist, ambiguess, mean of four: mixed, ambiguous", "top-1")
    rows = [row("simple_cnn", 0.2), row("simple_cnn", 0.4), row("fully_connected", 0.5), row("densenet_se", 0.7)]
    assert mean not in _table1(rows).cells
    assert _table1([*rows, row("resnet50", 0.9)]).cells[mean].value == np.mean([0.3, 0.5, 0.7, 0.9])
