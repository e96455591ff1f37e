"""How small a change fools a small classifier of digits: the table of docs/adversarial.md.

    python attacks.py --out results/adversarial/mnist5k.json

The zoo's `simple_cnn` learns the 4,000 training digits of `mnist5k` for six epochs. Its 1,000 test digits are attacked
three times: through its own gradients, through those of a surrogate that has learnt from the same 1,000 digits, and
with its softmax handed to the attacks as if it were logits (`legacy`), as the published code does.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from secondguess import Classifier, load, training, zoo
from secondguess.stress import Adversarial
from secondguess_lab.record import provenance, write

SIZES = (0.1, 0.3, 0.5)


def counts(attacked):
    """Of each attack: how many images were wrong already, fooled by no more than each size, and not fooled at all."""
    rows = []
    for name in ("fgsm", "pgd", "bim", "deepfool"):
        mine = attacked.columns["attack"] == name
        size, fooled = attacked.columns["epsilon"][mine], attacked.columns["success"][mine]
        rows.append(
            {
                "attack": name,
                "images": int(mine.sum()),
                "wrong_already": int((size == 0).sum()),
                "fooled_by": {str(limit): int((fooled & (size <= limit + 1e-9)).sum()) for limit in SIZES},
                "withstood": int((~fooled).sum()),
                "mean_size": float(np.mean(size[fooled])),
            }
        )
    return rows


def main():
    """Train, attack three times, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    data = load("mnist5k")
    model = zoo.make("simple_cnn", input_shape=data.test.shape, seed=0)
    training.train(model, data.train.images, data.train.labels, epochs=6, seed=0)
    own = Classifier(model, device="cpu")
    called = Classifier(lambda images: own.observe(images).probabilities, output="probabilities")
    accuracy = float((own.observe(data.test).predictions == data.test.labels).mean())
    modes = {"white-box": (own, {}), "transfer": (called, {}), "legacy": (own, {"legacy": True})}
    found = {}
    for name, (classifier, options) in modes.items():
        began = time.perf_counter()
        rows = counts(Adversarial(**options).make(data.test, seed=0, classifier=classifier))
        found[name] = {"seconds": round(time.perf_counter() - began, 1), "rows": rows}
    record = {
        **provenance({"model": "simple_cnn", "epochs": 6, "images": len(data.test), "seed": 0}, data),
        "accuracy": accuracy,
        "modes": found,
    }
    write(out, record)


if __name__ == "__main__":
    main()
