"""Whether a shallow rule tells invalid images from nominal ones: the grey level, the roughness, of digits.

    python invalid_rules.py --out results/adversarial/invalid.json

For each part of the stress set `invalid`: AUROC of the mean of all pixels, and of the mean absolute difference of
neighbouring pixels, against the test images of `mnist5k`; below .5 is turned round, as a rule may look either way.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.metrics import auroc
from secondguess.stress import Invalid
from secondguess_lab.record import provenance, say, write

PARTS = ("photos", "textures", "shuffled")


def level(images):
    """The mean of all pixels, (n,)."""
    return images.mean(axis=(1, 2, 3))


def roughness(images):
    """The mean absolute difference of neighbouring pixels, (n,)."""
    down, across = (np.abs(np.diff(images, axis=axis)).mean(axis=(1, 2, 3)) for axis in (2, 3))
    return (down + across) / 2


def main():
    """Measure both rules on every part, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load("mnist5k")
    nominal, found = data.test.materialise(), {}
    for part in PARTS:
        invalid = Invalid(part).make(data.test, seed=arguments.seed).materialise()
        found[part] = {}
        for name, rule in (("level", level), ("roughness", roughness)):
            value = float(auroc(rule(nominal), rule(invalid)))
            found[part][name] = max(value, 1 - value)
        say(f"{part}: {found[part]}")
    write(arguments.out, provenance(vars(arguments) | {"images": len(nominal)}, data) | {"auroc": found})


if __name__ == "__main__":
    main()
