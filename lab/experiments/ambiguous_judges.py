"""What a second generative judge agrees with: the first one, the committee, and labels that weigh them otherwise.

    python ambiguous_judges.py kept/photos/asked.npz --out judges.json

`asked.npz` is what `ambiguous_flow.py` keeps of its judges' shares of the same images. Everything is in logits of
shares. (`clothes_judges.json` was made by an older version, which compared judges without the offsets of their classes
in log-odds as of real images.)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ambiguous_flow import log_odds, rank, rank_within

from secondguess.metrics.interval import bootstrap
from secondguess_lab.record import provenance, say, write

FEWEST = 20  # images of a pair, for a number of its own
JUDGES = {"label": "label", "judge": "share_generative", "committee": "share_committee", "again": "again"}
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the generative judge, beside the committee


def main():
    """Compare, over all and by pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asked", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    asked = np.load(arguments.asked, allow_pickle=False)
    pair, second = asked["pair"], log_odds(asked["second"])
    logits = {name: log_odds(asked[column]) for name, column in JUDGES.items()}
    record = provenance(vars(arguments)) | {
        "images": len(second),
        "std_of_second": float(second.std()),
        **{name: agreement(one, second, pair) | interval(one, second) for name, one in logits.items()},
        "weighed": [
            {"weight": weight} | agreement(weight * logits["judge"] + (1 - weight) * logits["committee"], second, pair)
            for weight in WEIGHTS
        ],
        "pairs": {},
    }
    for one in np.unique(pair, axis=0):
        mine = (pair == one).all(axis=1)
        if mine.sum() >= FEWEST:
            record["pairs"]["-".join(map(str, one))] = {"images": int(mine.sum())} | {
                name: rank(values[mine], second[mine]) for name, values in logits.items()
            }
    say({key: record[key] for key in (*JUDGES, "weighed")})
    write(arguments.out, record)


def agreement(logits, second, pair):
    """Ranks over all and within pairs, the scatter of the difference, and how far the logits spread."""
    return {
        "spearman": rank(logits, second),
        "spearman_within_pairs": rank_within(pair, logits, second),
        "std_of_difference": float((second - logits).std()),
        "std": float(logits.std()),
    }


def interval(logits, second):
    """Of the rank correlation, over images as they might have been drawn."""
    found = bootstrap(rank, (logits, second))
    return {"interval": [found.low, found.high]}


if __name__ == "__main__":
    main()
