"""Oracles and label-free estimates on MNIST: who finds wrong predictions, and who knows the accuracy, also under shift.

    python ambiguous_images.py mnist.npz --out mnist.json --keep kept
    python oracles.py mnist.npz --ambiguous kept/test.npz --work work --out results/oracles/mnist.json

The study of ICOS (Guerriero et al. 2023) on its three networks for MNIST: trained on 28,000 images fed as they are,
0..255, 2,500 for validation, 30 times 20,000 drawn from the other 39,500. Networks and what they and the oracles say
about every image are kept in `work`; from then on all draws, swaps and mixes are a matter of rows.

Networks, oracles, verdicts and swapped labels are those of the studies (`secondguess_lab/studies/tasks/oracles.py`);
this adds the estimators of accuracy, mixtures with corrupted and ambiguous images, and other class frequencies. The
true label of an ambiguous image is drawn from its soft label.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_model, save_model

from secondguess import ImageSet, Needs, Observation, load, zoo
from secondguess.accuracy import AverageConfidence, OraclePasses, RulesAndConfidence, standard_estimators
from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.icos import Icos, InputRules
from secondguess.accuracy.oracles.icos.forest import grow_forest, votes
from secondguess.images import load_images
from secondguess.metrics.verdict_confusion import verdict_confusion
from secondguess.stress import Corrupted
from secondguess_lab.record import provenance, say
from secondguess_lab.statistics.friedman import friedman
from secondguess_lab.studies.papers.oracles import NETWORKS, SCALE, SWAPS
from secondguess_lab.studies.tasks.oracles import (
    classifier_of,
    objections_of,
    selfchecker_of,
    split,
    swapped,
    train_network,
    verdicts,
)
from secondguess_lab.studies.tasks.score_estimators import Remembered

TRAINING, VALIDATION, DRAWN = (SCALE[key] for key in ("training", "validation", "drawn"))
SETS = ("nominal", "corrupted", "ambiguous")
SWAPPED = {f"labels {classes} swapped": pair for classes, pair in SWAPS.items()}
# How many images of each set a draw has.
MIXES = {
    "no shift": (20_000, 0, 0),
    "10% corrupted": (18_000, 2_000, 0),
    "half corrupted": (10_000, 10_000, 0),
    "all corrupted": (0, 20_000, 0),
    "10% ambiguous": (18_000, 0, 2_000),
    "half ambiguous": (5_000, 0, 5_000),
    "all ambiguous": (0, 0, 5_000),
}
PRIOR = "class frequencies"
COLUMNS = ("no shift", *SWAPPED, *list(MIXES)[1:], PRIOR)
OBJECTIONS = ("pixel_rules", "forest", "criterion_2", "criterion_3", "selfchecker")
JUDGES = (
    "icos_fine", "icos_equal", "icos_without_input_rules", "icos_fine_criterion_2", "icos_fine_criterion_3",
    "input_rules_fine", "input_rules_equal", "pixel_rules", "forest", "selfchecker", "cross_reference",
)  # fmt: skip
FOLDS = 5


def partitions(name, data="mnist"):
    """The paper's partitions, looked up in a column of that name."""
    rules = InputRules.example(f"{data}_{name}")
    return InputRules([replace(one, column=name) for one in rules.partitions], rules.class_names)


RULES = {"fine": partitions("fine"), "equal": partitions("equal")}


def trained(name, training, seed, work):
    """A network, trained on pixels from 0 to 255 or read from the folder."""
    path = work / f"{name}_{seed}.safetensors"
    if path.exists():
        model = zoo.make(name, seed=seed)
        load_model(model, path)
        return model.eval()
    model = train_network(name, training, seed=seed, device="cpu")
    save_model(model, path)
    return model


