"""What a guard names rightly if it also asks the model about a changed image: a mirror image, a slight blur, or both.

    python photo_scores.py cifar10.npz --model resnet20/model.toml --kept kept --altered ...
    python photo_consistency.py --kept kept --models cifar10_resnet20 --out results/photos/verdict_consistency.json

Reads what `photo_scores.py --altered` has kept. Panels, alarms and turns are those of `photo_panel.py`: a panel and a
naming are fitted without some sorts and judge them on other images. Only the naming differs: without changes, with the
two features of `secondguess.guard.consistency` for the mirror image, for the blur, and for both. `kept` is the share of
images of each kind whose answer stays; a guard uses the mirror image if that is at least `KEPT` of the nominal images
that are learnt from, and `guard` says whether it would.

Blends (for digits: AmbiGuess) are the one sort of ambiguous images, and so always met; they are counted apart
(`blends`), and `others` are the means over the other three kinds, the sorts of each weighing the same. Which change is
used was chosen on the `learn` half alone, split in two at random (`--choose`: means over three such splits).
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from photo_panel import KINDS, RATE, RECOMMENDED, SURE, TURNS, Fold, _in_rows, folds, summary_of, verdicts
from photo_panel import read as read_parts

from secondguess.guard.consistency import KEPT, MEASURED, moved
from secondguess.guard.naming import LOOKS
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tables import Cell

SETS = {
    "without": (),
    "mirror": ("flip",),
    "blur": ("blur",),
    "mirror and blur": ("flip", "blur"),
}
CHANGES = ("flip", "blur")
SPLITS = 3
BLENDS = "ambiguous"
NAMES = ("single", "right", "pairs_right", "likeliest")


def read(kept: Path, name: str):
    """The labels of the supervisors, the shares kept, and the parts, whose looks end with those of `CHANGES`."""
    labels, _, parts = read_parts(kept, name)
    scores, images = np.load(kept / f"{name}.npz"), np.load(kept / f"{name}_images.npz").files
    shares = {change: {} for change in CHANGES}
    for (half, kind), part in parts.items():
        places = [place for place in images if place.startswith(f"{half}/{kind}/")]
        found = {
            key: np.concatenate([scores[f"{place}/{key}"] for place in places]) for key in ("probabilities", *CHANGES)
        }
        before = found.pop("probabilities")
        more = [moved(before, found[change]) for change in CHANGES]
        parts[half, kind] = replace(part, looks=np.hstack([part.looks, *more]))
        for change, after in found.items():
            shares[change][f"{half} {kind}"] = float((after.argmax(axis=1) == before.argmax(axis=1)).mean())
    return labels, shares, parts


def halved(parts, seed):
    """The `learn` half as both halves: each image is in one of them."""
    rng, found = np.random.default_rng(seed), {}
    for kind in ("nominal", *KINDS):
        part = parts["learn", kind]
        first = rng.random(len(part.sorts)) < 0.5
        found["learn", kind], found["judge", kind] = part.take(first), part.take(~first)
    return found


def looks_with(changes):
    """The places of the looks that a guard has, and of those of some changes."""
    more = [len(LOOKS) + len(MEASURED) * CHANGES.index(change) + place for change in changes for place in (0, 1)]
    return [*range(len(LOOKS)), *more]


def named(folded, changes):
    """What `photo_panel.py` says of verdicts, with blends apart."""
    found = summary_of(verdicts([fold.naming_by(looks_with(changes), changes) for fold in folded]))
    others, blends = (
        [one for place, one in found["sorts"].items() if place.startswith(f"{BLENDS}, ") == apart]
        for apart in (False, True)
    )
    kinds = [[place for place in found["sorts"] if place.startswith(f"{kind}, ")] for kind in KINDS if kind != BLENDS]
    rows = [np.mean([_row(found["sorts"][place]) for place in places], axis=0) for places in kinds]
    found["others"] = _shares(np.mean(rows, axis=0)) | {"alarms": sum(one["alarms"] for one in others)}
    found["blends"] = _shares(np.mean([_row(one) for one in blends], axis=0))
    found["blends"]["alarms"] = sum(one["alarms"] for one in blends)
    return found


def _row(one):
    return np.array([one[name] for name in NAMES]) / one["alarms"]


def _shares(row):
    single, right, pairs, likeliest = map(float, row)
    return {
        "single": single,
        "right": right / single if single else None,
        "pairs_right": pairs / (1 - single) if single < 1 else None,
        "likeliest": likeliest,
    }


def chosen(parts, columns):
    """Means over random halves of the `learn` half."""
    found = {title: [] for title in SETS}
    for half in (halved(parts, seed) for seed in range(SPLITS)):
        folded = [Fold(half, columns, out) for out in folds(half)]
        for title, changes in SETS.items():
            found[title].append(named(folded, changes)["others"])
    keys = ("single", "right", "likeliest")
    return {title: {key: float(np.mean([one[key] for one in rows])) for key in keys} for title, rows in found.items()}


def measured(kept: Path, name: str, *, choose: bool):
    """One model."""
    labels, shares, parts = read(kept, name)
    columns = [labels.index(one) for one in RECOMMENDED]
    if choose:
        return {"chosen": chosen(parts, columns)}
    found = {"kept": {"mirror": shares["flip"], "blur": shares["blur"]}}
    found["guard"] = shares["flip"]["learn nominal"] >= KEPT
    folded = [Fold(parts, columns, out) for out in folds(parts)]
    for title, changes in SETS.items():
        found[title] = named(folded, changes)
        say(f"{name}, {title}: {found[title]['others']}")
    return found


def cells_of(models):
    """The table of `study table photos-verdict_consistency`."""
    cells = {}
    for name, one in models.items():
        for title in (title for title in SETS if title in one):
            for group in (*KINDS[1:], "others", "blends"):
                for column in ("right", "single", "likeliest"):
                    if one[title][group][column] is not None:
                        cells[f"{name}, {title}", f"{column}, {group}"] = Cell(one[title][group][column])
    return _in_rows(cells)


def main():
    """The models, beside those that the record has already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--choose", action="store_true", help="only what the choice was made by")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    models = json.loads(arguments.out.read_text("utf-8"))["models"] if arguments.out.exists() else {}
    for name in arguments.models:
        models[name] = models.get(name, {}) | measured(arguments.kept, name, choose=arguments.choose)
        settings = {
            "models": list(models),
            "false_alarms": RATE,
            "min_probability": SURE,
            "turns": TURNS,
            "keeps": KEPT,
        }
        title = "Verdicts on kinds that were not met, among alarms, with and without answers to changed images"
        write(arguments.out, {**provenance(settings), "title": title, "cells": cells_of(models), "models": models})


if __name__ == "__main__":
    main()
