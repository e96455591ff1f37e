"""What classifiers learn from ambiguous photographs: the question of Table 1 of the paper on true ambiguity.

    python ambiguous_training.py cifar10.npz --set kept/photos --out photos_training.json --jobs 6     # on a GPU

Each network is trained twice in each run, on the nominal images alone and on these and a half of the ambiguous ones
with their soft labels, and asked about the test images and the other half. `--jobs` trainings run at a time, each in a
process of its own; those that are done are kept in `--kept` and not made again. Grey images are given to the same
networks with three equal channels, and neither flipped nor shifted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.stats import entropy

from secondguess.files import write_json
from secondguess.images import load_images
from secondguess.metrics import top_pair_accuracy
from secondguess_lab.photo_training import Training, fit, probabilities_of
from secondguess_lab.record import provenance, say, write
from secondguess_lab.reference import build

SURE = 0.95


def main():
    """Train what is missing, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=["resnet20", "vgg", "convmixer"])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=Path("trainings"))
    parser.add_argument("--only", nargs=3, metavar=("NETWORK", "RUN", "KIND"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.only:
        train_one(arguments, arguments.only[0], int(arguments.only[1]), arguments.only[2])
        return
    wanted = [(n, r, k) for r in range(arguments.runs) for n in arguments.networks for k in ("nominal", "mixed")]
    train_all(arguments, [one for one in wanted if not kept(arguments, *one).exists()])
    rows = [json.loads(kept(arguments, *one).read_text("utf-8")) for one in wanted if kept(arguments, *one).exists()]
    write(arguments.out, provenance(vars(arguments)) | {"trainings": rows, "networks": summed(rows)})


def kept(arguments, network, run, kind):
    """Where the row of a training is kept."""
    return arguments.kept / f"{network}-{run}-{kind}.json"


def train_all(arguments, wanted):
    """Every training in a process of its own, `--jobs` at a time."""
    running = []
    while wanted or running:
        running = [process for process in running if process.poll() is None]
        while wanted and len(running) < arguments.jobs:
            words = [sys.executable, *sys.argv, "--only", *map(str, wanted.pop(0))]
            running.append(subprocess.Popen(words))
        time.sleep(0.2)


def train_one(arguments, network, run, kind):
    """Train a network on nominal or on mixed images, and ask it."""
    data, ambiguous = np.load(arguments.data, allow_pickle=False), load_images(arguments.set / "images.npz")
    classes = len(data["class_names"])
    learnt, asked = halves(ambiguous, run)
    pixels = np.rint(ambiguous.images[:] * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    pixels, images, tests = map(in_colour, (pixels, data["x_train"], data["x_test"]))
    labels = np.eye(classes, dtype=np.float32)[data["y_train"]]
    if kind == "mixed":
        images = np.concatenate([images, pixels[learnt]])
        labels = np.concatenate([labels, ambiguous.soft_labels[learnt].astype(np.float32)])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(run)
    model = build(network, classes).to(device).to(memory_format=torch.channels_last)
    began = time.perf_counter()
    plan = Training(network, epochs=arguments.epochs, augment=data["x_train"].ndim == 4)
    fit(model, images, labels, plan, device, batch=arguments.batch_size, lr=arguments.lr)
    seconds = time.perf_counter() - began
    p, soft = probabilities_of(model, pixels[asked], device), ambiguous.soft_labels[asked]
    right = probabilities_of(model, tests, device).argmax(axis=1) == data["y_test"]
    row = {
        "network": network,
        "run": run,
        "kind": kind,
        "learnt": len(images),
        "asked": len(asked),
        "accuracy": float(right.mean()),
        "top_pair": top_pair_accuracy(p, soft),
        "pair_mass": float(np.where(soft > 0, p, 0).sum(axis=1).mean()),
        "entropy_bits": float(entropy(p, base=2, axis=1).mean()),
        "label_entropy_bits": float(entropy(soft, base=2, axis=1).mean()),
        "sure": float((p.max(axis=1) > SURE).mean()),
        "seconds": seconds,
    }
    say(row)
    arguments.kept.mkdir(parents=True, exist_ok=True)
    write_json(kept(arguments, network, run, kind), row)


def in_colour(images):
    """Images (n, H, W, 3); grey ones (n, H, W) or (n, H, W, 1) have three equal channels."""
    images = images if images.ndim == 4 else images[..., None]
    return images if images.shape[3] == 3 else np.repeat(images, 3, axis=3)


def halves(ambiguous, run):
    """Rows to learn from, and rows to be asked about: every pair in both."""
    rng = np.random.default_rng(run)
    pair = np.stack([ambiguous.columns["class_1"], ambiguous.columns["class_2"]], axis=1)
    learnt = [rows[: len(rows) // 2] for one in np.unique(pair, axis=0)
              if len(rows := rng.permutation(np.flatnonzero((pair == one).all(axis=1))))]  # fmt: skip
    learnt = np.sort(np.concatenate(learnt))
    return learnt, np.setdiff1d(np.arange(len(pair)), learnt)


def summed(rows):
    """Means over the runs, by network and kind, and how much accuracy the ambiguous images cost."""
    found = {}
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = {
            kind: [r for r in rows if (r["network"], r["kind"]) == (network, kind)] for kind in ("nominal", "mixed")
        }
        names = ("accuracy", "top_pair", "pair_mass", "entropy_bits", "sure")
        means = {k: {n: float(np.mean([r[n] for r in some])) for n in names} for k, some in mine.items() if some}
        found[network] = {"runs": min(map(len, mine.values())), **means}
        if len(means) == 2:
            found[network]["accuracy_lost"] = means["nominal"]["accuracy"] - means["mixed"]["accuracy"]
    return found


if __name__ == "__main__":
    main()
