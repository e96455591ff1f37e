"""Companion sets of the hubris paper: how ambiguous, how real, how fast, and which models they find overconfident.

    python results/hubris/make.py mnist.npz --classes 9,8 --out results/hubris/mnist.json
    python results/hubris/make.py fashion_mnist.npz --classes 3,0 --out results/hubris/fashion_mnist.json
    python results/hubris/make.py pneumoniamnist.npz --classes 1,0 --epochs1 60 --epochs2 20 \
        --out results/hubris/pneumoniamnist.json

The data file holds x_train, y_train, x_test, y_test; classes are label numbers, the first is the positive one. The
paper trains 100 + 50 epochs; the default schedule is shorter and stands in the record. For every data set: ambiguity
estimators, the paper's and ours, and of each a second one of other architectures, weights and subsets that no generator
ever sees; stage 1; from it stage 2 in every variant, for some variances of which the most realistic with an acceptable
ACD is taken; 5,000 images of each, as they come and with rejection; and the hubris of several families of models on
them, on AmbiGuess' images, and on real ones.

A variant is METHOD:COMBINE:SUBSETS, of which the last two may be left out. The default compares what the authors' code
does with our method. To compare more in one run, without the models:

    python results/hubris/make.py mnist.npz --classes 9,8 --out mnist_variants.json --families "" --no-bench \
        --variants ambigan:alternate:disjoint,ambigan:alternate:batch,agreement:sum:batch,agreement:guarded:batch

The Fréchet distance is taken in two spaces of features: of a classifier of all classes, which keeps the two classes
apart and finds whatever lies between them far away, and of one of all other classes, which knows such images but not
this boundary (only where there are other classes). The latter decides where there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from secondguess import ImageSet, load, train_fleet, zoo
from secondguess._progress import Lines
from secondguess._versions import versions
from secondguess.bench.gan import run as bench
from secondguess.data import load_images, save_npz
from secondguess.errors import UserError
from secondguess.hubris.features import features as features_of
from secondguess.hubris.features import train_extractor
from secondguess.metrics.confusion_distance import acd
from secondguess.metrics.hubris import absolute_hubris, hubris, relative_hubris
from secondguess.metrics.realism import frechet_distance, kernel_distance, manifolds
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.ambiguous.ambigan import AmbiGAN, best_of, estimator_for
from secondguess.stress.ambiguous.companion import Reality, Rejection, assemble_companion, draw_companion
from secondguess.stress.ambiguous.gan_losses import Target
from secondguess.stress.ambiguous.gan_networks import Architecture
from secondguess.stress.ambiguous.gan_selection import choose, pareto_front, search
from secondguess.stress.ambiguous.gan_step import Recipe
from secondguess.stress.ambiguous.gan_training import Watch, sample_sheet

FAMILIES = ("simple_cnn", "lenet", "fully_connected", "surprise_cnn", "icos_a", "icos_e")
HALF = Target(2, (0.5, 0.5))


def main():
    """Everything, in the order of the module's description; the record is written after every part."""
    arguments = parsed()
    began = time.perf_counter()
    data = load(arguments.data)
    classes = tuple(int(label) for label in arguments.classes.split(","))
    record = {
        "command": " ".join(["python", "results/hubris/make.py", *sys.argv[1:]]),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
        "classes": [data.class_names[label] for label in classes],
        "seconds": {},
    }

    def done(part, value):
        record[part] = value
        record["seconds"][part] = time.perf_counter() - began
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        say(f"{part}: {time.perf_counter() - began:.0f} s since the beginning")

    if arguments.bench:
        done("speed", speed(arguments))
    variants = [Variant.parse(text) for text in arguments.variants.split(",")]
    judges = estimators_of(variants, data.train, classes, arguments)
    done("estimators", {name: [about(one, data.test) for one in both] for name, both in judges.items()})
    real = Spaces(data, classes, arguments)
    makers = {str(one): maker(arguments, classes, judges[one.judge][0], one) for one in variants}
    trained, grid = train_all(makers, data.train, real, arguments)
    done("training", {name: history(one, makers[name]) for name, one in trained.items()} | {"grid": grid})
    sets = companions(trained, makers, data.train, classes, arguments)
    done("sets", {name: measured(made, judges, real) for name, made in sets.items()} | {"floor": real.floor()})
    done("ratios", ratios(record["sets"]))
    for name, made in sets.items():
        sheet = sample_sheet(torch.from_numpy(unit(made.images[:128])))
        (arguments.out.parent / f"{arguments.out.stem}_{as_file(name)}.png").write_bytes(sheet)
    if arguments.keep:
        keep(arguments.keep, sets, data.train, classes)
    pictures = {name: unit(made.images) for name, made in sets.items()}
    pictures |= ambiguess(data.train, classes, arguments)
    if arguments.families:
        done("hubris", models(data, classes, pictures, next(iter(judges.values()))[1], arguments))