def looked_at(name, seed, sets, work):
    """What a network and its oracles say about every image, as arrays by `set/what`; kept in the folder."""
    path = work / f"{name}_{seed}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as kept:
            return dict(kept)
    clock = Clock()
    model = trained(name, sets["training"], seed, work)
    clock("training")
    classifier = classifier_of(model, sets["training"])
    checker = selfchecker_of(classifier, device="cpu")
    sights = {key: classifier.observe(images, checker.needs | Needs(logits=True)) for key, images in sets.items()}
    training, validation = sights.pop("training"), sights["validation"]
    clock()
    icos = Icos(seed=seed).fit(training, validation)
    clock("icos_fit")
    icos.judge(sights["nominal"].take(slice(DRAWN)))
    clock("icos_judge_20000")
    checker.fit(training, validation)
    clock("selfchecker_fit")
    found = {}
    for key, seen in sights.items():
        found[f"{key}/logits"] = seen.logits
        found[f"{key}/probabilities"] = seen.probabilities
        found |= {f"{key}/{what}": mask for what, mask in objections_of(icos, seen).items()}
        clock()
        found[f"{key}/selfchecker"] = checker.judge(seen).judged_wrong
        clock(f"selfchecker_judge_{len(seen)}")
    found["validation/forest"] = held_out_forest(icos, validation)
    found["validation/selfchecker"] = held_out_alarms(checker, validation)
    found["rules"] = np.array([len(icos.pixel_rules), icos.support_])
    found |= {f"seconds/{what}": np.array(seconds) for what, seconds in clock.seconds.items()}
    np.savez(path, **found)
    say(f"{name}: looked at, {clock.seconds}")
    return found


def folds(n):
    """Which fold each validation image is in."""
    return np.random.default_rng(0).permutation(n) % FOLDS


def held_out_forest(icos, validation):
    """What the forest of ICOS says about validation images that it has not seen; the tree has not seen any."""
    fold, wrong, probabilities = folds(len(validation)), ~validation.correct, validation.probabilities
    alarm = np.zeros(len(validation), dtype=bool)
    for k in range(FOLDS):
        forest = grow_forest(probabilities[fold != k], wrong[fold != k], trees=icos.trees, seed=icos.seed)
        alarm[fold == k] = votes(forest, probabilities[fold == k]) > 0.5
    return alarm


def held_out_alarms(checker, validation):
    """SelfChecker's alarms on validation images that had no part in choosing the layers."""
    inferred, fold = checker.infer(validation), folds(len(validation))
    alarm = np.zeros(len(validation), dtype=bool)
    for k in range(FOLDS):
        chooser, rest = copy.copy(checker), fold != k
        chooser._choose_alarms(inferred[rest], validation.take(rest))
        alarm[~rest] = chooser._alarms(inferred[~rest], validation.predictions[~rest])
    return alarm


class Recorded(Oracle):
    """Verdicts that an oracle has given before, from a column of the images."""

    requires_fit = False

    def __init__(self, name):
        self.name = name

    def _judge(self, operation):
        return Verdicts.make(operation.columns[self.name])


def observed_on(names, name, looks, labels):
    """What a network said about some sets, in one: the pixels play no part any more."""
    found = {
        key: np.concatenate([looks[name][f"{one}/{key}"] for one in names])
        for key in ("logits", "probabilities", *OBJECTIONS)
    }
    columns = {key: found[key] for key in OBJECTIONS}
    for other in looks.keys() - {name}:
        columns[other] = np.concatenate([looks[other][f"{one}/probabilities"].argmax(axis=1) for one in names])
    labels = np.concatenate([labels[one] for one in names])
    images = ImageSet.from_arrays(
        np.zeros((len(labels), 1, 1), np.uint8), labels, columns=columns, class_names="0123456789"
    )
    for rules in RULES.values():
        images = rules.simulate(images)
    return judged(Observation(found["probabilities"], found["logits"], images=images))


def judged(seen):
    """The observation with everybody's verdicts, of which some depend on labels or on what other networks predict."""
    columns = seen.images.columns
    others = [columns[name] for name in NETWORKS if name in columns]
    found = verdicts(seen.labels, seen.predictions, columns, others)
    return seen.replace(images=replace(seen.images, columns=columns | found))


def exchanged(seen, pair, labels=False):
    """The observation of networks with two outputs exchanged; the labels with them where those were swapped too."""
    order = swapped(pair)
    images = seen.images
    columns = {key: order[values] if key in NETWORKS else values for key, values in images.columns.items()}
    images = replace(images, columns=columns)
    if labels:  # whoever swapped them believes them, also when telling partitions
        images = replace(images, labels=order[images.labels])
        for rules in RULES.values():
            images = rules.simulate(images)
    outputs = {"probabilities": seen.probabilities[:, order], "logits": seen.logits[:, order]}
    return judged(seen.replace(images=images, **outputs))


