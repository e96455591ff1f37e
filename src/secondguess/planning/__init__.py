"""What long work will cost here, and how large it may be: prices, a plan, and the measured pace of a classifier."""

from __future__ import annotations

from secondguess.planning.pace import Pace, paced, timed
from secondguess.planning.part import Part
from secondguess.planning.plan import OutOfTime, Plan, recorded_sizes
from secondguess.planning.price import Price, choose_sizes

__all__ = ["OutOfTime", "Pace", "Part", "Plan", "Price", "choose_sizes", "paced", "recorded_sizes", "timed"]