@dataclass(frozen=True)
class Variant:
    """A way to make companion images.

    Attributes:
        method: of AmbiGAN.
        combine: of the two losses.
        subsets: that the members of the estimator see.
    """

    method: str
    combine: str
    subsets: str

    @classmethod
    def parse(cls, text):
        """From METHOD:COMBINE:SUBSETS."""
        method, combine, subsets = (*text.split(":"), "", "")[:3]
        made = AmbiGAN(method=method, combine=combine or None)
        return cls(method, made.combine, subsets or estimator_for(method, (0, 1)).subsets)

    @property
    def judge(self):
        """Name of its estimator: calibrated for our method only."""
        return f"{self.subsets}, calibrated" if self.method == "agreement" else self.subsets

    def __str__(self):
        return f"{self.method} {self.combine} {self.subsets}"


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--classes", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs1", type=int, default=35, help="of stage 1; 100 in the paper")
    parser.add_argument("--epochs2", type=int, default=10, help="of stage 2; 50 in the paper")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--filters", type=int, default=512)
    parser.add_argument("--latent", type=int, default=256)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--estimator-epochs", type=int, default=200)
    parser.add_argument("--variants", default="ambigan:alternate,agreement", help="METHOD:COMBINE:SUBSETS, ...")
    parser.add_argument("--alphas", default="1", help="to choose from; 0.5 to 1.5 in the paper")
    parser.add_argument("--variances", default="0.1,0.01", help="to choose from")
    parser.add_argument("--guarded-alphas", default="4,8", help="the same for guarded steps")
    parser.add_argument("--guarded-variances", default="0.01", help="the same for guarded steps")
    parser.add_argument("--acceptable", type=float, default=0.08, help="ACD up to which realism decides")
    parser.add_argument("--collapse", type=float, default=0.2, help="least variety against real images")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3, help="models of each family")
    parser.add_argument("--model-epochs", type=int, default=5)
    parser.add_argument("--families", default=",".join(FAMILIES), help="of models; none if empty")
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


def recipe_of(arguments):
    """How both stages are trained."""
    return Recipe(
        batch_size=arguments.batch_size,
        lr=arguments.lr,
        precision=arguments.precision,
        graphs=arguments.graphs,
        repeatable=not arguments.fast,
    )


def speed(arguments):
    """Seconds an iteration, and the fleet against the loop."""
    return bench(
        members=arguments.members,
        filters=arguments.filters,
        latent=arguments.latent,
        batch_size=arguments.batch_size,
        iterations=100 if torch.cuda.is_available() else 2,
        graphs=arguments.graphs,
        repeatable=not arguments.fast,
        device=arguments.device,
    )


def estimators_of(variants, train, classes, arguments):
    """For each kind of estimator the one that judges, and one with other architectures, weights and subsets."""
    found = {}
    for one in variants:
        if one.judge not in found:
            found[one.judge] = [estimator_of(one, train, classes, seed, arguments) for seed in (0, 1)]
    return found


def estimator_of(variant, train, classes, seed, arguments):
    """A trained estimator, and how long that took."""
    began = time.perf_counter()
    one = estimator_for(
        variant.method,
        classes,
        members=arguments.members,
        architectures=32 + seed,
        epochs=arguments.estimator_epochs,
        subsets=variant.subsets,
        seed=seed,
        device=arguments.device,
    ).fit(train)
    one.seconds = time.perf_counter() - began
    return one


def about(estimator, test):
    """What an estimator is, and how good on real test images."""
    rows = np.flatnonzero(np.isin(test.labels, estimator.classes))
    p, agreement = estimator.judge(test.images[rows])
    right = np.asarray(estimator.classes)[p.argmax(axis=1)] == test.labels[rows]
    return {
        **estimator.settings(),
        "seconds": estimator.seconds,
        "best_epoch": best_of(estimator),
        "test_accuracy": float(right.mean()),
        "test_acd": acd(p),
        "test_mutual_information": float(agreement.mutual_information.mean()),
    }


def maker(arguments, classes, estimator, variant):
    """Everything but the variance."""
    return AmbiGAN(
        classes,
        method=variant.method,
        combine=variant.combine,
        epochs=(arguments.epochs1, arguments.epochs2),
        architecture=Architecture(arguments.latent, arguments.filters, 2),
        recipe=recipe_of(arguments),
        estimator=estimator,
        watch=Watch(collapse=arguments.collapse),
        device=arguments.device,
    )


