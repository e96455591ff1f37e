"""The companion sets of the hubris paper at its own size: runs of 100 + 50 epochs, the best of six settings in each.

    python companion_runs.py mnist.npz --name mnist --folder kept/mnist --out results/hubris/mnist_runs.json
    python companion_runs.py mnist.npz --name mnist --folder kept/mnist --families convnext,vit --models 3 --out ...

Settings are those of the studies of this paper, but for ours: the variant is that of the authors' code alone, and no
images are rejected. A run is done when its part lies in the folder, beside its images and the estimators, and is not
done again; `--only 1` does one of them, so that several processes, or a GPU that is lent for minutes, can share the
work. Parts of other settings or data are refused. The record holds all runs whose parts are there. On one H200 a run
takes ten minutes, three at once twenty.

The second call asks models about the images, which needs no GPU. They are trained once for each data set, as in the
paper, and asked about the images of every run; what they say is kept in the folder, too, after each family. The
reference of relative hubris is the estimator of the same run that no generator has seen. `--estimators` trains
estimators only.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from secondguess import load
from secondguess.images import load_images, save_npz
from secondguess.metrics.hubris import relative_hubris
from secondguess.progress import Lines
from secondguess.stress.ambiguous.companion import assemble_companion
from secondguess.stress.ambiguous.gan_training import sample_sheet
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.registry import get
from secondguess_lab.studies.tasks.companion_measures import of_classes, unit
from secondguess_lab.studies.tasks.companion_models import SMALLEST, predict, scored, trained
from secondguess_lab.studies.tasks.hubris import CompanionPlan, Companions

STUDY = get("hubris-table1")
APART = ("data", "classes", "runs")
OURS = {"variants": ["ambigan:alternate:disjoint"], "draws": 0, "families": []}  # what differs from the study's
RATES = {"mnist": 2e-4, "fashion_mnist": 2e-4, "chest_xray": 1e-3}  # of the paper
SMALLER = ("chest_xray",)  # of 28 pixels, not of 128
STAGES = {"stage1": "stage1", "ambigan": "ambigan alternate disjoint"}  # files and names of the sets


def main():
    """Make what is missing, or ask models, and write the record."""
    arguments = parsed()
    data, chosen, folder = load(arguments.data), settings_of(arguments), arguments.folder
    made_of = {"settings": chosen, "data": data.fingerprint}
    plans = [CompanionPlan.of(STUDY.scale["classes"][arguments.name], chosen, run) for run in range(arguments.runs)]
    folder.mkdir(parents=True, exist_ok=True)
    for run, plan in enumerate(plans):
        if arguments.only not in (None, run):
            continue
        made = Companions(data, plan, folder=folder, progress=Lines(every=20))
        if arguments.estimators:
            say({kind: [one.count for one in both] for kind, both in made.judges.items()})
        elif kept_part(folder / f"run_{run}.json", made_of) is None:
            write(folder / f"run_{run}.json", measured(made, folder, data) | {"made_of": made_of})
    if arguments.estimators:
        return
    parts = [kept_part(folder / f"run_{run}.json", made_of) for run in range(arguments.runs)]
    runs = [part for part in parts if part is not None]
    if arguments.families:
        if len(runs) < arguments.runs:
            raise SystemExit(f"There are {len(runs)} of {arguments.runs} runs in {folder}; make the others first.")
        plan = replace(plans[0], families=arguments.families, models=arguments.models)
        asking = {"made_of": made_of, "runs": len(runs), "models": arguments.models}
        for rows in asked(data, plan, len(runs), folder, known_rows(folder, asking)):
            write(folder / "hubris.json", {"rows": rows, **asking, **provenance(vars(arguments))})
    record = {
        **provenance(chosen | {"runs": arguments.runs}, data),
        "scale": "paper" if full(chosen, arguments.name, len(runs)) else "own",
        "classes": [data.class_names[label] for label in plans[0].classes],
        "runs": runs,
    }
    said = kept_part(folder / "hubris.json", made_of)
    if said is not None and said["runs"] == len(runs):
        record["hubris"] = said
    write(arguments.out, record)


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--name", choices=list(RATES), required=True, help="what the studies call the data")
    parser.add_argument("--runs", type=int, default=STUDY.scale["runs"])
    parser.add_argument("--only", type=int, help="this run alone, from 0")
    parser.add_argument("--folder", type=Path, required=True, help="for estimators, images and parts of the record")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lr", type=float, help="2e-4 if left out, for X-rays 1e-3, as in the paper")
    parser.add_argument("--set", action="append", default=[], help="another setting of the study, as epochs=[50,25]")
    parser.add_argument("--quick", action="store_true", help="the study's small settings, to try it out")
    parser.add_argument("--compiled", action="store_true", help="let PyTorch compile the networks on a GPU")
    parser.add_argument("--estimators", action="store_true", help="train the estimators and nothing else")
    parser.add_argument("--families", type=lambda text: text.split(","), default=[], help="ask these: convnext,vit")
    parser.add_argument("--models", type=int, default=STUDY.scale["models"], help="of each family")
    arguments = parser.parse_args()
    if arguments.only is not None and not 0 <= arguments.only < arguments.runs:
        parser.error(f"--only {arguments.only} is none of the {arguments.runs} runs, which are counted from 0")
    return arguments


def settings_of(arguments):
    """Those of the study with ours, and what the command line says."""
    whole = {**STUDY.scale, **(STUDY.quick if arguments.quick else {})}
    chosen = {key: value for key, value in whole.items() if key not in APART} | OURS
    for text in arguments.set:
        key, _, value = text.partition("=")
        if key not in chosen or key in (*OURS, "recipe"):
            raise SystemExit(f"There is no setting {key!r} to be changed here; see the study hubris-table1.")
        chosen[key] = json.loads(value)
    usual = whole["recipe"]["lr"] if arguments.quick else RATES[arguments.name]
    lr = usual if arguments.lr is None else arguments.lr
    return chosen | {"recipe": {**whole["recipe"], "lr": lr, "compiled": arguments.compiled}}


def full(chosen, name, runs):
    """Whether this is the paper's size, with its learning rate."""
    same = [key for key in chosen if key not in (*OURS, "recipe")]
    as_published = all(chosen[key] == STUDY.scale[key] for key in same) and chosen["recipe"]["lr"] == RATES[name]
    return as_published and runs >= STUDY.scale["runs"] and name not in SMALLER


