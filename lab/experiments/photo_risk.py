"""Does the promise of a risk hold for photographs, and what becomes of it on images of another kind?

    python photo_scores.py cifar10.npz --model resnet20/model.toml --kept kept --more 5000 --severities 1 3 5 ...
    python photo_risk.py --kept kept --models cifar10_resnet20 cifar10_vgg --out results/photos/risk.json

Reads what `photo_scores.py` has kept. All its nominal images are test images, which no model was trained on. In each
of five turns as many of them as the half `learn` has are drawn to teach a panel and to plan the limits, as `Guard.fit`
does with the first half of its validation images; the panel has not met three corruptions, an attack and a source of
invalid images (the turns of `photo_panel.py`). The other nominal images are then split forty times at random: some
calibrate the promise (`--calibrate`, half of them where there are fewer), the rest tests it. Where no limit passes,
`Guard.fit` refuses; what is accepted and wrong is counted over splits with a promise. A promise is broken where more
of the accepted images are wrong than it says; what is guaranteed is that this happens in at most 5 % of all cases,
refusals among the others. A split counts that with the chance of a finite test, and images that calibrate are missing
from the test, so luck in one is bad luck in the other. Therefore it is also counted without either: the other nominal
images are taken for the whole world, calibration images are drawn from them with replacement, as often, and the risk is
that of the whole world (`drawn`).

Stress images are judged where their sort was left out, and at all splits of that turn: the share that is accepted, and
of those the share that is wrong. Corruptions are in their published strength, and at given severities. Attacks count
that fooled the model, so that all their answers are wrong, as are those to invalid images. `entropy` beside the panel
is the same promise with that score alone.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from photo_panel import KINDS, RECOMMENDED, TURNS, _in_rows, _sort, folds, left_out

from secondguess.errors import UserError
from secondguess.guard.panel import fit_panel
from secondguess.guard.protect import Answers, Stressed, examples
from secondguess.guard.risk import RiskControl
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tables import Cell

RISKS, CONFIDENCE, SPLITS = (0.01, 0.02, 0.05), 0.95, 40
RULES = ("panel", "entropy")


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of one model: all nominal images, stress images by kind and half, corruptions by severity."""

    nominal: Stressed
    learning: int  # nominal images that teach a panel
    learn: dict
    judge: dict
    spoilt: Stressed | None
    columns: list
    entropy: int

    @classmethod
    def read(cls, folder: Path, name: str) -> Kept:
        """From the files of `photo_scores.py`."""
        file = np.load(folder / f"{name}.npz")
        labels = [str(label).partition(":")[0] for label in file["labels"]]
        learn, judge = ({kind: joined(file, kind, [half]) for kind in KINDS} for half in ("learn", "judge"))
        severe = any(key.startswith("more/corrupted/") for key in file.files)
        return cls(
            joined(file, "nominal", ["learn", "judge", "more"]),
            len(joined(file, "nominal", ["learn"]).scores),
            learn,
            judge,
            joined(file, "corrupted", ["more"]) if severe else None,
            [labels.index(one) for one in RECOMMENDED],
            labels.index("entropy"),
        )

    def turns(self):
        """The sorts of each kind that are left out, by turn."""
        return folds({("learn", kind): one for kind, one in self.learn.items()})

    def panel(self, nominal, out):
        """Taught with these nominal images, and without these sorts."""
        met = {kind: one.take(~np.isin(one.sorts, out[kind])) for kind, one in self.learn.items()}
        met = {kind: Stressed(one.scores[:, self.columns], one.answers, one.sorts) for kind, one in met.items()}
        shown = examples("both", nominal.scores[:, self.columns], nominal.answers, met)
        return fit_panel(shown.nominal, shown.anomalies, sorts=shown.sorts, harmless=shown.harmless)

    def strange(self, out):
        """What is judged in a turn, by kind and by sort; corruptions also by severity."""
        sets = {}
        for kind, part in self.judge.items():
            sets[kind] = mine = part.take(left_out(part, out[kind]))
            sets |= {f"{kind}, {sort}": mine.take(mine.sorts == sort) for sort in np.unique(mine.sorts)}
        if self.spoilt is None:
            return sets
        halves = np.array([sort.split("@") for sort in self.spoilt.sorts])
        unmet = np.isin(halves[:, 0], out["corrupted"])
        for strength in np.unique(halves[:, 1]):
            sets[f"corrupted, severity {strength}"] = self.spoilt.take(unmet & (halves[:, 1] == strength))
        return sets | {
            f"corrupted, {sort}": self.spoilt.take(self.spoilt.sorts == sort)
            for sort in np.unique(self.spoilt.sorts[unmet])
        }


def joined(file, kind, halves):
    """The images of a kind in these halves: their scores, sorts, and which answers are right and wrong."""
    places = [key.removesuffix("/sorts") for key in file.files if key.endswith("/sorts")]
    places = [place for half in halves for place in places if place.startswith(f"{half}/{kind}/")]
    scores, right, wrong = (
        np.concatenate([file[f"{place}/{key}"] for place in places]) for key in ("scores", "right", "wrong")
    )
    sorts = [_sort(kind, str(sort)) for place in places for sort in file[f"{place}/sorts"]]
    return Stressed(scores, Answers(right, wrong), np.array(sorts))


