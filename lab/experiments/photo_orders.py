"""Orders of images and decision boundaries on photographs, with ambiguous ones among them.

    python photo_scores.py cifar10.npz --model resnet20/model.toml --ambiguous images.npz --kept kept
    python photo_orders.py cifar10.npz --kept kept --models cifar10_resnet20 --ambiguous images.npz --out photos

Sections 4.2 and 4.3 of Weiss, Garcia Gomez and Tonella (2023), as in the studies `ambiguity-orders` and
`ambiguity-boundary`, from the scores that `photo_scores.py` has kept: of test images, and of ambiguous photographs with
soft labels, whose generator saw none of the models. Writes `orders.json` and `boundary.json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.metrics import avoidable_faults, best_apfd, fault_chances, frontier, pair_boundaries
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies import Table, get
from secondguess_lab.studies.tasks.ambiguous_orders import boundary_rows, order_row

NOMINAL, AMBIGUOUS = "judge/nominal/made", "judge/ambiguous/flow"


def nominal_labels(data, count):
    """The labels of the test images that `photo_scores.py` draws."""
    return data.test.labels[np.random.default_rng(0).permutation(len(data.test))[:count]]


def main():
    """All models, one record for each section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--ambiguous", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, ambiguous = load(arguments.data), load(arguments.ambiguous).test
    soft, orders, boundaries = ambiguous.soft_labels, [], []
    for name in arguments.models:
        with np.load(arguments.kept / f"{name}.npz") as kept:
            seen = {part: kept[f"{part}/probabilities"] for part in (NOMINAL, AMBIGUOUS)}
            scores = np.concatenate([kept[f"{part}/scores"] for part in (NOMINAL, AMBIGUOUS)])
            supervisors, wrong = kept["labels"].tolist(), kept[f"{NOMINAL}/wrong"]
        labels = nominal_labels(data, len(wrong))
        assert (wrong == (seen[NOMINAL].argmax(axis=1) != labels)).all(), "these are other test images"
        answers = seen[AMBIGUOUS].argmax(axis=1)
        chances = np.r_[wrong.astype(float), fault_chances(answers, soft)]
        avoidable = np.r_[wrong, avoidable_faults(answers, soft)]
        about = {"data": name, "run": 0}
        rows = [
            about | {"supervisor": one} | order_row(scores[:, place], wrong, chances, avoidable)
            for place, one in enumerate(supervisors)
        ]
        best = {"nominal": best_apfd(wrong), "testing": best_apfd(chances), "learning": best_apfd(avoidable)}
        orders.append({"rows": [*rows, about | {"supervisor": "(best order)"} | best]})
        guessed = np.concatenate([seen[NOMINAL], seen[AMBIGUOUS]])
        truth = np.concatenate([np.eye(len(data.test.class_names))[labels], soft])
        found = boundary_rows(frontier(guessed, truth), pair_boundaries(guessed, truth), data.test.class_names)
        boundaries.append(about | found)
        say(f"{name}: {wrong.sum()} of {len(wrong)} wrong, {len(soft)} ambiguous images")
    head = {"models": arguments.models, "images": len(wrong), "ambiguous": len(soft)}
    for file, title, study, results in (
        ("orders", "Orders of photographs, with ambiguous ones among them", "ambiguity-orders", orders),
        ("boundary", "Decision boundaries between photographs", "ambiguity-boundary", boundaries),
    ):
        table: Table = get(study).tabulate(results, {})
        write(arguments.out / f"{file}.json", provenance(head, data) | {"title": title, "cells": table.tidy()})
        say(table.text())


if __name__ == "__main__":
    main()
