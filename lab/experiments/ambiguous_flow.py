"""Train a flow, draw ambiguous images between its classes, and ask judges that had no part in the drawing.

    python ambiguous_flow.py fashion_mnist.npz --folder kept/flow --out kept/clothes --count 3000 --second    # on a GPU

`--folder` keeps the generator (an interrupted training or drawing goes on), `--out` gets the set as `secondguess
generate ambiguous` writes it, plain samples of the same generator (`plain.npz`) and the record, `generation.json`.
`--second` trains another flow on a random half of the images with another seed and asks it about the images, and about
compositions over the whole range of the dial that nobody has selected; what the judges said of each stands in
`asked.npz`. `--only flow|second|committee` does nothing but train that one, in a process of its own beside others;
with `--second-apart` the second one is waited for.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

from secondguess import load
from secondguess.progress import Lines
from secondguess.stress.ambiguous import AmbiFlow
from secondguess.stress.ambiguous.flow import Flow
from secondguess.stress.ambiguous.flow.dial import Dial, Lessons
from secondguess.stress.ambiguous.flow.judge import chosen_classes
from secondguess_lab.record import provenance, say, write

PLAIN, UNSELECTED, CALIBRATED, ASKED = 2000, 600, 1000, 1000
LONGEST_WAIT = 1800  # seconds for a second judge that is trained apart; it is trained here after that
USUAL = AmbiFlow()
WORDS = ("pairs", "guidance", "contrast", "steps", "each")
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
    parser.add_argument("--guidance", type=float, default=USUAL.guidance)
    parser.add_argument("--contrast", type=float, default=USUAL.contrast)
    parser.add_argument("--steps", type=int, default=USUAL.steps)
    parser.add_argument("--each", type=int)
    parser.add_argument("--train-steps", type=int)
    parser.add_argument("--preset", default="auto")
    parser.add_argument("--second", action="store_true")
    parser.add_argument("--second-steps", type=int)
    parser.add_argument("--second-apart", action="store_true")
    parser.add_argument("--only", choices=["flow", "second", "committee"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data, progress = load(arguments.data), Lines(sys.stdout)
    common = {name: getattr(arguments, name) for name in (*WORDS, "minutes", "preset")}
    ours = AmbiFlow(**common, train_steps=arguments.train_steps, folder=arguments.folder)
    parts = {
        "flow": lambda: ours.fit(data.train, seed=arguments.seed, progress=progress),
        "second": lambda: second_of(data, arguments, progress),
        "committee": lambda: ours.fit_committee(data.train, seed=arguments.seed, progress=progress),
    }
    if arguments.only:
        parts[arguments.only]()
        return
    record = provenance(vars(arguments), data)

    def keep(**parts):
        record.update(parts, seconds=provenance({})["seconds"])
        write(arguments.out / "generation.json", record)

    flow = parts["flow"]()
    keep(training=flow.history)
    began = time.perf_counter()
    made = ours.generate(data.train, arguments.count, seed=arguments.seed, trained=flow, progress=progress)
    made.save(arguments.out)
    keep(drawing={"seconds": time.perf_counter() - began}, card=made.card)
    classes = np.arange(PLAIN) % len(flow.class_names)
    plain = flow.sample(classes, guidance=arguments.guidance, seed=arguments.seed + 1)
    np.savez_compressed(arguments.out / "plain.npz", images=plain, labels=classes)
    asked = made.images.head(ASKED, seed=arguments.seed)
    again = flow.judge.with_seed(arguments.seed + 100)
    shares = {
        "pair": pair_of(asked),
        "label": label_of(asked),
        "again": keep_opinion(keep, "asked_again", again, asked),
    }
    shares |= {
        name: asked.columns[name] for name in ("dial", "share_generative", "share_committee") if name in asked.columns
    }
    if arguments.second:
        until = time.monotonic() + LONGEST_WAIT
        while arguments.second_apart and not Flow.at_hand(arguments.folder / "second") and time.monotonic() < until:
            time.sleep(1)
        second = parts["second"]()
        keep(second=second.history)
        shares["second"] = keep_opinion(keep, "by_second", second.judge, asked)
        np.savez_compressed(arguments.out / "asked.npz", **shares)
        pairs = [tuple(pair) for pair in np.unique(pair_of(made.images), axis=0).tolist()]
        keep(unselected=unselected(flow, second, pairs, arguments))
    np.savez_compressed(arguments.out / "asked.npz", **shares)


def second_of(data, arguments, progress):
    """A flow of another seed, trained on a random half of the images."""
    half = np.sort(np.random.default_rng(5).permutation(len(data.train))[: len(data.train) // 2])
    other = AmbiFlow(preset=arguments.preset, train_steps=arguments.second_steps, folder=arguments.folder / "second")
    held = data.test.head(CALIBRATED, seed=1)
    return other.fit(data.train.take(half), held_out=held, seed=1, progress=progress)


def keep_opinion(keep, name, judge, images):
    """Ask a judge, keep what it says in the record, and return its shares."""
    found, share = opinion(judge, images)
    keep(**{name: found})
    return share


def pair_of(images):
    """The classes (n, 2) of each image."""
    return np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1)


def label_of(images):
    """The share (n,) of the first class by the label."""
    return np.take_along_axis(images.soft_labels, pair_of(images), axis=1)[:, 0]


def shares_of(judge, pixels, pair):
    """The share (n,) of the first class by its calibration on known shares, and by that on real images; all draws."""
    weighed = judge.weigh(pixels, pair)
    return expit(judge.shares.logits(weighed, pair)), expit(weighed)


def opinion(judge, images):
    """What a judge that had no part in the drawing says of the images: entropy, and agreement with the labels."""
    pixels, label = np.rint(images.images[:] * 255).astype(np.uint8), label_of(images)
    share, as_real = shares_of(judge, pixels, pair_of(images))
    found = {
        "images": len(images),
        "entropy_bits": float(entropy(share).mean()),
        "entropy_bits_as_of_real_images": float(entropy(as_real).mean()),
        "median_entropy_bits": float(np.median(entropy(share))),
        "spearman": rank(share, label),
        "spearman_within_pairs": rank_within(pair_of(images), share, label),
        "std_of_difference": float(np.std(log_odds(share) - log_odds(label))),
        "mean_difference_of_shares": float(np.abs(share - label).mean()),
    }
    say(found)
    return found, share


def rank(first, second):
    """Spearman's correlation, or None where there is none."""
    found = float(spearmanr(first, second).statistic)
    return found if np.isfinite(found) else None


