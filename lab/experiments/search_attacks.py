"""Which attack measures the distance best? Default attack, Boundary Attack of the paper, true gradients.

    python search_attacks.py images.npz --model zoo:NAME --weights model.safetensors --out attacks.json

The images are the test images of cats_dogs_25k_64_webp.npz or of whatever `secondguess.load_images` reads, such as
an .npz with x_test; the weights those that search_pools.py keeps. Images whose confidence is above the threshold
are measured, up to `--images` of them; all images are starts. LOWESS residuals are those of log MAE on confidence, as
in the search.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from search_pools import cats_and_dogs
from statsmodels.nonparametric.smoothers_lowess import lowess

from secondguess import Classifier, zoo
from secondguess.images import load_images
from secondguess.search.attacks import Boundary, Gradient, HopSkipJump
from secondguess.search.distance import measure_distances
from secondguess_lab.record import provenance, say, write

PATHS = ("data", "out", "weights")


def residuals(found, confidence, chosen):
    """Log MAE minus what is usual at that confidence, of the chosen images."""
    log_mae = found.log_mae[chosen]
    return log_mae - lowess(log_mae, confidence[chosen], frac=0.3 if len(chosen) < 500 else 0.1, return_sorted=False)


def images_of(path):
    """The images that a search would look through."""
    with np.load(path, allow_pickle=False) as file:
        packed = "webp" in file.files
    return cats_and_dogs(path)[1] if packed else load_images(path)


def attacks(arguments):
    """What is compared, by name: (attack, budget)."""
    made = {"gradient": (Gradient(), None)}
    for budget in arguments.budgets:
        made[f"hop_skip_jump {budget}"] = (HopSkipJump(), budget)
    for text in arguments.variants:
        made[f"hop_skip_jump {text}"] = (HopSkipJump(**json.loads(text, object_hook=_tuples)), max(arguments.budgets))
    if arguments.iterations:
        made[f"boundary {arguments.iterations}"] = (Boundary(iterations=arguments.iterations), None)
    return made


def _tuples(settings):
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def row(name, found, truth, confidence, seconds):
    """One line of the record."""
    chosen = np.flatnonzero(~found.failed & ~truth.failed)
    both = [residuals(one, confidence, chosen) for one in (found, truth)]
    return {
        "attack": name,
        "images": len(found),
        "failed": int(found.failed.sum()),
        "queries_median": float(np.median(found.queries)),
        "queries_max": int(found.queries.max()),
        "mae_median": float(np.median(found.mae)),
        "l2_median": float(np.median(found.l2)),
        "l2_over_gradient_median": float(np.median(found.l2[chosen] / truth.l2[chosen])),
        "spearman_mae": float(spearmanr(found.mae[chosen], truth.mae[chosen]).statistic),
        "spearman_residuals": float(spearmanr(*both).statistic),
        "seconds": round(seconds, 1),
    }


def main():
    """Measure with one attack after another, write after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--output", default="logits", choices=["auto", "logits", "probabilities"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--threshold", type=float, default=0.65)
    parser.add_argument("--budgets", type=int, nargs="*", default=[300, 500, 1000])
    parser.add_argument("--variants", nargs="*", default=[], help='as JSON: \'{"memory": 0.9, "grids": [8, 16]}\'')
    parser.add_argument("--iterations", type=int, default=1000, help="of the Boundary Attack; 0 leaves it out")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    everything = images_of(arguments.data)
    model = arguments.model
    if model.startswith("zoo:"):
        model = zoo.make(model[4:], num_classes=everything.num_classes, input_shape=everything.shape)
    options = {"weights": arguments.weights, "output": arguments.output, "batch_size": arguments.batch_size}
    classifier = Classifier(model, **options)
    confidence = classifier.predict(everything).max(axis=1)
    eligible = np.flatnonzero(confidence > arguments.threshold)
    chosen = np.sort(np.random.default_rng(arguments.seed).permutation(eligible)[: arguments.images])
    images, confidence = everything.take(chosen), confidence[chosen]
    rows, truth = [], None
    for name, (attack, budget) in attacks(arguments).items():
        began = time.perf_counter()
        found = measure_distances(
            classifier, images, attack=attack, budget=budget, starts=everything, seed=arguments.seed
        )
        truth = truth or found
        rows.append(row(name, found, truth, confidence, time.perf_counter() - began))
        say(json.dumps(rows[-1]))
        write(arguments.out, record(arguments, everything, rows))


def record(arguments, data, rows):
    """The record of the runs so far."""
    return {
        **provenance(vars(arguments)),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "rows": rows,
    }


if __name__ == "__main__":
    main()
