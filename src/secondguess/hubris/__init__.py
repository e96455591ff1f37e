"""Hubris benchmarking: how sure models are of images that could be either of two classes, and what that is worth."""

from __future__ import annotations

from secondguess.hubris.benchmark import benchmark, measure
from secondguess.hubris.companion import CompanionSet, read_companion
from secondguess.hubris.files import read_predictions
from secondguess.hubris.ranks import RankAgreement, family_means, rank_agreement, ranks
from secondguess.hubris.response import Response, response_curve
from secondguess.hubris.result import OverconfidenceResult
from secondguess.hubris.run import open_models, overconfidence
from secondguess.hubris.scores import Scores, score
from secondguess.hubris.table import HubrisTable, Matched, ModelRow

__all__ = [
    "CompanionSet",
    "HubrisTable",
    "Matched",
    "ModelRow",
    "OverconfidenceResult",
    "RankAgreement",
    "Response",
    "Scores",
    "benchmark",
    "family_means",
    "measure",
    "open_models",
    "overconfidence",
    "rank_agreement",
    "ranks",
    "read_companion",
    "read_predictions",
    "response_curve",
    "score",
]
