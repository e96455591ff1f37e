"""Table 1 of the ambiguity paper for one architecture: how ambiguous is what AmbiGuess makes?

    python ambiguous_images.py mnist.npz --out results/ambiguity/mnist.json

The data file holds x_train, y_train, x_test, y_test. All pairs of classes, 20 autoencoders each, 20,000 images for
training (delta_max 0.4) and 10,000 for testing (0.25), with our check of realism and as published, without it, from the
same autoencoders; then the paper's SimpleCNN, trained on nominal images alone and on nominal plus ambiguous ones.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.images import save_npz
from secondguess.progress import Lines
from secondguess.stress.saving import sheet_png
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies import get
from secondguess_lab.studies.tasks.ambiguity import draw_ambiguous, measure, train_autoencoders, train_classifiers

GENERATION = get("ambiguity-table1").scale["generation"]
RECORDED = {"top-1": "top_1", "top-2": "top_2", "top-pair": "top_pair", "entropy": "entropy_bits"}  # in our record
METRICS = ("nominal_accuracy", *RECORDED.values())


def fleet_on(data, extra, arguments, *, soft=False):
    """SimpleCNNs trained on nominal images plus `extra`, with hard labels drawn from the soft ones, or with these."""
    began = time.perf_counter()
    how = {"members": arguments.seeds, "epochs": arguments.epochs, "seed": 0}
    fleet = train_classifiers(data.train, "simple_cnn", extra, soft=soft, **how)
    say(f"{len(fleet)} models trained in {time.perf_counter() - began:.0f} s")
    return fleet


def rows_of(fleet, training, data, test):
    """One row for every member of a fleet."""
    rows = []
    for number, model in enumerate(fleet):
        found = measure(model, data.test, test)
        ambiguous = {key: found["ambiguous"][column] for column, key in RECORDED.items()}
        about = {"member": number, "training": training, "nominal_accuracy": found["nominal"]["top-1"]}
        rows.append(about | ambiguous)
    return rows


def main():
    """Train autoencoders once; generate with and without the check of realism; train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--autoencoders", type=int, default=GENERATION["autoencoders"])
    parser.add_argument("--train", type=int, default=GENERATION["train"])
    parser.add_argument("--test", type=int, default=GENERATION["test"])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--soft", action="store_true", help="train on the soft labels of the ambiguous images too")
    parser.add_argument("--keep", type=Path, help="a folder for the two sets and the trained models")
    arguments = parser.parse_args()
    data = load(arguments.data)
    began = time.perf_counter()
    generation = GENERATION | {key: getattr(arguments, key) for key in ("autoencoders", "train", "test")}
    trained = train_autoencoders(data.train, generation, seed=0, progress=Lines(every=30))
    training_seconds = time.perf_counter() - began
    clean = fleet_on(data, None, arguments)
    record = {
        **provenance(vars(arguments), data),
        "autoencoders": {"trained": sum(map(len, (t.accepted for t in trained))), "seconds": training_seconds}
        | {"accepted": int(sum(t.accepted.sum() for t in trained))},
    }
    for name, realism in (("realism", True), ("as_published", False)):
        began = time.perf_counter()
        training, test = draw_ambiguous(data.train, trained, generation, realism=realism, seed=0)
        seconds = time.perf_counter() - began
        say(f"{name}: {seconds:.0f} s, {[test.card[key] for key in ('images', 'final_filter_share', 'notes')]}")
        if realism:
            sheet = sheet_png(test.images, by=("class_1", "class_2"))
            (arguments.out.parent / f"{arguments.out.stem}_sheet.png").write_bytes(sheet)
        fleets = {"clean": clean, "mixed": fleet_on(data, training.images, arguments)}
        if realism and arguments.soft:
            fleets["mixed, soft labels"] = fleet_on(data, training.images, arguments, soft=True)
        if arguments.keep and realism:
            keep(arguments.keep, training, test, fleets)
        rows = [row for kind, fleet in fleets.items() for row in rows_of(fleet, kind, data, test.images)]
        record[name] = summary(fleets, training, test, seconds, rows)
        say(json.dumps(record[name]["mean"], indent=1))
        write(arguments.out, record)


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


if __name__ == "__main__":
    main()
