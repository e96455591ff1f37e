"""Where two generative judges disagree about ambiguous images, and how much of that is their classes' offsets.

    python ambiguous_judges.py kept/clothes/asked.npz kept/flow/flow.json kept/flow/second/flow.json --out judges.json

`asked.npz` is what `ambiguous_flow.py` keeps of its judges' shares; the other two are the cards of both flows. The
offset of a class is the part of a judge's log-odds that no image has a say in: without it the shares are those that the
denoising losses alone give.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from ambiguous_flow import entropy, log_odds, rank

from secondguess_lab.record import provenance, say, write

FEWEST = 20  # images of a pair, for numbers of its own


def main():
    """Compare, with and without offsets, over all and by pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asked", type=Path)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    asked = np.load(arguments.asked, allow_pickle=False)
    cards = [json.loads(path.read_text("utf-8")) for path in (arguments.first, arguments.second)]
    names, pair = cards[0]["class_names"], asked["pair"]
    offsets = [np.array(card["judge"]["final"]["offsets"]) for card in cards]
    first, second = log_odds(asked["share_generative"]), log_odds(asked["second"])
    bare = [one - (b[pair[:, 0]] - b[pair[:, 1]]) for one, b in zip((first, second), offsets, strict=True)]
    record = provenance(vars(arguments)) | {
        "offsets": [dict(zip(names, one.tolist(), strict=True)) for one in offsets],
        "as_they_are": agreement(first, second),
        "without_offsets": agreement(*bare),
        "label": agreement(log_odds(asked["label"]), second),
        "committee": agreement(log_odds(asked["share_committee"]), second),
        "pairs": {},
    }
    for one in np.unique(pair, axis=0):
        mine = (pair == one).all(axis=1)
        if mine.sum() >= FEWEST:
            name = f"{names[one[0]]}-{names[one[1]]}"
            record["pairs"][name] = agreement(first[mine], second[mine]) | {
                "without_offsets": agreement(bare[0][mine], bare[1][mine])
            }
    say({key: record[key] for key in ("as_they_are", "without_offsets", "label", "committee")})
    write(arguments.out, record)


def agreement(first, second):
    """Of log-odds (n,): ranks, bias, scatter, and how undecided the second judge is."""
    return {
        "images": len(first),
        "spearman": rank(first, second),
        "bias": float((second - first).mean()),
        "std_of_difference": float((second - first).std()),
        "entropy_bits_of_second": float(entropy(1 / (1 + np.exp(-second))).mean()),
    }


if __name__ == "__main__":
    main()
