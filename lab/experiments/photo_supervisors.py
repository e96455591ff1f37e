"""Which supervisors see what, on photographs: the table of docs/supervisors.md.

    python photo_supervisors.py cifar10.npz --models resnet20/model.toml vgg/model.toml --kept kept --out photos.json

Supervisors are fitted on 10,000 training images. Of 2,000 test images the model's mistakes are one column. Every colour
corruption is applied to 300 of them, in their published strength; within these, wrong answers against right ones are a
column of their own. Four attacks share 400 of them, and those that fooled the model count. Invalid images are things of
random shape before the background of test images, patches of other photographs, textures and shuffled images.
Observations are kept in `--kept`, so that a second run takes minutes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from secondguess import Classifier, load
from secondguess.guard.protect import Answers
from secondguess.guard.stress_split import invalid_images
from secondguess.metrics import MISTAKES, aurc, auroc, detection_columns, excess_aurc
from secondguess.model.cache import Cache
from secondguess.model.needs import Needs
from secondguess.stress import Adversarial, Corrupted
from secondguess.stress.corruptions import COLOUR
from secondguess.supervisors import make_all
from secondguess_lab.record import provenance, say, write

SUPERVISORS = (
    "max_softmax", "pcs", "entropy", "deep_gini", "gen", "kl_matching", "max_logit", "energy", "react", "ash", "scale",
    "fdbd", "nnguide", "she", "knn", "vim", "mdsa", "relative_mahalanobis", "normalised_mahalanobis",
    "dsa:subsampling=5000", "dissector:batch_size=256",
)  # fmt: skip
SORTS = {"corrupted": "corruption", "adversarial": "attack", "invalid": "source"}


def stressed(classifier, train, test, arguments):
    """The stress sets of one model."""
    corrupted = [
        Corrupted([name]).make(test.head(arguments.corrupted, seed=number), seed=arguments.seed)
        for number, name in enumerate(COLOUR)
    ]
    attack = Adversarial(limit=arguments.attacked)
    attacked = attack.make(test, train=train, classifier=classifier, seed=arguments.seed)
    fooled = attacked.columns["success"] & (attacked.columns["epsilon"] > 0)
    invalid = invalid_images(test.head(arguments.invalid, seed=arguments.seed), seed=arguments.seed)
    return {"corrupted": corrupted, "adversarial": [attacked.take(fooled)], "invalid": [invalid]}


def measured(classifier, train, test, arguments):
    """What every supervisor sees, and what it costs."""
    supervisors = make_all(SUPERVISORS)
    needs = Needs.union(supervisors)
    began = time.perf_counter()
    sets = stressed(classifier, train, test, arguments)
    say(f"  stress sets: {time.perf_counter() - began:.0f} s")
    seen = {"train": classifier.observe(train, needs), "nominal": classifier.observe(test, needs)}
    parts = {kind: [classifier.observe(one, needs) for one in several] for kind, several in sets.items()}
    sorts = {kind: np.concatenate([one.columns[SORTS[kind]] for one in several]) for kind, several in sets.items()}
    answers = {"nominal": [Answers.of(test, seen["nominal"].predictions)]} | {
        kind: [Answers.of(one, look.predictions, kind) for one, look in zip(several, parts[kind], strict=True)]
        for kind, several in sets.items()
    }
    known = {
        kind: (np.concatenate([one.right for one in several]), np.concatenate([one.wrong for one in several]))
        for kind, several in answers.items()
    }
    say(f"  observed: {time.perf_counter() - began:.0f} s")
    table = {}
    for supervisor in supervisors:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            supervisor.fit(seen["train"], train.labels)
        fitting, began = time.perf_counter() - began, time.perf_counter()
        nominal = supervisor.score(seen["nominal"])
        scoring = time.perf_counter() - began
        stress = {kind: np.concatenate([supervisor.score(one) for one in several]) for kind, several in parts.items()}
        columns = detection_columns(nominal, stress, known)
        wrong = known["nominal"][1]
        table[supervisor.name] = {
            "auroc": {name: auroc(*sides) for name, sides in columns.items()},
            "sorts": {
                kind: {str(sort): auroc(nominal, stress[kind][sorts[kind] == sort]) for sort in np.unique(sorts[kind])}
                for kind in stress
            },
            "aurc": aurc(nominal, wrong),
            "excess_aurc": excess_aurc(nominal, wrong),
            "fit_seconds": fitting,
            "score_microseconds": 1e6 * scoring / len(nominal),
        }
        say(
            f"  {supervisor.name}: "
            + ", ".join(f"{name} {v:.3f}" for name, v in table[supervisor.name]["auroc"].items())
        )
    sizes = {kind: len(values) for kind, values in sorts.items()}
    wrong_in = {kind: int(both[1].sum()) for kind, both in known.items()}
    accuracy = float(known["nominal"][0].mean())
    return {"accuracy": accuracy, "images": sizes, "wrong": wrong_in, MISTAKES: wrong_in["nominal"], "table": table}


def main():
    """One model after the other; the record is written after each, and goes on with those that it lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    for name, number in (("train", 10_000), ("test", 2000), ("corrupted", 300), ("attacked", 400), ("invalid", 1000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = load(arguments.data)
    train = data.train.head(arguments.train, seed=arguments.seed)
    test = data.test.head(arguments.test, seed=arguments.seed)
    settings = {
        name: getattr(arguments, name) for name in ("train", "test", "corrupted", "attacked", "invalid", "seed")
    }
    models = json.loads(arguments.out.read_text("utf-8"))["models"] if arguments.out.exists() else {}
    for path in arguments.models:
        name = Path(path).parent.name
        if name in models:
            continue
        classifier = Classifier.open(path, device="cpu")
        classifier.cache = Cache(arguments.kept)
        say(name)
        models[name] = measured(classifier, train, test, arguments)
        write(arguments.out, {**provenance(settings, data), "models": models})


if __name__ == "__main__":
    main()
