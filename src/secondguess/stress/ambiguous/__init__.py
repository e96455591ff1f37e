"""Truly ambiguous images: two classes are right, and the soft label says how much each of them."""

from secondguess.stress.ambiguous.ambigan import AmbiGAN
from secondguess.stress.ambiguous.ambiguess import AmbiGuess
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages
from secondguess.stress.ambiguous.blend import PixelBlend
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator
from secondguess.stress.ambiguous.feature_vectors import features, train_extractor
from secondguess.stress.ambiguous.flow import AmbiFlow
from secondguess.stress.ambiguous.making import CompanionSettings, make_companion
from secondguess.stress.ambiguous.realism_reference import RealismReference, measure_realism

__all__ = [
    "AmbiFlow",
    "AmbiGAN",
    "AmbiGuess",
    "AmbiguityEstimator",
    "AmbiguousGenerator",
    "AmbiguousImages",
    "CompanionSettings",
    "PixelBlend",
    "RealismReference",
    "features",
    "make_companion",
    "measure_realism",
    "train_extractor",
]
