"""Truly ambiguous images: two classes are right, and the soft label says how much each of them."""

from secondguess.stress.ambiguous.ambigan import AmbiGAN
from secondguess.stress.ambiguous.ambiguess import AmbiGuess
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages
from secondguess.stress.ambiguous.blend import PixelBlend
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator

__all__ = [
    "AmbiGAN",
    "AmbiGuess",
    "AmbiguityEstimator",
    "AmbiguousGenerator",
    "AmbiguousImages",
    "PixelBlend",
]
