"""Why does adversarial distance find confident errors, or not? An account of pools that search_pools.py kept.

    python search_pools.py cats_dogs_25k_64_webp.npz --keep kept/cats_dogs --out cats_dogs.json
    python search_account.py cats_dogs_25k_64_webp.npz --kept kept/cats_dogs --out account.json

For each pool and critical class: how well does each score tell errors from right answers among images of the *same*
confidence (AUROC within ten bins of confidence, averaged by pairs; .5 = not at all)? The scores are the residual of
adversarial distance by both attacks, the raw distance, what supervisors say, and, where the model was kept, how dark an
image is: the blind spot that was planted is dark cats.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from scipy.stats import spearmanr
from search_pools import cats_and_dogs, kept

from secondguess import Classifier, zoo
from secondguess.metrics import auroc
from secondguess.search.adversarial_distance import residuals
from secondguess_lab.record import provenance, write

BINS = 10
TOLERANCE = 0.005  # between the probabilities of two machines


def within(score, errors, confidence):
    """AUROC of errors against right answers of like confidence: mean over bins, weighted by pairs in a bin."""
    order = np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
    bins = order * BINS // len(order)
    values, weights = [], []
    for each in range(BINS):
        mine = (bins == each) & np.isfinite(score)
        wrong, right = score[mine & errors], score[mine & ~errors]
        if len(wrong) and len(right):
            values.append(auroc(right, wrong))
            weights.append(len(wrong) * len(right))
    return float(np.average(values, weights=weights))


def darkness(model, test, pool, labels):
    """How dark each image of the pool is. A pool has the test images above the threshold, in their order.

    Another machine may put an image on the other side of the threshold, so the pool's images are looked for one after
    the other, by label and probabilities.
    """
    ours = Classifier(model, class_names=test.class_names, batch_size=500).observe(test).probabilities
    theirs, places, place = pool.observation.probabilities, [], 0
    for wanted, label in zip(theirs, labels, strict=True):
        while test.labels[place] != label or abs(ours[place] - wanted).max() > TOLERANCE:
            place += 1
            if place == len(ours):
                raise SystemExit("These weights do not give this pool.")
        places.append(place)
        place += 1
    return -test.columns["luma"][places]


def account(pool, labels, gradient, critical, dark):
    """The row of one pool and critical class."""
    mine = pool.predictions == pool.observation.class_names.index(critical)
    pool = replace(pool, eligible=pool.eligible & mine)
    errors, confidence = pool.errors(labels), pool.observation.confidences
    by_gradient = replace(pool, distances=gradient)
    scores = {
        "residual": -residuals(pool),
        "residual, gradient": -residuals(by_gradient),
        "distance": -pool.distances.mae,
        "confidence": -confidence,
        **pool.scores,
    }
    if dark is not None:
        scores["darkness"] = dark
    row = {
        "critical": critical,
        "images": int(mine.sum()),
        "errors": int(errors[mine].sum()),
        "auroc": {name: within(score[mine], errors[mine], confidence[mine]) for name, score in scores.items()},
    }
    if dark is not None:
        usable = mine & np.isfinite(scores["residual"])
        row["darkness"] = {
            "of_errors": float(dark[mine & errors].mean()),
            "of_right": float(dark[mine & ~errors].mean()),
            "spearman_with_residual": float(spearmanr(dark[usable], scores["residual"][usable]).statistic),
        }
    return row


def main():
    """Account for every kept pool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="cats_dogs_25k_64_webp.npz")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    test, rows = cats_and_dogs(arguments.data)[1], []
    for path in sorted(arguments.kept.glob("pool*.npz")):
        pool, labels, gradient, criticals, about = kept(path)
        weights, dark = path.with_name(path.name.replace("pool", "model")).with_suffix(".safetensors"), None
        if weights.is_file():
            model = zoo.make("cats_dogs_cnn", num_classes=2, input_shape=test.shape)
            model.load_state_dict(load_file(weights))
            dark = darkness(model, test, pool, labels)
        for critical in criticals:
            rows.append({"pool": path.stem, "test_accuracy": about["test_accuracy"]})
            rows[-1] |= account(pool, labels, gradient, critical, dark)
    record = provenance(vars(arguments) | {"bins": BINS}) | {"rows": rows}
    write(arguments.out, record)


if __name__ == "__main__":
    main()
