"""How far does adversarial distance lift the pool that its authors released? Needs no model and takes seconds.

    python search_released.py adversarial_distance_2019_pool.npz --out results/search/released.json

The file holds what the authors published in 2019 beside their paper on discovery ratios (kmaurer/uuutils): for 5,058
photographs predicted *dog* the confidence, the label, the mean absolute change that an attack needed, and five
principal components; as arrays `prediction`, `confidence`, `label`, `mae` and `features`. It is not the pool of the
paper of 2020. The searches run on random parts of 2,000 of the images above .65, as in search_pools.py. `whole` has the
discovery ratios of the authors' own order, on the whole file, with the smoothers of their R code (locally quadratic)
and of their Python code (locally linear, robust); `golden` is that of the former after 100 queries, whose own value is
3.685874.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from secondguess import ImageSet
from secondguess.model.observation import Observation
from secondguess.search import Distances, Pool, simulate
from secondguess.search.adversarial_distance import residuals
from secondguess.search.pool import MIN_CONFIDENCE
from secondguess_lab.record import provenance, write

METHODS = ("random", "low_confidence", "adversarial_distance")
REPLICATIONS, SUBSET, BUDGET, SEED, GOLDEN = 300, 2000, 50, 0, 100
SMOOTHERS = {"quadratic": {"degree": 2, "robust": False}, "linear, robust": {"degree": 1, "robust": True}}


def released(path):
    """The pool and its labels."""
    with np.load(path, allow_pickle=False) as file:
        prediction, confidence, label, mae, features = (
            file[name] for name in ("prediction", "confidence", "label", "mae", "features")
        )
    n = len(mae)
    probabilities = np.empty((n, 2))
    probabilities[np.arange(n), prediction], probabilities[np.arange(n), 1 - prediction] = confidence, 1 - confidence
    unknown = np.full(n, np.nan)
    pool = Pool(
        observation=Observation(probabilities, class_names=("cat", "dog")),
        images=ImageSet.from_arrays(np.zeros((n, 1, 1, 1), np.uint8), layout="NCHW"),
        features=features,
        eligible=confidence > MIN_CONFIDENCE,
        distances=Distances(
            mae,
            unknown,
            unknown,
            np.zeros(n, np.int64),
            np.zeros(n, bool),
            np.zeros((n, 1, 1, 1), np.float32),
            np.zeros(n, np.int64),
        ),
    )
    return pool, label.astype(np.int64)


def whole(pool, labels, smoother):
    """Discovery ratios of the authors' own order, by queries: fitted on all images, asked about above the threshold."""
    everything = Pool(
        pool.observation, pool.images, pool.features, np.ones(len(labels), dtype=bool), distances=pool.distances
    )
    order = np.argsort(residuals(everything, **smoother), kind="stable")
    found = {}
    for queries in (20, 50, GOLDEN):
        asked = order[pool.eligible[order]][:queries]
        found[queries] = float(pool.errors(labels)[asked].sum() / (1 - pool.observation.confidences[asked]).sum())
    return found


def main():
    """Simulate and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="adversarial_distance_2019_pool.npz")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    pool, labels = released(arguments.data)
    study = simulate(pool, labels, METHODS, replications=REPLICATIONS, subset=SUBSET, budget=BUDGET, seed=SEED)
    orders = {name: whole(pool, labels, smoother) for name, smoother in SMOOTHERS.items()}
    record = {
        **provenance(
            {
                "replications": REPLICATIONS,
                "subset": SUBSET,
                "budget": BUDGET,
                "seed": SEED,
                "min_confidence": MIN_CONFIDENCE,
            }
        ),
        "data": "adversarial_distance_2019_pool",
        "golden": {"queries": GOLDEN, "sdr": orders["quadratic"][GOLDEN]},
        "whole": orders,
        "study": {key: value for key, value in study.to_dict(curves=False).items() if key != "seconds"},
    }
    write(arguments.out, record)


if __name__ == "__main__":
    main()
