"""Which pairs of classes to make ambiguous images of.

`"all"` takes every pair, as the paper does. `"confused"` takes those between which ambiguity is realistic, judged
from the data alone, never from the model under test: a pair is kept if real images of the two classes are hard to
tell apart for a nearest-neighbour vote in a small PCA space. An image between a trouser and a sandal is not ambiguous
to anyone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.images.coarse import coarse_rows

__all__ = ["choose_pairs", "confusion_by_neighbours", "how_many", "seconds_to_choose"]

Pair = tuple[int, int]
COMPONENTS, NEIGHBOURS, MOST_IMAGES = 30, 10, 6000
NEIGHBOURS_EACH = 1.5e-7  # seconds for a value of an image
SHARE, MOST_PAIRS = 1 / 3, 15  # of all pairs, for "confused"


def choose_pairs(train: ImageSet, pairs: str | int | Sequence[Pair], *, seed: int = 0) -> list[Pair]:
    """The pairs (c1, c2) with c1 < c2.

    Args:
        train: labelled images.
        pairs: `"all"`, `"confused"` (the most confusable third, at most 15), that many of the most confusable ones, or
            the pairs themselves.
        seed: of the subsample on which confusability is measured.
    """
    present = np.unique(train.labels[train.labels >= 0])
    if len(present) < 2:
        raise UserError(f"Ambiguous images lie between two classes, but {train.name!r} has {len(present)}.")
    every = [(int(a), int(b)) for a, b in combinations(present, 2)]
    if isinstance(pairs, str | int):
        if pairs == "all":
            return every
        if (isinstance(pairs, int) and pairs < 1) or (isinstance(pairs, str) and pairs != "confused"):
            raise UserError(f"pairs is {pairs!r}; give 'all', 'confused', or a list of pairs such as [(3, 8)].")
        mixing = confusion_by_neighbours(train, seed=seed)
        ranked = sorted(every, key=lambda pair: -mixing[pair])
        return sorted(ranked[: pairs if isinstance(pairs, int) else how_many(len(present))])
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= {int(c) for c in present}:
            raise UserError(f"{tuple(pair)} is not a pair of two classes of {train.name!r} that have images.")
    if not pairs:
        raise UserError("The list of pairs is empty; give 'all', 'confused', or at least one pair.")
    return sorted({(int(min(pair)), int(max(pair))) for pair in pairs})


def how_many(classes: int) -> int:
    """The number of pairs that `"confused"` takes among so many classes."""
    return max(1, min(MOST_PAIRS, round(SHARE * classes * (classes - 1) / 2)))


def seconds_to_choose(train: ImageSet) -> float:
    """What finding the most confusable pairs takes, about."""
    return NEIGHBOURS_EACH * min(len(train), MOST_IMAGES) * math.prod(train.shape)


def confusion_by_neighbours(train: ImageSet, *, seed: int = 0) -> NDArray[np.float64]:
    """How much two classes mix (K, K): the share of an image's nearest other images that belong to the other class."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    known = np.flatnonzero(train.labels >= 0)
    if len(known) > MOST_IMAGES:
        known = np.sort(np.random.default_rng(seed).choice(known, MOST_IMAGES, replace=False))
    images = coarse_rows(train.images, known)
    labels = train.labels[known]
    components = min(COMPONENTS, *images.shape)
    features = PCA(components, svd_solver="randomized", random_state=seed).fit_transform(images)
    near = min(NEIGHBOURS, len(known) - 1)
    _, neighbours = NearestNeighbors(n_neighbors=near + 1).fit(features).kneighbors(features)
    mixing = np.zeros((train.num_classes, train.num_classes))
    for own in np.unique(labels):
        others = labels[neighbours[labels == own, 1:]].ravel()
        mixing[own] = np.bincount(others, minlength=train.num_classes) / others.size
    return (mixing + mixing.T) / 2
