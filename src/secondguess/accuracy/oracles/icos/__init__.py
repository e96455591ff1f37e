"""ICOS: an oracle made of rules on the input, on the training data and on the classifier's probabilities."""

from secondguess.accuracy.oracles.icos.drawing import draw_rule, to_png
from secondguess.accuracy.oracles.icos.input_rules import InputRules, Partition
from secondguess.accuracy.oracles.icos.oracle import Contribution, Icos, Violations
from secondguess.accuracy.oracles.icos.pixel_rules import CRITERIA, PixelRule, PixelRules

__all__ = [
    "CRITERIA",
    "Contribution",
    "Icos",
    "InputRules",
    "Partition",
    "PixelRule",
    "PixelRules",
    "Violations",
    "draw_rule",
    "to_png",
]