def kept_part(path, made_of):
    """A part of the record that lies in the folder, or None; one of other settings or data is refused."""
    if not path.exists():
        return None
    part = json.loads(path.read_text("utf-8"))
    if part.get("made_of") != made_of:
        raise SystemExit(f"{path} was made of other data or with other settings; name another --folder.")
    return part


def measured(made, folder, data):
    """One run: everything that is known of estimators, training and sets, and its images as files."""
    began, run = time.perf_counter(), made.plan.seed
    found = {"run": run, "seconds_until": {}}
    _ = made.stage1  # before the estimators, which another process may be training
    found["seconds_until"]["stage1"] = time.perf_counter() - began
    for part, value in made.parts():
        found[part] = value
        found["seconds_until"][part] = time.perf_counter() - began
        say(f"run {run}, {part}: {time.perf_counter() - began:.0f} s since the beginning")
    for file, name in STAGES.items():
        one = made.sets[name]
        images = assemble_companion(data.train, made.plan.classes, one, name=name, seed=run)
        save_npz(images, folder / f"{file}_{run}.npz")
        sheet = sample_sheet(torch.from_numpy(unit(one.images[:128])))
        (folder / f"{file}_{run}.png").write_bytes(sheet)
    head = provenance({})
    del head["settings"]  # they stand in what the part is made of
    return head | found


def known_rows(folder, asking):
    """What models have said of the same runs before; families that are among them are not trained again."""
    kept = kept_part(folder / "hubris.json", asking["made_of"])
    return kept["rows"] if kept is not None and asking.items() <= kept.items() else []


def asked(data, plan, runs, folder, rows):
    """After each family all rows so far: one for each model and each run's images, as `ask_models` makes them."""
    images, which = of_classes(data.train, plan.classes)
    real, truth = of_classes(data.test, plan.classes)
    rows, shown = list(rows), []
    for run in range(runs):
        made = load_images(folder / f"ambigan_{run}.npz").images[:]
        (estimators,) = Companions(data, replace(plan, seed=run), folder=folder).judges.values()
        shown.append((made, np.clip(estimators[1].predict(made), SMALLEST, 1 - SMALLEST)))
    yield rows
    for family in plan.families:
        if any(row["family"] == family for row in rows):
            continue
        fleet = trained(family, plan.models, images, which, plan.model_epochs, plan.seed, plan.device)
        for member, p in enumerate(predict(fleet, family, real, plan.device)):
            rows.append({"family": family, "seed": member, "set": "real", **scored(p)})
            rows[-1]["accuracy"] = float(((p < 0.5) == truth).mean())
        for run, (made, reference) in enumerate(shown):
            for member, p in enumerate(predict(fleet, family, made, plan.device)):
                row = {"family": family, "seed": member, "set": STAGES["ambigan"], "run": run, **scored(p)}
                rows.append(row | {"relative": relative_hubris(p, reference)})
        say(f"{family}: {rows[-1]}")
        yield rows


if __name__ == "__main__":
    main()