def rank_within(pair, first, second):
    """The mean of Spearman's correlations within each pair, by its number of images."""
    pairs = [rows for one in np.unique(pair, axis=0) if (rows := (pair == one).all(axis=1)).sum() > 2]
    found = [(rank(first[rows], second[rows]), rows.sum()) for rows in pairs]
    values, counts = (list(one) for one in zip(*(one for one in found if one[0] is not None), strict=True))
    return float(np.average(values, weights=counts))


def entropy(share):
    """Of a share, in bits."""
    both = np.clip(np.stack([share, 1 - share]), 1e-12, 1)
    return -(both * np.log2(both)).sum(axis=0)


def unselected(flow, second, pairs, arguments):
    """How both judges' shares follow the dial over compositions that nobody has selected, once the dial has learnt.

    These are led away from images of no class, whatever the drawing was led away from.
    """
    rng, dial, judge = np.random.default_rng(arguments.seed + 7), Dial(), flow.judge
    for turn in range(2):  # first to learn, then to measure
        pair = np.array([pairs[k] for k in rng.integers(len(pairs), size=UNSELECTED)])
        wanted = 0.5 + WIDEST * rng.uniform(-0.5, 0.5, len(pair))
        asked = np.array([dial.logits(tuple(one), wanted[[k]])[0] for k, one in enumerate(pair.tolist())])
        nats = asked / judge.shares.per_nat(pair)
        pixels = flow.compose(
            pair,
            np.stack([nats, np.zeros_like(nats)], axis=1),
            guidance=arguments.guidance,
            steps=arguments.steps,
            seed=arguments.seed + 70 + turn,
        )
        if not turn:
            look = judge.glance(pixels, chosen_classes(pair, judge.field.classes))
            seen = judge.shares.logits(judge.lean(pair, look), pair)
            none = np.zeros(len(pair))
            dial.learn(Lessons(pair, asked, seen, wanted, again=none.astype(bool), before=none))
    first, other = (shares_of(one, pixels, pair)[0] for one in (judge, second.judge))
    found = {
        "images": len(pair),
        "dial_slope": dial.slope,
        "followed": slope(wanted, first),
        "followed_by_second": slope(wanted, other),
        "spearman_of_judges": rank(first, other),
    }
    say(found)
    return found


def slope(wanted, share):
    """Of logit(share) on logit(dial), by least squares."""
    return float(np.polyfit(log_odds(wanted), log_odds(share), 1)[0])


def log_odds(share):
    """Of shares, which are kept away from 0 and 1."""
    inside = np.clip(share, 1e-3, 1 - 1e-3)
    return np.log(inside / (1 - inside))


if __name__ == "__main__":
    main()
