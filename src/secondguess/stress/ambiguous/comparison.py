"""One measure for all generators of ambiguous images: how many of their images could be either of their two classes.

`Realism` asks whether an image lies as close to real images of *both* classes as held-out real images lie to their own.
For a soft label over more than two classes, the two likeliest ones are asked about. A generator that rejects what fails
this very check scores 1 by construction: compare what it made before rejecting, or judge all with other real images.
The latter is fairer anyway to generators that copy nothing: an image mixed of two training images is near both of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.metrics.ambiguity import mean_entropy
from secondguess.stress.ambiguous.realism import Realism

__all__ = ["figures", "likeliest_pair", "realism_share"]

BLOCK, BLOCK_VALUES = 1000, 1 << 22  # images read at a time, and values if they are large


def likeliest_pair(soft_labels: NDArray[np.float64]) -> NDArray[np.int64]:
    """The two likeliest classes (n, 2) of soft labels (n, K), the likelier first; of equal ones the first count."""
    return np.argsort(-soft_labels, axis=1, kind="stable")[:, :2]


def realism_share(images: ImageSet, check: Realism) -> float:
    """The share of images that could be either of the two likeliest classes of their soft label.

    Args:
        images: with soft labels.
        check: fitted on real images of the same classes. An image one of whose two classes it has never seen fails.
    """
    pairs = np.sort(likeliest_pair(_soft(images)), axis=1)
    plausible = np.zeros(len(images), dtype=bool)
    for first, second in np.unique(pairs, axis=0).tolist():
        if not {first, second} <= check.thresholds.keys():
            continue
        rows = np.flatnonzero((pairs == (first, second)).all(axis=1))
        step = max(1, min(BLOCK, BLOCK_VALUES // int(np.prod(images.shape))))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            plausible[block] = check.plausible(images.images[block], (first, second))
    return float(plausible.mean())


def figures(images: ImageSet, train: ImageSet, *, seed: int = 0) -> dict[str, Any]:
    """Figures for the card of any generator, judged by the training images that the images were made from."""
    return {
        "train": train.describe(),
        "images": len(images),
        "label_entropy_bits": mean_entropy(_soft(images)),
        "realism_share": realism_share(images, Realism(train, seed=seed)),
    }


def _soft(images: ImageSet) -> NDArray[np.float64]:
    if images.soft_labels is None:
        raise UserError(f"{images.name!r} has no soft labels, so its classes are unknown; give soft labels.")
    return images.soft_labels
