"""Cheap supervisors first, the others only where these are not certain.

A budget of milliseconds per image is for what the supervisors take; the classifier's own pass is not counted. The
cheapest supervisors, up to half of the budget, form a panel of their own, whose statistic u clears an image if it is at
most a limit c; all others score the rest. The limit is such that on nominal images

    cost of the cheap ones + P(u > c) * cost of the expensive ones = budget

so the grey zone is everything that the cheap ones cannot clear. Images they find very suspicious belong to it: they are
rare among nominal images, and only the whole panel can say what is wrong with them.

The statistic of a cleared image is below that of every other, so the whole remains one score for each image and its
threshold is calibrated as always: the promised false-alarm rate does not depend on the cascade. What may be lost is
detection, and a guard reports how much. Where more alarms are wanted than images are in the grey zone, cleared ones
raise an alarm, too; the others score these then, because only they can tell what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.panel import Panel, Rule, fit_panel
from secondguess.guard.verdicts import Kind

__all__ = ["Cascade", "Scoring", "among", "fit_cascade"]

Floats = NDArray[np.float64]
Columns = NDArray[np.int64]
Scoring = Callable[[NDArray[np.int64] | None, Columns], Floats]  # of some images (None: all) by some supervisors

FAR = 1e6  # below every statistic of a panel, which is a sum of logarithms


@dataclass(frozen=True, eq=False)
class Cascade:
    """Which supervisors score first, and when the others do.

    Attributes:
        cheap: the columns of those that always score.
        expensive: the columns of the others.
        first: the panel of the cheap ones.
        limit: of its statistic; above it, all supervisors score.
        budget: milliseconds per image.
        costs: (m,) milliseconds per image that each supervisor was measured to take.
    """

    cheap: Columns
    expensive: Columns
    first: Panel
    limit: float
    budget: float
    costs: Floats

    def combine(self, panel: Panel, n: int, scoring: Scoring) -> tuple[Floats, Floats, Floats]:
        """Scores (n, m), statistics (n,) and probabilities of anomalies (n, t); scores that were not computed are NaN.

        Args:
            panel: of all supervisors.
            n: number of images.
            scoring: of some images by some supervisors.
        """
        scores = np.full((n, len(self.costs)), np.nan)
        scores[:, self.cheap] = scoring(None, self.cheap)
        first, _ = self.first.combine(scores[:, self.cheap])
        statistics = first - self.limit - FAR
        chances = np.full((n, len(panel.anomalies)), 1 / len(panel.anomalies))
        asked = np.flatnonzero(first > self.limit)
        if len(asked):
            scores[asked[:, None], self.expensive] = scoring(asked, self.expensive)
            statistics[asked], chances[asked] = panel.combine(scores[asked])
        return scores, statistics, chances

    def combine_scores(self, panel: Panel, scores: Floats) -> tuple[Floats, Floats, Floats]:
        """The same for images whose scores (n, m) are all known."""
        return self.combine(panel, len(scores), among(scores))

    def complete(
        self, panel: Panel, rows: NDArray[np.bool_], combined: tuple[Floats, Floats, Floats], scoring: Scoring
    ) -> tuple[Floats, Floats, Floats]:
        """The same scores, statistics and probabilities; of cleared images at `rows` all scores and the probabilities.

        Args:
            panel: of all supervisors.
            rows: (n,) which images are to be known completely.
            combined: what `combine` has returned.
            scoring: of some images by some supervisors.
        """
        scores, statistics, chances = combined
        lacking = np.flatnonzero(rows & (statistics <= -FAR))
        if len(lacking):
            scores, chances = scores.copy(), chances.copy()
            scores[lacking[:, None], self.expensive] = scoring(lacking, self.expensive)
            _, chances[lacking] = panel.combine(scores[lacking])
        return scores, statistics, chances

    def card(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"limit": self.limit, "budget": self.budget, "first": self.first.card()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file must hold."""
        own = {"cheap": self.cheap, "dear": self.expensive, "costs": self.costs}
        return own | {f"first/{name}": array for name, array in self.first.arrays().items()}

    @classmethod
    def restored(cls, card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Cascade:
        """The opposite of `card` and `arrays`."""
        inner = {name.removeprefix("first/"): array for name, array in arrays.items() if name.startswith("first/")}
        return cls(
            cheap=arrays["cheap"],
            expensive=arrays["dear"],
            first=Panel.restored(card["first"], inner),
            limit=float(card["limit"]),
            budget=float(card["budget"]),
            costs=arrays["costs"],
        )


def among(scores: Floats) -> Scoring:
    """Scores (n, m) that are all known."""
    return lambda rows, columns: (scores if rows is None else scores[rows])[:, columns]


def fit_cascade(
    nominal: Floats,
    anomalies: Mapping[Kind, Floats],
    costs: Floats,
    budget: float,
    *,
    everyday: Floats | None = None,
    sorts: Mapping[Kind, NDArray[Any]] | None = None,
    harmless: Floats | None = None,
    rule: Rule,
    seed: int = 0,
) -> Cascade | None:
    """Choose the supervisors that score first; None where the budget suffices for all of them.

    Args:
        nominal: (n, m) scores, as for `fit_panel`.
        anomalies: (k, m) scores for each kind of anomaly.
        costs: (m,) milliseconds per image.
        budget: milliseconds per image.
        everyday: (e, m) scores of the images for which the budget is meant: all nominal ones, also those of which the
            first panel learns that they are mistakes. By default the nominal ones that it learns from.
        sorts: (k,) of their images, as for `fit_panel`.
        harmless: (h, m) scores, as for `fit_panel`.
        rule: of both panels.
        seed: of the first panel's training.
    """
    if budget >= costs.sum():
        return None
    order = np.argsort(costs, kind="stable")
    spent = np.cumsum(costs[order])
    if not budget > spent[0]:
        raise UserError(
            f"The latency budget is {budget:g} ms per image, but the cheapest supervisor alone takes {spent[0]:.3g} ms "
            f"and all of them {costs.sum():.3g} ms; allow more, or choose other supervisors."
        )
    count = max(1, int((spent <= budget / 2).sum()))
    cheap, expensive = np.sort(order[:count]), np.sort(order[count:])
    few = None if harmless is None else harmless[:, cheap]
    kinds = {kind: scores[:, cheap] for kind, scores in anomalies.items()}
    first = fit_panel(nominal[:, cheap], kinds, sorts=sorts, harmless=few, rule=rule, seed=seed)
    share = (budget - spent[count - 1]) / float(costs[expensive].sum())
    statistics, _ = first.combine((nominal if everyday is None else everyday)[:, cheap])
    return Cascade(cheap, expensive, first, float(np.quantile(statistics, 1 - share)), float(budget), costs)
