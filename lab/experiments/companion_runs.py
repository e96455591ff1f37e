"""The companion sets of the hubris paper at its own size: runs of 100 + 50 epochs, the best of six settings in each.

    python companion_runs.py mnist.npz --name mnist --runs 3 --folder kept/mnist --out results/hubris/mnist_runs.json
    python companion_runs.py mnist.npz --name mnist --runs 3 --folder kept/mnist --families convnext,vit --out ...

Settings are those of the studies of this paper, but for ours: the variant is that of the authors' code alone, and no
images are rejected. A run is done when its part lies in the folder, beside its images and the estimators, and is not
done again; `--only 1` does one of them, so that several processes, or a GPU that is lent for minutes, can share the
work. The record holds all runs whose parts are there. On one H200 a run takes ten minutes, three at once less.

The second call asks models about the images, which needs no GPU: as in the paper one of each family for each data set,
trained once, and asked about the images of every run. The reference of relative hubris is the estimator of the same run
that no generator has seen. `--estimators` trains estimators only.
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

SCALE = get("hubris-table1").scale
APART = ("data", "classes", "runs")
VARIANT = "ambigan:alternate:disjoint"
OURS = {"variants": [VARIANT], "draws": 0, "families": []}  # what differs from the study's settings
STAGES = {"stage1": "stage1", "ambigan": "ambigan alternate disjoint"}  # files and names of the sets


def main():
    """Make what is missing, or ask models, and write the record."""
    arguments = parsed()
    data = load(arguments.data)
    chosen = settings_of(arguments)
    plans = [CompanionPlan.of(SCALE["classes"][arguments.name], chosen, run) for run in range(arguments.runs)]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for run, plan in enumerate(plans):
        if arguments.only not in (None, run):
            continue
        made = Companions(data, plan, folder=arguments.folder, progress=Lines(every=20))
        if arguments.estimators:
            say({kind: [one.count for one in both] for kind, both in made.judges.items()})
        elif not part_of(arguments.folder, run).exists():
            write(part_of(arguments.folder, run), measured(made, arguments, data))
    if arguments.estimators:
        return
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(arguments.folder.glob("run_*.json"))]
    record = {
        **provenance(chosen | {"runs": arguments.runs, "models": arguments.models}, data),
        "scale": "paper" if full(chosen, len(runs)) else "own",
        "classes": [data.class_names[label] for label in plans[0].classes],
        "runs": runs,
    }
    if arguments.families:
        plan = replace(plans[0], families=arguments.families, models=arguments.models)
        record["hubris"] = {"rows": asked(data, plan, len(runs), arguments.folder)}
    write(arguments.out, record)


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--name", choices=list(SCALE["classes"]), required=True, help="what the studies call the data")
    parser.add_argument("--runs", type=int, default=SCALE["runs"])
    parser.add_argument("--only", type=int, help="this run alone")
    parser.add_argument("--folder", type=Path, required=True, help="for estimators, images and parts of the record")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lr", type=float, help="2e-4 if left out, as in the paper but for X-rays: 1e-3")
    parser.add_argument("--set", action="append", default=[], help="another setting, as epochs=[50,25]")
    parser.add_argument("--quick", action="store_true", help="the study's small settings, to try it out")
    parser.add_argument("--compiled", action="store_true", help="let PyTorch compile the networks on a GPU")
    parser.add_argument("--estimators", action="store_true", help="train the estimators and nothing else")
    parser.add_argument("--families", type=lambda text: text.split(","), default=[], help="ask these: convnext,vit")
    parser.add_argument("--models", type=int, default=SCALE["models"], help="of each family")
    return parser.parse_args()


def settings_of(arguments):
    """Those of the study with ours, and what the command line says."""
    study = get("hubris-table1")
    whole = {**study.scale, **(study.quick if arguments.quick else {})}
    chosen = {key: value for key, value in whole.items() if key not in APART} | OURS
    chosen |= {key: json.loads(value) for key, _, value in (text.partition("=") for text in arguments.set)}
    lr = {} if arguments.lr is None else {"lr": arguments.lr}
    return chosen | {"recipe": {**whole["recipe"], **lr, "compiled": arguments.compiled}}


def part_of(folder, run):
    """The part of the record that one run makes."""
    return folder / f"run_{run}.json"


def full(chosen, runs):
    """Whether this is the paper's size."""
    same = [key for key in chosen if key not in (*OURS, "recipe")]
    return runs >= SCALE["runs"] and all(chosen[key] == SCALE[key] for key in same)


def measured(made, arguments, data):
    """One run: everything that is known of estimators, training and sets, and its images as files."""
    began, run = time.perf_counter(), made.plan.seed
    found = {"run": run, "seconds_of": {}}
    if made.stage1:  # before the estimators, which another process may be training
        found["seconds_of"]["stage1"] = time.perf_counter() - began
    for part, value in made.parts():
        found[part] = value
        found["seconds_of"][part] = time.perf_counter() - began
        say(f"run {run}, {part}: {time.perf_counter() - began:.0f} s since the beginning")
    for file, name in STAGES.items():
        one = made.sets[name]
        images = assemble_companion(data.train, made.plan.classes, one, name=name, seed=run)
        save_npz(images, arguments.folder / f"{file}_{run}.npz")
        sheet = sample_sheet(torch.from_numpy(unit(one.images[:128])))
        (arguments.folder / f"{file}_{run}.png").write_bytes(sheet)
    return {**provenance(vars(arguments)), **found}


def asked(data, plan, runs, folder):
    """One row for each model and each run's images, as `ask_models` makes them."""
    images, which = of_classes(data.train, plan.classes)
    real, truth = of_classes(data.test, plan.classes)
    rows = []
    for family in plan.families:
        fleet = trained(family, plan.models, images, which, plan.model_epochs, plan.seed, plan.device)
        for member, p in enumerate(predict(fleet, family, real, plan.device)):
            rows.append({"family": family, "seed": member, "set": "real", **scored(p)})
            rows[-1]["accuracy"] = float(((p < 0.5) == truth).mean())
        for run in range(runs):
            held_out = Companions(data, replace(plan, seed=run), folder=folder).judges["disjoint"][1]
            made = load_images(folder / f"ambigan_{run}.npz").images[:]
            reference = np.clip(held_out.predict(made), SMALLEST, 1 - SMALLEST)
            for member, p in enumerate(predict(fleet, family, made, plan.device)):
                row = {"family": family, "seed": member, "set": STAGES["ambigan"], "run": run, **scored(p)}
                rows.append(row | {"relative": relative_hubris(p, reference)})
        say(f"{family}: {rows[-1]}")
    return rows


if __name__ == "__main__":
    main()
