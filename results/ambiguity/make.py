"""Table 1 of the ambiguity paper for one architecture: how ambiguous is what AmbiGuess makes?

    python results/ambiguity/make.py mnist.npz --out results/ambiguity/mnist.json

The data file holds x_train, y_train, x_test, y_test. All pairs of classes, 20 autoencoders each, 20,000 images for
training (delta_max 0.4) and 10,000 for testing (0.25), with our check of realism and as published, without it, from the
same autoencoders; then the paper's SimpleCNN, trained on nominal images alone and on nominal plus ambiguous ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from secondguess import Classifier, ImageSet, load, train_fleet, zoo
from secondguess._progress import Lines
from secondguess._versions import versions
from secondguess.data import save_npz
from secondguess.metrics import ambiguity
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.ambiguous.pairs import choose_pairs


def generate(data, trained, arguments, *, realism):
    """The training and the test set of ambiguous images."""
    settings = {"pairs": "all", "autoencoders": arguments.autoencoders, "realism": realism}
    test = AmbiGuess(delta_max=0.25, **settings).generate(data.train, arguments.test, seed=1, trained=trained)
    training = AmbiGuess(delta_max=0.4, **settings).generate(data.train, arguments.train, seed=2, trained=trained)
    return training, test


def fleet_on(data, extra, arguments, *, soft=False):
    """SimpleCNNs trained on nominal images plus `extra`, with hard labels drawn from the soft ones, or with these."""
    pixels, labels = data.train.images[:], data.train.labels
    classes = len(data.class_names)
    if extra is not None:
        pixels = np.concatenate([pixels, extra.images[:]])
        labels = np.concatenate([labels, extra.labels])
    if soft:
        labels = np.concatenate([np.eye(classes)[data.train.labels], extra.soft_labels])
    began = time.perf_counter()
    fleet = train_fleet(
        lambda seed: zoo.make("simple_cnn", num_classes=classes, seed=seed),
        arguments.seeds,
        pixels,
        labels,
        epochs=arguments.epochs,
        batch_size=128,
        lr=1e-3,
        seed=0,
    )
    say(f"{len(fleet)} models trained in {time.perf_counter() - began:.0f} s")
    return fleet


def rows_of(fleet, training, data, test):
    """One row for every member of a fleet."""
    return [
        {"member": number, "training": training, **measure(Classifier(model, batch_size=1000), data.test, test)}
        for number, model in enumerate(fleet)
    ]


def measure(classifier, nominal_images, ambiguous_images):
    """Accuracy on nominal images, and the metrics on ambiguous ones."""
    nominal, ambiguous = classifier.observe(nominal_images), classifier.observe(ambiguous_images)
    return {
        "nominal_accuracy": float((nominal.predictions == nominal_images.labels).mean()),
        **_metrics(ambiguous.probabilities, ambiguous_images),
    }


def _metrics(probabilities, test: ImageSet):
    return {
        "top_1": ambiguity.top_k_accuracy(probabilities, test.labels, 1).value,
        "top_2": ambiguity.top_k_accuracy(probabilities, test.labels, 2).value,
        "top_pair": ambiguity.top_pair_accuracy(probabilities, test.soft_labels).value,
        "entropy_bits": ambiguity.mean_entropy(probabilities),
    }


def main():
    """Train autoencoders once; generate with and without the check of realism; train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--autoencoders", type=int, default=20)
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--soft", action="store_true", help="train on the soft labels of the ambiguous images too")
    parser.add_argument("--keep", type=Path, help="a folder for the two sets and the trained models")
    arguments = parser.parse_args()
    data = load(arguments.data)
    began = time.perf_counter()
    pairs = choose_pairs(data.train, "all")
    trained = AmbiGuess(pairs="all", autoencoders=arguments.autoencoders).train(
        data.train, pairs, seed=0, progress=Lines(every=30)
    )
    training_seconds = time.perf_counter() - began
    clean = fleet_on(data, None, arguments)
    record = {
        "command": " ".join(["python", "results/ambiguity/make.py", *sys.argv[1:]]),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "autoencoders": {"trained": sum(map(len, (t.accepted for t in trained))), "seconds": training_seconds}
        | {"accepted": int(sum(t.accepted.sum() for t in trained))},
    }
    for name, realism in (("realism", True), ("as_published", False)):
        began = time.perf_counter()
        training, test = generate(data, trained, arguments, realism=realism)
        seconds = time.perf_counter() - began
        say(f"{name}: {seconds:.0f} s, {[test.card[key] for key in ('images', 'final_filter_share', 'notes')]}")
        if realism:
            (arguments.out.parent / f"{arguments.out.stem}_sheet.png").write_bytes(_sheet(test.images))
        fleets = {"clean": clean, "mixed": fleet_on(data, training.images, arguments)}
        if realism and arguments.soft:
            fleets["mixed, soft labels"] = fleet_on(data, training.images, arguments, soft=True)
        if arguments.keep and realism:
            keep(arguments.keep, training, test, fleets)
        rows = [row for kind, fleet in fleets.items() for row in rows_of(fleet, kind, data, test.images)]
        record[name] = summary(fleets, training, test, seconds, rows)
        say(json.dumps(record[name]["mean"], indent=1))
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


def keep(folder, training, test, fleets):
    """The sets and the models, for whoever wants to go on with them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_npz(training.images, folder / "training.npz")
    save_npz(test.images, folder / "test.npz")
    for kind in ("clean", "mixed"):
        fleets[kind].save(folder / kind)


def summary(fleets, training, test, seconds, rows):
    """What one variant gave."""
    mean = {kind: {key: _mean(rows, kind, key) for key in METRICS} for kind in fleets}
    accuracy = {kind: mean[kind]["nominal_accuracy"] for kind in fleets}
    return {
        "drawing_seconds": seconds,
        "nominal_accuracy_lost_points": {kind: 100 * (accuracy["clean"] - accuracy[kind]) for kind in fleets},
        "mean": mean,
        "rows": rows,
        "card_test": test.card,
        "card_training": training.card,
    }


def _mean(rows, kind, key):
    return float(np.mean([row[key] for row in rows if row["training"] == kind]))


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
