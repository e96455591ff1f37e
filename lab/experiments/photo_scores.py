"""The scores of many supervisors on photographs of every kind, kept, so that panels can be tried in seconds.

    python photo_scores.py cifar10.npz --model resnet20/model.toml --kept kept --other fashion_mnist.npz

Two halves that share no image: `learn` is what a guard may be fitted on, `judge` is what it is tried on. Each holds
nominal images, every corruption, three attacks (those count that fooled the model), generated invalid images and
ambiguous ones (blends, or AmbiGuess for grey images); `judge` also has ambiguous images of a generator and another data
set as invalid images, where these are given. A third part, `more`, has nominal test images that are in neither half
(`--more`) and corruptions of some of these at given severities (`--severities`): `photo_risk.py` draws from it.
`photo_panel.py` reads what is kept: `NAME.npz` with scores and answers, `NAME_images.npz` with the images themselves.
What is kept already stays; supervisors of the pixels alone that it lacks (`PIXELS`) are fitted on the same training
images and score the images that were kept.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import chain
from pathlib import Path

import numpy as np

from secondguess import Classifier, ImageSet, Observation, load
from secondguess.guard.protect import Answers
from secondguess.guard.stress_split import invalid_images
from secondguess.images import conform, load_images
from secondguess.model.needs import Needs, Trace
from secondguess.stress import Adversarial, Corrupted
from secondguess.stress.ambiguous import AmbiGuess, PixelBlend
from secondguess.stress.corruptions import COLOUR, MNIST_C
from secondguess.supervisors import SupervisorSet, make, make_all
from secondguess_lab.record import say

SORTS = {"corrupted": "corruption", "adversarial": "attack", "invalid": "source"}
NAMED = (
    "max_softmax", "pcs", "entropy", "deep_gini", "gen", "kl_matching", "max_logit", "energy", "react", "ash", "scale",
    "fdbd", "nnguide", "she", "knn", "vim", "mdsa", "relative_mahalanobis", "normalised_mahalanobis",
    "dsa:subsampling=5000", "dissector:batch_size=256",
)  # fmt: skip
PIXELS = ("appearance",)
EARLIER = ("mdsa_global", "relative_mahalanobis", "normalised_mahalanobis")
ATTACKS = ("fgsm", "bim", "deepfool")  # `pgd` is `bim` with more steps
OTHER = "other data set"
EPSILONS = (0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.03, 0.1)  # tried in turn
DEPTHS = ("25%", "50%")


def candidates():
    """The supervisors of docs/supervisors.md that are no worse than others of their kind, at four depths."""
    early = [make(name, layers=Trace(depth, "grid")) for depth in DEPTHS for name in EARLIER]
    return SupervisorSet([*make_all(NAMED), *early, *make_all(PIXELS)])


def stressed(classifier, train, nominal, arguments, seed):
    """The stress sets that are made of nominal images, by kind."""
    corrupted = [
        Corrupted([name]).make(nominal.head(arguments.corrupted, seed=number + seed), seed=seed)
        for number, name in enumerate(MNIST_C if nominal.shape[0] == 1 else COLOUR)
    ]
    attack = Adversarial(ATTACKS, limit=arguments.attacked, epsilons=EPSILONS)
    attacked = attack.make(nominal, classifier=classifier, seed=seed)
    fooled = attacked.columns["success"] & (attacked.columns["epsilon"] > 0)
    invalid = invalid_images(nominal.head(arguments.invalid, seed=seed), seed=seed)
    generator = AmbiGuess(pairs=6, autoencoders=1) if nominal.shape[0] == 1 else PixelBlend()
    blends = generator.generate(train.head(2000, seed=seed), arguments.blends, seed=seed).images
    return {"corrupted": corrupted, "adversarial": [attacked.take(fooled)], "invalid": [invalid], "ambiguous": [blends]}


def altered(images):
    """Mild changes that a sound answer survives: a mirror image, and a slight blur."""
    from scipy.ndimage import gaussian_filter

    yield "flip", images[..., ::-1]
    yield "blur", gaussian_filter(images, (0, 0, 0.7, 0.7))


def seen(classifier, jury, images, kind, sorts, changes):
    """What is kept of some images."""
    look = classifier.observe(images, jury.needs)
    answers = Answers.of(images, look.predictions, kind)
    found = {
        "scores": jury.score(look),
        "wrong": answers.wrong,
        "right": answers.right,
        "sorts": np.asarray(sorts, str),
    }
    found["probabilities"], found["predictions"] = look.probabilities, look.predictions
    pixels = images.materialise()
    for name, changed in altered(pixels) if changes else ():
        changed = ImageSet.from_arrays(np.ascontiguousarray(changed), images.labels, layout="NCHW")
        found[name] = classifier.observe(changed, Needs()).probabilities
    return found, pixels


def parts(classifier, train, halves, arguments):
    """Every set of images, under the half it belongs to, its kind and its sorts."""
    for number, (half, nominal) in enumerate(halves.items()):
        yield half, "nominal", nominal, np.full(len(nominal), "nominal")
        for kind, several in stressed(classifier, train, nominal, arguments, number).items():
            for one in several:
                yield half, kind, one, one.columns.get(SORTS.get(kind), np.full(len(one), "blend"))
    shape = train.shape
    if arguments.ambiguous:
        flow = load_images(arguments.ambiguous)
        yield "judge", "ambiguous", flow, np.full(len(flow), "flow")
    if arguments.other:
        other = load(arguments.other).test
        other = other if not arguments.without else other.take(~np.isin(other.labels, arguments.without))
        other = conform(other.head(arguments.invalid, seed=0), shape)
        unknown = ImageSet.from_arrays(other.materialise(), np.full(len(other), -1), layout="NCHW")
        yield "judge", "invalid", unknown, np.full(len(other), OTHER)


def further(nominal, arguments):
    """Nominal images of neither half, and corruptions of some of them at each severity."""
    if nominal is None:
        return
    yield "more", "nominal", nominal, np.full(len(nominal), "nominal")
    for number, name in enumerate(COLOUR) if arguments.severities else ():
        chosen = nominal.head(arguments.corrupted, seed=number)
        for severity in arguments.severities:
            spoilt = Corrupted([name], severity=severity).make(chosen, seed=severity)
            yield "more", "corrupted", spoilt, np.full(len(spoilt), f"{name}@{severity}")


def complete(path, train):
    """Add the scores of supervisors of the pixels to what is kept of a model."""
    kept, images = dict(np.load(path)), np.load(path.with_name(f"{path.stem}_images.npz"))
    for name in (name for name in PIXELS if name not in kept["labels"]):
        one = make(name).fit(_bare(train.materialise()))
        sets = {
            place: _bare(images[place] / np.float32(255 if images[place].dtype == np.uint8 else 1)) for place in images
        }
        for place, look in sets.items():
            kept[f"{place}/scores"] = np.column_stack([kept[f"{place}/scores"], one.score(look)])
        kept["labels"] = np.append(kept["labels"], name)
        kept["costs"] = np.append(kept["costs"], SupervisorSet([one]).costs(next(iter(sets.values()))))
    np.savez(path, **kept)


def _bare(pixels):
    """An observation of images, of which a model has said nothing."""
    source = ImageSet.from_arrays(pixels, layout="NCHW").images
    return Observation(probabilities=np.full((len(pixels), 2), 0.5), images=source)


def main():
    """One model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--validation", help="images that the model has not seen; else the first test images")
    parser.add_argument("--ambiguous", help="ambiguous images of a generator")
    parser.add_argument("--other", help="a data set whose test images are invalid here")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="classes of it that are left out")
    parser.add_argument("--kept", type=Path, required=True)
    sizes = {
        "train": 5000,
        "learn": 1200,
        "judge": 2000,
        "corrupted": 50,
        "attacked": 105,
        "invalid": 360,
        "blends": 300,
    }
    for name, number in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--more", type=int, default=0, help="nominal test images beside those of the two halves")
    parser.add_argument("--severities", type=int, nargs="*", default=[], help="of corruptions of some of these")
    parser.add_argument("--altered", action="store_true", help="keep the answers to mildly changed images too")
    arguments = parser.parse_args()
    data, began = load(arguments.data), time.perf_counter()
    train = data.train.head(arguments.train, seed=0)
    name = "_".join(Path(arguments.model).parent.parts[-2:])
    if (arguments.kept / f"{name}.npz").exists():
        complete(arguments.kept / f"{name}.npz", train)
        return
    order = np.random.default_rng(0).permutation(len(data.test))
    halves = {"judge": data.test.take(order[: arguments.judge])}
    rest = data.test.take(order[arguments.judge : len(order) - arguments.more])
    rest = load(arguments.validation).test if arguments.validation else rest
    halves = {"learn": rest.head(arguments.learn, seed=0)} | halves
    more = data.test.take(order[len(order) - arguments.more :]) if arguments.more else None
    classifier = Classifier.open(arguments.model, device="cpu")
    jury = candidates()
    look = classifier.observe(train, jury.needs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jury = jury.fit(look, train.labels)
    say(f"{name}: fitted, {time.perf_counter() - began:.0f} s")
    costs = jury.costs(look)
    kept, pixels = {}, {}
    for half, kind, images, sorts in chain(parts(classifier, train, halves, arguments), further(more, arguments)):
        found, raw = seen(classifier, jury, images, kind, sorts, arguments.altered)
        several = kind in ("corrupted", "ambiguous") or sorts[0] == OTHER
        place = f"{half}/{kind}/{sorts[0] if several else 'made'}"
        kept |= {f"{place}/{key}": value for key, value in found.items()}
        pixels[place] = raw if kind == "adversarial" else np.round(raw * 255).astype(np.uint8)
        say(f"  {place}: {len(images)}, {time.perf_counter() - began:.0f} s")
    arguments.kept.mkdir(parents=True, exist_ok=True)
    np.savez(arguments.kept / f"{name}.npz", labels=np.array(jury.labels), costs=costs, **kept)
    np.savez(arguments.kept / f"{name}_images.npz", **pixels)


if __name__ == "__main__":
    main()
