"""Figure 1 of the true-ambiguity paper: which test images of MNIST are the most ambiguous, and how ambiguous they are.

    python ambiguous_tests.py mnist.npz --out results/ambiguity/tests.json

The paper shows 18 images, picked by hand from the 300 with the highest predictive entropy. Here nobody picks: of the
networks' mean probabilities the 18 with the highest entropy are kept, pixels included, and counted is how many of the
300 give a second class a chance. What a network finds hard is not what a person finds ambiguous: the count is an upper
bound.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import softmax

from secondguess import load, zoo
from secondguess.training import train_fleet
from secondguess_lab.record import provenance, say, write

SHOWN, HIGHEST = 18, 300
CHANCES = (0.1, 0.25, 0.4)


def main():
    """Train, rank, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load(arguments.data)
    recipe = zoo.get("simple_cnn").recipe.as_kwargs(fleet=True) | {"epochs": arguments.epochs}
    pixels, labels = data.train.materialise(), data.train.labels
    fleet = train_fleet(lambda seed: zoo.make("simple_cnn", seed=seed), arguments.networks, pixels, labels, **recipe)
    probabilities = softmax(fleet.predict(data.test.materialise()), axis=2).mean(axis=0, dtype=np.float64)
    entropy = -(probabilities * np.log2(np.clip(probabilities, 1e-12, None))).sum(axis=1)
    order = np.argsort(-entropy, kind="stable")[:HIGHEST]
    second = np.sort(probabilities[order], axis=1)[:, -2]
    top_two = np.argsort(-probabilities[order], axis=1)[:, :2]
    held = [
        {
            "row": int(row),
            "label": int(data.test.labels[row]),
            "entropy": float(entropy[row]),
            "classes": np.argsort(-probabilities[row])[:2].tolist(),
            "probabilities": np.sort(probabilities[row])[::-1][:2].tolist(),
            "pixels": np.rint(255 * data.test.images[row : row + 1][0, 0]).astype(np.uint8).tobytes().hex(),
        }
        for row in order[:SHOWN]
    ]
    found = {
        "accuracy": float((probabilities.argmax(axis=1) == data.test.labels).mean()),
        "images": len(entropy),
        "highest": len(order),
        "second_class_has_at_least": {str(chance): int((second >= chance).sum()) for chance in CHANCES},
        "all_images_second_class_has_at_least": {
            str(chance): int((np.sort(probabilities, axis=1)[:, -2] >= chance).sum()) for chance in CHANCES
        },
        "label_is_among_the_first_two": int((top_two == data.test.labels[order][:, None]).any(axis=1).sum()),
        "median_entropy": {"highest": float(np.median(entropy[order])), "all": float(np.median(entropy))},
    }
    say(found)
    write(arguments.out, provenance(vars(arguments), data) | found | {"shown": held})


if __name__ == "__main__":
    main()
