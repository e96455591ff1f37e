from __future__ import annotations

from command_line import run
from full_sizes import unhurried

__all__ = ["run", "unhurried"]
