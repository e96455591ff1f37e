from __future__ import annotations

from command_line import run
from full_sizes import unhurried
from postgres_here import postgres, postgres_server

__all__ = ["postgres", "postgres_server", "run", "unhurried"]
