"""Are attacks found more easily because ours see logits? The same networks, attacked both ways.

    python attacks_softmax.py mnist.npz fashion_mnist.npz --kept kept/attacks --out results/adversarial/softmax.json

The code behind Table 2 of the ambiguity paper hands attacks the softmax as if it were logits (`legacy`), so that their
gradients vanish where a network is sure. Of each network (trained by the zoo's recipe on nominal images only, where
the paper adds ambiguous ones) the same test images are attacked both ways: `logits` and `softmax`. Supervisors that
need no training of their own are fitted on the training images. The record has, for each network, way and supervisor,
the AUROC of all nominal test images against the attacked ones, and of each way how large the changes are. Its
`differences` are logits less softmax: what our attacks are found more easily, where everything else is equal.

Rows are kept one by one in the folder `--kept`; a second call goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np

from secondguess import Classifier, Needs, load, zoo
from secondguess.files import write_json
from secondguess.metrics import auroc
from secondguess.stress import Adversarial
from secondguess.supervisors import make
from secondguess.training import train
from secondguess_lab.record import provenance, say, write

NETWORKS = ("simple_cnn", "fully_connected")
SUPERVISORS = {
    **{name: {} for name in ("max_softmax", "pcs", "entropy", "deep_gini", "lsa", "mdsa")},
    "dsa": {"subsampling": 1 / 3},  # as in Table 2
}
WAYS = {"logits": False, "softmax": True}


def main():
    """Whatever is missing, then the record of all."""
    arguments = parsed()
    arguments.kept.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed, path, network in product(range(arguments.seeds), arguments.data, arguments.networks):
        kept = arguments.kept / f"{path.stem}_{network}_{seed}.json"
        if not kept.exists():
            write_json(kept, attacked(path, network, seed, arguments))
        rows.append(json.loads(kept.read_text("utf-8")))
        say({key: rows[-1][key] for key in ("data", "network", "seed", "accuracy")} | {"auroc": shown(rows[-1])})
        settings = {key: getattr(arguments, key) for key in ("networks", "seeds", "images", "epochs")}
        write(arguments.out, provenance(settings) | {"differences": differences(rows), "rows": rows})


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="mnist.npz, fashion_mnist.npz")
    parser.add_argument("--kept", type=Path, required=True, help="folder for what was measured")
    parser.add_argument("--out", type=Path, default=Path("softmax.json"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="names of the zoo")
    parser.add_argument("--seeds", type=int, default=2, help="networks of each")
    parser.add_argument("--images", type=int, default=1000, help="that are attacked, a quarter by each attack")
    parser.add_argument("--epochs", type=int, default=0, help="instead of the recipe's (a quick try)")
    return parser.parse_args()


def attacked(path, network, seed, arguments):
    """One network: what its supervisors see of both kinds of attack."""
    began = time.perf_counter()
    data = load(path)
    model = zoo.make(network, num_classes=len(data.test.class_names), input_shape=data.test.shape, seed=seed)
    recipe = zoo.get(network).recipe.as_kwargs() | ({"epochs": arguments.epochs} if arguments.epochs else {})
    train(model, data.train.materialise(), data.train.labels, seed=seed, **recipe)
    classifier = Classifier(model, class_names=data.test.class_names, batch_size=1000, output_kind="logits")
    panel = [make(name, **parameters) for name, parameters in SUPERVISORS.items()]
    needs = Needs.union(panel)
    learnt, nominal = classifier.observe(data.train, needs), classifier.observe(data.test, needs)
    for one in panel:
        if one.requires_fit:
            one.fit(learnt)
    usual = {one.name: one.score(nominal) for one in panel}
    ways = {}
    for name, legacy in WAYS.items():
        made = Adversarial(limit=arguments.images, legacy=legacy).make(data.test, classifier=classifier, seed=seed)
        seen = classifier.observe(made, needs)
        sizes, fooled = made.columns["epsilon"], made.columns["success"]
        ways[name] = {
            "auroc": {one.name: auroc(usual[one.name], one.score(seen)) for one in panel},
            "images": len(made),
            "withstood": int((~fooled).sum()),
            "median_size": float(np.median(sizes[fooled])),
            "mean_confidence": float(seen.probabilities.max(axis=1).mean()),
        }
    about = {"data": path.stem, "fingerprint": data.fingerprint, "network": network, "seed": seed}
    accuracy = float((nominal.predictions == data.test.labels).mean())
    return about | {"accuracy": accuracy, "ways": ways, "seconds": time.perf_counter() - began}


def differences(rows):
    """AUROC with logits less AUROC with the softmax, over all rows, by supervisor and over all of these."""
    gaps = {
        name: [row["ways"]["logits"]["auroc"][name] - row["ways"]["softmax"]["auroc"][name] for row in rows]
        for name in SUPERVISORS
    }
    everything = [gap for some in gaps.values() for gap in some]
    return {name: summary(some) for name, some in ({"all": everything} | gaps).items()}


def summary(values):
    """Of some differences."""
    low, median, high = np.quantile(values, [0, 0.5, 1])
    larger = sum(value > 0 for value in values)
    return {"cells": len(values), "larger": larger, "median": median, "min": low, "max": high}


def shown(row):
    """Both ways, supervisor by supervisor."""
    return {name: [round(row["ways"][way]["auroc"][name], 3) for way in WAYS] for name in SUPERVISORS}


if __name__ == "__main__":
    main()
