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
import time
import warnings
from functools import reduce
from pathlib import Path

import numpy as np
import torch

from secondguess import Classifier, ImageSet, Needs, load, zoo
from secondguess._versions import versions
from secondguess.data import load_images
from secondguess.metrics import auroc
from secondguess.stress import Adversarial, Corrupted
from secondguess.supervisors import make, names
from secondguess.training import Fleet

ONCE = ("ensemble_ms", "ensemble_mi", "ensemble_pe", "autoencoder")


def supervisors(arguments):
    """The supervisors to compare, with the settings of the paper where ours are others."""
    wanted = [name for name in names() if name not in arguments.skip]
    made = {supervisor.name: supervisor for supervisor in make(wanted)}
    for name in {"ensemble_ms", "ensemble_mi", "ensemble_pe"} & made.keys():
        made[name] = made[name].clone(members=arguments.members, architecture="simple_cnn")
    if "dissector" in made:  # in batches of 32, as by default, 80,000 images take minutes
        made["dissector"] = made["dissector"].clone(batch_size=1024)
    return made


def mixed(nominal: ImageSet, ambiguous: ImageSet) -> ImageSet:
    """What the models were trained on."""
    return ImageSet.from_arrays(
        np.concatenate([nominal.images[:], ambiguous.images[:]]),
        np.concatenate([nominal.labels, ambiguous.labels]),
        class_names=nominal.class_names,
        layout="NCHW",
    )


def one_run(number, model, training, sets, panel, once, arguments):
    """AUROC of every supervisor on every set, for one model."""
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000, memory_limit=64 << 30)
    began = time.perf_counter()
    attack = Adversarial(limit=arguments.attacked, chunk_size=1000)
    sets = sets | {"adversarial": attack.make(sets["nominal"], classifier=classifier, seed=number)}
    say(f"run {number}: attacked in {time.perf_counter() - began:.0f} s")
    fitting = [one for one in panel.values() if one.requires_fit]
    needs = reduce(Needs.__or__, (one.needs for one in panel.values()), Needs())
    learnt = classifier.observe(training, reduce(Needs.__or__, (one.needs for one in fitting), Needs()))
    seen = {name: classifier.observe(images, needs) for name, images in sets.items()}
    say(f"run {number}: observed after {time.perf_counter() - began:.0f} s")
    rows = []
    for name, supervisor in panel.items():
        started = time.perf_counter()
        if name in once:
            supervisor = once[name]
        elif supervisor.requires_fit:
            supervisor = supervisor.clone().fit(learnt, training.labels)
            if name in ONCE:
                once[name] = supervisor
        fitted = time.perf_counter()
        scores = {key: supervisor.score(observation) for key, observation in seen.items()}
        ended = time.perf_counter()
        row = {
            "run": number,
            "supervisor": name,
            "fit_seconds": fitted - started,
            "score_seconds": ended - fitted,
            **{key: auroc(scores["nominal"], values) for key, values in scores.items() if key != "nominal"},
        }
        rows.append(row)
        say({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
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
    training = mixed(data.train, load_images(arguments.kept / "training.npz"))
    sets = {
        "nominal": data.test,
        "ambiguous": load_images(arguments.kept / "test.npz"),
        "corrupted": Corrupted(mix=arguments.mix).make(data.test, seed=0),
        "invalid": load(arguments.other).test,
    }
    if arguments.limit:
        training = training.take(np.random.default_rng(0).permutation(len(training))[: 4 * arguments.limit])
        sets = {name: images.head(arguments.limit) for name, images in sets.items()}
    models = Fleet.load(arguments.kept / "mixed", lambda seed: zoo.make("simple_cnn", seed=seed))
    panel, once, rows = supervisors(arguments), {}, []
    for number in range(arguments.runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += one_run(number, models[number], training, sets, panel, once, arguments)
        arguments.out.write_text(json.dumps(record(arguments, data, rows), indent=1) + "\n")


def record(arguments, data, rows):
    """The record of the runs so far."""
    columns = ("ambiguous", "adversarial", "corrupted", "invalid")
    table = {}
    for name in dict.fromkeys(row["supervisor"] for row in rows):
        mine = np.array([[row[column] for column in columns] for row in rows if row["supervisor"] == name])
        spread = mine.std(axis=0, ddof=1) if len(mine) > 1 else np.full(len(columns), np.nan)
        table[name] = {
            column: {"mean": round(float(mean), 4), "std": None if np.isnan(std) else round(float(std), 4)}
            for column, mean, std in zip(columns, mine.mean(axis=0), spread, strict=True)
        }
    shown = {key: str(value) for key, value in vars(arguments).items() if key not in ("data", "other", "kept", "out")}
    return {
        "script": "results/supervisors/make.py",
        "settings": shown,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "table": table,
        "rows": rows,
    }


def say(what):
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
