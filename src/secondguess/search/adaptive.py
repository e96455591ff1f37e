"""Adaptive search: starts from adversarial distance and learns from the answers where the errors are.

Bennette et al. close with the remark that their search should prime methods which learn a model of the errors. This one
does. Before the first answer the logit of an error is

    m(x) = logit(1 - p) - w r(x),

p the confidence and r the residual of the adversarial distance, divided by its local scale; so among images of one
confidence the smallest residual comes first. That a small residual means an error is a belief, though: that it means
nothing, or the opposite (-w), is held possible too, and weighed by the answers. Each answer updates a Gaussian process
(see `_error_model`) in which all of this can be revised: the overall error rate, how much the confidence means,
how much (and in which direction) the residual and the scores of supervisors mean at equal confidence, where in feature
space the errors lie, and which predicted classes are worse.

A search that maximised the number of errors would settle at the lowest confidence, where errors are expected; one that
maximised their ratio to those expected would settle at the highest, where next to none are. This one maximises how far
its findings stand out. Let phi be the chance of an error, and e the mean of phi over images of similar confidence,
which is the error rate that the confidence predicts in this pool. For the next h queries, with E = sum phi and M = sum
e,

    z = (E - M) / sqrt(M)

is the distance between both in standard deviations, and at its maximum every image chosen has a larger

    phi - (1 + E / M) / 2 * e

than every image left out. The search takes the image for which this is largest.
"""

from __future__ import annotations

import numpy as np

from secondguess.errors import UserError
from secondguess.search._error_model import ErrorModel, Posterior
from secondguess.search.adversarial_distance import residuals
from secondguess.search.base import Floats, Ints, Search, best
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["AdaptiveSearch"]

WINDOW = 0.1  # share of the images that count as of similar confidence: the span of the adversarial distance
FEWEST = 20
LEAST = 1e-3
OUTLYING = 4.0  # residuals are clipped to this number of their local scales
SURE = 1e-6

# How large effects may be, in logits: standard deviations of the prior.
LEVEL, OF_CONFIDENCE, OF_RESIDUAL, OF_SCORE, OF_CLASS, OF_PLACE = 1.0, 0.7, 0.5, 0.5, 0.7, 2.0
BELIEFS = {1.0: 0.6, 0.0: 0.3, -1.0: 0.1}  # prior: a small residual means an error, nothing, the opposite
ROUNDS = 8  # of the fixed point for E / M


