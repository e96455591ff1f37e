"""Whether the judges of ambiguous images know the shares of images that are known mixtures, and what real ones are.

    python ambiguous_mixtures.py fashion_mnist.npz --folder kept/flow --count 300 --out mixtures.json

`--folder` holds a trained generator and perhaps its committee, as `ambiguous_flow.py` leaves them. The images are made
of two test images of different classes, any or natural neighbours, of which the first has a known share: blended, or
cut along a line in any direction and joined with a soft edge. Real ones are test images beside another class, any or a
natural neighbour of theirs. A judge's share p of the first class costs

    -(share log p + (1 - share) log(1 - p))

nats, and no more than 13.8 for one image; the entropy of the known shares, which no judge can go below, is taken off.
Each judge's shares are taken as its calibration on real images alone has them (`cost_as_of_real_images`), and as that
on known shares has them (`cost`), which was fitted to other blends and cuts between any two classes and to real images.
`scale` is what the logits of the latter would have to be multiplied by to cost least here: less than 1 says that it is
too sure of these images. The label has the mean of both judges' log-odds as of real images, and the weights of their
pool for their shares.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import spearmanr

from secondguess import load
from secondguess.images import ImageSet
from secondguess.stress.ambiguous import AmbiFlow
from secondguess.stress.ambiguous.flow import Committee, Flow
from secondguess.stress.ambiguous.flow.mixtures import blend_weights, cut_weights
from secondguess.stress.ambiguous.flow.shares import log_odds_of
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess_lab.record import provenance, say, write

TINY = 1e-6
LEAST, MOST = 0.05, 0.95  # shares of mixtures
EVEN = 0.1  # from one half, for the spread of what is said of even mixtures


def main():
    """Mix, ask, compare; the record is written after each kind of images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, flow = load(arguments.data), Flow.load(arguments.folder)
    committee = Committee.load(arguments.folder / "committee")
    apart = of_pairs(flow.judge.shares.separation)
    quantiles = {f"{share:g}": float(np.quantile(apart, share)) for share in (0, 0.25, 0.5, 0.75, 1)}
    record = provenance(vars(arguments), data) | {"judge": flow.history["judge"] | {"separation": quantiles}}
    pool = None
    if committee is not None:
        pool = AmbiFlow(folder=arguments.folder).fit_pool(data.train, flow, committee)
        record["committee"] = {"scale_of_shares": committee.shares.scale}
        record["pool"] = pool.to_dict()
    record["kinds"] = {}
    rng = np.random.default_rng(arguments.seed)
    kinds = {"blends": blended, "cuts": cut_along_a_line, "real": as_it_is}
    for which in ("all", "confused"):
        pairs = choose_pairs(data.train, which, seed=0)
        for kind, weights in kinds.items():
            images, pair, share = mixed(data.test, pairs, arguments.count, weights, rng)
            found = asked(flow.judge, committee, pool, images, pair, share)
            record["kinds"][f"{kind}, {which}"] = {"images": len(images)} | found
            say({f"{kind}, {which}": found})
            write(arguments.out, record | {"seconds": provenance({})["seconds"]})


def asked(judge, committee, pool, images, pair, share):
    """How good the shares (n,) are that the judge, the committee and the label that they agree on give to images."""
    odds = judge.weigh(images, pair)
    found = {"judge": (odds, judge.shares.logits(odds, pair))}
    if committee is not None:
        odds = log_odds_of(committee.judge(ImageSet.from_arrays(images, layout="NCHW")), pair)
        found["committee"] = (odds, committee.shares.logits(odds, pair))
        as_real, calibrated = zip(found["judge"], found["committee"], strict=True)
        found["label"] = np.mean(as_real, axis=0), pool.logits(*calibrated)
    return {name: costs(*both, share) for name, both in found.items()}


def of_pairs(table):
    """The values of a symmetric table (K, K) for two different classes."""
    return table[np.triu_indices(len(table), 1)]


def mixed(test, pairs, count, weights, rng):
    """Images uint8 of two test images of different classes, the classes (n, 2), and the shares (n,) of the first."""
    pixels, labels = test.images[:] * 255, test.labels
    pair = np.array([rng.permutation(pairs[rng.integers(len(pairs))]) for _ in range(count)])
    rows = np.array([[rng.choice(np.flatnonzero(labels == one)) for one in both] for both in pair])
    share, weight = weights(rng.uniform(LEAST, MOST, count), pixels.shape[2:], rng)
    return np.rint(weight * pixels[rows[:, 0]] + (1 - weight) * pixels[rows[:, 1]]).astype(np.uint8), pair, share


def as_it_is(share, shape, rng):
    """Shares of 0 and 1, and weights (n, 1, 1, 1) alike."""
    whole = np.rint(share)
    return whole, whole[:, None, None, None]


def blended(share, shape, rng):
    """The shares, and weights (n, 1, 1, 1) of the first image alike."""
    return share, blend_weights(share)


def cut_along_a_line(share, shape, rng):
    """The shares, and weights (n, 1, H, W) with these means."""
    return share, cut_weights(share, shape, rng)


def cost(logits, share):
    """What logits (n,) cost more than the known shares (n,) would."""
    p, known = np.clip(expit(logits), TINY, 1 - TINY), np.clip(share, TINY, 1 - TINY)
    crossed, least = (-(share * np.log(q) + (1 - share) * np.log1p(-q)).mean() for q in (p, known))
    return float(crossed - least)


def costs(as_real, logits, share):
    """How good a judge's shares are, by either calibration."""
    found = minimize_scalar(lambda s: cost(np.exp(s) * logits, share), bounds=(-4.0, 4.0), method="bounded")
    even = np.abs(share - 0.5) < EVEN
    return {
        "cost_as_of_real_images": cost(as_real, share),
        "cost": cost(logits, share),
        "scale": float(np.exp(found.x)),
        "cost_scaled": float(found.fun),
        "spearman": float(spearmanr(logits, share).statistic),
        "off": float(np.abs(expit(logits) - share).mean()),
        "off_as_of_real_images": float(np.abs(expit(as_real) - share).mean()),
        "spread_of_logits_at_even": float(logits[even].std()) if even.sum() > 1 else None,
    }


if __name__ == "__main__":
    main()
