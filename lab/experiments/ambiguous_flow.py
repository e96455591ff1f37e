"""Train a flow, draw ambiguous images between its classes, and ask judges that had no part in the drawing.

    python ambiguous_flow.py fashion_mnist.npz --folder kept/flow --out kept/clothes --count 3000 --second    # on a GPU

`--folder` keeps the generator (an interrupted training goes on), `--out` gets the set as `secondguess generate
ambiguous` writes it, plain samples of the same generator (`plain.npz`) and the record, `generation.json`. `--second`
trains another flow on a random half of the images with another seed and asks it about every image, and about
compositions over the whole range of the dial that nobody has selected.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from secondguess import load
from secondguess.progress import Lines
from secondguess.stress.ambiguous import AmbiFlow
from secondguess.stress.ambiguous.flow import DenoisingJudge
from secondguess.stress.ambiguous.flow.drawing import Dial
from secondguess_lab.record import provenance, say, write

PLAIN, UNSELECTED, CALIBRATED = 2000, 600, 1000
WIDEST = 0.9  # shares between .05 and .95 are asked for, where nobody selects


def main():
    """Train, draw, ask; the record is written after each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", default="confused", choices=["all", "confused"])
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--guidance", type=float, default=1.5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--each", type=int)
    parser.add_argument("--train-steps", type=int)
    parser.add_argument("--preset", default="auto")
    parser.add_argument("--second", action="store_true")
    parser.add_argument("--second-steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data, progress = load(arguments.data), Lines(sys.stdout)
    common = {name: getattr(arguments, name) for name in ("pairs", "minutes", "guidance", "steps", "each", "preset")}
    ours = AmbiFlow(**common, train_steps=arguments.train_steps, folder=arguments.folder)
    record = provenance(vars(arguments), data)

    def keep(**parts):
        record.update(parts, seconds=provenance({})["seconds"])
        write(arguments.out / "generation.json", record)

    began = time.perf_counter()
    flow = ours.fit(data.train, seed=arguments.seed, progress=progress)
    keep(training={"seconds": time.perf_counter() - began, **flow.history})
    began = time.perf_counter()
    made = ours.generate(data.train, arguments.count, seed=arguments.seed, trained=flow, progress=progress)
    made.save(arguments.out)
    keep(drawing={"seconds": time.perf_counter() - began}, card=made.card)
    classes = np.arange(PLAIN) % len(flow.class_names)
    plain = flow.sample(classes, guidance=arguments.guidance, seed=arguments.seed + 1)
    np.savez_compressed(arguments.out / "plain.npz", images=plain, labels=classes)
    again = DenoisingJudge(flow.field, seed=arguments.seed + 100)
    again.fit(*held_out(data, arguments.seed))
    keep(asked_again=opinion(again, made.images))
    if arguments.second:
        began = time.perf_counter()
        half = np.sort(np.random.default_rng(5).permutation(len(data.train))[: len(data.train) // 2])
        other = AmbiFlow(
            preset=arguments.preset, train_steps=arguments.second_steps, folder=arguments.folder / "second"
        )
        second = other.fit(
            data.train.take(half), held_out=data.test.head(CALIBRATED, seed=1), seed=1, progress=progress
        )
        keep(second={"seconds": time.perf_counter() - began, "images": len(half), **second.history})
        keep(by_second=opinion(second.judge, made.images))
        pairs = [tuple(pair) for pair in np.unique(pair_of(made.images), axis=0).tolist()]
        keep(unselected=unselected(flow, second, pairs, arguments))


def held_out(data, seed):
    """Test images (n, C, H, W) and their labels, to calibrate a judge with."""
    some = data.test.head(CALIBRATED, seed=seed)
    return np.rint(some.images[:] * 255).astype(np.uint8), some.labels


def pair_of(images):
    """The classes (n, 2) of each image."""
    return np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1)


def shares_of(judge, pixels, pair):
    """The share (n,) of the first class, with all draws, and the probability (n,) of the pair."""
    seen = judge.examine(pixels)
    return judge.settle(pixels, pair, seen)[:, 0], np.take_along_axis(seen.probabilities, pair, axis=1).sum(axis=1)


def opinion(judge, images):
    """What a judge that had no part in the drawing says of the images: entropy, agreement with the labels, pair."""
    pixels, pair = np.rint(images.images[:] * 255).astype(np.uint8), pair_of(images)
    label = np.take_along_axis(images.soft_labels, pair, axis=1)[:, 0]
    share, mass = shares_of(judge, pixels, pair)
    found = {
        "images": len(images),
        "entropy_bits": float(entropy(share).mean()),
        "spearman": float(spearmanr(share, label).statistic),
        "pair_mass": float(mass.mean()),
    }
    say(found)
    return found


def entropy(share):
    """Of a share, in bits."""
    both = np.clip(np.stack([share, 1 - share]), 1e-12, 1)
    return -(both * np.log2(both)).sum(axis=0)


def unselected(flow, second, pairs, arguments):
    """How both judges' shares follow the dial over compositions that nobody has selected, once the dial has learnt."""
    rng, dial = np.random.default_rng(arguments.seed + 7), Dial()
    for turn in range(2):  # first to learn, then to measure
        pair = np.array([pairs[k] for k in rng.integers(len(pairs), size=UNSELECTED)])
        wanted = 0.5 + WIDEST * rng.uniform(-0.5, 0.5, len(pair))
        asked = np.array([dial.log_odds(tuple(one), wanted[[k]])[0] for k, one in enumerate(pair.tolist())])
        pixels = flow.compose(
            pair,
            np.stack([asked, np.zeros_like(asked)], axis=1),
            guidance=arguments.guidance,
            steps=arguments.steps,
            seed=arguments.seed + 70 + turn,
        )
        if not turn:
            look = flow.judge.examine(pixels)
            leans = flow.judge.lean(pair, look)
            for one in np.unique(pair, axis=0):
                mine = (pair == one).all(axis=1)
                dial.learn(tuple(one.tolist()), asked[mine], leans[mine], wanted[mine])
    first, other = (shares_of(judge, pixels, pair)[0] for judge in (flow.judge, second.judge))
    found = {
        "images": len(pair),
        "dial_slope": dial.slope,
        "followed": slope(wanted, first),
        "followed_by_second": slope(wanted, other),
        "spearman_of_judges": float(spearmanr(first, other).statistic),
    }
    say(found)
    return found


def slope(wanted, share):
    """Of logit(share) on logit(dial), by least squares."""
    x, y = (np.log(np.clip(p, 1e-3, 1 - 1e-3) / np.clip(1 - p, 1e-3, 1 - 1e-3)) for p in (wanted, share))
    return float(np.polyfit(x, y, 1)[0])


if __name__ == "__main__":
    main()