def drawn(column, sizes, labels, rng):
    """The rows of one draw from all sets together: without replacement, except where class frequencies ask for more."""
    starts = np.cumsum([0, *sizes])
    if column == PRIOR:
        mine = labels[: sizes[0]]
        weights = (rng.dirichlet(np.ones(10)) / np.bincount(mine))[mine]
        return rng.choice(sizes[0], DRAWN, p=weights / weights.sum())
    wanted = MIXES.get(column, MIXES["no shift"])
    return np.concatenate(
        [start + rng.choice(size, n, replace=False) for start, size, n in zip(starts, sizes, wanted, strict=False) if n]
    )


def panel(name, networks=NETWORKS, rules=RULES):
    """All estimators for one of the networks; nobody looks at intervals here."""
    others = [other for other in networks if other != name]
    oracles = [Recorded("icos_fine"), Recorded("icos_equal"), Recorded("selfchecker"), CrossReference(others)]
    estimators = standard_estimators(rules["fine"], oracles, [Remembered(other) for other in others], resamples=1)
    strict = OraclePasses(CrossReference(others), undecided="fail", resamples=1)
    equal = RulesAndConfidence(rules["equal"], resamples=1)
    strict.name, equal.name = "cross_reference_undecided_fail", "rules_and_confidence_equal"
    estimators[2:2] = [AverageConfidence(None, resamples=1), AverageConfidence("isotonic", resamples=1)]
    return [*estimators, strict, equal]


def detection(draws, judges=JUDGES):
    """Rates of everybody who judges single predictions, means over the draws."""
    table = {}
    for name in judges:
        rows = []
        for seen in draws:
            found = verdict_confusion(seen.images.columns[name].astype(int), seen.correct)
            off = found.estimated_accuracy - seen.correct.mean()
            rows.append((found.tpr, found.fpr, found.f1, off, abs(off), found.undecided / found.n))
        keys = ("tpr", "fpr", "f1", "bias", "mae", "undecided")
        table[name] = dict(zip(keys, np.mean(rows, axis=0).tolist(), strict=True))
    return table


def one_network(name, looks, labels, arguments):
    """Detection without shift, and the errors of all estimators in every column."""
    everything = observed_on(SETS, name, looks, labels)
    validation = observed_on(("validation",), name, looks, labels)
    sizes = [len(labels[one]) for one in SETS]
    rows, table = [], {}
    for place, column in enumerate(COLUMNS):
        began = time.perf_counter()
        pair = SWAPPED.get(column)
        known = exchanged(validation, pair, labels=True) if pair else validation
        pool = exchanged(everything, pair) if pair else everything
        estimators = [one.fit(known) for one in panel(name)]
        draws = []
        studied = pair or column == "no shift"
        for repetition in range(arguments.repetitions if studied else arguments.mix_repetitions):
            # Swaps judge the draws of "no shift"; the networks share all draws.
            rng = np.random.default_rng([0 if pair else place, repetition])
            draws.append(pool.take(drawn(column, sizes, pool.labels, rng)))
        truth = np.array([seen.correct.mean() for seen in draws])
        errors = {one.name: np.array([one.estimate(each).value for each in draws]) - truth for one in estimators}
        rows.append({"network": name, "column": column, "truth": truth, "errors": errors})
        if column == "no shift":
            table = detection(draws)
        say(f"{name}, {column}: accuracy {truth.mean():.4f}, {time.perf_counter() - began:.0f} s")
    return rows, table


def errors_table(rows):
    """The mean absolute error of each estimator in each column: over networks together, and each network."""
    table = {}
    for estimator in rows[0]["errors"]:
        mine = {
            column: [np.abs(row["errors"][estimator]).mean() for row in rows if row["column"] == column]
            for column in COLUMNS
        }
        means = {column: float(np.mean(values)) for column, values in mine.items()}
        shifts = [means[column] for column in COLUMNS[1:]]
        visible = [means[column] for column in COLUMNS[1:] if column != "labels 6/8 swapped"]
        means |= {"mean over shifts": float(np.mean(shifts)), "mean over shifts without 6/8": float(np.mean(visible))}
        table[estimator] = {key: round(value, 5) for key, value in means.items()} | {
            "networks": {column: [round(float(value), 5) for value in values] for column, values in mine.items()}
        }
    return table


