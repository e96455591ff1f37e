"""Adversarial images: nominal ones with a small change that is aimed at the model."""

from __future__ import annotations

from secondguess.stress.adversarial.stress_set import ATTACKS, PAPER_GRID, Adversarial

__all__ = ["ATTACKS", "PAPER_GRID", "Adversarial"]
