"""Companion sets of the hubris paper: how ambiguous, how real, how fast, and which models they find overconfident.

    python companion_sets.py mnist.npz --classes 9,8 --out results/hubris/mnist.json
    python companion_sets.py fashion_mnist.npz --classes 3,0 --out results/hubris/fashion_mnist.json
    python companion_sets.py pneumoniamnist.npz --classes 1,0 --epochs1 60 --epochs2 20 \
        --out results/hubris/pneumoniamnist.json

The data file holds x_train, y_train, x_test, y_test; classes are label numbers, the first is the positive one. The
paper trains 100 + 50 epochs; the default schedule is shorter and stands in the record. What is made and measured, and
what a variant is, says `secondguess/studies/tasks/hubris.py`: this adds how fast the GAN is, the images themselves,
AmbiGuess' images for the models, and how the sets' rankings of the models agree.

To compare more variants in one run, without the models:

    python companion_sets.py mnist.npz --classes 9,8 --out mnist_variants.json --families "" --no-bench \
        --variants ambigan:alternate:disjoint,ambigan:alternate:batch,agreement:sum:batch,agreement:guarded:batch

The families "convnext" and "vit", small and from scratch, need `pip install "secondguess[models]"`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from secondguess import load
from secondguess.images import load_images, save_npz
from secondguess.progress import Lines
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.ambiguous.companion import assemble_companion
from secondguess.stress.ambiguous.gan_step import GanRecipe
from secondguess.stress.ambiguous.gan_training import sample_sheet
from secondguess_lab.bench.gan import run as bench
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tasks.companion_measures import unit
from secondguess_lab.studies.tasks.hubris import CompanionPlan, Companions

FAMILIES = ("simple_cnn", "lenet", "fully_connected", "surprise_cnn", "icos_a", "icos_e")
FEWEST = 50  # images of AmbiGuess that are worth asking about


def main():
    """Everything; the record is written after every part."""
    arguments = parsed()
    began = time.perf_counter()
    data = load(arguments.data)
    plan = plan_of(arguments)
    record = {
        **provenance(asdict(plan), data),
        "classes": [data.class_names[label] for label in plan.classes],
        "seconds": {},
    }

    def done(part, value):
        record[part] = value
        record["seconds"][part] = time.perf_counter() - began
        write(arguments.out, record)
        say(f"{part}: {time.perf_counter() - began:.0f} s since the beginning")

    if arguments.bench:
        done("speed", speed(plan))
    made = Companions(data, plan, progress=Lines(every=20))
    for part, value in made.parts():
        done(part, value)
    for name in made.generators:
        if f"{name}, accepted" not in made.sets:
            say(f"{name}: too few images were accepted to compare them")
    for name, one in made.sets.items():
        sheet = sample_sheet(torch.from_numpy(unit(one.images[:128])))
        (arguments.out.parent / f"{arguments.out.stem}_{as_file(name)}.png").write_bytes(sheet)
    if arguments.keep:
        keep(arguments.keep, made)
    if plan.families:
        rows = made.hubris(ambiguess(data.train, arguments.ambiguess, plan))
        done("hubris", {"rows": rows, "rank_correlation": correlations(rows)})


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--classes", type=listed(int), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs1", type=int, default=35, help="of stage 1; 100 in the paper")
    parser.add_argument("--epochs2", type=int, default=10, help="of stage 2; 50 in the paper")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--filters", type=int, default=512)
    parser.add_argument("--latent", type=int, default=256)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--estimator-epochs", type=int, default=200)
    parser.add_argument("--variants", type=listed(str), default="ambigan:alternate,agreement")
    parser.add_argument("--alphas", type=listed(float), default="1", help="to choose from; 0.5 to 1.5 in the paper")
    parser.add_argument("--variances", type=listed(float), default="0.1,0.01", help="to choose from")
    parser.add_argument("--guarded-alphas", type=listed(float), default="4,8", help="the same for guarded steps")
    parser.add_argument("--guarded-variances", type=listed(float), default="0.01", help="the same for guarded steps")
    parser.add_argument("--acceptable", type=float, default=0.08, help="ACD up to which realism decides")
    parser.add_argument("--collapse", type=float, default=0.2, help="least variety against real images")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--draws", type=int, default=50, help="for each image that is accepted; 0: no such sets")
    parser.add_argument("--models", "--seeds", type=int, default=3, help="of each family")
    parser.add_argument("--model-epochs", type=int, default=5)
    parser.add_argument("--families", type=listed(str), default=",".join(FAMILIES), help="of models; none if empty")
    parser.add_argument("--ambiguess", help="a saved set of AmbiGuess, or 'make'")
    parser.add_argument(
        "--fast", action="store_true", help="let cuDNN try out algorithms; runs differ in the last digits"
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "float32"))
    parser.add_argument("--no-graphs", dest="graphs", action="store_false")
    parser.add_argument("--no-bench", dest="bench", action="store_false")
    parser.add_argument("--keep", type=Path, help="a folder for the companion sets")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def listed(kind):
    """A type of arguments: some of a kind with commas between."""
    return lambda text: [kind(part) for part in text.split(",") if part]


def plan_of(arguments):
    """What the command line asks for."""
    same = (
        "variants", "filters", "latent", "members", "estimator_epochs", "alphas", "variances", "guarded_alphas",
        "guarded_variances", "acceptable", "collapse", "count", "draws", "families", "models", "model_epochs", "device",
    )  # fmt: skip
    first, second = arguments.classes
    return CompanionPlan(
        (first, second),
        epochs=(arguments.epochs1, arguments.epochs2),
        recipe=GanRecipe(
            batch_size=arguments.batch_size,
            lr=arguments.lr,
            precision=arguments.precision,
            graphs=arguments.graphs,
            repeatable=not arguments.fast,
        ),
        selected_on=min(2048, arguments.count),
        **{key: getattr(arguments, key) for key in same},
    )


def speed(plan):
    """Seconds an iteration, and the fleet against the loop."""
    return bench(
        members=plan.members,
        filters=plan.filters,
        latent=plan.latent,
        batch_size=plan.recipe.batch_size,
        iterations=100 if torch.cuda.is_available() else 2,
        graphs=plan.recipe.graphs,
        repeatable=plan.recipe.repeatable,
        device=plan.device,
    )


def ambiguess(train, place, plan):
    """Images of AmbiGuess between the two classes: read, made, or none."""
    if place is None:
        return {}
    pair = tuple(sorted(plan.classes))
    if place == "make":
        made = AmbiGuess(pairs=[pair], autoencoders=10, device=plan.device).generate(train, 1000).images
    else:
        made = load_images(place)
    rows = np.flatnonzero(made.soft_labels[:, list(pair)].sum(axis=1) > 0.99)
    return {"ambiguess": made.images[rows]} if len(rows) >= FEWEST else {}


def correlations(table):
    """Spearman's correlation of the models' absolute hubris between any two sets."""
    names = sorted({row["set"] for row in table})
    column = {name: [row["mean_kl"] for row in table if row["set"] == name] for name in names}
    return {
        f"{first} / {second}": float(spearmanr(column[first], column[second]).statistic)
        for first, second in combinations(names, 2)
    }


def keep(folder, made):
    """The sets as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in made.sets.items():
        images = assemble_companion(made.train, made.plan.classes, one, name=name, seed=0)
        save_npz(images, folder / f"{as_file(name)}.npz")


def as_file(name):
    """The name of a set as that of a file."""
    return name.replace(",", "").replace(" ", "_")


if __name__ == "__main__":
    main()