def train_all(makers, train, real, arguments):
    """Every method's stage 2 for every variance, from one stage 1; the chosen ones, and all that was tried."""
    progress = Lines(every=20)
    stage1, trained, rows = None, {}, []
    for name, one in makers.items():
        kind = "guarded_" if one.combine == "guarded" else ""
        candidates = search(
            one,
            train,
            real.features,
            alphas=[float(value) for value in getattr(arguments, f"{kind}alphas").split(",")],
            variances=[float(value) for value in getattr(arguments, f"{kind}variances").split(",")],
            images=min(2048, arguments.count),
            stage1=stage1,
            progress=progress,
        )
        best = choose(candidates, acceptable=arguments.acceptable)
        stage1, trained[name] = best.trained.stage1, best.trained
        one.alpha, one.variance = best.alpha, best.variance
        front = pareto_front([row.frechet for row in candidates], [row.acd for row in candidates])
        rows += [
            {
                "variant": name,
                **{key: getattr(row, key) for key in ("alpha", "variance", "frechet", "acd", "disagreement")},
                "front": bool(on),
                "chosen": row is best,
            }
            for row, on in zip(candidates, front, strict=True)
        ]
    return trained, rows


def history(trained, made_by):
    """What was measured in every epoch."""
    return {
        "method": made_by.method,
        "combine": made_by.combine,
        "alpha": made_by.alpha,
        "variance": made_by.variance,
        "recipe": asdict(made_by.recipe),
        "architecture": asdict(trained.stage2.architecture),
        "attempts": list(trained.attempts),
        "epochs": [trained.stage1.epoch, trained.stage2.epoch - trained.stage1.epoch],
        "rows": [{key: round(value, 5) for key, value in row.items()} for row in trained.stage2.history],
    }


def companions(trained, makers, train, classes, arguments):
    """5,000 images of stage 1, of each method as they come, and of each with rejection."""
    reality = Reality.of(train, classes)
    sets = {}
    for name, one in trained.items():
        for stage in (1, 2):
            if (label := "stage1" if stage == 1 else name) in sets:
                continue
            gan = one.generator(makers[name].recipe, arguments.device, stage=stage)
            sets[label] = draw_companion(
                gan, one.estimator, HALF, arguments.count, rejection=Rejection.nothing(), seed=5
            )
            if stage == 2:
                try:
                    accepted = draw_companion(gan, one.estimator, HALF, arguments.count, reality=reality, seed=6)
                except UserError as error:  # the members agree on no image
                    say(f"{name}: {error}")
                    continue
                sets[f"{name}, accepted"] = accepted
    return sets


class Spaces:
    """Real images of both classes in the spaces of features."""

    def __init__(self, data, classes, arguments):
        others = len(np.setdiff1d(data.train.labels, classes)) >= 2
        self.extractors = {
            name: train_extractor(data.train, leave_out=left_out, device=arguments.device)
            for name, left_out in {"all": (), "others": classes}.items()
            if others or name == "all"
        }
        self.train, self.test = (
            self.seen(part.images[np.flatnonzero(np.isin(part.labels, classes))]) for part in (data.train, data.test)
        )
        self.contrast = contrast(data.test.images[np.flatnonzero(np.isin(data.test.labels, classes))])

    def seen(self, images):
        """Features by the name of their space."""
        source = ImageSet.from_arrays(images, layout="NCHW")
        return {name: features_of(source, one) for name, one in self.extractors.items()}

    def features(self, images):
        """Features in the space that decides."""
        return features_of(ImageSet.from_arrays(images, layout="NCHW"), list(self.extractors.values())[-1])

    def compare(self, seen):
        """Distances from the training images, and overlap with 5,000 of them, in every space."""
        return {name: compared(self.train[name], values) for name, values in seen.items()}

    def floor(self):
        """The same for real test images: what no generator needs to beat."""
        return {"realism": self.compare(self.test)}


def compared(train, features):
    """Distances between two sets of features."""
    some = np.random.default_rng(0).permutation(len(train))[:5000]
    kernel = kernel_distance(train[some], features[:5000])
    return {
        "frechet": frechet_distance(train, features),
        "kernel": [kernel.value, kernel.low, kernel.high],
        **asdict(manifolds(train[some], features[:5000])),
    }


