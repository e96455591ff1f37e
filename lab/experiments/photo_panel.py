"""Does the panel of a guard win on photographs too, and does it know what is wrong, on kinds that it has not met?

    python photo_scores.py cifar10.npz --model resnet20/model.toml --kept kept ...
    python photo_panel.py --kept kept --models cifar10_resnet20 cifar10_vgg --out results/photos

Reads what `photo_scores.py` has kept, writes `panel.json` and `verdict.json`, and `single.json` of supervisors alone.
Kinds are left out in five turns: three corruptions, one attack and one source of invalid images at a time. A panel and
a naming are fitted without them, on one half of the images, and judge them on the other half. Ambiguous images are
learnt from blends and judged on blends of other images and, where they were kept, on those of a generator; another data
set as invalid images is never learnt from. Mistakes are wrong answers against right ones among nominal images.

The AUROC of a column is the mean over its sorts, and so are the shares of verdicts. An alarm has 5 % false alarms among
the nominal images of the judged half that are answered rightly. A verdict is single if the sureness of its kind is .7
or more; single verdicts and honest pairs are counted apart, of images with an alarm. "Before" is a panel whose network
decides alone, and names kinds by the scores alone. Panels that protect against errors or novelty alone stand beside the
one that protects against both; "mistakes among corrupted" compares wrong with right answers to corrupted images.

How weights are found and what names are learnt from was chosen on the `learn` half alone, split in two at random, with
sorts left out in turns as here; the older choice of most supervisors had the judged images in view. The best single
supervisor of a column is chosen on what is judged, and so looks better than it is; `margins_others` leaves out the
supervisor of pixels. Intervals are of 200 bootstrap samples of the judged images. The ceiling is what weights reach
that are chosen on the judged images themselves, for all columns at once.
"""

from __future__ import annotations

import argparse
import json
import warnings
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from secondguess import ImageSet
from secondguess.guard.naming import Examined, learn_names, looks_of
from secondguess.guard.panel import fit_panel
from secondguess.guard.protect import Answers, Stressed, examples
from secondguess.guard.verdicts import OF_STRESS
from secondguess.guard.weighing import weigh
from secondguess.metrics import auroc
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tables import Cell, Table

KINDS = tuple(OF_STRESS)  # ambiguous, corrupted, adversarial, invalid
COLUMNS = ("mistakes", *KINDS)
WITHIN = "corrupted.mistakes"  # wrong answers against right ones among corrupted images
NEVER_LEARNT = ("flow", "other data set")
GENERATED = ("foreign_objects", "photos", "shuffled", *NEVER_LEARNT)
RECOMMENDED = (
    "entropy", "pcs", "appearance", "max_logit", "energy", "dissector", "mdsa", "relative_mahalanobis",
    "normalised_mahalanobis", "vim", "dsa", "mdsa_global@25%", "relative_mahalanobis@25%", "mdsa_global@50%",
    "relative_mahalanobis@50%",
)  # fmt: skip
RATE, SURE, TURNS, SAMPLES = 0.05, 0.7, 5, 200


@dataclass(frozen=True)
class Part:
    """Images of one kind: scores (n, m), looks (n, q), sorts (n,), and which answers are right and wrong."""

    scores: np.ndarray
    looks: np.ndarray
    sorts: np.ndarray
    right: np.ndarray
    wrong: np.ndarray

    def take(self, rows) -> Part:
        """Some of them."""
        return Part(*(getattr(self, name)[rows] for name in ("scores", "looks", "sorts", "right", "wrong")))

    def stressed(self, columns) -> Stressed:
        """As a panel takes them."""
        return Stressed(self.scores[:, columns], Answers(self.right, self.wrong), self.sorts)

    def examined(self, columns, looks=slice(None)) -> Examined:
        """As a naming takes them, with all looks or some."""
        return Examined(self.scores[:, columns], self.looks[:, looks], self.sorts)


