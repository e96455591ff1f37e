"""Natural neighbours for AmbiGuess: autoencoders accepted by the paper's rule, and by what is achievable.

    python ambiguous_natural.py fashion_mnist.npz --kept kept/natural --out natural.json

The pairs are the most confusable ones of the data, or those that `--named` names, such as 2-4. The same autoencoders
are judged by both rules; images are drawn from those that the second one accepts, into `--kept`/set as `secondguess
generate ambiguous` writes them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from secondguess import load
from secondguess.progress import Lines
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.ambiguous.acceptance import FOOLED, TELLS_APART
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess_lab.record import provenance, say, write


def main():
    """Train, judge, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=15, help="how many of the most confusable ones")
    parser.add_argument("--named", nargs="+")
    parser.add_argument("--autoencoders", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load(arguments.data)
    named = [tuple(map(int, one.split("-"))) for one in arguments.named or ()]
    pairs = choose_pairs(data.train, named or arguments.pairs, seed=0)
    maker = AmbiGuess(
        pairs=pairs,
        autoencoders=arguments.autoencoders,
        epochs=arguments.epochs,
        acceptance="achievable",
        folder=arguments.kept,
    )
    fleets = maker.train(data.train, pairs, progress=Lines(sys.stdout))
    card = {"pairs": []}
    if any(one["accepted"] for one in judged(fleets)):
        made = maker.generate(data.train, arguments.count, trained=fleets, progress=Lines(sys.stdout))
        made.save(arguments.kept / "set")
        card = made.card
    drawn = {tuple(row["pair"]): row for row in card["pairs"]}
    rows = []
    for first, second in pairs:
        names = data.class_names[first], data.class_names[second]
        own = [one for one in judged(fleets) if one["pair"] == (first, second)]
        rows.append(
            {
                "pair": names,
                "autoencoders": own,
                "accepted_by_the_paper": sum(by_the_paper(one) for one in own),
                "accepted": sum(one["accepted"] for one in own),
                "images": drawn[names]["images"] if names in drawn else 0,
            }
        )
        say(rows[-1])
    record = {"training_images": len(data.train), "pairs": rows, "card": card}
    write(arguments.out, provenance(vars(arguments), data) | record)


def judged(fleets):
    """What every autoencoder was judged on."""
    for trained in fleets:
        for place, member in enumerate(trained.fleet.members):
            yield {
                "pair": member.pair,
                "fooled": float(trained.fooled[place]),
                "fooled_clear": float(trained.fooled_clear[place]),
                "class_accuracy": float(trained.class_accuracy[place]),
                "achievable": float(trained.achievable[place]),
                "accepted": bool(trained.accepted[place]),
            }


def by_the_paper(one):
    """Whether the paper's rule accepts an autoencoder."""
    return FOOLED[0] <= one["fooled"] <= FOOLED[1] and one["class_accuracy"] >= TELLS_APART


if __name__ == "__main__":
    main()
