from __future__ import annotations

from real_clusters import cluster, ray_of_two

from command_line import run

__all__ = ["cluster", "ray_of_two", "run"]
