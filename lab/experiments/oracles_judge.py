"""Judge the networks of `oracles_train.py` on two cores: ICOS, cross-referencing, SelfChecker, estimates of accuracy.

    python oracles_judge.py kept --data cifar10.npz --out results/oracles/cifar10.json
    python oracles_judge.py kept --data mnist.npz --out results/oracles/retrained.json

`kept` has the archives of networks. Those of CIFAR-10 are D, E and F, three trainings of each; those of MNIST are A, B
and C, and C trained on labels of which two are swapped. 20,000 operational images are drawn 30 times, the same for all
networks. The tree of pixel rules does not depend on a network: it is grown once, on every pixel, and kept in the folder
of the archives. A network that learnt swapped labels is judged twice, with validation labels that were swapped, too, as
in the paper, and with clean ones. SelfChecker leaves out flattened layers of more than 512 numbers, as in `oracles.py`;
`selfchecker_wide` has them, reduced to 512 principal components.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from oracles import FOLDS, JUDGES, detection, folds, held_out_forest, panel, partitions
from oracles_train import channels_of, opened

from secondguess import ImageSet, Observation
from secondguess.accuracy.oracles.icos import CRITERIA, Icos, PixelRules
from secondguess.accuracy.oracles.icos.features import cell_means
from secondguess.accuracy.oracles.icos.forest import grow_forest, votes
from secondguess.accuracy.oracles.icos.pixel_rules import choose_support, grow
from secondguess.accuracy.oracles.selfchecker import best_alarm_layers
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.papers.oracles import ORACLES, SWAPS
from secondguess_lab.studies.tasks.oracles import WIDEST, swapped, verdicts

DIGITS = "0123456789"  # the names of classes; those of CIFAR-10's rules are numbers, too
TREES = 100


@dataclass(frozen=True, eq=False)
class Ground:
    """What all networks of a data set are judged on.

    Attributes:
        name: "cifar10" or "mnist".
        labels: of validation and operation.
        said: what the leaf of each image says where its rule was kept, else -1, by part and criterion.
        rules: how many rules each criterion keeps.
        support: S of the first criterion.
        partitions: the paper's two.
    """

    name: str
    labels: dict
    said: dict
    rules: dict
    support: int
    partitions: dict


def main():
    """Judge every network that is kept, and write one record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, help="folder with the archives of oracles_train.py")
    parser.add_argument("--data", type=Path, required=True, help="what the networks were trained on")
    parser.add_argument("--drawn", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--images", type=int, help="as it was given to oracles_train.py")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, parts = opened(arguments.data, channels_of(arguments.data), arguments.images)
    networks = read(arguments.kept, data.fingerprint)
    ground = ground_of(parts, arguments.kept / f"tree_{data.fingerprint}.npz")
    rows = []
    for seed in sorted({one["seed"] for one in networks}):
        mine = {one["network"]: one for one in networks if one["seed"] == seed and not one["swap"]}
        for network in [*mine.values(), *(one for one in networks if one["seed"] == seed and one["swap"])]:
            rows += judged(network, mine, ground, arguments)
            write(arguments.out, record(arguments, data, ground, networks, rows))


def read(folder, fingerprint):
    """The networks that were trained on these data, seed by seed."""
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                with np.load(io.BytesIO(archive.extractfile(member).read()), allow_pickle=False) as file:
                    about = json.loads(str(file["about"]))
                    if about["data"]["fingerprint"] == fingerprint:
                        settings = {key: about["settings"][key] for key in ("network", "seed", "swap")}
                        found.append({"about": about, **settings, **{key: file[key] for key in file.files[1:]}})
    if not found:
        raise SystemExit(f"{folder} has no network that was trained on these data.")
    return sorted(found, key=lambda one: (one["seed"], one["swap"], one["network"]))


def ground_of(parts, path):
    """Ask the tree about all images that the networks have not seen; it is grown where no file has it."""
    training, validation, operation = parts
    tree = grown(path, training)
    values = {"validation": pixels(validation), "operation": pixels(operation)}
    support = choose_support(tree, values["validation"], CRITERIA[1]["confidence"])
    said, counts = defaultdict(dict), {}
    for criterion, settings in CRITERIA.items():
        rules = PixelRules(tree, **dict(settings) | ({"support": support} if criterion == 1 else {}))
        counts[criterion] = len(rules)
        for part, matrix in values.items():
            said[part][criterion] = np.append(rules.labels, -1)[rules.matching(matrix)]
    name = {1: "mnist", 3: "cifar10"}[training.shape[0]]
    labels = {"validation": validation.labels, "operation": operation.labels}
    both = {one: partitions(one, name) for one in ("fine", "equal")}
    return Ground(name, labels, dict(said), counts, support, both)


def pixels(images):
    """Every pixel of every plane, (n, d)."""
    return cell_means(images.materialise(), 1)


def grown(path, training):
    """The tree, read where it has been grown before."""
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    tree = grow(pixels(training), training.labels, len(DIGITS))
    np.savez_compressed(path, **tree)
    return tree


def judged(network, companions, ground, arguments):
    """What everybody makes of a network in every draw; of one with swapped labels, for both kinds of validation."""
    order = swapped(SWAPS[network["swap"]] if network["swap"] else None)
    rows = []
    for clean in (False, True) if network["swap"] else (True,):
        known = ground.labels["validation"] if clean else order[ground.labels["validation"]]
        checked = seen_by(network, companions, ground, order, "validation", known, known)
        everything = seen_by(network, companions, ground, order, "operation", ground.labels["operation"], known)
        draws = []
        for repetition in range(arguments.repetitions):
            rng = np.random.default_rng([0, repetition])
            draws.append(everything.take(rng.choice(len(everything), arguments.drawn, replace=False)))
        truth = np.array([one.correct.mean() for one in draws])
        judges = (*JUDGES, "selfchecker_wide") if ground.name == "cifar10" else JUDGES
        crossed = len(companions) == 3 and not network["swap"]
        row = {
            **{key: network[key] for key in ("network", "seed", "swap")},
            "validation": "swapped" if network["swap"] and not clean else "clean",
            "validation_accuracy": float(checked.correct.mean()),
            "truth": truth.tolist(),
            "detection": detection(draws, judges if crossed else [one for one in judges if one != "cross_reference"]),
        }
        oracles = [judge for judge in ORACLES.values() if judge in row["detection"]]
        row["errors"] = {
            judge: [estimate(one, judge) - float(one.correct.mean()) for one in draws] for judge in oracles
        }
        if crossed:
            estimators = [one.fit(checked) for one in panel(network["network"], list(companions), ground.partitions)]
            row["estimators"] = {
                one.name: float(np.mean(np.abs([one.estimate(each).value for each in draws] - truth)))
                for one in estimators
            }
        say(
            f"{network['network']} {network['seed']} {network['swap']}: accuracy {truth.mean():.4f}, {row['detection']}"
        )
        rows.append(row)
    return rows


def estimate(seen, judge):
    """The accuracy according to a judge: the share of predictions that it does not call wrong."""
    return 1 - float((seen.images.columns[judge] == 1).mean())


def seen_by(network, companions, ground, order, part, labels, known):
    """An observation of one part of the images with everybody's verdicts as columns.

    Args:
        network: to judge.
        companions: all networks of its seed that learnt true labels, itself or the like of it among them.
        ground: what they are judged on.
        order: of each class the one that the network learnt instead.
        part: "validation" or "operation".
        labels: (n,) of the images of this part, as believed.
        known: (m,) of the validation images, as believed.
    """
    logits = network[f"{part}/logits"].astype(np.float32)
    predictions = logits.argmax(axis=1)
    checked = Observation(logits=network["validation/logits"].astype(np.float32), labels=known)
    objections = {
        title: contradicts(order, ground.said[part][criterion], predictions)
        for criterion, title in {1: "pixel_rules", 2: "criterion_2", 3: "criterion_3"}.items()
    }
    narrow = np.array([not is_wide(name, network) for name in network["layers"]])
    for title, layers in (("selfchecker", narrow), ("selfchecker_wide", np.ones_like(narrow))):
        inferred = {one: network[f"{one}/inferred"][:, layers].astype(np.int64) for one in ("validation", part)}
        if part == "validation":
            objections[title] = held_out(inferred[part], checked)
        else:
            objections[title] = alarms(chosen(inferred["validation"], checked), inferred[part], predictions)
    if part == "validation":
        objections["forest"] = held_out_forest(Icos(trees=TREES), checked)
    else:
        forest = grow_forest(checked.probabilities, ~checked.correct, trees=TREES)
        objections["forest"] = votes(forest, Observation(logits=logits).probabilities) > 0.5
    others = {
        name: one[f"{part}/logits"].argmax(axis=1) for name, one in companions.items() if name != network["network"]
    }
    found = verdicts(labels, predictions, objections, list(others.values()), data=ground.name)
    columns = objections | others | found
    images = ImageSet.from_arrays(np.zeros((len(labels), 1, 1), np.uint8), labels, columns=columns, class_names=DIGITS)
    for rules in ground.partitions.values():
        images = rules.simulate(images)
    return Observation(logits=logits, images=images)


def contradicts(order, said, predictions):
    """Whether the kept rule of an image says something else; a tree that learnt swapped labels says those."""
    return (said >= 0) & (np.append(order, -1)[said] != predictions)


def is_wide(name, network):
    """Whether a layer is too wide for a density as it is: D's and F's flattened ones are, E's has 512 numbers."""
    return name == "flatten" and network["network"] in ("icos_d", "icos_f")


def chosen(inferred, checked):
    """The layers that SelfChecker asks about each predicted class, (K, L)."""
    used = np.ones((len(DIGITS), inferred.shape[1]), dtype=bool)
    disagrees = inferred != checked.predictions[:, None]
    for label in range(len(DIGITS)):
        mine = checked.predictions == label
        if not checked.correct[mine].all():
            used[label] = best_alarm_layers(disagrees[mine], ~checked.correct[mine])
    return used


def alarms(used, inferred, predictions):
    """Whether at least as many of the layers asked disagree with a prediction as agree."""
    asked = used[predictions]
    return 2 * ((inferred != predictions[:, None]) & asked).sum(axis=1) >= asked.sum(axis=1)


def held_out(inferred, checked):
    """SelfChecker's alarms on validation images that had no part in choosing the layers."""
    fold, found = folds(len(checked)), np.zeros(len(checked), dtype=bool)
    for k in range(FOLDS):
        mine = fold == k
        used = chosen(inferred[~mine], checked.take(~mine))
        found[mine] = alarms(used, inferred[mine], checked.predictions[mine])
    return found


def record(arguments, data, ground, networks, rows):
    """Everything as JSON can hold it."""
    sizes = {part: len(labels) for part, labels in ground.labels.items()}
    sizes = {"training": len(data.train) + len(data.test) - sum(sizes.values())} | sizes
    return provenance(vars(arguments) | {"images_of_parts": sizes, "components": WIDEST}, data) | {
        "pixel_rules": {str(key): value for key, value in ground.rules.items()},
        "support": ground.support,
        "trained": [
            {key: network["about"][key] for key in ("command", "commit", "hardware", "versions", "replay")}
            | {key: network[key] for key in ("network", "seed", "swap")}
            | {key: network["about"][key] for key in ("training_seconds", "selfchecker_seconds")}
            | {
                "epochs": network["about"]["settings"]["epochs"],
                "training_accuracy": float(network["training/accuracy"]),
            }
            for network in networks
        ],
        "rows": rows,
    }


if __name__ == "__main__":
    main()
