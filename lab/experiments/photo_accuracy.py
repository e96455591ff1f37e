"""Accuracy without labels: is the recommended number right, is it given, does its interval cover?

    python photo_accuracy.py cifar10/resnet20/onnx.toml --validation held_out.npz --test cifar10.npz --out accuracy.json
    python photo_accuracy.py mnist5k --out accuracy.json        # digits: embedded images, a small network trained here

Test images as they are, under the fifteen corruptions that `Corrupted` applies to such images at severities 1, 3 and 5,
with other class frequencies (drawn from a flat Dirichlet distribution, or falling from 1 to .05 over the classes in
random order), and with both. The truth is the accuracy on these very images. The recommended estimator has learnt from
other kinds of shift of the validation images (`accuracy.learnt_shifts`): no kind that is tested here. Rivals are
fitted on the same validation images and see the same sets. Every call adds a model to the record, with its own command
and settings.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from secondguess import Classifier, ImageSet, load
from secondguess.accuracy import ShiftedCopies, SyntheticShifts, learnt_shifts, make, recommend
from secondguess.model.observation import Observation
from secondguess.stress.corruptions import COLOUR, MNIST_C, corrupt
from secondguess_lab.record import provenance, say, write
from secondguess_lab.rivals.accuracy import ConfidenceBased, OptimalTransport
from secondguess_lab.studies.tables import Cell, Table

WAYS = ("none", "classes", "appearance", "both")
RIVALS = (
    "validation_accuracy", "average_confidence", "difference_of_confidences", "thresholded_confidence",
    "thresholded_confidence:entropy", "nuclear_norm", "label_shift:em", "label_shift:bbse",
)  # fmt: skip
SEVERITIES = (1, 3, 5)
TITLE = "Accuracy without labels: points off, share of cases with a number, share of intervals that cover"


def subject(given: argparse.Namespace) -> tuple[Classifier, ImageSet, ImageSet]:
    """The model, images it was not trained on, and those to test on."""
    if given.model != "mnist5k":
        classifier = Classifier.open(given.model)
        validation, test = (load(path, **classifier.loading).test for path in (given.validation, given.test))
        if given.validation == given.test:
            validation, test = test.split(0.5, seed=0)
        return classifier, validation.head(given.images, seed=0), test.head(given.pool, seed=1)
    from sklearn.neural_network import MLPClassifier

    data = load("mnist5k")
    flat = data.train.materialise().reshape(len(data.train), -1)
    fitted = MLPClassifier((64,), max_iter=40, random_state=0).fit(flat, data.train.labels)
    validation, test = data.test.split(0.5, seed=0)
    return Classifier(lambda images: fitted.predict_proba(images.reshape(len(images), -1))), validation, test


def frequencies(number: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Class frequencies: from a Dirichlet distribution, or a long tail, in turns."""
    if number % 2:
        return rng.dirichlet(np.ones(classes))
    tail = 0.05 ** (np.arange(classes) / (classes - 1))
    return rng.permutation(tail / tail.sum())


def drawn(seen: Observation, wanted: np.ndarray, size: int, rng: np.random.Generator) -> Observation:
    """Images with these class frequencies, with replacement."""
    labels = seen.require_labels("Drawing")
    weights = (wanted / np.maximum(np.bincount(labels, minlength=len(wanted)), 1))[labels]
    return seen.take(rng.choice(len(labels), size=size, p=weights / weights.sum()))