def measured(made, judges, real):
    """Ambiguity and agreement by all estimators, and realism, of one set."""
    pixels = unit(made.images)
    return {
        "images": len(made),
        "drawn": made.drawn,
        "shares": {name: number / made.drawn for name, number in made.passed.items()},
        "judged": {
            name: {part: judgement(one, pixels) for part, one in zip(("own", "held_out"), both, strict=True)}
            for name, both in judges.items()
        },
        "contrast": contrast(pixels) / real.contrast,
        "realism": real.compare(real.seen(pixels)),
    }


def judgement(estimator, pixels):
    """What one estimator says of images."""
    members = estimator.members(pixels)
    agreement = estimator.agreement(pixels)
    return {
        "acd": acd(members.mean(axis=0)),
        "acd_of_members": float(np.abs(members - 0.5).mean()),
        "variance": float(agreement.variance.mean()),
        "mutual_information": float(agreement.mutual_information.mean()),
    }


def contrast(images):
    """Mean over images (n, C, H, W) of the standard deviation of their pixels: low for faint ones."""
    return float(images.reshape(len(images), -1).std(axis=1, dtype=np.float64).mean())


def ratios(sets):
    """Fréchet distance of every set over that of stage 1."""
    base = sets["stage1"]["realism"]
    return {
        name: {space: row["realism"][space]["frechet"] / base[space]["frechet"] for space in base}
        for name, row in sets.items()
    }


def ambiguess(train, classes, arguments):
    """Images of AmbiGuess between the two classes: read, made, or none."""
    if arguments.ambiguess is None:
        return {}
    pair = tuple(sorted(classes))
    if arguments.ambiguess == "make":
        made = AmbiGuess(pairs=[pair], autoencoders=10, device=arguments.device).generate(train, 1000).images
    else:
        made = load_images(arguments.ambiguess)
    rows = np.flatnonzero(made.soft_labels[:, list(pair)].sum(axis=1) > 0.99)
    return {"ambiguess": made.images[rows]} if len(rows) >= 50 else {}


def models(data, classes, pictures, reference, arguments):
    """Accuracy, ACD and hubris of all families on all sets, and how the sets' rankings of the models agree."""
    rows = np.flatnonzero(np.isin(data.train.labels, classes))
    images, which = data.train.images[rows], (data.train.labels[rows] == classes[1]).astype(np.int64)
    tested = np.flatnonzero(np.isin(data.test.labels, classes))
    truth = (data.test.labels[tested] == classes[1]).astype(np.int64)
    pictures = pictures | {"real": data.test.images[tested]}
    references = {name: np.clip(reference.predict(one), 1e-6, 1 - 1e-6) for name, one in pictures.items()}
    table = []
    for family in arguments.families.split(","):
        fleet = train_fleet(
            lambda seed, family=family: zoo.make(family, num_classes=2, input_shape=data.train.shape, seed=seed),
            arguments.seeds,
            images,
            which,
            epochs=arguments.model_epochs,
            device=arguments.device,
        )
        for name, one in pictures.items():
            logits = torch.from_numpy(fleet.predict(one, device=arguments.device)).double()
            for seed, p in enumerate(torch.softmax(logits, dim=2)[..., 0].numpy()):
                row = {"family": family, "seed": seed, "set": name, **scored(p, references[name])}
                if name == "real":
                    row["accuracy"] = float(((p < 0.5) == truth).mean())
                table.append(row)
    return {"rows": table, "rank_correlation": correlations(table)}


def scored(p, reference):
    """ACD and hubris of predictions (n,)."""
    whole = hubris(p, resamples=200)
    return {
        "acd": acd(p),
        "absolute": absolute_hubris(p),
        "low": whole.value.low,
        "high": whole.value.high,
        "mean_kl": float(getattr(whole.mean_kl, "value", whole.mean_kl)),
        "relative": relative_hubris(p, reference),
    }


def correlations(table):
    """Spearman's correlation of the models' absolute hubris between any two sets."""
    names = sorted({row["set"] for row in table})
    column = {name: [row["mean_kl"] for row in table if row["set"] == name] for name in names}
    return {
        f"{first} / {second}": float(spearmanr(column[first], column[second]).statistic)
        for first, second in combinations(names, 2)
    }


def keep(folder, sets, train, classes):
    """The sets as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in sets.items():
        images = assemble_companion(train, classes, made, name=name, seed=0)
        save_npz(images, folder / f"{as_file(name)}.npz")


def as_file(name):
    """The name of a set as that of a file."""
    return name.replace(",", "").replace(" ", "_")


def unit(pixels):
    """Pixels of 0 to 255 in [0, 1]."""
    return pixels.astype(np.float32) / np.float32(255)


def say(what):
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
