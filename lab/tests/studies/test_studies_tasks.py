"""The parts of tasks that can be held against somebody else's code or a closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from secondguess import zoo
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.icos import InputRules
from secondguess.images import Dataset, ImageSet
from secondguess.model.observation import Observation
from secondguess.supervisors import make, make_all
from secondguess.training import train_fleet
from secondguess_lab.studies.papers import oracles
from secondguess_lab.studies.papers.ambiguity import _table1
from secondguess_lab.studies.tasks.ambiguity import train_classifiers
from secondguess_lab.studies.tasks.opening import joined
from secondguess_lab.studies.tasks.oracles import split
from secondguess_lab.studies.tasks.supervisors import configured, fixed_sets, score_each
from secondguess_lab.studies.tasks.surprise import fgsm


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
    return Observation(np.eye(10)[look["predictions"]], images=images)


def test_verdicts_are_those_of_the_oracles_themselves():
    first, *others = looks()
    found = oracles._verdicts(first, others)
    seen = evidence(first, others)
    np.testing.assert_array_equal(found["cross_reference"], CrossReference().judge(seen).wrong)
    for name in ("fine", "equal"):
        rules = InputRules.example(f"mnist_{name}")
        rules = InputRules([replace(one, column="source") for one in rules.partitions], rules.class_names)
        broken = rules.violated(seen.replace(images=rules.simulate(seen.images))) >= 0
        np.testing.assert_array_equal(found[f"input_rules_{name}"], broken)
        np.testing.assert_array_equal(found[f"icos_{name}"], broken | first["pixel_rules"] | first["forest"])
        for criterion in (2, 3):
            objections = broken | first[f"criterion_{criterion}"] | first["forest"]
            np.testing.assert_array_equal(found[f"icos_{name}_criterion_{criterion}"], objections)


def test_swapped_labels_are_two_outputs_exchanged():
    first, *others = looks()
    swapped = oracles._verdicts(first, others, (2, 7))
    exchange = {2: 7, 7: 2}
    renamed = [
        look | {"predictions": np.array([exchange.get(k, k) for k in look["predictions"]])} for look in (first, *others)
    ]
    by_hand = oracles._verdicts(renamed[0], renamed[1:])
    for judge, verdicts in swapped.items():
        np.testing.assert_array_equal(verdicts, by_hand[judge])


def test_rates_of_a_whole_pool_are_those_counted_by_hand():
    made = looks()
    settings = {"drawn": 200, "repetitions": 2}
    cells = oracles._rates("tpr")(made, settings).cells
    first, *others = made
    wrong = first["predictions"] != first["labels"]
    alarms = oracles._verdicts(first, others)["icos_fine"] == 1
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


def digits(n, seed=0, soft=False):
    rng = np.random.default_rng(seed)
    return ImageSet.from_arrays(
        rng.random((n, 1, 28, 28), dtype=np.float32),
        np.arange(n) % 10,
        class_names=[str(digit) for digit in range(10)],
        soft_labels=rng.dirichlet(np.ones(10), n) if soft else None,
        layout="NCHW",
    )


def test_classifiers_learn_the_labels_that_are_asked_for():
    nominal, extra = digits(20), digits(10, seed=1, soft=True)
    pixels = np.concatenate([nominal.materialise(), extra.materialise()])
    hard = np.concatenate([nominal.labels, extra.labels])
    labels = {False: hard, True: np.concatenate([np.eye(10)[nominal.labels], extra.soft_labels])}
    for soft, expected in labels.items():
        found = train_classifiers(nominal, "simple_cnn", extra, members=1, epochs=1, seed=3, soft=soft)[0]
        by_hand = train_fleet(
            lambda seed: zoo.make("simple_cnn", seed=seed), 1, pixels, expected, epochs=1, batch_size=128, seed=3
        )[0]
        for one, other in zip(found.parameters(), by_hand.parameters(), strict=True):
            torch.testing.assert_close(one, other)


def observation(n, seed, spread):
    logits = np.random.default_rng(seed).normal(0, spread, (n, 4))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return Observation(probabilities, logits)


def test_supervisors_are_scored_against_nominal_images_and_fitted_once():
    learnt, labels = observation(50, 0, 3), np.zeros(50, np.int64)
    seen = {"nominal": observation(40, 1, 3), "odd": observation(30, 2, 1)}
    fits = []

    class Offset(type(make("entropy"))):
        """Entropy that must be fitted, and says how often it was."""

        requires_fit = True

        def _fit(self, observation, labels):
            fits.append(len(labels))
            self.size_ = len(observation)

    panel = [Offset(), make("max_softmax")]
    for _ in range(2):
        found = list(score_each(panel, learnt, seen, labels))
    assert fits == [50], "who is fitted stays so"
    assert [one.supervisor for one in found] == panel
    truth = np.repeat([0, 1], (40, 30))
    for one in found:
        scores = np.concatenate([one.supervisor.score(seen[key]) for key in ("nominal", "odd")])
        assert one.aurocs == {"odd": pytest.approx(roc_auc_score(truth, scores))}
        assert min(one.fit_seconds, one.score_seconds) >= 0


def test_supervisors_get_what_they_have_a_parameter_for():
    ensemble, entropy = make_all(["ensemble_ms", "entropy"])
    made = configured(ensemble, {"ensemble_ms": {"members": 3}}, "lenet", 7)
    assert (made.members, made.architecture, made.seed) == (3, "lenet", 7)
    assert configured(entropy, {"ensemble_ms": {"members": 3}}, "lenet", 7).params() == entropy.params()


def test_invalid_images_take_the_shape_of_the_nominal_ones():
    colour = ImageSet.from_arrays(
        np.random.default_rng(0).random((6, 3, 32, 32), dtype=np.float32), np.zeros(6, int), class_names=["cat"],
        layout="NCHW",
    )  # fmt: skip
    sets = fixed_sets(digits(30), colour, "mnist_c")
    assert {key: (len(images), images.shape) for key, images in sets.items()} == {
        "nominal": (30, (1, 28, 28)),
        "corrupted": (30, (1, 28, 28)),
        "invalid": (6, (1, 28, 28)),
    }


def test_splits_of_the_oracles_share_no_image_and_leave_none_out():
    data = Dataset("digits", digits(70), digits(30, seed=1))
    whole = joined(data.train, data.test).materialise().reshape(100, -1)
    parts = split(data, 40, 20)
    assert [len(part) for part in parts] == [40, 20, 40]
    found = np.concatenate([part.materialise().reshape(len(part), -1) for part in parts])
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.sort(whole[:, 0]))
