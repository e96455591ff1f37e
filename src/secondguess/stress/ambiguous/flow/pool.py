"""One label from two judges: their logits with weights of their own.

    logit(share) = w_1 logit(share by the generative judge) + w_2 logit(share by the committee)

This is a logarithmic opinion pool (Genest and Zidek, "Combining probability distributions", 1986). Each judge's shares
are calibrated for one judge alone; what the one knows beside the other is not. So the weights are fitted, both at once,
to images whose share is known (`mixtures.py`), and need not sum to one. These are made of images that neither judge has
learnt, and of a kind that neither has: real images, and two of them side by side. Blends would flatter a committee that
has learnt from blends.

The generative judge takes its time for these, so that weights are kept beside the generator, in `pool.json`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.files import make_folder
from secondguess.images import ImageSet
from secondguess.progress import Progress
from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.judge import DenoisingJudge
from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.shares import cost_of, log_odds_of

__all__ = ["POOLED", "Pool", "pool_of"]

Floats = NDArray[np.float64]
CARD = "pool.json"
POOLED = 200  # mixtures, and as many real images, that weights are fitted to
LEAST, MOST = 0.05, 2.0  # of a weight: nobody's opinion is left out, or turned around


@dataclass(frozen=True)
class Pool:
    """The weights of two judges.

    Attributes:
        judge: of the generative one.
        committee: of the other.
        cost: what labels cost more than known shares, in nats, on mixtures whose weights were not fitted to them; None
            for weights that were not fitted.
        cost_alike: the same with equal weights.
    """

    judge: float = 0.5
    committee: float = 0.5
    cost: float | None = None
    cost_alike: float | None = None

    def logits(self, judged: Floats, theirs: Floats) -> Floats:
        """Of the label's share (n,), from those by the judge (n,) and by the committee (n,)."""
        return np.asarray(self.judge * judged + self.committee * theirs)

    def opposite(self, theirs: Floats) -> Floats:
        """The logits (n,) by the judge with which the committee's (n,) would make an even label."""
        return np.asarray(-self.committee / self.judge * theirs)

    def to_dict(self) -> dict[str, float | None]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def fit(cls, judged: Floats, theirs: Floats, share: Floats) -> Self:
        """The weights of the least cost, for logits by both judges (n,) of images with known shares (n,)."""
        both, costs = np.stack([judged, theirs]), []
        for fitted, judged_by in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            weights = _weights(both[:, fitted], share[fitted])
            costs.append(cost_of(weights @ both[:, judged_by], share[judged_by]))
        judge, committee = map(float, _weights(both, share))
        return cls(judge, committee, float(np.mean(costs)), cost_of(both.mean(axis=0), share))

    def save(self, folder: str | Path, about: Mapping[str, Any]) -> None:
        """Write it into a folder, with the judges that it is of."""
        write_json_sealed(make_folder(folder) / CARD, {"about": dict(about), **self.to_dict()})

    @classmethod
    def load(cls, folder: str | Path, about: Mapping[str, Any]) -> Self | None:
        """What `save` has written; None where nothing sound is there, or a pool of other judges."""
        if not (file := Path(folder) / CARD).is_file():
            return None
        try:
            card = read_json(file)
            return cls(**{name: card[name] for name in cls.__annotations__}) if card["about"] == about else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"The weights in {file} are damaged ({error}) and are fitted again.", stacklevel=2)
            return None


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
        seed: of what is mixed with what; other mixtures than those that a judge with this seed was calibrated on.
        progress: where to report.
    """
    known = known_mixtures(images, labels, POOLED, seed + 1, blends=False)
    judged = judge.shares.logits(judge.weigh(known.images, known.pair, progress=progress), known.pair)
    opinions = committee.judge(ImageSet.from_arrays(known.images, layout="NCHW"))
    theirs = committee.shares.logits(log_odds_of(opinions, known.pair), known.pair)
    return Pool.fit(judged, theirs, known.share)


def _weights(both: Floats, share: Floats) -> Floats:
    """Of the least cost, for logits (2, n) and known shares (n,)."""

    def slope(weights: Floats) -> Floats:
        return np.asarray(both @ (expit(weights @ both) - share) / len(share))

    found = minimize(
        lambda weights: cost_of(weights @ both, share),
        x0=np.array([0.5, 0.5]),
        jac=slope,
        method="L-BFGS-B",
        bounds=[(LEAST, MOST)] * 2,
    )
    return np.asarray(found.x)