def ranks(rows, columns, mean):
    """The Friedman test of the absolute errors; a block is a repetition, or the mean over them."""
    blocks = []
    for row in rows:
        if row["column"] in columns:
            errors = np.abs(np.array(list(row["errors"].values())))
            blocks += [errors.mean(axis=1)] if mean else list(errors.T)
    test = friedman(np.array(blocks), list(rows[0]["errors"]))
    return {
        "blocks": test.blocks,
        "p_value": test.f_p_value,
        "critical_difference": round(test.critical_difference, 3),
        "mean_ranks": dict(sorted(zip(test.names, test.ranks.round(2).tolist(), strict=True), key=lambda one: one[1])),
        "not_different_from_the_best": list(next(iter(test.groups()), ())),
    }


def _settings(arguments):
    """What the record says of the scale."""
    return {
        "seed": arguments.seed,
        "repetitions": arguments.repetitions,
        "mix_repetitions": arguments.mix_repetitions,
        "training": TRAINING,
        "validation": VALIDATION,
        "drawn": DRAWN,
        "pixels": "0..255, as in the paper",
        "mixes": {name: dict(zip(SETS, sizes, strict=True)) for name, sizes in MIXES.items()},
    }


def record(arguments, data, looks, rows, tables):
    """Everything as JSON can hold it."""
    return {
        **provenance(_settings(arguments), data),
        "seconds_note": "without what was read from the folder of an earlier run; see the seconds of each network",
        "networks": {
            name: {
                "validation_accuracy": round(float(looks[name]["validation/accuracy"]), 4),
                "pixel_rules": int(looks[name]["rules"][0]),
                "support": int(looks[name]["rules"][1]),
                "seconds": {
                    key[8:]: round(float(looks[name][key]), 1) for key in looks[name] if key.startswith("seconds/")
                },
            }
            for name in NETWORKS
        },
        "detection": tables,
        "errors": errors_table(rows),
        "ranks": {
            "no shift, a block a repetition": ranks(rows, ("no shift",), mean=False),
            "shifts, a block a repetition": ranks(rows, COLUMNS[1:], mean=False),
            "shifts, a block a network and column": ranks(rows, COLUMNS[1:], mean=True),
        },
        "rows": [
            {
                "network": row["network"],
                "column": row["column"],
                "truth": row["truth"].round(4).tolist(),
                "errors": {name: values.round(4).tolist() for name, values in row["errors"].items()},
            }
            for row in rows
        ],
    }


class Clock:
    """Seconds between calls, by name."""

    def __init__(self):
        self.seconds, self._last = {}, time.perf_counter()

    def __call__(self, what=None):
        """Note what has just ended."""
        now = time.perf_counter()
        if what:
            self.seconds[what] = round(now - self._last, 2)
        self._last = now


def main():
    """Train or read the networks, look once, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--ambiguous", type=Path, required=True, help="made by ambiguous_images.py --keep")
    parser.add_argument("--work", type=Path, required=True, help="where networks and what they say are kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=30, help="draws without shift and with swapped labels")
    parser.add_argument("--mix-repetitions", type=int, default=30, help="draws of every other shift")
    parser.add_argument("--seed", type=int, default=0, help="of the networks, the tree and the forest")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    data = load(arguments.data)
    training, validation, operation = split(data, TRAINING, VALIDATION)
    ambiguous = load_images(arguments.ambiguous)
    chance = np.random.default_rng(0).random((len(ambiguous), 1))
    truth = (ambiguous.soft_labels.cumsum(axis=1) < chance).sum(axis=1).clip(max=9)
    sets = {
        "training": training,
        "validation": validation,
        "nominal": operation,
        "corrupted": Corrupted(mix="mnist_c").make(operation, seed=0),
        "ambiguous": replace(ambiguous, labels=truth),
    }
    labels = {name: images.labels for name, images in sets.items()}
    looks = {name: looked_at(name, arguments.seed, sets, arguments.work) for name in NETWORKS}
    for look in looks.values():
        right = look["validation/probabilities"].argmax(axis=1) == labels["validation"]
        look["validation/accuracy"] = right.mean()
    rows, tables = [], {}
    for name in NETWORKS:
        found, tables[name] = one_network(name, looks, labels, arguments)
        rows += found
    made = record(arguments, data, looks, rows, tables)
    arguments.out.write_text(as_lines(made) + "\n")


def as_lines(made):
    """JSON with the long lists on one line each."""
    kept = [json.dumps(row) for row in made.pop("rows")]
    head = json.dumps(made, indent=1)
    return head[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(kept) + "\n ]\n}"


if __name__ == "__main__":
    main()
