"""Surprise adequacy on re-trained models: Tables 1 and 2, Figures 3 and 4 of Weiss, Chakraborty and Tonella (2021).

The paper's network is trained on the first nine tenths of the training images; DSA and LSA look at its last but one
layer (ten linear units) and learn from all of them. AUROC of nominal test images against FGSM with epsilon .5, every
image one step along the sign of the gradient whether that fools the model or not, and against the MNIST-C mix.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from secondguess import zoo
from secondguess._device import pick_device
from secondguess.classifier import Classifier
from secondguess.data import ImageSet
from secondguess.engine import Source
from secondguess.metrics import auroc
from secondguess.observation import Needs, Observation, Trace
from secondguess.stress import Corrupted
from secondguess.studies.tasks.opening import opened, training_images
from secondguess.supervisors import Supervisor
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.training import Fleet, train_fleet

__all__ = ["detect", "fgsm", "time_scoring"]

EPSILON = 0.5
HELD_OUT = 0.1  # of the training images, the last ones
BLOCK = 1000
NEEDS = Needs(traces=frozenset({Trace()}))
KINDS: Mapping[str, type[Supervisor]] = {"dsa": DSA, "lsa": LSA}


def detect(
    *, data: Source, models: int, epochs: int, variants: Sequence[Mapping[str, Any]], seed: int
) -> dict[str, Any]:
    """One row for every model and variant.

    Args:
        data: the nominal images.
        models: how many are trained together.
        epochs: of each.
        variants: what is compared: `method` names it, `kind` is "dsa" or "lsa", and `params` are its parameters.
        seed: of the models.
    """
    rows = []
    for number, model in enumerate(_models(data, models, epochs, seed)):
        classifier = Classifier(model, batch_size=BLOCK)
        learnt = classifier.observe(training_images(opened(data)), NEEDS)
        seen = {key: classifier.observe(images, NEEDS) for key, images in _sets(data, model).items()}
        accuracy = float((seen["nominal"].predictions == opened(data).test.labels).mean())
        for variant in variants:
            supervisor = KINDS[variant["kind"]](**variant.get("params", {}))
            supervisor.fit(learnt)
            scores = {key: supervisor.score(observation) for key, observation in seen.items()}
            nominal = scores.pop("nominal")
            row = {"model": [seed, number], "accuracy": accuracy, "method": variant["method"]}
            rows.append(row | {key: auroc(nominal, one) for key, one in scores.items()})
    return {"rows": rows}


def time_scoring(*, data: Source, epochs: int, repeats: int, seed: int) -> dict[str, Any]:
    """Seconds for scoring the nominal test images, fitting excluded, the best of some; on one thread and on all.

    Args:
        data: the nominal images.
        epochs: of the model.
        repeats: of each measurement, each after a fresh fit.
        seed: of the model.
    """
    classifier = Classifier(_models(data, 1, epochs, seed)[0], batch_size=BLOCK)
    learnt, seen = (classifier.observe(one, NEEDS) for one in (training_images(opened(data)), opened(data).test))
    threads = torch.get_num_threads()
    rows = []
    for name, kind in KINDS.items():
        for count in sorted({1, threads}):
            torch.set_num_threads(count)
            try:
                seconds = min(_seconds(kind, learnt, seen) for _ in range(repeats))
            finally:
                torch.set_num_threads(threads)
            rows.append({"method": name, "threads": count, "all": count == threads, "seconds": seconds})
    return {"rows": rows, "images": len(seen), "traces": len(learnt)}


def fgsm(model: torch.nn.Module, images: ImageSet, epsilon: float = EPSILON) -> ImageSet:
    """Every image one step of `epsilon` along the sign of the loss's gradient, clipped to [0, 1]."""
    device = pick_device("auto")
    model, changed = model.to(device).eval(), []
    for start in range(0, len(images), BLOCK):
        pixels = torch.from_numpy(images.images[start : start + BLOCK]).to(device).requires_grad_()
        labels = torch.from_numpy(images.labels[start : start + BLOCK]).to(device)
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(pixels), labels), pixels)
        changed.append((pixels + epsilon * gradient.sign()).clamp(0, 1).detach().cpu().numpy())
    return ImageSet.from_arrays(np.concatenate(changed), images.labels, class_names=images.class_names, layout="NCHW")


@lru_cache(maxsize=2)
def _models(data: Source, models: int, epochs: int, seed: int) -> Fleet:
    images = training_images(opened(data))
    fitted = slice(0, round((1 - HELD_OUT) * len(images)))
    classes = len(images.class_names)
    return train_fleet(
        lambda member: zoo.make("surprise_cnn", num_classes=classes, seed=member),
        models,
        images.images[fitted],
        images.labels[fitted],
        epochs=epochs,
        batch_size=128,
        lr=1e-3,
        seed=seed,
    )


@lru_cache(maxsize=2)
def _corrupted(data: Source) -> ImageSet:
    return Corrupted(mix="mnist_c").make(opened(data).test, seed=0)


def _sets(data: Source, model: torch.nn.Module) -> dict[str, ImageSet]:
    test = opened(data).test
    return {"nominal": test, "adversarial": fgsm(model, test), "corrupted": _corrupted(data)}


def _seconds(kind: type[Supervisor], learnt: Observation, seen: Observation) -> float:
    supervisor = kind().fit(learnt)
    began = time.perf_counter()
    supervisor.score(seen)
    return time.perf_counter() - began
