"""One label from two judges: their logits with weights of their own.

    logit(share) = w_1 logit(share by the generative judge) + w_2 logit(share by the committee)

This is a logarithmic opinion pool (Genest and Zidek, "Combining probability distributions", 1986). Each judge's shares
are calibrated for one judge alone; what the one knows beside the other is not. So the weights are fitted, both at once,
to images whose share is known (`mixtures.py`), and need not sum to one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from secondguess.images import ImageSet
from secondguess.progress import Progress
from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.judge import DenoisingJudge
from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.shares import cost_of, log_odds_of

__all__ = ["Pool", "pool_of"]

Floats = NDArray[np.float64]
MIXED = 200  # mixtures, and as many real images, that weights are fitted to
LEAST, MOST = 0.05, 2.0  # of a weight: nobody's opinion is left out, or turned around


@dataclass(frozen=True)
class Pool:
    """The weights of two judges.

    Attributes:
        judge: of the generative one.
        committee: of the other.
    """

    judge: float = 0.5
    committee: float = 0.5

    def logits(self, judged: Floats, theirs: Floats) -> Floats:
        """Of the label's share (n,), from those by the judge (n,) and by the committee (n,)."""
        return np.asarray(self.judge * judged + self.committee * theirs)

    def opposite(self, theirs: Floats) -> Floats:
        """The logits (n,) by the judge with which the committee's (n,) would make an even label."""
        return np.asarray(-self.committee / self.judge * theirs)

    def to_dict(self) -> dict[str, float]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def fit(cls, judged: Floats, theirs: Floats, share: Floats) -> Self:
        """The weights of the least cost, for logits by both judges (n,) of images with known shares (n,)."""
        both = np.stack([judged, theirs])

        def slope(weights: Floats) -> Floats:
            return np.asarray(both @ (expit(weights @ both) - share) / len(share))

        found = minimize(
            lambda weights: cost_of(weights @ both, share),
            x0=np.array([0.5, 0.5]),
            jac=slope,
            method="L-BFGS-B",
            bounds=[(LEAST, MOST)] * 2,
        )
        return cls(*map(float, found.x))


def pool_of(
    judge: DenoisingJudge,
    committee: Committee,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Pool:
    """The pool of two calibrated judges.

    Args:
        judge: the generative one.
        committee: the other.
        images: uint8 (n, C, H, W), real ones that neither has learnt.
        labels: their classes (n,).
        seed: of what is mixed with what.
        progress: where to report.
    """
    known = known_mixtures(images, labels, MIXED, seed)
    judged = judge.shares.logits(judge.weigh(known.images, known.pair, progress=progress), known.pair)
    opinions = committee.judge(ImageSet.from_arrays(known.images, layout="NCHW"))
    theirs = committee.shares.logits(log_odds_of(opinions, known.pair), known.pair)
    return Pool.fit(judged, theirs, known.share)