def read(kept: Path, name: str):
    """The labels of the supervisors, what they cost, and the parts by half and kind."""
    scores, images = np.load(kept / f"{name}.npz"), np.load(kept / f"{name}_images.npz")
    parts = {}
    for half in ("learn", "judge"):
        for kind in ("nominal", *KINDS):
            places = [place for place in images.files if place.startswith(f"{half}/{kind}/")]
            found = {
                key: np.concatenate([scores[f"{place}/{key}"] for place in places])
                for key in ("scores", "sorts", "right", "wrong")
            }
            looks = np.concatenate([looks_of(_source(images[place])) for place in places])
            sorts = np.array([_sort(kind, str(sort)) for sort in found["sorts"]])
            parts[half, kind] = Part(found["scores"], looks, sorts, found["right"], found["wrong"])
    labels = [str(label).partition(":")[0] for label in scores["labels"]]
    return labels, scores["costs"], parts


def _source(pixels):
    return ImageSet.from_arrays(pixels, layout="NCHW").images


def _sort(kind: str, sort: str) -> str:
    """All textures are one sort."""
    return "textures" if kind == "invalid" and sort not in GENERATED else sort


def folds(parts):
    """What is left out of each kind, by turn; nothing of a kind that has one sort."""
    sorts = {kind: np.unique(parts["learn", kind].sorts) for kind in KINDS}
    return [{kind: _turn(kind, own, turn) for kind, own in sorts.items()} for turn in range(TURNS)]


def _turn(kind, sorts, turn):
    if len(sorts) < 2:
        return []
    return list(sorts[turn::TURNS]) if kind == "corrupted" else [sorts[turn % len(sorts)]]


def left_out(part: Part, sorts):
    """The images that are judged where these sorts were left out."""
    return np.isin(part.sorts, [*NEVER_LEARNT, *sorts]) if sorts else np.ones(len(part.sorts), dtype=bool)


class Fold:
    """A panel and a naming that have not met some sorts, and what is judged with them."""

    def __init__(self, parts, columns, out, protect="both") -> None:
        nominal, self.columns = parts["learn", "nominal"], columns
        learn = {kind: parts["learn", kind].take(~np.isin(parts["learn", kind].sorts, out[kind])) for kind in KINDS}
        taught = examples(
            protect,
            nominal.scores[:, columns],
            Answers(nominal.right, nominal.wrong),
            {kind: one.stressed(columns) for kind, one in learn.items()},
        )
        self.panel = fit_panel(taught.nominal, taught.anomalies, sorts=taught.sorts, harmless=taught.harmless)
        self.nominal, self.learn = nominal, learn
        self._learn_names(slice(None), ())
        self.judged = parts["judge", "nominal"]
        self.strange = {kind: parts["judge", kind].take(left_out(parts["judge", kind], out[kind])) for kind in KINDS}
        self.usual, self.threshold = self._usual()

    def _learn_names(self, looks, changes) -> None:
        self.looks = looks
        self.naming = learn_names(
            self.panel,
            RATE,
            self.nominal.examined(self.columns, looks),
            Answers(self.nominal.right, self.nominal.wrong),
            {kind: one.examined(self.columns, looks) for kind, one in self.learn.items()},
            changes,
        )

    def naming_by(self, looks, changes) -> Fold:
        """The same, with names by some of the looks, of which the last are of changed images."""
        fold = copy(self)
        fold._learn_names(looks, changes)
        return fold

    def _usual(self):
        usual = self.statistics(self.judged)
        return usual, np.quantile(usual[self.judged.right], 1 - RATE)

    def before(self) -> Fold:
        """The same, with what the network alone says."""
        fold = copy(self)
        fold.panel, fold.naming = replace(self.panel, shares=np.zeros(0)), None
        fold.usual, fold.threshold = fold._usual()
        return fold

    def statistics(self, part):
        """Of the panel."""
        return self.panel.combine(part.scores[:, self.columns])[0]

    def evidence(self, part):
        """What the network and each supervisor say, as they are weighed."""
        return self.panel.evidence(part.scores[:, self.columns])

    def chances(self, part):
        """Of the kinds, and how sure the likeliest is."""
        if self.naming is None:
            chances = self.panel.combine(part.scores[:, self.columns])[1]
            return chances, chances.max(axis=1)
        chances = self.naming.chances(part.examined(self.columns, self.looks).values)
        return chances, self.naming.sureness(chances)


