"""Are ambiguous images copies of training images? The nearest ones, each above the training image it is nearest to.

    python ambiguous_copies.py cifar10.npz --set kept/photos --out photos_nearest.png

The first `SHOWN` are those with the least distance (root mean square over the pixels) to any training image. These are
mostly faint; the others have the least distance for their contrast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.neighbors import NearestNeighbors

from secondguess import load
from secondguess.images import load_images
from secondguess_lab.record import say

SHOWN, WIDE, LARGER = 24, 12, 2


def main():
    """Compare all with all, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    train = load(arguments.data).train.images[:]
    made = load_images(arguments.set / "images.npz").images[:]
    distance, nearest = nearest_of(made, train)
    relative = distance / made.reshape(len(made), -1).std(axis=1)
    rows = []
    for values in (distance, relative):
        order = np.argsort(values, kind="stable")[:SHOWN]
        say({"nearest": float(values[order[0]]), "median": float(np.median(values))})
        for start in range(0, len(order), WIDE):
            some = order[start : start + WIDE]
            rows += [np.concatenate(list(part), axis=2) for part in (made[some], train[nearest[some]])]
    sheet = np.rint(255 * np.concatenate(rows, axis=1)).astype(np.uint8).transpose(1, 2, 0)
    drawn = Image.fromarray(sheet.squeeze())
    drawn.resize((LARGER * drawn.width, LARGER * drawn.height), Image.Resampling.NEAREST).save(arguments.out)


def nearest_of(made, train):
    """Root mean square distances (n,) of images to their nearest training images, and which these are (n,)."""
    real, rows = (one.reshape(len(one), -1) for one in (train, made))
    found, which = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(real).kneighbors(rows)
    return found[:, 0] / np.sqrt(real.shape[1]), which[:, 0]


if __name__ == "__main__":
    main()