def cases(classifier: Classifier, test: ImageSet, size: int) -> Iterator[tuple[str, str, Observation]]:
    """Way, name and observation of every set."""
    rng, classes = np.random.default_rng(0), len(test.class_names)
    nominal = classifier.observe(test)
    for number in range(5):
        yield "none", f"draw {number}", nominal.take(rng.permutation(len(test))[:size])
    for number in range(20):
        yield "classes", f"draw {number}", drawn(nominal, frequencies(number, classes, rng), size, rng)
    pixels = test.materialise()
    for number, kind in enumerate(MNIST_C if test.shape[0] == 1 else COLOUR):
        for severity in SEVERITIES:
            rows = rng.permutation(len(test))[:size]
            made = corrupt(pixels[rows], kind, severity=severity, seed=severity)
            images = ImageSet.from_arrays(made, test.labels[rows], class_names=test.class_names, layout="NCHW")
            seen = classifier.observe(images)
            yield "appearance", f"{kind} {severity}", seen
            yield "both", f"{kind} {severity}", drawn(seen, frequencies(number + severity, classes, rng), size, rng)


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Every case with what everybody says of it."""
    classifier, validation, test = subject(given)
    known = classifier.observe(validation)
    began = time.perf_counter()
    copies = ShiftedCopies.observe(classifier, validation)
    leading = SyntheticShifts().fit(known, None, copies)
    seconds = time.perf_counter() - began
    rivals = [one.fit(known) for one in (*(make(name, resamples=1) for name in RIVALS), *others())]
    found = []
    for way, name, seen in cases(classifier, test, given.size):
        estimate = leading.estimate(seen)
        answer = recommend({leading.name: estimate})
        found.append(
            {
                "way": way,
                "set": name,
                "truth": float(seen.correct.mean()),
                "value": answer.value,
                "low": answer.low,
                "high": answer.high,
                "withheld": answer.withheld,
                "outside": bool(estimate.withheld),
                "looks": leading.shift(seen, estimate).to_dict(),
                "rivals": {one.name: one.estimate(seen).value for one in rivals},
            }
        )
        say(f"{way:<10} {name:<22} {found[-1]['truth']:.3f} {answer.value:.3f} {answer.low:.3f} {answer.high:.3f}")
    about = {"validation": len(validation), "accuracy": float(known.correct.mean()), "fit_seconds": seconds}
    return about | {"shifts": len(learnt_shifts(test.shape[0])), "copies": len(copies.images), "cases": found}


def others() -> list[Any]:
    """The rivals that the product does not have."""
    return [ConfidenceBased(resamples=1), OptimalTransport(resamples=1)]


def summed_up(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors in points, coverage, and how often there is a number."""
    off = np.array([one["value"] - one["truth"] for one in found])
    given = np.array([not one["withheld"] for one in found])
    covers = np.array([one["low"] <= one["truth"] <= one["high"] for one in found])
    rivals = {
        name: float(100 * np.mean([abs(one["rivals"][name] - one["truth"]) for one in found]))
        for name in found[0]["rivals"]
    }
    return {
        "cases": len(found),
        "given": float(given.mean()),
        "error": float(100 * np.abs(off[given]).mean()) if given.any() else None,
        "error_all": float(100 * np.abs(off).mean()),
        "covered": float(covers[given].mean()) if given.any() else None,
        "covered_all": float(covers.mean()),
        "widest": {f"{width:.2f}": _within(found, width) for width in (0.2, 0.25, 0.3, 0.35, 0.4)},
        "recognised": {way: sum(one["looks"]["way"] == way for one in found) for way in WAYS},
        "rivals": rivals,
    }


def _within(found: list[dict[str, Any]], widest: float) -> dict[str, float | None]:
    """What there would be with another limit on the width of intervals."""
    given = [one for one in found if not one["outside"] and one["high"] - one["low"] <= widest]
    return {
        "given": len(given) / len(found),
        "error": float(100 * np.mean([abs(one["value"] - one["truth"]) for one in given])) if given else None,
        "covered": float(np.mean([one["low"] <= one["truth"] <= one["high"] for one in given])) if given else None,
    }


def table(models: dict[str, Any]) -> Table:
    """The summaries as cells: a row for each model and kind of change."""
    cells = {}
    for name, model in models.items():
        for way, found in model["summary"].items():
            row = f"{name}, {way}"
            columns = {key: found[key] for key in ("error", "given", "covered", "error_all", "covered_all")}
            columns |= found["rivals"]
            cells |= {(row, key): Cell(value, n=found["cases"]) for key, value in columns.items() if value is not None}
    return Table(cells)


def main() -> None:
    """Add a model to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="anything that Classifier.open takes, or mnist5k")
    parser.add_argument("--name", help="of the model in the record")
    parser.add_argument("--validation", help="labelled images the model has not seen")
    parser.add_argument("--test", help="labelled images; where they are those of --validation, each gets one half")
    parser.add_argument("--images", type=int, default=2000, help="validation images")
    parser.add_argument("--pool", type=int, default=2000, help="test images to draw from")
    parser.add_argument("--size", type=int, default=500, help="images of a set")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    kept = json.loads(given.out.read_text("utf-8")) if given.out.is_file() else {"models": {}}
    found = measured(given)
    groups = {way: [one for one in found["cases"] if one["way"] == way] for way in WAYS}
    shifted = [one for one in found["cases"] if one["way"] != "none"]
    found["summary"] = {way: summed_up(some) for way, some in groups.items()} | {"shifted": summed_up(shifted)}
    settings = {**vars(given), **{key: Path(getattr(given, key) or "") for key in ("model", "validation", "test")}}
    head = provenance(settings)
    models = kept["models"] | {given.name or given.model: head | found}
    write(given.out, head | {"title": TITLE, "cells": table(models).tidy(), "models": models})
    say(json.dumps({way: {**one, "rivals": None} for way, one in found["summary"].items()}, indent=1))


if __name__ == "__main__":
    main()
