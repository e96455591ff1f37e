"""Has it become worse? Two audits, or two models, compared image by image."""

from secondguess.comparison.comparing import compare
from secondguess.comparison.result import Comparison

__all__ = ["Comparison", "compare"]
