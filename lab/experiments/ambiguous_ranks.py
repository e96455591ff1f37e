r"""Do the generators of ambiguous images agree on which models are overconfident?

    python ambiguous_ranks.py fashion_mnist.npz --set flow=kept/flow --set ambiguess=kept/ambiguess --gan 2,4 \
        --out ranks.json

Classifiers of several families, each with several kinds of training, learn the training images of the file; `--set`
names sets as `secondguess generate ambiguous` writes them. Blends of two training images of the same pairs are made
here, and with `--gan` companion images between two classes by a small AmbiGAN. The record has what each model makes of
each set (`ambiguous_photos.py` has the same for photographs), and how the sets' rankings of the models agree, by their
mean confidence before and after temperature scaling. What is done is kept in `--kept` and not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import combinations
from pathlib import Path

import numpy as np
from ambiguous_photos import asked, ranks

from secondguess import Classifier, load, zoo
from secondguess.files import write_json
from secondguess.images import load_images, save_npz
from secondguess.progress import Lines
from secondguess.stress.ambiguous import PixelBlend
from secondguess.stress.ambiguous.ambigan import AmbiGAN, estimator_for
from secondguess.stress.ambiguous.gan_networks import GanArchitecture
from secondguess.training import train
from secondguess_lab.record import provenance, say, write

FAMILIES = ("simple_cnn", "lenet", "fully_connected", "surprise_cnn", "icos_a", "icos_c")
KINDS = {
    "": {},
    "_short": {"epochs": 2},
    "_long": {"epochs": 15},
    "_smooth": {"smoothing": 0.1},
    "_mixup": {"mixup": 0.4},
}
GAN = {
    "latent": 64,
    "filters": 64,
    "blocks": 2,
    "epochs": (30, 12),
    "members": 10,
    "estimator_epochs": 40,
    "count": 500,
}


def main():
    """Train, ask, compare; the record is written after each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--gan", help="two labels, such as 2,4")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--test-images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, default=Path("ranks"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load(arguments.data)
    arguments.kept.mkdir(parents=True, exist_ok=True)
    sets = {
        name: load_images(Path(folder) / "images.npz") for name, folder in (one.split("=") for one in arguments.set)
    }
    pairs = sorted({tuple(map(int, pair)) for one in sets.values() for pair in pairs_of(one)})
    most = max(map(len, sets.values()), default=1000)
    sets["blends"] = PixelBlend(pairs=pairs or "confused").generate(data.train, most, seed=arguments.seed).images
    if arguments.gan:
        sets["ambigan"] = companions(data.train, tuple(map(int, arguments.gan.split(","))), arguments)
    test = data.test.head(arguments.test_images, seed=arguments.seed)
    record = provenance(vars(arguments), data) | {"training_images": len(data.train), "gan": GAN, "models": []}
    record["sets"] = {name: {"images": len(one), "pairs": len(pairs_of(one))} for name, one in sets.items()}
    for family in FAMILIES:
        for kind_name, kind in KINDS.items():
            record["models"].append(judged(family, kind_name, kind, data, sets, test, arguments))
            for part, suffix in (("ranks", ""), ("ranks_scaled", "_scaled")):
                record[part] = {
                    f"{first} / {second}": ranks(record["models"], first + suffix, second + suffix, by="confidence")
                    for first, second in combinations(sets, 2)
                }
            write(arguments.out, record | {"seconds": provenance({})["seconds"]})


def pairs_of(images):
    """The pairs of classes of ambiguous images."""
    return np.unique(np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1), axis=0)


def judged(family, suffix, kind, data, sets, test, arguments):
    """Train a model and ask it about all sets; read where that was done before."""
    file = arguments.kept / f"{family}{suffix}.json"
    if file.exists():
        return json.loads(file.read_text("utf-8"))
    began = time.perf_counter()
    model = zoo.make(family, num_classes=data.train.num_classes, input_shape=data.train.shape, seed=arguments.seed)
    images, labels = lesson(data.train, kind, arguments.seed)
    train(model, images, labels, epochs=kind.get("epochs", arguments.epochs), seed=arguments.seed)
    row = asked(f"{family}{suffix}", Classifier(model, output_kind="logits"), sets, test)
    row |= {"family": family, "seconds": time.perf_counter() - began}
    write_json(file, row)
    say({key: row[key] for key in ("model", "accuracy")} | {name: row[name]["sure"][0] for name in sets})
    return row


def lesson(images, kind, seed):
    """What a kind of training learns: images and labels, smoothed or blended."""
    pixels, labels = images.images[:], np.eye(images.num_classes, dtype=np.float32)[images.labels]
    rng = np.random.default_rng(seed)
    if "mixup" in kind:
        other, share = rng.permutation(len(pixels)), rng.beta(kind["mixup"], kind["mixup"], len(pixels))
        share = share.astype(np.float32)
        pixels = share[:, None, None, None] * pixels + (1 - share)[:, None, None, None] * pixels[other]
        labels = share[:, None] * labels + (1 - share)[:, None] * labels[other]
    smoothing = kind.get("smoothing", 0.0)
    return pixels, labels * (1 - smoothing) + smoothing / labels.shape[1]


def companions(images, classes, arguments):
    """Images of a small AmbiGAN between two classes; read where they were made before."""
    file = arguments.kept / "ambigan.npz"
    if not file.exists():
        judge = estimator_for("agreement", classes, members=GAN["members"], epochs=GAN["estimator_epochs"], seed=0)
        maker = AmbiGAN(
            classes,
            epochs=GAN["epochs"],
            architecture=GanArchitecture(GAN["latent"], GAN["filters"], GAN["blocks"]),
            estimator=judge.fit(images),
        )
        save_npz(maker.generate(images, GAN["count"], seed=arguments.seed, progress=Lines()).images, file)
    return load_images(file)


if __name__ == "__main__":
    main()
