"""Everything that hubris says about one set of predictions, together: absolute, relative, ACD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from secondguess.metrics import Hubris, Interval, acd_interval, hubris

__all__ = ["Scores", "bounds", "score"]


@dataclass(frozen=True, eq=False)
class Scores:
    """The hubris of one set of predictions.

    Attributes:
        absolute: against "all classes equally likely".
        relative: against a reference for each image; None where there is none.
        acd: average confusion distance.
    """

    absolute: Hubris
    relative: Hubris | None
    acd: Interval

    @property
    def main(self) -> Hubris:
        """The relative hubris where there is a reference, else the absolute: whose split into parts is reported."""
        return self.relative or self.absolute

    def to_dict(self) -> dict[str, Any]:
        """The indices with their bounds; divergence, its two parts and the rescaled index are those of `main`."""
        return {
            "absolute": bounds(self.absolute.value),
            "relative": None if self.relative is None else bounds(self.relative.value),
            "acd": self.acd.value,
            "mean_kl": self.main.mean_kl.value,
            "over": self.main.over,
            "under": self.main.under,
            "rescaled": self.main.rescaled.value,
            "n": len(self.absolute.scores),
        }


def score(
    predictions: ArrayLike,
    reference: ArrayLike | None = None,
    *,
    compat: bool = False,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Scores:
    """Score predictions, without any model or image.

    Args:
        predictions: (n,) probabilities of one of two classes, or (n, K) rows that sum to 1.
        reference: None, or as the predictions, or one number or row for all; no probability may be 0.
        compat: the published computation (two classes only).
        resamples: how many bootstrap resamples are drawn.
        level: nominal coverage of the intervals.
        seed: of the resamples.
    """
    relative = None
    if reference is not None:
        relative = hubris(predictions, reference, compat=compat, resamples=resamples, level=level, seed=seed)
    return Scores(
        absolute=hubris(predictions, compat=compat, resamples=resamples, level=level, seed=seed),
        relative=relative,
        acd=acd_interval(predictions, resamples=resamples, level=level, seed=seed),
    )


def bounds(interval: Interval) -> dict[str, float]:
    """Value, lower and upper bound."""
    return {"value": interval.value, "low": interval.low, "high": interval.high}
