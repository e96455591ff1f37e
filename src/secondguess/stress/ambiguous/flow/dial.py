"""The dial: the share of the first class that is asked for.

The network's own log-odds, which the sampling controls, overstate what the calibrated judge concludes; how much, and
with which bias for each pair, is learnt from the judgements of earlier rounds:

    logit(share) = slope * log-odds + offset of the pair
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dial", "Pair", "logit"]

FAR = 7.0  # log-odds beyond which all are alike
Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass
class Dial:
    """How the judge's share of the first class follows the log-odds that were asked for.

    Attributes:
        slope: of logit(share) on the log-odds.
        offsets: by pair, in logits.
    """

    slope: float = 0.5
    offsets: dict[Pair, float] = field(default_factory=dict)
    _seen: list[tuple[Pair, Floats, Floats, Floats]] = field(default_factory=list)

    def log_odds(self, pair: Pair, shares: Floats) -> Floats:
        """The log-odds (n,) to ask for, to get these shares (n,)."""
        return np.asarray((logit(shares) - self.offsets.get(pair, 0.0)) / self.slope)

    def learn(self, pair: Pair, asked: Floats, got: Floats, wanted: Floats) -> None:
        """Take note of the judge's log-odds (n,) for those (n,) that were asked for to get the shares `wanted` (n,)."""
        self._seen.append((pair, asked, np.clip(got, -FAR, FAR), logit(wanted)))
        asked_all, got_all = [], []
        for one in {entry[0] for entry in self._seen}:
            x, y = (np.concatenate([entry[part] for entry in self._seen if entry[0] == one]) for part in (1, 2))
            self.offsets[one] = float(np.median(y - self.slope * x))
            asked_all.append(x - x.mean())
            got_all.append(y - y.mean())
        x, y = np.concatenate(asked_all), np.concatenate(got_all)
        if len(x) >= 200 and x.std() > 0:
            self.slope = float(np.clip((x @ y) / (x @ x), 0.05, 2.0))

    def followed(self) -> float | None:
        """The slope of logit(share) on logit(dial) over all candidates but the first of each pair; 1 is perfect.

        The first ones of a pair were asked for before anything was known about it. None where there are no others.
        """
        later, known = [], set()
        for pair, _, got, wanted in self._seen:
            if pair in known:
                later.append((wanted - wanted.mean(), got - got.mean()))
            known.add(pair)
        if not later:
            return None
        x, y = (np.concatenate(part) for part in zip(*later, strict=True))
        return float((x @ y) / (x @ x)) if x.std() > 0 else None


def logit(share: Floats) -> Floats:
    """Log-odds (n,) of shares (n,), which are kept away from 0 and 1."""
    inside = np.clip(share, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))
