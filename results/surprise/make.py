"""The experiment of "A review and refinement of Surprise Adequacy" (Weiss, Chakraborty, Tonella, 2021) on MNIST.

    python results/surprise/make.py mnist.npz --out results/surprise/mnist.json

Re-trained models of the paper's network; DSA and LSA on its last but one layer (ten linear units), AUROC of nominal
test images against FGSM (epsilon .5) and against the MNIST-C mix; then DSA on a part of the training traces, by each of
the sampling strategies, and LSA for several bandwidths.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from secondguess import Classifier, ImageSet, Needs, Trace, load, train_fleet, zoo
from secondguess._versions import versions
from secondguess.metrics import auroc
from secondguess.stress import Corrupted
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA

SHARES = (0.05, 0.1, 0.2, 1 / 3, 0.5, 0.7)
SAMPLERS = ("uniform", "stratified", "unsurprising_first", "epsilon_free")
BANDWIDTHS = ("scott", "silverman", 0.01, 0.1, 1.0, 10.0)


def variants(full):
    """What is compared: the paper's two, and for the first models the sweeps."""
    yield "dsa", DSA()
    yield "lsa", LSA()
    if full:
        for sampler in SAMPLERS:
            for share in SHARES:
                yield f"dsa, {sampler} {share:.2f}", DSA(sampler=sampler, subsampling=share)
        for share in SHARES:
            yield f"lsa, uniform {share:.2f}", LSA(subsampling=share)
        for bandwidth in BANDWIDTHS[1:]:
            yield f"lsa, bandwidth {bandwidth}", LSA(bandwidth=bandwidth)


def fgsm(model, images, epsilon=0.5):
    """Every image one step along the sign of the gradient, whether that fools the model or not, as in the paper."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, changed = model.to(device).eval(), []
    for start in range(0, len(images), 1000):
        pixels = torch.from_numpy(images.images[start : start + 1000]).to(device).requires_grad_()
        labels = torch.from_numpy(images.labels[start : start + 1000]).to(device)
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(pixels), labels), pixels)
        changed.append((pixels + epsilon * gradient.sign()).clamp(0, 1).detach().cpu().numpy())
    return ImageSet.from_arrays(np.concatenate(changed), images.labels, class_names=images.class_names, layout="NCHW")


def measure(number, model, data, corrupted, *, full):
    """The rows of one model."""
    classifier = Classifier(model, batch_size=1000)
    adversarial = fgsm(model, data.test)
    needs = Needs(traces={Trace()})
    learnt = classifier.observe(data.train, needs)
    seen = {
        name: classifier.observe(images, needs)
        for name, images in (("nominal", data.test), ("fgsm", adversarial), ("mnist_c", corrupted))
    }
    accuracy = float((seen["nominal"].predictions == data.test.labels).mean())
    for name, supervisor in variants(full):
        began = time.perf_counter()
        supervisor.fit(learnt)
        scores = {key: supervisor.score(observation) for key, observation in seen.items()}
        row = {"model": number, "accuracy": accuracy, "method": name, "seconds": time.perf_counter() - began} | {
            key: auroc(scores["nominal"], scores[key]) for key in ("fgsm", "mnist_c")
        }
        if isinstance(supervisor, DSA):
            row["kept"] = len(supervisor.order_)
        sys.stdout.write(f"{row}\n")
        yield row


def main():
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--swept", type=int, default=2, help="models for which all variants are measured")
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    data = load(arguments.data)
    began = time.perf_counter()
    fitted = slice(0, int(0.9 * len(data.train)))  # the paper holds the last tenth out
    fleet = train_fleet(
        lambda seed: zoo.make("surprise_cnn", seed=seed),
        arguments.models,
        data.train.images[fitted],
        data.train.labels[fitted],
        epochs=arguments.epochs,
        batch_size=128,
        lr=1e-3,
        seed=0,
    )
    trained = time.perf_counter() - began
    corrupted = Corrupted(mix="mnist_c").make(data.test, seed=0)
    rows = []
    for number, model in enumerate(fleet):
        rows += measure(number, model, data, corrupted, full=number < arguments.swept)
        record = {
            "script": "results/surprise/make.py",
            "settings": {"models": arguments.models, "swept": arguments.swept, "epochs": arguments.epochs},
            "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "versions": versions(),
            "data": {"name": Path(arguments.data).stem, "fingerprint": data.fingerprint},
            "training_seconds": trained,
            "mean": {name: summary(rows, name) for name in dict.fromkeys(row["method"] for row in rows)},
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


def summary(rows, name):
    """Mean and standard deviation over the models, and how many there were."""
    mine = [row for row in rows if row["method"] == name]
    result = {"models": len(mine)}
    for key in ("fgsm", "mnist_c"):
        values = np.array([row[key] for row in mine])
        result[key] = {"mean": float(values.mean()), "std": float(values.std(ddof=1)) if len(mine) > 1 else None}
    return result


if __name__ == "__main__":
    main()
