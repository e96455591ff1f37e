"""What tells kinds of anomaly apart on photographs: what each group of features adds to the scores of the supervisors.

    python photo_scores.py cifar10.npz --model resnet20/model.toml --kept kept --altered ...
    python photo_features.py --kept kept --models cifar10_resnet20 cifar10_vgg --out results/photos/features.json

Reads what `photo_scores.py --altered` has kept. A naming (`secondguess.guard.naming`) is fitted on the scores of the
supervisors and one group of features at a time, and once more with all of today's, less one group or with one more. The
panel, which decides what raises an alarm, is the same for all and has met all sorts. Two questions: of sorts that names
were not learnt from (the turns of `photo_panel.py`), and of those that they were (other images of the same sorts), how
often is the likeliest kind of an image with an alarm the true one? Sorts of a kind weigh the same, and so do the four
kinds. Another data set and a generator's images are never learnt from and stand in the first question only; blends are
the one sort of ambiguous images, and so are always met: `single`, the share of alarms whose kind is named alone, and
`right`, how many of those names are the true ones, are over the other three kinds.

| group       | features                                                                                 |
|-------------|------------------------------------------------------------------------------------------|
| noise       | noise, colour noise                                                                      |
| flat        | how much of an image is flat or clipped                                                  |
| sharpness   | edges, sharpness, spikes, direction, blocks                                              |
| colour      | brightness, contrast, colour, tint                                                       |
| frequency   | the share of the spectrum in five rings                                                  |
| novelty     | the supervisors that compare with training images: `appearance`, by the pixels alone     |
| consistency | how much the answer changes in a mirror image and in a slightly blurred one: the largest |
|             | change of a probability, and the change of the entropy                                   |

`novelty` is a score and among those of the panel; it is left out of the scores and put back as a group.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from photo_panel import KINDS, RATE, RECOMMENDED, SURE, Fold, Part, _in_rows, _sort, _source, folds, left_out
from scipy.stats import entropy

from secondguess.guard.naming import LOOKS, Examined, fit_naming
from secondguess.guard.verdicts import MISTAKEN, OF_STRESS
from secondguess.supervisors.pixel_features import FEATURES, features_of
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tables import Cell

CHANGES = ("flip", "blur")
CONSISTENCY = tuple(f"{change}.{what}" for change in CHANGES for what in ("moved", "entropy"))
GROUPS = {
    "noise": ("noise", "colour_noise"),
    "flat": ("flat", "clipped"),
    "sharpness": ("edges", "sharpness", "spikes", "direction", "blocks"),
    "colour": ("brightness", "contrast", "colour", "tint"),
    "frequency": tuple(name for name in FEATURES if name.startswith("band_")),
    "novelty": ("appearance",),
    "consistency": CONSISTENCY,
}
ALL = (*FEATURES, "appearance", *CONSISTENCY)
TODAY = (*LOOKS, "appearance")
UNMET = ("flow", "other data set")


def feature_sets():
    """The sets of features that are tried beside the scores, by what they are called."""
    sets = {"scores alone": (), "today": TODAY, "all": ALL}
    sets |= {f"scores and {group}": names for group, names in GROUPS.items()}
    for group, names in GROUPS.items():
        if set(names) <= set(TODAY):
            sets[f"today without {group}"] = tuple(name for name in TODAY if name not in names)
        else:
            sets[f"today and {group}"] = (*TODAY, *names)
    return sets


def read(kept: Path, name: str):
    """The parts by half and kind; their looks are all features, in the order of `ALL`."""
    scores, images = np.load(kept / f"{name}.npz"), np.load(kept / f"{name}_images.npz")
    labels = [str(label).partition(":")[0] for label in scores["labels"]]
    parts = {}
    for half in ("learn", "judge"):
        for kind in ("nominal", *KINDS):
            places = [place for place in images.files if place.startswith(f"{half}/{kind}/")]
            found = {
                key: np.concatenate([scores[f"{place}/{key}"] for place in places])
                for key in ("scores", "sorts", "right", "wrong", "probabilities", *CHANGES)
            }
            pixels = np.concatenate([features_of(_source(images[place])) for place in places])
            novelty = found["scores"][:, [labels.index("appearance")]]
            looks = np.hstack([pixels, novelty, *(moved(found["probabilities"], found[one]) for one in CHANGES)])
            sorts = np.array([_sort(kind, str(sort)) for sort in found["sorts"]])
            parts[half, kind] = Part(found["scores"], looks, sorts, found["right"], found["wrong"])
    return labels, parts


def moved(before, after):
    """The largest change of a probability, and that of the entropy, (n, 2)."""
    return np.stack([np.abs(after - before).max(axis=1), entropy(after, axis=1) - entropy(before, axis=1)], axis=1)


class Alarms:
    """The images that raise an alarm, by a panel that has met all sorts: sorts are left out of names alone."""

    def __init__(self, parts, columns) -> None:
        fold, nominal = Fold(parts, columns, dict.fromkeys(KINDS, ())), parts["learn", "nominal"]
        self.usual = nominal.take(~nominal.wrong)
        limit = np.quantile(fold.statistics(self.usual), 1 - RATE)
        learn = {OF_STRESS[kind]: parts["learn", kind] for kind in KINDS} | {MISTAKEN: nominal.take(nominal.wrong)}
        self.learn = {kind: (learn[kind], fold.statistics(learn[kind]) > limit) for kind in fold.panel.anomalies}
        judged = {kind: parts["judge", kind] for kind in KINDS}
        self.judged = {kind: one.take(fold.statistics(one) > fold.threshold) for kind, one in judged.items()}


class Named:
    """Names of the images with an alarm, by what has not met some sorts."""

    def __init__(self, alarms: Alarms, plain, out) -> None:
        self.usual, self.plain, self.learn = alarms.usual, plain, {}
        left = {OF_STRESS[kind]: sorts for kind, sorts in out.items()}
        for kind, (part, raised) in alarms.learn.items():
            met = ~np.isin(part.sorts, left.get(kind, []))
            self.learn[kind] = part.take(met), raised[met]
        self.alarmed = {kind: part.take(left_out(part, out[kind])) for kind, part in alarms.judged.items()}

    def examined(self, part, names, alarms=None) -> Examined:
        """The scores but for `appearance`, and some of the features."""
        looks = part.looks[:, [ALL.index(name) for name in names]]
        return Examined(part.scores[:, self.plain], looks, part.sorts, alarms)

    def counts(self, names):
        """By kind and sort, of the images with an alarm: all, likeliest right, single verdicts, right ones of these."""
        learn = {kind: self.examined(part, names, alarms) for kind, (part, alarms) in self.learn.items()}
        naming = fit_naming(self.examined(self.usual, names), learn)
        found = {}
        for kind, part in self.alarmed.items():
            chances = naming.chances(self.examined(part, names).values)
            true = chances.argmax(axis=1) == naming.anomalies.index(OF_STRESS[kind])
            sure = naming.sureness(chances) >= SURE
            columns = np.stack([np.ones_like(sure), true, sure, sure & true], axis=1)
            for sort in np.unique(part.sorts):
                found[kind, str(sort)] = columns[part.sorts == sort].sum(axis=0)
        return found


def shares(counts, *, unmet):
    """Likeliest kind right, by kind and on average; single verdicts, and right ones among these, without blends.

    Sorts of a kind weigh the same. What is never met stands only beside what was not met.
    """
    rows = {
        kind: np.mean(
            [
                values[1:] / values[0]
                for (other, sort), values in counts.items()
                if other == kind and values[0] and (unmet or sort not in UNMET)
            ],
            axis=0,
        )
        for kind in KINDS
    }
    found = {kind: float(row[0]) for kind, row in rows.items()}
    _, single, right = np.mean([rows[kind] for kind in KINDS if kind != "ambiguous"], axis=0)
    found["mean"] = float(np.mean(list(found.values())))
    return found | {"single": float(single), "right": float(right / single) if single else None}


def measured(kept: Path, name: str):
    """The shares of one model, for every set of features: of sorts that were not met, and of those that were."""
    labels, parts = read(kept, name)
    columns = [labels.index(one) for one in RECOMMENDED]
    plain = [labels.index(one) for one in RECOMMENDED if one != "appearance"]
    alarms = Alarms(parts, columns)
    turns = [Named(alarms, plain, out) for out in folds(parts)]
    whole = Named(alarms, plain, dict.fromkeys(KINDS, ()))
    found = {}
    for title, names in feature_sets().items():
        counts = {}
        for turn in turns:
            for key, values in turn.counts(names).items():
                counts[key] = counts.get(key, 0) + values
        found[title] = {"unmet": shares(counts, unmet=True), "met": shares(whole.counts(names), unmet=False)}
        say(f"{name}, {title}: " + ", ".join(f"{key} {value['mean']:.3f}" for key, value in found[title].items()))
    return found


def cells_of(models):
    """The table of `study table photos-features`."""
    cells = {}
    for name, found in models.items():
        for title, both in found.items():
            for when, row in both.items():
                for column, value in ((key, value) for key, value in row.items() if value is not None):
                    cells[f"{name}, {title}", f"{column}, {when}"] = Cell(value)
    return _in_rows(cells)


def main():
    """The models, beside those that the record has already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    models = json.loads(arguments.out.read_text("utf-8"))["models"] if arguments.out.exists() else {}
    for name in arguments.models:
        models[name] = measured(arguments.kept, name)
        settings = {"models": list(models), "false_alarms": RATE, "groups": {key: list(v) for key, v in GROUPS.items()}}
        title = "What tells kinds of anomaly apart: likeliest kind right among alarms, by group of features"
        write(arguments.out, {**provenance(settings), "title": title, "cells": cells_of(models), "models": models})


if __name__ == "__main__":
    main()