def one_turn(model: Kept, out, calibrate, rng):
    """A row for each rule, risk and split of one turn: (accepted, wrong among them, all) of every set, or None."""
    order = rng.permutation(len(model.nominal.scores))
    own, rest = (model.nominal.take(rows) for rows in (order[: model.learning], order[model.learning :]))
    panel, sets, rows = model.panel(own, out), model.strange(out), []
    statistics = {
        "panel": lambda one: panel.combine(one.scores[:, model.columns])[0],
        "entropy": lambda one: one.scores[:, model.entropy],
    }
    for rule, statistic in statistics.items():
        plans = {risk: RiskControl.plan(statistic(own), own.answers.wrong, risk, CONFIDENCE) for risk in RISKS}
        values, wrong = statistic(rest), rest.answers.wrong
        strange = {name: (statistic(one), one.answers.wrong) for name, one in sets.items()}
        for _ in range(SPLITS):
            places = rng.permutation(len(values))
            first, second = places[:calibrate], places[calibrate:]
            tested = {"nominal": (values[second], wrong[second])} | strange
            drawn = rng.integers(len(values), size=calibrate)
            for risk, control in plans.items():
                limit = promised(control, values[first], wrong[first])
                counts = None if limit is None else {name: counted(limit, *both) for name, both in tested.items()}
                again = promised(control, values[drawn], wrong[drawn])
                rows.append((rule, risk, counts, None if again is None else counted(again, values, wrong)))
    return rows


def promised(control, statistics, wrong):
    """The limit that keeps a risk; None where `Guard.fit` would refuse."""
    try:
        return control.promise(statistics, wrong)[0]
    except UserError:
        return None


def counted(limit, statistics, wrong):
    """How many images are accepted, how many of these are wrong, and how many there are."""
    taken = statistics <= limit
    return int(taken.sum()), int(wrong[taken].sum()), len(taken)


def summary_of(rows, rule, risk):
    """Of all splits: how often a promise was refused and broken; accepted, and wrong among accepted, by set."""
    mine = [(counts, drawn) for one, other, counts, drawn in rows if (one, other) == (rule, risk)]
    given = [counts for counts, _ in mine if counts is not None]
    found = {"splits": len(mine)} | kept_of([counts and counts["nominal"] for counts, _ in mine], risk)
    found["drawn"] = kept_of([drawn for _, drawn in mine], risk)
    if given:
        found["sets"] = {name: shares(given, name) for name in dict.fromkeys(name for one in given for name in one)}
    return found


def kept_of(counts, risk):
    """Of all cases: how often a promise is refused, and how often it is broken; the latter also of those given."""
    given = [(accepted, wrong) for accepted, wrong, _ in (one for one in counts if one is not None)]
    broken = sum(wrong > risk * accepted for accepted, wrong in given)
    refused = 1 - len(given) / len(counts)
    return {"refused": refused, "broken": broken / len(counts), "broken_of_given": broken / max(len(given), 1)}


def shares(given, name):
    """Of all images of a set in all splits in which it was judged: the share accepted, and of these the share wrong."""
    accepted, wrong, images = np.array([one[name] for one in given if name in one]).sum(axis=0).tolist()
    return {"accepted": accepted / images, "wrong": wrong / accepted if accepted else None}


def measured(folder, name, calibrate):
    """All turns of one model."""
    model, rng = Kept.read(folder, name), np.random.default_rng(0)
    rest = len(model.nominal.scores) - model.learning
    calibrate = min(calibrate, rest // 2)
    rows = [row for out in model.turns() for row in one_turn(model, out, calibrate, rng)]
    table = {rule: {f"{risk:g}": summary_of(rows, rule, risk) for risk in RISKS} for rule in RULES}
    sizes = {"learn": model.learning, "calibrate": calibrate, "test": rest - calibrate}
    return {"accuracy": float(model.nominal.answers.right.mean()), "sizes": sizes} | table


def cells_of(models):
    """The table of `study table photos-risk`."""
    cells = {}
    for name, one in models.items():
        for rule in RULES:
            for risk, found in one[rule].items():
                row = f"{name}, {rule}, risk {risk}"
                cells[row, "refused"] = Cell(found["refused"])
                cells[row, "broken"], cells[row, "broken, drawn"] = (
                    Cell(found["broken"]),
                    Cell(found["drawn"]["broken"]),
                )
                if "sets" in found:
                    for kind in ("nominal", *KINDS):
                        cells[row, f"{kind}, accepted"] = Cell(found["sets"][kind]["accepted"])
                        if found["sets"][kind]["wrong"] is not None:
                            cells[row, f"{kind}, wrong among these"] = Cell(found["sets"][kind]["wrong"])
    return _in_rows(cells)


def main():
    """The models, beside those that the record has already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--calibrate", type=int, default=2000, help="nominal images that calibrate a promise")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    models = json.loads(arguments.out.read_text("utf-8"))["models"] if arguments.out.exists() else {}
    for name in arguments.models:
        models[name] = measured(arguments.kept, name, arguments.calibrate)
        for risk, found in models[name]["panel"].items():
            say(f"{name}, {risk}: { ({key: value for key, value in found.items() if key != 'sets'}) }")
        settings = {"models": list(models), "confidence": CONFIDENCE, "splits": TURNS * SPLITS, "risks": list(RISKS)}
        title = "A promised risk on photographs: refused, broken, and what is accepted and wrong of other images"
        write(arguments.out, {**provenance(settings), "title": title, "cells": cells_of(models), "models": models})


if __name__ == "__main__":
    main()
