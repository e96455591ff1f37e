"""Ambiguous images of any kind from one conditional generative model, which is also their judge."""

from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.generator import AmbiFlow
from secondguess.stress.ambiguous.flow.judge import DenoisingJudge
from secondguess.stress.ambiguous.flow.model import Flow

__all__ = ["AmbiFlow", "Committee", "DenoisingJudge", "Flow"]