def detected(folded):
    """The AUROC of each column and the share of the mistakes that raise no alarm: means over turns, then over sorts."""
    found = {}
    for fold in folded:
        judged = fold.judged
        right, wrong = fold.usual[judged.right], fold.usual[judged.wrong]
        found.setdefault(("mistakes", ""), []).append(auroc(right, wrong))
        found.setdefault(("missed", ""), []).append(float((wrong <= fold.threshold).mean()))
        for kind, part in fold.strange.items():
            values = fold.statistics(part)
            for sort in np.unique(part.sorts):
                found.setdefault((kind, str(sort)), []).append(auroc(fold.usual, values[part.sorts == sort]))
            if kind == "corrupted":
                found.setdefault((WITHIN, ""), []).append(auroc(values[part.right], values[part.wrong]))
    return by_column({key: float(np.mean(values)) for key, values in found.items()})


def intervals(folded, best, labels, parts):
    """95 % bootstrap intervals of each column of the panel, and of what it is above the best single supervisor."""
    rng, judged, drawn = np.random.default_rng(0), parts["judge", "nominal"], {column: [] for column in COLUMNS}
    statistics = [{kind: fold.statistics(part) for kind, part in fold.strange.items()} for fold in folded]
    for _ in range(SAMPLES):
        rows = rng.integers(len(judged.right), size=len(judged.right))
        right, wrong = rows[judged.right[rows]], rows[judged.wrong[rows]]
        some = {key: rng.integers(2**32, size=len(part.sorts)) for key, part in parts.items() if key[0] == "judge"}
        for column in COLUMNS:
            alone, panel = judged.scores[:, labels.index(best[column])], {}
            if column == "mistakes":
                panel[""] = [auroc(fold.usual[right], fold.usual[wrong]) for fold in folded]
                single = {"": auroc(alone[right], alone[wrong])}
            else:
                whole, single = parts["judge", column], {}
                for sort in np.unique(whole.sorts):
                    mine = np.flatnonzero(whole.sorts == sort)
                    take = some["judge", column][mine] % len(mine)  # the same images for every turn and supervisor
                    own = whole.scores[mine[take], labels.index(best[column])]
                    single[sort] = auroc(alone[rows], own)
                    for fold, values in zip(folded, statistics, strict=True):
                        met = fold.strange[column].sorts == sort
                        if met.any():
                            value = auroc(fold.usual[rows], values[column][met][take])
                            panel.setdefault(sort, []).append(value)
            mean = np.mean([np.mean(values) for values in panel.values()])
            drawn[column].append((mean, mean - np.mean(list(single.values()))))
    found = {column: np.quantile(values, [0.025, 0.975], axis=0).T.tolist() for column, values in drawn.items()}
    return {
        name: {column: both[place] for column, both in found.items()} for place, name in enumerate(("now", "margins"))
    }


def ceiling(folded, best, alone):
    """What is left to the best single supervisor of each column with weights that are chosen on the judged images."""
    ideal = []
    for fold in folded:
        evidence = fold.evidence(fold.judged)
        strange = {kind: fold.evidence(part) for kind, part in fold.strange.items()}
        weights = weigh(evidence[fold.judged.right], [evidence[fold.judged.wrong], *strange.values()])
        changed = copy(fold)
        changed.panel = replace(fold.panel, shares=weights)
        changed.usual, changed.threshold = changed._usual()
        ideal.append(changed)
    seen = detected(ideal)
    return {column: seen[column] - alone[best[column]][column] for column in COLUMNS}


def by_column(found):
    """Means over the sorts of a column, and the sorts themselves."""
    columns = dict.fromkeys(kind for kind, _ in found)
    means = {name: float(np.mean([value for (kind, _), value in found.items() if kind == name])) for name in columns}
    return means | {"sorts": {f"{kind}, {sort}": value for (kind, sort), value in found.items() if sort}}


