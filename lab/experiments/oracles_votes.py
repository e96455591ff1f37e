"""Cross-referencing of the paper's networks L, M and N, from predictions that were published for CIFAR-100.

    python oracles_votes.py cifar100_predictions_LMN.npz --out results/oracles/votes.json

The file has `predicted_X` (n,) and `right_X` (n,) of each network on the 15,000 operational images; 3,000 are drawn 30
times, as in the paper. Nothing is trained, so that differences from the paper come from the draws alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from secondguess.accuracy.oracles.cross_reference import majority
from secondguess.metrics.verdict_confusion import verdict_confusion
from secondguess_lab.record import provenance, say, write

NETWORKS = ("L", "M", "N")
CLASSES = 100


def main():
    """Judge, draw and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--drawn", type=int, default=3000)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with np.load(arguments.predictions, allow_pickle=False) as file:
        predicted = {name: file[f"predicted_{name}"].astype(np.int64) for name in NETWORKS}
        right = {name: file[f"right_{name}"] for name in NETWORKS}
    winner = majority(np.stack(list(predicted.values()), axis=1), CLASSES)
    detection = {}
    for name in NETWORKS:
        verdicts = np.where(winner < 0, -1, winner != predicted[name])
        draws = []
        for repetition in range(arguments.repetitions):
            rows = np.random.default_rng([0, repetition]).choice(len(winner), arguments.drawn, replace=False)
            draws.append((verdict_confusion(verdicts[rows], right[name][rows]), float(right[name][rows].mean())))
        detection[name] = {
            **{rate: float(np.mean([getattr(found, rate) for found, _ in draws])) for rate in ("tpr", "fpr", "f1")},
            "offset": float(np.mean([abs(found.estimated_accuracy - truth) for found, truth in draws])),
            "undecided": float((winner < 0).mean()),
            "accuracy": float(right[name].mean()),
        }
        say(f"{name}: {detection[name]}")
    write(arguments.out, provenance(vars(arguments)) | {"detection": detection, "all_images": counts(predicted, right)})


def counts(predicted, right):
    """The votes over all images, of which nothing is drawn: whole numbers that anybody can count again."""
    winner = majority(np.stack(list(predicted.values()), axis=1), CLASSES)
    found = {
        name: verdict_confusion(np.where(winner < 0, -1, winner != predicted[name]), right[name]) for name in predicted
    }
    return {"images": len(winner), "undecided": int((winner < 0).sum())} | {
        name: one.to_dict() for name, one in found.items()
    }


if __name__ == "__main__":
    main()
