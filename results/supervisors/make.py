"""Table 2 of the ambiguity paper for SimpleCNN: which supervisor sees which kind of trouble?

    python results/ambiguity/make.py mnist.npz --out mnist.json --keep kept
    python results/supervisors/make.py mnist.npz --other fashion_mnist.npz --kept kept --mix mnist_c --out mnist.json

Models trained on nominal and ambiguous images (`kept` holds them and both ambiguous sets), supervisors fitted on the
same images, AUROC of nominal test images against ambiguous, adversarial, corrupted and invalid ones. Every run is a
model of its own with its own attacks; ensemble and autoencoder do not depend on it and are made once.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from secondguess import load, zoo
from secondguess._versions import versions
from secondguess.images import load_images
from secondguess.supervisors import make_all, names
from secondguess.training import Fleet
from secondguess_lab.studies.tasks.opening import joined
from secondguess_lab.studies.tasks.supervisors import configured, fixed_sets, score_run

ARCHITECTURE = "simple_cnn"
ENSEMBLES = ("ensemble_ms", "ensemble_mi", "ensemble_pe")
ONCE = (*ENSEMBLES, "autoencoder")


def supervisors(arguments):
    """The supervisors to compare, with the settings of the paper where ours are others."""
    parameters = {name: {"members": arguments.members} for name in ENSEMBLES}
    parameters["dissector"] = {"batch_size": 1024}  # in batches of 32, as by default, 80,000 images take minutes
    wanted = [name for name in names() if name not in arguments.skip]
    return [configured(one, parameters, ARCHITECTURE, 0) for one in make_all(wanted)]


def one_run(number, model, training, sets, panel, arguments):
    """AUROC of every supervisor on every set, for one model."""
    rows = []
    for found in score_run(model, panel, training, sets, attacked=arguments.attacked, seed=number):
        about = {"run": number, "supervisor": found.supervisor.name}
        rows.append(about | {"fit_seconds": found.fit_seconds, "score_seconds": found.score_seconds} | found.aurocs)
        say({key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()})
    return rows


def main():
    """Compare, write after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--other", required=True, help="the data set whose test images are invalid here")
    parser.add_argument("--kept", type=Path, required=True, help="made by results/ambiguity/make.py --keep")
    parser.add_argument("--mix", required=True, choices=["mnist_c", "fashion_mnist_c"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--attacked", type=int, default=4000)
    parser.add_argument("--limit", type=int, help="look at so many images of each set only (a quick try)")
    parser.add_argument("--skip", nargs="*", default=[])
    arguments = parser.parse_args()
    data = load(arguments.data)
    training = joined(data.train, load_images(arguments.kept / "training.npz"))
    sets = {"ambiguous": load_images(arguments.kept / "test.npz")}
    sets |= fixed_sets(data.test, load(arguments.other).test, arguments.mix)
    if arguments.limit:
        training = training.take(np.random.default_rng(0).permutation(len(training))[: 4 * arguments.limit])
        sets = {name: images.head(arguments.limit) for name, images in sets.items()}
    models = Fleet.load(arguments.kept / "mixed", lambda seed: zoo.make(ARCHITECTURE, seed=seed))
    panel, rows = supervisors(arguments), []
    for number in range(arguments.runs):
        panel = [one if one.name in ONCE else one.clone() for one in panel]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += one_run(number, models[number], training, sets, panel, arguments)
        arguments.out.write_text(json.dumps(record(arguments, data, rows), indent=1) + "\n")


def summary(rows):
    """Mean and standard deviation over the runs, for each supervisor and set, and how many runs there were."""
    columns = ("ambiguous", "adversarial", "corrupted", "invalid")
    table = {}
    for name in dict.fromkeys(row["supervisor"] for row in rows):
        mine = np.array([[row[column] for column in columns] for row in rows if row["supervisor"] == name])
        spread = mine.std(axis=0, ddof=1) if len(mine) > 1 else np.full(len(columns), np.nan)
        table[name] = {
            column: {"mean": round(float(mean), 4), "std": None if np.isnan(std) else round(float(std), 4)}
            for column, mean, std in zip(columns, mine.mean(axis=0), spread, strict=True)
        } | {"runs": len(mine)}
    return table


def record(arguments, data, rows):
    """The record of the runs so far."""
    shown = {key: str(value) for key, value in vars(arguments).items() if key not in ("data", "other", "kept", "out")}
    return {
        "script": "results/supervisors/make.py",
        "settings": shown,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "table": summary(rows),
        "rows": rows,
    }


def say(what):
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
