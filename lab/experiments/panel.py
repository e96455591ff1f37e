"""Does the panel of a guard see what its best supervisor sees, in every column at once, and does it know why?

    python ambiguous_images.py mnist.npz --out mnist.json --keep kept
    python panel.py mnist.npz --other fashion_mnist.npz --kept kept --mix mnist_c --out mnist.json

Models trained on nominal and ambiguous images, and the ambiguous images to be tested on, are read from `kept`. Of the
test images, some teach the panel, some set its threshold, the others are what is judged. The panel learns from fresh
AmbiGuess images, every other corruption, two attacks and the generated invalid images; it is judged on the ambiguous
images of `kept`, the corruptions of the mix between, the two other attacks, and another data set as invalid images.
Every run is a model of its own, with its own shares of the images, attacks and seeds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from secondguess import Classifier, ImageSet, load, zoo
from secondguess.guard.cascade import fit_cascade
from secondguess.guard.naming import Examined, fit_naming, looks_of
from secondguess.guard.panel import fit_panel
from secondguess.guard.recommended import recommended
from secondguess.guard.stress_split import (
    HELD_OUT_ATTACKS,
    LEARNT_ATTACKS,
    held_out_corruptions,
    invalid_images,
    learnt_corruptions,
)
from secondguess.guard.thresholds import Calibration, Threshold, realised_rate
from secondguess.guard.verdicts import ANOMALIES, OF_STRESS
from secondguess.images import load_images
from secondguess.metrics import auroc, wilson
from secondguess.stress import Adversarial, Corrupted
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.corruptions import FASHION_MNIST_C, MNIST_C
from secondguess.supervisors import SupervisorSet, make, make_all
from secondguess.training import Fleet
from secondguess_lab.record import provenance, say, write

COLUMNS = ("ambiguous", "adversarial", "corrupted", "invalid")
MIXES = {"mnist_c": MNIST_C, "fashion_mnist_c": FASHION_MNIST_C}
SORTS = {"corrupted": "corruption", "adversarial": "attack", "invalid": "source"}
RATE = 0.05
BUDGETS = (0.25, 0.5)  # of what all supervisors together cost an image


def shared_out(data, arguments, number):
    """Test images that teach the panel, that set its threshold, and that are judged."""
    order = np.random.default_rng([number, 7]).permutation(len(data.test))
    cuts = (arguments.learn, arguments.learn + arguments.calibrate)
    return [data.test.take(part) for part in np.split(order, cuts)]


def mixed(nominal: ImageSet, ambiguous: ImageSet, count: int, seed: int) -> ImageSet:
    """Some of what the models were trained on."""
    rng = np.random.default_rng(seed)
    share = count * len(ambiguous) // (len(nominal) + len(ambiguous))
    parts = [nominal.head(count - share, seed=seed), ambiguous.head(max(1, share), seed=seed)]
    together = ImageSet.from_arrays(
        np.concatenate([part.materialise() for part in parts]),
        np.concatenate([part.labels for part in parts]),
        class_names=nominal.class_names,
        layout="NCHW",
    )
    return together.take(rng.permutation(len(together)))


def attacked(attacks, nominal, classifier, limit, seed):
    """Attacked images, and which of them have changed together with the answer."""
    images = Adversarial(attacks, limit=limit, chunk_size=1000).make(nominal, classifier=classifier, seed=seed)
    return images, images.columns["success"] & (images.columns["epsilon"] > 0)


def one_run(number, model, data, kept, fresh, arguments):
    """All numbers of one model."""
    clock = Clock()
    classifier = Classifier(model, class_names=data.train.class_names, batch_size=1000, memory_limit=64 << 30)
    learn, calibrate, judged = shared_out(data, arguments, number)
    corruptions = [name for name in MIXES[arguments.mix] if name in held_out_corruptions()]
    fooling, fooled = attacked(LEARNT_ATTACKS, learn, classifier, arguments.attacked, number)
    adversarial, changed = attacked(HELD_OUT_ATTACKS, judged, classifier, arguments.attacked, number + 100)
    clock("attacked")
    sets = {
        "learn": learn,
        "calibrate": calibrate,
        "nominal": judged,
        "learn ambiguous": fresh,
        "learn corrupted": Corrupted(learnt_corruptions()).make(learn, seed=number),
        "learn adversarial": fooling.take(fooled),
        "learn invalid": invalid_images(learn, seed=number),
        "ambiguous": kept,
        "adversarial": adversarial,
        "corrupted": Corrupted(corruptions).make(judged, seed=number + 100),
        "invalid": arguments.other_images,
        "invalid, known sorts": invalid_images(judged, seed=number + 100),
    }
    training = mixed(data.train, load_images(arguments.kept / "training.npz"), arguments.fit_images, number)
    jury = SupervisorSet(recommended(classifier))
    alone = [*make_all(["max_softmax", "deep_gini"]), make("dsa", other_distances="lazy")]
    seen = classifier.observe(training, jury.needs)
    clock("observed")
    jury = jury.fit(seen, training.labels)
    alone = {f"{one.name} alone": one.fit(seen, training.labels) for one in alone}
    clock("fitted")
    scores, singles = {}, {}
    for name, images in sets.items():
        observation = classifier.observe(images, jury.needs)
        scores[name] = jury.score(observation)
        singles[name] = {label: one.score(observation) for label, one in alone.items()}
        singles[name] |= dict(zip(jury.labels, scores[name].T, strict=True))
        if name == "learn":
            costs = jury.costs(observation)
    clock("scored")
    anomalies = {OF_STRESS[kind]: scores[f"learn {kind}"] for kind in OF_STRESS}
    sorts = {OF_STRESS[kind]: sets[f"learn {kind}"].columns[column] for kind, column in SORTS.items()}
    panel = fit_panel(scores["learn"], anomalies, sorts=sorts, seed=number)
    known = {
        OF_STRESS[kind]: Examined(
            scores[f"learn {kind}"], looks_of(sets[f"learn {kind}"].images), sorts.get(OF_STRESS[kind])
        )
        for kind in OF_STRESS
    }
    naming = fit_naming(Examined(scores["learn"], looks_of(sets["learn"].images)), known)
    chances = {
        name: naming.chances(Examined(values, looks_of(sets[name].images)).values) for name, values in scores.items()
    }
    clock("learnt")
    row = {"run": number, "corruptions": corruptions, "sizes": {name: len(one) for name, one in sets.items()}}
    row |= results(panel, chances, scores, singles, changed)
    row["cascades"] = [cascaded(panel, scores, anomalies, sorts, costs, share, number) for share in BUDGETS]
    row["costs_ms"] = dict(zip(jury.labels, costs.round(4).tolist(), strict=True))
    clock("evaluated")
    return row | {"seconds": clock.laps}


def results(panel, chances, scores, singles, changed):
    """Detection and false alarms of a panel, and the verdicts of a naming."""
    judged = {name: panel.combine(values) for name, values in scores.items() if not name.startswith("learn")}
    calibration = Calibration.of(judged["calibrate"][0])
    alarms = {name: calibration.p_values(statistics) <= RATE for name, (statistics, _) in judged.items()}
    table = {"panel": {name: auroc(judged["nominal"][0], judged[name][0]) for name in COLUMNS}}
    for label in singles["nominal"]:
        table[label] = {name: auroc(singles["nominal"][label], singles[name][label]) for name in COLUMNS}
    best = {name: max(row[name] for label, row in table.items() if label != "panel") for name in COLUMNS}
    verdicts = {}
    for name in (*COLUMNS, "invalid, known sorts"):
        kind = ANOMALIES.index(OF_STRESS[name.partition(",")[0]])
        rows = changed if name == "adversarial" else np.ones(len(alarms[name]), dtype=bool)
        named = chances[name][rows].argmax(axis=1)
        right = named == kind
        share = np.bincount(named, minlength=len(ANOMALIES)) / len(right)
        verdicts[name] = {
            "all": float(right.mean()),
            "alarms": float(right[alarms[name][rows]].mean()),
            "named": dict(zip(ANOMALIES, share.round(4).tolist(), strict=True)),
        }
    strict, known = COLUMNS, ("ambiguous", "adversarial", "corrupted", "invalid, known sorts")
    return {
        "auroc": table,
        "best_single": best,
        "margin": {name: table["panel"][name] - best[name] for name in COLUMNS},
        "detected": {name: wilson(int(alarms[name].sum()), len(alarms[name])).to_dict() for name in COLUMNS},
        "false_alarms": wilson(int(alarms["nominal"].sum()), len(alarms["nominal"])).to_dict(),
        "false_alarms_expected": realised_rate(len(alarms["calibrate"]), RATE).to_dict(),
        "verdicts": verdicts,
        "verdict_accuracy": {
            "other data set as invalid": float(np.mean([verdicts[name]["all"] for name in strict])),
            "known sorts of invalid": float(np.mean([verdicts[name]["all"] for name in known])),
        },
        "temperature": panel.temperature,
    }


def cascaded(panel, scores, anomalies, sorts, costs, share, seed):
    """What is detected under a latency budget."""
    budget = share * float(costs.sum())
    cascade = fit_cascade(scores["learn"], anomalies, costs, budget, sorts=sorts, rule="learnt", seed=seed)
    found = {name: cascade.combine_scores(panel, scores[name])[1] for name in ("calibrate", "nominal", *COLUMNS)}
    threshold = Threshold.at(found["calibrate"], RATE)
    whole = Threshold.at(panel.combine(scores["calibrate"])[0], RATE)
    detected = {name: float(threshold.alarms(found[name]).mean()) for name in COLUMNS}
    full = {name: float(whole.alarms(panel.combine(scores[name])[0]).mean()) for name in COLUMNS}
    return {
        "budget_ms": budget,
        "all_ms": float(costs.sum()),
        "asked_about_nominal": float((found["nominal"] > -1e5).mean()),
        "false_alarms": float(threshold.alarms(found["nominal"]).mean()),
        "detected": detected,
        "lost": {name: full[name] - detected[name] for name in COLUMNS},
    }


class Clock:
    """Seconds between calls, by what was done."""

    def __init__(self):
        self.laps, self.last = {}, time.perf_counter()

    def __call__(self, what):
        """Note the time since the last call."""
        now = time.perf_counter()
        self.laps[what], self.last = round(now - self.last, 1), now
        say(f"{what} in {self.laps[what]} s")


def main():
    """Run, write after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--other", required=True, help="the data set whose test images are invalid here")
    parser.add_argument("--kept", type=Path, required=True, help="made by ambiguous_images.py --keep")
    parser.add_argument("--mix", required=True, choices=list(MIXES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--learn", type=int, default=2500, help="test images that teach the panel")
    parser.add_argument("--calibrate", type=int, default=2500, help="test images that set the threshold")
    parser.add_argument("--attacked", type=int, default=1500)
    parser.add_argument("--fit-images", type=int, default=30_000, help="training images of the supervisors")
    parser.add_argument("--autoencoders", type=int, default=2, help="for each pair of classes, to learn from")
    parser.add_argument("--epochs", type=int, default=80, help="of the autoencoders")
    arguments = parser.parse_args()
    began = time.perf_counter()
    data = load(arguments.data)
    arguments.other_images = load(arguments.other).test
    kept = load_images(arguments.kept / "test.npz")
    generator = AmbiGuess(autoencoders=arguments.autoencoders, epochs=arguments.epochs)
    fresh = generator.generate(data.train, arguments.learn, seed=4321).images
    say(f"{len(fresh)} fresh ambiguous images after {time.perf_counter() - began:.0f} s")
    models = Fleet.load(arguments.kept / "mixed", lambda seed: zoo.make("simple_cnn", seed=seed))
    rows = []
    for number in range(arguments.runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.append(one_run(number, models[number], data, kept, fresh, arguments))
        say(json.dumps({key: rows[-1][key] for key in ("margin", "verdict_accuracy", "false_alarms")}))
        write(arguments.out, record(arguments, data, rows))


def record(arguments, data, rows):
    """The record of the runs so far."""
    hidden = ("data", "other", "kept", "out", "other_images")
    shown = {key: str(value) for key, value in vars(arguments).items() if key not in hidden}
    return {
        **provenance(shown | {"false_alarm_rate": RATE}, data),
        "smallest_margin": min(min(row["margin"].values()) for row in rows),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
