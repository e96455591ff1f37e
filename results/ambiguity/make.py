"""Table 1 of the ambiguity paper for one architecture: how ambiguous is what AmbiGuess makes?

    python results/ambiguity/make.py mnist.npz --out results/ambiguity/mnist.json

The data file holds x_train, y_train, x_test, y_test. All pairs of classes, 20 autoencoders each, 20,000 images for
training (delta_max 0.4) and 10,000 for testing (0.25); then the paper's SimpleCNN, trained on nominal images alone and
on nominal plus ambiguous ones, several seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from secondguess import Classifier, ImageSet, load, train, zoo
from secondguess._progress import Lines
from secondguess._versions import versions
from secondguess.metrics import ambiguity
from secondguess.stress.ambiguous import AmbiGuess


def generate(data, arguments):
    """The training and the test set of ambiguous images, and how long they took."""
    began = time.perf_counter()
    settings = {"pairs": "all", "autoencoders": arguments.autoencoders, "realism": not arguments.no_realism}
    tester = AmbiGuess(delta_max=0.25, **settings)
    trained = tester.train(data.train, _all_pairs(data), seed=0, progress=Lines(every=30))
    for_test = tester.generate(data.train, arguments.test, seed=1, trained=trained)
    for_training = AmbiGuess(delta_max=0.4, **settings).generate(data.train, arguments.train, seed=2, trained=trained)
    return for_training, for_test, time.perf_counter() - began


def evaluate(data, extra, test, seed, epochs):
    """Train SimpleCNN on nominal images plus `extra`; nominal accuracy, and the metrics on the ambiguous test set."""
    pixels, labels = data.train.images[:], data.train.labels
    if extra is not None:
        pixels = np.concatenate([pixels, extra.images[:]])
        labels = np.concatenate([labels, extra.labels])
    model = zoo.make("simple_cnn", num_classes=len(data.class_names), seed=seed)
    train(model, pixels, labels, epochs=epochs, batch_size=128, lr=1e-3, seed=seed)
    classifier = Classifier(model, batch_size=1000)
    nominal, ambiguous = classifier.observe(data.test), classifier.observe(test)
    return {
        "seed": seed,
        "training": "clean" if extra is None else "mixed",
        "nominal_accuracy": float((nominal.predictions == data.test.labels).mean()),
        **_metrics(ambiguous.probabilities, test),
    }


def _metrics(probabilities, test: ImageSet):
    return {
        "top_1": ambiguity.top_k_accuracy(probabilities, test.labels, 1).value,
        "top_2": ambiguity.top_k_accuracy(probabilities, test.labels, 2).value,
        "top_pair": ambiguity.top_pair_accuracy(probabilities, test.soft_labels).value,
        "entropy_bits": ambiguity.mean_entropy(probabilities),
    }


def _all_pairs(data):
    from secondguess.stress.ambiguous.pairs import choose_pairs

    return choose_pairs(data.train, "all")


def main():
    """Generate, train, evaluate, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--autoencoders", type=int, default=20)
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-realism", action="store_true")
    arguments = parser.parse_args()
    data = load(arguments.data)
    for_training, for_test, seconds = generate(data, arguments)
    shares = {key: for_test.card[key] for key in ("images", "final_filter_share", "realism_share", "notes")}
    say(f"generated in {seconds:.0f} s: {shares}")
    (arguments.out.parent / f"{arguments.out.stem}_sheet.png").write_bytes(_sheet(for_test.images))
    rows = []
    for seed in range(arguments.seeds):
        for extra in (None, for_training.images):
            rows.append(evaluate(data, extra, for_test.images, seed, arguments.epochs))
            say(rows[-1])
        arguments.out.write_text(
            json.dumps(summary(arguments, data, for_training, for_test, seconds, rows), indent=1) + "\n"
        )


def summary(arguments, data, for_training, for_test, seconds, rows):
    """The record of the run."""
    mean = {
        kind: {key: float(np.mean([row[key] for row in rows if row["training"] == kind])) for key in METRICS}
        for kind in ("clean", "mixed")
    }
    return {
        "command": f"python results/ambiguity/make.py {Path(arguments.data).name}"
        + (" --no-realism" if arguments.no_realism else ""),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "generation_seconds": seconds,
        "nominal_accuracy_lost_points": 100 * (mean["clean"]["nominal_accuracy"] - mean["mixed"]["nominal_accuracy"]),
        "mean": mean,
        "rows": rows,
        "card_test": for_test.card,
        "card_training": for_training.card,
    }


def say(what):
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _sheet(images):
    from secondguess.stress.saving import sheet_png

    return sheet_png(images, by=("class_1", "class_2"))


METRICS = ("nominal_accuracy", "top_1", "top_2", "top_pair", "entropy_bits")

if __name__ == "__main__":
    main()
