"""Which guidance, away from what, and how many steps give the most ambiguous images a second, and how real these are.

    python ambiguous_settings.py cifar10.npz --folder flow --guidance 2 3 --contrast 0 1 --steps 16 --out settings.json

`--folder` holds a trained generator and its committee, as `ambiguous_flow.py` leaves them. A short drawing of all pairs
is made for every setting, and kept beside the record. No round is cut short, so that drawings take longer than
`--minutes`, each by another time: compare images a second.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from secondguess import load
from secondguess.stress.ambiguous import AmbiFlow
from secondguess.stress.ambiguous.flow import Committee, Flow
from secondguess_lab.record import provenance, say, write

MANY = 10**5  # more than a short drawing can give
KEPT = ("seconds", "drawn", "passed", "images", "label_entropy_bits", "dial", "realism", "pairs")


def main():
    """One short drawing for each setting; the record is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--pairs", default="all", choices=["all", "confused"])
    parser.add_argument("--guidance", type=float, nargs="+", default=[2.0, 3.0, 4.5])
    parser.add_argument("--contrast", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--steps", type=int, nargs="+", default=[16, 24])
    parser.add_argument("--each", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, flow = load(arguments.data), Flow.load(arguments.folder)
    if Committee.load(arguments.folder / "committee") is None:
        parser.error(f"{arguments.folder} has no committee; ambiguous_flow.py --only committee trains one")
    record = provenance(vars(arguments), data) | {"tried": []}
    flow.compose(data.train.labels[:32].reshape(16, 2), 0.0 * data.train.labels[:32].reshape(16, 2))  # compiles
    for tried in product(arguments.guidance, arguments.contrast, arguments.steps):
        setting = dict(zip(("guidance", "contrast", "steps"), tried, strict=True))
        common = {name: getattr(arguments, name) for name in ("pairs", "each", "minutes")}
        ours = AmbiFlow(**common, **setting, generator=arguments.folder)
        made = ours.generate(data.train, MANY, seed=arguments.seed, trained=flow)
        row = setting | {"images_per_second": len(made.images) / made.card["seconds"]}
        row |= {name: made.card[name] for name in KEPT}
        record["tried"].append(row)
        say({name: value for name, value in row.items() if name != "pairs"})
        made.save(arguments.out.with_suffix("") / "-".join(f"{value:g}" for value in tried))
        write(arguments.out, record | {"seconds": provenance({})["seconds"]})


if __name__ == "__main__":
    main()
