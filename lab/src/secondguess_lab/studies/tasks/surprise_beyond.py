"""Surprise adequacy beyond the experiment of Weiss, Chakraborty and Tonella (2021).

Their paper has one network, one layer, clean and balanced labels, and names the rest as work to do. Here MDSA stands
beside DSA and LSA, at layers of several depths, with labels that are partly wrong or classes that are partly missing
from the training images, on digits, clothes and photographs. The measure is theirs: AUROC of nominal test images
against attacked and against corrupted ones; and, beside it, of right against wrong answers to nominal images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from secondguess.engine import TaskData
from secondguess.images import ImageSet
from secondguess.metrics import auroc
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs, Trace
from secondguess.stress import Corrupted
from secondguess.stress.corrupted import Mix
from secondguess.supervisors import Supervisor
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.supervisors.surprise.mdsa import MDSA
from secondguess_lab.studies.tasks.opening import opened, training_images
from secondguess_lab.studies.tasks.surprise import KINDS, NEEDS, fgsm, train_models

__all__ = ["measure_beyond", "time_shares"]

ALL_KINDS: Mapping[str, Callable[..., Supervisor]] = {"dsa": DSA, "lsa": LSA, "mdsa": MDSA}
MIXES: Mapping[str, Mix] = {"mnist": "mnist_c", "fashion_mnist": "fashion_mnist_c"}
FLIPPED = 0.2  # of the labels, with "noisy labels"
KEPT = 0.1  # of the images of the first half of the classes, with "unbalanced classes"


def measure_beyond(
    *,
    data: TaskData,
    name: str,
    model: str,
    labels: str,
    layers: Sequence[str],
    models: int,
    epochs: int,
    train: int,
    test: int,
    epsilon: float,
    seed: int,
) -> dict[str, Any]:
    """One row for every model, layer and kind of surprise.

    Args:
        data: the nominal images.
        name: what the table calls the data.
        model: the path of a `model.toml`; "" to train networks of the paper.
        labels: what the networks learn from: "clean", "noisy labels" or "unbalanced classes".
        layers: "penultimate", or shares of the depth.
        models: how many networks are trained.
        epochs: of each.
        train: how many training images are used; 0 for all.
        test: how many test images are looked at; 0 for all.
        epsilon: of the attack, one step along the sign of the gradient.
        seed: of the networks.
    """
    whole = training_images(opened(data))
    training = _spoilt(_some(whole, train), labels, seed)
    nominal = _some(opened(data).test, test)
    corrupted = (Corrupted(mix=MIXES[name]) if name in MIXES else Corrupted()).make(nominal, seed=0)
    if model:
        classifiers = [Classifier.open(model)]
    else:
        fleet = train_models(training, models, epochs=epochs, seed=seed)
        classifiers = [Classifier(one, batch_size=1000) for one in fleet]
    traces = [Trace(layer, "mean" if layer.endswith("%") else "flatten") for layer in layers]
    needs = Needs(traces=frozenset(traces))
    rows = []
    for number, classifier in enumerate(classifiers):
        sets = {
            "nominal": nominal,
            "adversarial": fgsm(classifier.differentiable(), nominal, epsilon),
            "corrupted": corrupted,
        }
        learnt = classifier.observe(training, needs)
        seen = {key: classifier.observe(images, needs) for key, images in sets.items()}
        wrong = seen["nominal"].predictions != nominal.labels
        for layer, trace in zip(layers, traces, strict=True):
            for kind, make in ALL_KINDS.items():
                judge = make(layers=trace).fit(learnt)
                scores = {key: judge.score(one) for key, one in seen.items()}
                found = {key: auroc(scores["nominal"], scores[key]) for key in ("adversarial", "corrupted")}
                if wrong.any() and not wrong.all():
                    found["mistakes"] = auroc(scores["nominal"][~wrong], scores["nominal"][wrong])
                found["accuracy"] = float(1 - wrong.mean())
                about = {"data": name, "labels": labels, "model": [seed, number], "layer": layer, "kind": kind}
                rows.append({**about, **found})
    return {"rows": rows}


def time_shares(
    *, data: TaskData, epochs: int, train: int, shares: Sequence[float], repeats: int, seed: int
) -> dict[str, Any]:
    """Seconds of one core for scoring the test images with shares of the training traces, fitting excluded.

    Processor time, which other work on the machine does not prolong.

    Args:
        data: the nominal images.
        epochs: of the model.
        train: how many images it is trained on; all of them give traces.
        shares: of the traces.
        repeats: of each measurement, each after a fresh fit; the best counts.
        seed: of the model and of the shares.
    """
    whole = training_images(opened(data))
    model = train_models(_some(whole, train), 1, epochs=epochs, seed=seed)[0]
    classifier = Classifier(model, batch_size=1000)
    learnt, seen = (classifier.observe(one, NEEDS) for one in (whole, opened(data).test))
    threads, rows = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for kind in KINDS:
            for share in shares:
                taken = []
                for _ in range(repeats):
                    judge = ALL_KINDS[kind](subsampling=share).fit(learnt)
                    began = time.process_time()
                    judge.score(seen)
                    taken.append(time.process_time() - began)
                rows.append({"method": kind, "share": share, "seconds": min(taken)})
    finally:
        torch.set_num_threads(threads)
    return {"rows": rows, "images": len(seen), "traces": len(learnt)}


def _spoilt(images: ImageSet, how: str, seed: int) -> ImageSet:
    """Training images whose labels are partly wrong, or whose classes are partly rare."""
    rng, classes = np.random.default_rng([seed, 4]), len(images.class_names)
    if how == "unbalanced classes":
        rare = images.labels < classes // 2
        return images.take(np.flatnonzero(~rare | (rng.random(len(images)) < KEPT)))
    if how == "noisy labels":
        flipped = rng.random(len(images)) < FLIPPED
        others = (images.labels + rng.integers(1, classes, len(images))) % classes
        labels = np.where(flipped, others, images.labels)
        return ImageSet.from_arrays(images.materialise(), labels, class_names=images.class_names, layout="NCHW")
    return images


def _some(images: ImageSet, count: int) -> ImageSet:
    return images.head(count, seed=0) if 0 < count < len(images) else images
