"""Do different companion sets rank models alike? Ranks by hubris, and how far rankings agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from secondguess.errors import UserError

__all__ = ["RankAgreement", "family_means", "rank_agreement", "ranks"]

FEWEST = 3  # two models are ranked alike with probability 1/2 by chance


@dataclass(frozen=True)
class RankAgreement:
    """How far two companion sets rank the same models alike.

    Attributes:
        first: name of one set.
        second: name of the other.
        models: how many models both have.
        spearman: correlation of the ranks, -1 to 1; None where one set ranks all models equal.
        kendall: tau-b: agreeing minus disagreeing pairs of models, over all pairs.
        p_value: of tau, two-sided; with few models no agreement is significant.
        family: the family the models belong to; None for all models.
    """

    first: str
    second: str
    models: int
    spearman: float | None
    kendall: float | None
    p_value: float | None
    family: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def ranks(values: Mapping[str, float]) -> dict[str, float]:
    """Rank models by hubris: 1 for the least; equal ones share the mean of their ranks."""
    from scipy.stats import rankdata

    if not values:
        raise UserError("No model was given to rank; give at least one.")
    return dict(zip(values, rankdata(list(values.values())).tolist(), strict=True))


def rank_agreement(
    sets: Mapping[str, Mapping[str, float]], families: Mapping[str, str] | None = None
) -> list[RankAgreement]:
    """Compare the rankings of every two companion sets.

    Args:
        sets: for each companion set the hubris of each model, `{"ambigan": {"resnet": .9, ...}, ...}`.
        families: the family of each model; where given, agreement is also measured within each family of three or more.

    Returns:
        One entry for each two sets with at least three models in common, and for each such family in it.
    """
    found = []
    for first, second in combinations(sets, 2):
        common = [model for model in sets[first] if model in sets[second]]
        known = families or {}
        groups: list[tuple[str | None, list[str]]] = [(None, common)]
        groups += [(one, [m for m in common if known.get(m) == one]) for one in dict.fromkeys(known.values())]
        for family, models in groups:
            if len(models) >= FEWEST:
                a, b = ([sets[name][model] for model in models] for name in (first, second))
                found.append(RankAgreement(first, second, len(models), *_correlations(a, b), family))
    return found


def family_means(values: Mapping[str, float], families: Mapping[str, str]) -> dict[str, float]:
    """Return the mean of a measure (ACD, hubris) over the models of each family.

    Images that are ambiguous to the family of the estimator only have a low ACD there and a high one elsewhere.
    """
    unknown = [model for model in values if model not in families]
    if unknown:
        raise UserError(f"The model {unknown[0]!r} belongs to no family; name one for each model.")
    names = dict.fromkeys(families[model] for model in values)
    return {name: float(np.mean([v for model, v in values.items() if families[model] == name])) for name in names}


def _correlations(a: list[float], b: list[float]) -> tuple[float | None, float | None, float | None]:
    from scipy.stats import kendalltau, spearmanr

    if len(set(a)) == 1 or len(set(b)) == 1:
        return None, None, None
    tau = kendalltau(a, b)
    return float(spearmanr(a, b).statistic), float(tau.statistic), float(tau.pvalue)
