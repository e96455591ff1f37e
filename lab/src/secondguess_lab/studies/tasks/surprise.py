"""Surprise adequacy on re-trained models: Tables 1 and 2, Figures 3 and 4 of Weiss, Chakraborty and Tonella (2021).

The paper's network is trained on the first nine tenths of the training images; DSA and LSA look at its last but one
layer (ten linear units) and learn from all of them. AUROC of nominal test images against FGSM with epsilon .5, every
image one step along the sign of the gradient whether that fools the model or not, and against the MNIST-C mix.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from secondguess import zoo
from secondguess.devices import pick_device
from secondguess.engine import TaskData
from secondguess.images import Dataset, ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.stress import Corrupted
from secondguess.supervisors import Supervisor
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.training import Fleet, train_fleet
from secondguess_lab.studies.tasks.opening import opened, training_images
from secondguess_lab.studies.tasks.supervisors import Scored, score_each

__all__ = [
    "bandwidth_variants",
    "corrupted_images",
    "detect",
    "fgsm",
    "measure",
    "paper_variants",
    "sampled_variants",
    "time_scoring",
    "train_models",
]

EPSILON = 0.5
HELD_OUT = 0.1  # of the training images, the last ones
BLOCK = 1000
NEEDS = Needs(traces=frozenset({Trace()}))
KINDS: Mapping[str, type[Supervisor]] = {"dsa": DSA, "lsa": LSA}
SAMPLERS = ("uniform", "stratified", "unsurprising_first", "epsilon_free")

Variant = Mapping[str, Any]


def detect(*, data: TaskData, models: int, epochs: int, variants: Sequence[Variant], seed: int) -> dict[str, Any]:
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
        accuracy, found = measure(model, opened(data), _corrupted(data), variants)
        about = {"model": [seed, number], "accuracy": accuracy}
        rows += [about | {"method": method} | one.aurocs for method, one in found]
    return {"rows": rows}


def measure(
    model: torch.nn.Module, data: Dataset, corrupted: ImageSet, variants: Sequence[Variant]
) -> tuple[float, Iterator[tuple[str, Scored]]]:
    """The accuracy of a model, and for each variant its name with AUROC against `adversarial` and `corrupted` images.

    Args:
        model: trained.
        data: the nominal images.
        corrupted: made by `corrupted_images`.
        variants: see `detect`.
    """
    classifier = Classifier(model, batch_size=BLOCK)
    learnt = classifier.observe(training_images(data), NEEDS)
    sets = {"nominal": data.test, "adversarial": fgsm(model, data.test), "corrupted": corrupted}
    seen = {key: classifier.observe(images, NEEDS) for key, images in sets.items()}
    accuracy = float((seen["nominal"].predictions == data.test.labels).mean())
    panel = (KINDS[variant["kind"]](**variant.get("params", {})) for variant in variants)
    methods = [variant["method"] for variant in variants]
    return accuracy, zip(methods, score_each(panel, learnt, seen), strict=True)


def paper_variants() -> list[Variant]:
    """DSA and LSA as they are."""
    return [{"method": kind, "kind": kind} for kind in KINDS]


def sampled_variants(shares: Sequence[float]) -> list[Variant]:
    """DSA with shares of the training traces, by each sampling strategy, and LSA with uniform ones."""
    dsa = [
        {"method": f"dsa, {sampler} {share:.2f}", "kind": "dsa", "params": {"sampler": sampler, "subsampling": share}}
        for sampler in SAMPLERS
        for share in shares
    ]
    lsa = [{"method": f"lsa, uniform {share:.2f}", "kind": "lsa", "params": {"subsampling": share}} for share in shares]
    return [*dsa, *lsa]


def bandwidth_variants(bandwidths: Sequence[float | str]) -> list[Variant]:
    """LSA with bandwidths: rules by name, or numbers."""
    return [
        {"method": f"lsa, bandwidth {bandwidth}", "kind": "lsa", "params": {"bandwidth": bandwidth}}
        for bandwidth in bandwidths
    ]


def time_scoring(*, data: TaskData, epochs: int, repeats: int, seed: int) -> dict[str, Any]:
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


def train_models(images: ImageSet, count: int, *, epochs: int, seed: int) -> Fleet:
    """Re-trained models of the paper's network, on all training images but the last tenth."""
    fitted = slice(0, round((1 - HELD_OUT) * len(images)))
    classes = len(images.class_names)
    return train_fleet(
        lambda member: zoo.make("surprise_cnn", num_classes=classes, seed=member),
        count,
        images.images[fitted],
        images.labels[fitted],
        epochs=epochs,
        batch_size=128,
        lr=1e-3,
        seed=seed,
    )


def corrupted_images(images: ImageSet) -> ImageSet:
    """The MNIST-C mix of test images."""
    return Corrupted(mix="mnist_c").make(images, seed=0)


@lru_cache(maxsize=2)
def _models(data: TaskData, models: int, epochs: int, seed: int) -> Fleet:
    return train_models(training_images(opened(data)), models, epochs=epochs, seed=seed)


@lru_cache(maxsize=2)
def _corrupted(data: TaskData) -> ImageSet:
    return corrupted_images(opened(data).test)


def _seconds(kind: type[Supervisor], learnt: Observation, seen: Observation) -> float:
    supervisor = kind().fit(learnt)
    began = time.perf_counter()
    supervisor.score(seen)
    return time.perf_counter() - began
