"""Ask more families of models about companion sets that companion_sets.py kept, and add them to its record.

    python companion_sets.py mnist.npz --classes 9,8 --keep kept/mnist --out results/hubris/mnist.json
    python companion_models.py mnist.npz --kept kept/mnist --families convnext,vit --record results/hubris/mnist.json

The references of relative hubris are what the estimator said that the generator was trained against, image by image:
the kept files hold no other. In the paper, and in the rows of make.py, they are those of an estimator that no generator
saw; the record says of the rows that are added here that theirs are not (`asked_later`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.images import load_images
from secondguess.metrics.hubris import relative_hubris
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tasks.companion_measures import of_classes
from secondguess_lab.studies.tasks.companion_models import SMALLEST, predict, scored, trained

SETS = {
    "ambigan_alternate_disjoint": "ambigan alternate disjoint",
    "agreement_guarded_batch": "agreement guarded batch",
}


def main():
    """Train, ask, and write the record anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--families", default="convnext,vit")
    parser.add_argument("--models", type=int, default=1, help="of each family")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--record", type=Path, required=True)
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text("utf-8"))
    data = load(arguments.data)
    classes = [data.class_names.index(name) for name in record["classes"]]
    images, which = of_classes(data.train, classes)
    real, truth = of_classes(data.test, classes)
    sets = {label: load_images(arguments.kept / f"{name}.npz") for name, label in SETS.items()}
    rows = []
    for family in arguments.families.split(","):
        fleet = trained(family, arguments.models, images, which, arguments.epochs, 0, "auto")
        for member, p in enumerate(predict(fleet, family, real, "auto")):
            rows.append({"family": family, "seed": member, "set": "real", **scored(p)})
            rows[-1]["accuracy"] = float(((p < 0.5) == truth).mean())
        for name, one in sets.items():
            said = one.soft_labels[:, classes[0]]
            for member, p in enumerate(predict(fleet, family, one.images[:], "auto")):
                relative = relative_hubris(p, np.clip(said, SMALLEST, 1 - SMALLEST))
                rows.append({"family": family, "seed": member, "set": name, **scored(p), "relative": relative})
        say(f"{family}: {rows[-3:]}")
    old = [row for row in record["hubris"]["rows"] if row["family"] not in {row["family"] for row in rows}]
    record["hubris"]["rows"] = old + rows
    record["asked_later"] = {
        **provenance(vars(arguments)),
        "relative_to": "the estimator that the generator was trained against",
    }
    write(arguments.record, record)


if __name__ == "__main__":
    main()
