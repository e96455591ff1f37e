"""Hubris benchmarking: how sure models are of images that could be either of two classes, and what that is worth."""

from __future__ import annotations

from secondguess.hubris.benchmark import benchmark, measure
from secondguess.hubris.companion import CompanionSet, read_companion
from secondguess.hubris.features import features, train_extractor
from secondguess.hubris.files import read_predictions
from secondguess.hubris.ranks import RankAgreement, family_means, rank_agreement, ranks
from secondguess.hubris.realism import Yardstick, measure_realism
from secondguess.hubris.response import Response, response_curve
from secondguess.hubris.scores import Scores, score
from secondguess.hubris.table import HubrisTable, Matched, ModelRow

__all__ = [
    "CompanionSet",
    "HubrisTable",
    "Matched",
    "ModelRow",
    "RankAgreement",
    "Response",
    "Scores",
    "Yardstick",
    "benchmark",
    "family_means",
    "features",
    "measure",
    "measure_realism",
    "rank_agreement",
    "ranks",
    "read_companion",
    "read_predictions",
    "response_curve",
    "score",
    "train_extractor",
]
