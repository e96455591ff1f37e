"""The experiment of "A review and refinement of Surprise Adequacy" (Weiss, Chakraborty, Tonella, 2021) on MNIST.

    python results/surprise/make.py mnist.npz --out results/surprise/mnist.json

Re-trained models of the paper's network; DSA and LSA on its last but one layer (ten linear units), AUROC of nominal
test images against FGSM (epsilon .5) and against the MNIST-C mix; then DSA on a part of the training traces, by each of
the sampling strategies, and LSA for several bandwidths.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from secondguess import load
from secondguess._versions import versions
from secondguess.supervisors.surprise.dsa import DSA
from secondguess_lab.studies import get
from secondguess_lab.studies.papers.surprise import RECORDED
from secondguess_lab.studies.tasks.surprise import (
    bandwidth_variants,
    corrupted_images,
    measure,
    paper_variants,
    sampled_variants,
    train_models,
)

SHARES = sorted(get("surprise-figure3").scale["shares"])
BANDWIDTHS = [one for one in get("surprise-figure4").scale["bandwidths"] if one != "scott"]  # which is the default
SWEEPS = [*sampled_variants(SHARES), *bandwidth_variants(BANDWIDTHS)]


def rows_of(number, model, data, corrupted, *, full):
    """The rows of one model: the paper's two methods, and for the first models the sweeps."""
    accuracy, found = measure(model, data, corrupted, paper_variants() + (SWEEPS if full else []))
    for method, one in found:
        row = {"model": number, "accuracy": accuracy, "method": method, "seconds": one.fit_seconds + one.score_seconds}
        row |= {key: one.aurocs[name] for name, key in RECORDED.items()}
        if isinstance(one.supervisor, DSA):
            row["kept"] = len(one.supervisor.order_)
        sys.stdout.write(f"{row}\n")
        yield row


def main():
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--swept", type=int, default=2, help="models for which all variants are measured")
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    data = load(arguments.data)
    began = time.perf_counter()
    fleet = train_models(data.train, arguments.models, epochs=arguments.epochs, seed=0)
    trained = time.perf_counter() - began
    corrupted = corrupted_images(data.test)
    rows = []
    for number, model in enumerate(fleet):
        rows += rows_of(number, model, data, corrupted, full=number < arguments.swept)
        record = {
            "script": "results/surprise/make.py",
            "settings": {"models": arguments.models, "swept": arguments.swept, "epochs": arguments.epochs},
            "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "versions": versions(),
            "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
            "training_seconds": trained,
            "mean": {name: summary(rows, name) for name in dict.fromkeys(row["method"] for row in rows)},
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


def summary(rows, name):
    """Mean and standard deviation over the models, and how many there were."""
    mine = [row for row in rows if row["method"] == name]
    result = {"models": len(mine)}
    for key in RECORDED.values():
        values = np.array([row[key] for row in mine])
        result[key] = {"mean": float(values.mean()), "std": float(values.std(ddof=1)) if len(mine) > 1 else None}
    return result


if __name__ == "__main__":
    main()
