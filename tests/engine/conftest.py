from __future__ import annotations

from real_clusters import cluster

from command_line import run

__all__ = ["cluster", "run"]
