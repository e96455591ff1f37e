"""Whether the judges of ambiguous images are calibrated on images with known mixtures, as they are on real ones.

    python ambiguous_mixtures.py fashion_mnist.npz --folder kept/flow --count 300 --out mixtures.json

`--folder` holds a trained generator and its committee, as `ambiguous_flow.py` leaves them. The images are blends of two
test images of different classes, any or natural neighbours, whose share of the first is known, and plain test images
beside the class that the committee finds likeliest of the others. A judge's share p of the first class costs

    -(share log p + (1 - share) log(1 - p))

nats; the entropy of the known shares, which no judge can go below, is taken off. `scale` is what its log-odds would
have to be multiplied by to cost least: less than 1 says that it is too sure. The weights of both judges' log-odds that
cost least together are fitted on one half of the images and measured on the other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import spearmanr

from secondguess import load
from secondguess.images import ImageSet
from secondguess.stress.ambiguous.flow import Committee, Flow
from secondguess.stress.ambiguous.flow.judge import chosen_classes
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess_lab.record import provenance, say, write

TINY = 1e-6
LEAST, MOST = 0.05, 0.95  # shares of blends


def main():
    """Blend, ask, compare; the record is written after each kind of images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, flow = load(arguments.data), Flow.load(arguments.folder)
    committee = Committee.load(arguments.folder / "committee")
    if committee is None:
        parser.error(f"{arguments.folder} has no committee; ambiguous_flow.py --only committee trains one")
    record = provenance(vars(arguments), data) | {"judge": flow.history["judge"], "kinds": {}}
    rng, near = np.random.default_rng(arguments.seed), choose_pairs(data.train, "confused", seed=0)
    for kind, pairs in {"blends": None, "blends of natural neighbours": near, "real": None}.items():
        if kind == "real":
            images, pair, share = plain(data.test, committee, arguments.count, rng)
        else:
            images, pair, share = blended(data.test, pairs, arguments.count, rng)
        look = flow.judge.compare(images, pair, flow.judge.glance(images, chosen_classes(pair, flow.field.classes)))
        theirs = committee.judge(ImageSet.from_arrays(images, layout="NCHW"))
        own, other = (log_odds(found, pair) for found in (look.probabilities, theirs))
        found = {"images": len(images), "judge": costs(own, share), "committee": costs(other, share)}
        found |= {"pool": costs((own + other) / 2, share), "weighted": together(own, other, share)}
        record["kinds"][kind] = found
        say({kind: found})
        write(arguments.out, record | {"seconds": provenance({})["seconds"]})


def blended(test, pairs, count, rng):
    """Blends uint8 of two test images of different classes, the classes (n, 2), and the shares (n,) of the first."""
    pixels, labels = test.images[:] * 255, test.labels
    first, second = np.empty((2, count), dtype=np.int64)
    for place in range(count):
        if pairs is None:
            a, b = rng.permutation(np.unique(labels))[:2]
        else:
            a, b = rng.permutation(pairs[rng.integers(len(pairs))])
        first[place], second[place] = (rng.choice(np.flatnonzero(labels == one)) for one in (a, b))
    share = rng.uniform(LEAST, MOST, count)
    weight = share[:, None, None, None]
    images = np.rint(weight * pixels[first] + (1 - weight) * pixels[second]).astype(np.uint8)
    return images, np.stack([labels[first], labels[second]], axis=1), share


def plain(test, committee, count, rng):
    """Test images as they are, their class and the likeliest other one in any order, and whether the first is right."""
    some = test.take(np.sort(rng.permutation(len(test))[:count]))
    found = committee.judge(some)
    found[np.arange(len(some)), some.labels] = -1
    pair, swapped = np.stack([some.labels, found.argmax(axis=1)], axis=1), rng.random(len(some)) < 0.5
    pair[swapped] = pair[swapped, ::-1]
    return np.rint(some.images[:] * 255).astype(np.uint8), pair, 1.0 - swapped


def log_odds(probabilities, pair):
    """Of the first class against the second (n,)."""
    both = np.maximum(np.take_along_axis(probabilities, pair, axis=1), TINY)
    return np.log(both[:, 0]) - np.log(both[:, 1])


def cost(odds, share):
    """What log-odds (n,) cost more than the known shares (n,) would."""
    p, known = np.clip(expit(odds), TINY, 1 - TINY), np.clip(share, TINY, 1 - TINY)
    crossed, least = (-(share * np.log(q) + (1 - share) * np.log1p(-q)).mean() for q in (p, known))
    return float(crossed - least)


def costs(odds, share):
    """How good log-odds (n,) are, as they are and scaled."""
    scale = float(np.exp(minimize(lambda s: cost(np.exp(s[0]) * odds, share), [0.0], method="Nelder-Mead").x[0]))
    rank = float(spearmanr(odds, share).statistic)
    even = np.abs(share - 0.5) < 0.1
    return {
        "cost": cost(odds, share),
        "scale": scale,
        "cost_scaled": cost(scale * odds, share),
        "spearman": rank,
        "spread_at_even": float(odds[even].std()) if even.sum() > 1 else None,
    }


def together(own, other, share):
    """Weights of both judges that cost least on one half, and what they cost on the other half."""
    half = np.arange(len(share)) % 2 == 0

    def weighted(weights, rows):
        return cost(weights[0] * own[rows] + weights[1] * other[rows], share[rows])

    found = minimize(weighted, [0.5, 0.5], args=(half,), method="Nelder-Mead").x
    return {
        "weights": found.tolist(),
        "cost": weighted(found, ~half),
        "spearman": float(spearmanr(found @ np.stack([own, other])[:, ~half], share[~half]).statistic),
        "cost_of_the_pool": weighted([0.5, 0.5], ~half),
    }


if __name__ == "__main__":
    main()