@register
class AdaptiveSearch(Search):
    """Learns a model of the errors and asks where it expects more of them than the confidence predicts.

    Distances and scores of supervisors are used where the pool has them.

    Args:
        seed: draws nothing.
        prime: w, how many logits a residual of one local scale is worth before the first answer.
        horizon: h, for how many queries ahead the search plans.
        length: over which distance errors are alike, where 1 is the root mean square of the features.
        optimism: standard deviations added to the posterior mean of an image, to explore where little is known.
    """

    name = "adaptive"
    title = "Adaptive (primed by adversarial distance)"
    needs_distances, can_wait = True, True

    def __init__(
        self,
        *,
        seed: int = 0,
        prime: float = 0.7,
        horizon: int = 50,
        length: float = 1.0,
        optimism: float = 0.0,
    ) -> None:
        super().__init__(seed=seed)
        if horizon < 1 or not length > 0:
            raise UserError(f"horizon={horizon} and length={length} were given; both must be positive.")
        self.prime, self.horizon, self.length, self.optimism = prime, horizon, length, optimism

    def _fit(self, pool: Pool) -> None:
        rows = pool.rows
        self._place = np.full(len(pool), -1)
        self._place[rows] = np.arange(len(rows))
        self._similar = _SimilarConfidence(pool.confidence[rows])
        self._residuals = self._local_residuals()
        self._model = self._prior()

    def chances(self) -> tuple[Floats, Floats]:
        """(m,) phi and (m,) e of the images that may be asked about, after the answers so far."""
        phi = self._believed().chance()
        return phi, np.maximum(self._similar.mean(phi), LEAST)

    def _choose(self, candidates: Ints, n: int) -> Ints:
        believed = self._believed()
        announced = np.maximum(self._similar.mean(believed.chance()), LEAST)[self._place[candidates]]
        hoped = believed.chance(self.optimism)[self._place[candidates]]
        value = hoped - _price(hoped, announced, self.horizon) * announced
        return best(value, candidates, n)

    def _believed(self) -> Posterior:
        labelled = self._place[self.labelled]
        inside = labelled >= 0  # answers on images that may not be asked about lie outside the model
        return self._model.posterior(labelled[inside], self.errors[inside])

    def _local_residuals(self) -> Floats:
        """(m,) residuals in units of their mean size at that confidence; 0 where nothing is known."""
        if self.pool.distances is None:
            return np.zeros(self.pool.size)
        found = residuals(self.pool)[self.pool.rows]
        found = np.where(np.isfinite(found), found, 0.0)
        scale = self._similar.mean(np.abs(found))
        return np.clip(found / np.maximum(scale, 1e-9), -OUTLYING, OUTLYING)

    def _prior(self) -> ErrorModel:
        pool, rows = self.pool, self.pool.rows
        confidence = np.clip(pool.confidence[rows], SURE, 1 - SURE)
        logits = np.log1p(-confidence) - np.log(confidence)
        columns = [
            np.full(len(rows), LEVEL),
            OF_CONFIDENCE * _standardised(logits),
            OF_RESIDUAL * self._residuals,
        ]
        for scores in pool.scores.values():
            ranks = _ranks(scores[rows])
            columns.append(OF_SCORE * _standardised(ranks - self._similar.mean(ranks)))
        places = pool.features[rows] - pool.features[rows].mean(axis=0)
        spread = np.sqrt((places**2).sum(axis=1).mean())
        classes = pool.predictions[rows]
        several = len(np.unique(classes)) > 1
        return ErrorModel(
            means=np.stack([logits - belief * self.prime * self._residuals for belief in BELIEFS]),
            weights=np.array(list(BELIEFS.values())),
            columns=np.column_stack(columns),
            places=places / max(float(spread), 1e-12),
            groups=classes,
            amplitude=OF_PLACE,
            length=self.length,
            group_scale=OF_CLASS if several else 0.0,
        )

    def _reasons(self, row: int) -> dict[str, float | str]:
        place = self._place[row]
        if place < 0:
            return {}
        phi, announced = self.chances()
        reasons: dict[str, float | str] = {}
        if self.pool.distances is not None:
            reasons["residual in local scales"] = float(self._residuals[place])
        reasons["predicted error probability"] = float(phi[place])
        reasons["error rate at this confidence"] = float(announced[place])
        return reasons


class _SimilarConfidence:
    """Means over the images nearest in confidence: a moving window over their order."""

    def __init__(self, confidence: Floats) -> None:
        n = len(confidence)
        self.order = np.argsort(confidence, kind="stable")
        self.place = np.argsort(self.order, kind="stable")
        width = min(max(int(WINDOW * n), FEWEST), n)
        self.start = np.clip(np.arange(n) - width // 2, 0, n - width)
        self.width = width

    def mean(self, values: Floats) -> Floats:
        """(m,) the mean of values (m,) over the window of each image."""
        sums = np.concatenate([[0.0], values[self.order].cumsum()])
        return np.asarray(((sums[self.start + self.width] - sums[self.start]) / self.width)[self.place])


def _price(phi: Floats, announced: Floats, horizon: int) -> float:
    """(1 + E / M) / 2 of the `horizon` images with the largest phi - price * e: a fixed point, at least 1."""
    ahead, price = min(horizon, len(phi)), 1.0
    for _ in range(ROUNDS):
        chosen = np.argpartition(price * announced - phi, ahead - 1)[:ahead]
        price = max(1.0, (1 + float(phi[chosen].sum() / announced[chosen].sum())) / 2)
    return price


def _standardised(values: Floats) -> Floats:
    return (values - values.mean()) / max(float(values.std()), 1e-12)


def _ranks(values: Floats) -> Floats:
    """(m,) ranks in [0, 1], ties sharing theirs."""
    _, member, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts + 1) / 2)[member] / max(len(values) - 1, 1))