def single(part_of, column):
    """What one supervisor sees, as `detected` has it."""
    nominal = part_of["judge", "nominal"]
    usual = nominal.scores[:, column]
    limit = np.quantile(usual[nominal.right], 1 - RATE)
    found = {("mistakes", ""): auroc(usual[nominal.right], usual[nominal.wrong])}
    found["missed", ""] = float((usual[nominal.wrong] <= limit).mean())
    for kind in KINDS:
        part = part_of["judge", kind]
        for sort in np.unique(part.sorts):
            found[kind, str(sort)] = auroc(usual, part.scores[part.sorts == sort, column])
    spoilt = part_of["judge", "corrupted"]
    values = spoilt.scores[:, column]
    return by_column(found) | {WITHIN: auroc(values[spoilt.right], values[spoilt.wrong])}


def verdicts(folded):
    """Of the images with an alarm, by sort: all, single verdicts, right ones, pairs with the truth, likeliest right."""
    counts = {}
    for fold in folded:
        for kind, part in fold.strange.items():
            alarmed = part.take(fold.statistics(part) > fold.threshold)
            chances, sureness = fold.chances(alarmed)
            true = np.argsort(-chances, axis=1) == fold.panel.anomalies.index(OF_STRESS[kind])
            sure, first, both = sureness >= SURE, true[:, 0], true[:, :2].any(axis=1)
            for sort in np.unique(alarmed.sorts):
                columns = np.stack([np.ones_like(sure), sure, sure & first, ~sure & both, first], axis=1)
                found = columns[alarmed.sorts == sort].sum(axis=0)
                counts[kind, str(sort)] = counts.get((kind, str(sort)), 0) + found
    return counts


def summary_of(counts):
    """Shares by kind, its sorts weighing the same, as in the AUROC of a column; and of all kinds together."""
    table, names = {}, ("single", "right", "pairs_right", "likeliest")
    for kind in KINDS:
        mine = [found for (other, _), found in counts.items() if other == kind]
        shares = np.mean([found[1:] / found[0] for found in mine], axis=0)
        table[kind] = _shares(shares) | {"alarms": int(sum(found[0] for found in mine)), "of_all": shares.tolist()}
    table["all"] = _shares(np.mean([table[kind].pop("of_all") for kind in KINDS], axis=0))
    sorts = {
        f"{kind}, {sort}": dict(zip(("alarms", *names), found.tolist(), strict=True))
        for (kind, sort), found in counts.items()
    }
    return table | {"sorts": sorts}


def _shares(shares):
    """Single verdicts among alarms, right ones among them, pairs with the truth among the rest, and likeliest right."""
    single, right, pairs, likeliest = (float(share) for share in shares)
    return {
        "single": single,
        "right": right / single if single else None,
        "pairs_right": pairs / (1 - single) if single < 1 else None,
        "likeliest": likeliest,
    }


def measured_panel(kept: Path, name: str):
    """What one model's panel sees, before and now, beside single supervisors."""
    labels, costs, parts = read(kept, name)
    columns = [labels.index(one) for one in RECOMMENDED]
    alone = {label: single(parts, place) for place, label in enumerate(labels)}
    now = [Fold(parts, columns, out) for out in folds(parts)]
    best = {column: max(alone, key=lambda label: alone[label][column]) for column in COLUMNS}
    panel = {"now": detected(now), "before": detected([fold.before() for fold in now])}
    panel |= {"entropy": alone["entropy"], "single": alone}
    panel |= {
        "best": best,
        "margins": {column: panel["now"][column] - alone[best[column]][column] for column in COLUMNS},
    }
    for protect in ("errors", "novelty"):
        panel[protect] = detected([Fold(parts, columns, out, protect) for out in folds(parts)])
    others = {label: row for label, row in alone.items() if label != "appearance"}
    panel["margins_others"] = {
        column: panel["now"][column] - max(row[column] for row in others.values()) for column in COLUMNS
    }
    panel["intervals"] = intervals(now, best, labels, parts)
    panel["ceiling"] = ceiling(now, best, alone)
    panel["mistakes"] = int(now[0].judged.wrong.sum())
    panel["shares"] = [dict(zip(["network", *RECOMMENDED], fold.panel.shares.tolist(), strict=True)) for fold in now]
    panel["sizes"] = {f"{half} {kind}": len(part.sorts) for (half, kind), part in parts.items()}
    panel["costs_ms"] = dict(zip(labels, costs.tolist(), strict=True))
    return panel


