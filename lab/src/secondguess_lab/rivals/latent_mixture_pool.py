"""What an ensemble thinks of images, which of them it keeps, and a choice of these that is even in entropy.

For the members' softmax outputs p_m(k|x), m = 1..M, with H in nats:

    p(k|x)               = mean over m of p_m(k|x)                       the label
    predictive entropy   = H(p(.|x))                                     doubt of any kind
    mutual information   = H(p(.|x)) - mean over m of H(p_m(.|x))        disagreement: doubt about the model

An image is kept if its mutual information is at most 0.05 and its predictive entropy lies in [0.05, 3): all members
hesitate alike. About most kept images they hesitate little, so the choice is stratified: of the n_b images in entropy
bin b (50 bins on [0.05, 1.6]) a number proportional to n_b^0.2 is taken.

Departures from the code behind AmbiguousMNIST (Mukhoti et al. 2021): no image is taken twice, so a bin never gives more
than it has; within a bin the choice is uniform over images and not over entropies; the last bin is open towards higher
entropies, and where fewer classes allow no more than ln K < 1.6, the bins end there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MixturePool", "Opinion", "even_in_entropy", "judge", "shares"]

Floats = NDArray[np.float64]
LARGEST_DISAGREEMENT = 0.05  # nats
ENTROPY = (0.05, 3.0)  # nats
BINS, HIGHEST_BIN, POWER = 50, 1.6, 0.2


@dataclass(frozen=True)
class Opinion:
    """What an ensemble thinks of n images.

    Attributes:
        probabilities: (n, K), the mean of the members' softmax outputs.
        entropy: (n,) of these, in nats.
        mutual_information: (n,), in nats.
    """

    probabilities: Floats
    entropy: Floats
    mutual_information: Floats

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which images (n,) are ambiguous: all members hesitate alike."""
        low, high = ENTROPY
        return self.agreed & (self.entropy >= low) & (self.entropy < high)

    @property
    def agreed(self) -> NDArray[np.bool_]:
        """On which images (n,) the members are of one mind."""
        return self.mutual_information <= LARGEST_DISAGREEMENT

    def take(self, rows: NDArray[Any]) -> Opinion:
        """What it thinks of some of them."""
        return Opinion(self.probabilities[rows], self.entropy[rows], self.mutual_information[rows])


def judge(logits: NDArray[Any]) -> Opinion:
    """The opinion of an ensemble whose members give logits (M, n, K)."""
    shifted = logits.astype(np.float64) - logits.max(axis=2, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    p = np.exp(log_p)
    mean = p.mean(axis=0)
    mean /= mean.sum(axis=1, keepdims=True)
    entropy = -(mean * np.log(np.maximum(mean, np.finfo(np.float64).tiny))).sum(axis=1)
    within = -(p * log_p).sum(axis=2).mean(axis=0)
    return Opinion(mean, entropy, np.maximum(entropy - within, 0.0))


@dataclass(frozen=True)
class MixturePool:
    """Mixtures.

    Attributes:
        images: uint8 (n, C, H, W).
        opinion: of the ensemble.
        sources: int64 (n, 4), positions of the mixed images; -1 beyond the last.
        weights: (n, 4), their weights; 0 beyond the last.
    """

    images: NDArray[np.uint8]
    opinion: Opinion
    sources: NDArray[np.int64]
    weights: Floats

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[Any]) -> MixturePool:
        """Some of them, by position or by mask."""
        return MixturePool(self.images[rows], self.opinion.take(rows), self.sources[rows], self.weights[rows])

    @classmethod
    def concatenate(cls, parts: list[MixturePool]) -> MixturePool:
        """All of them; at least one part."""
        return cls(
            np.concatenate([part.images for part in parts]),
            Opinion(
                np.concatenate([part.opinion.probabilities for part in parts]),
                np.concatenate([part.opinion.entropy for part in parts]),
                np.concatenate([part.opinion.mutual_information for part in parts]),
            ),
            np.concatenate([part.sources for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )


def even_in_entropy(entropy: Floats, count: int, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions of `count` of n images (all, if there are fewer), stratified over their entropies (n,) in nats."""
    edges = np.linspace(ENTROPY[0], min(HIGHEST_BIN, np.log(classes)), BINS + 1)
    bins = np.clip(np.digitize(entropy, edges) - 1, 0, BINS - 1)
    quotas = shares(np.bincount(bins, minlength=BINS), count)
    order = rng.permutation(len(entropy))
    chosen = [order[bins[order] == b][:quota] for b, quota in enumerate(quotas)]
    return np.concatenate(chosen)


def shares(available: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """How many to take of each bin: proportional to available^0.2, never more than there are, `count` in total.

    A bin that is exhausted leaves its share to the others; the largest remainders are rounded up.
    """
    count = min(count, int(available.sum()))
    weights = np.where(available > 0, available.astype(np.float64) ** POWER, 0.0)
    exact = np.zeros(len(available))
    open_bins = available > 0
    while open_bins.any():
        rest = count - available[~open_bins].sum()
        exact[open_bins] = rest * weights[open_bins] / weights[open_bins].sum()
        over = open_bins & (exact > available)
        if not over.any():
            break
        exact[over] = available[over]
        open_bins &= ~over
    whole = np.floor(exact + 1e-9).astype(np.int64)
    largest_remainders = np.argsort(whole - exact, kind="stable")
    whole[largest_remainders[: count - int(whole.sum())]] += 1
    return whole