def measured_verdicts(kept: Path, name: str):
    """What one model's guard says of alarms, before and now."""
    labels, _, parts = read(kept, name)
    columns = [labels.index(one) for one in RECOMMENDED]
    now = [Fold(parts, columns, out) for out in folds(parts)]
    verdict = {"now": summary_of(verdicts(now)), "before": summary_of(verdicts([fold.before() for fold in now]))}
    return verdict | {"temperatures": [fold.naming.temperature for fold in now]}


def measured_singles(kept: Path, name: str):
    """What one model's supervisors see, each by itself."""
    labels, _, parts = read(kept, name)
    sizes = {f"{half} {kind}": len(part.sorts) for (half, kind), part in parts.items() if half == "judge"}
    return {"single": {label: single(parts, place) for place, label in enumerate(labels)}, "sizes": sizes}


def single_cells(models):
    """The table of `study table photos-single`."""
    cells = {}
    for name, one in models.items():
        for label, row in one["single"].items():
            for column in (*COLUMNS, WITHIN, "missed"):
                cells[f"{name}, {label}", column] = Cell(row[column])
    return _in_rows(cells)


def panel_cells(models):
    """The table of `study table photos-panel`."""
    cells = {}
    for name, one in models.items():
        for column in (*COLUMNS, WITHIN, "missed"):
            cells[f"{name}, panel", column] = Cell(one["now"][column])
            cells[f"{name}, panel, protect=errors", column] = Cell(one["errors"][column])
            cells[f"{name}, panel, protect=novelty", column] = Cell(one["novelty"][column])
            cells[f"{name}, network alone", column] = Cell(one["before"][column])
            cells[f"{name}, entropy", column] = Cell(one["entropy"][column])
            singles = [row[column] for row in one["single"].values()]
            cells[f"{name}, best single", column] = Cell(min(singles) if column == "missed" else max(singles))
    return _in_rows(cells)


def verdict_cells(models):
    """The table of `study table photos-verdict`."""
    cells = {}
    for name, one in models.items():
        for when in ("now", "before"):
            for kind in (*KINDS, "all"):
                row = f"{name}, {kind}{'' if when == 'now' else ', by scores alone'}"
                for column in ("right", "single", "likeliest"):
                    value = one[when][kind][column]
                    if value is not None:
                        cells[row, column] = Cell(value)
    return _in_rows(cells)


def _in_rows(cells):
    rows = dict.fromkeys(row for row, _ in cells)
    return Table({key: cell for row in rows for key, cell in cells.items() if key[0] == row}).tidy()


def _kept(path: Path):
    """The models that a record has already."""
    return json.loads(path.read_text("utf-8"))["models"] if path.exists() else {}


RECORDS = {
    "panel": (
        measured_panel,
        panel_cells,
        "The panel of a guard on kinds it has not met: AUROC, and the share of the mistakes without an alarm",
    ),
    "verdict": (
        measured_verdicts,
        verdict_cells,
        "Verdicts on kinds that were not met, among alarms: single ones that are right, single ones, likeliest kind",
    ),
    "single": (
        measured_singles,
        single_cells,
        "Single supervisors on photographs: AUROC, and the share of the mistakes without an alarm",
    ),
}


def main():
    """The models, beside those that the records have already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the records")
    parser.add_argument("--only", choices=list(RECORDS), help="one of the records")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for record in RECORDS if arguments.only is None else [arguments.only]:
        measure, cells, title = RECORDS[record]
        file = arguments.out / f"{record}.json"
        models = _kept(file)
        for name in arguments.models:
            models[name] = measure(arguments.kept, name)
            found = models[name]
            say(f"{name}: {found.get('margins') or found.get('now', {}).get('all', 'done')}")
        head = provenance({"models": list(models), "false_alarms": RATE, "min_probability": SURE, "turns": TURNS})
        write(file, {**head, "title": title, "cells": cells(models), "models": models})


if __name__ == "__main__":
    main()
