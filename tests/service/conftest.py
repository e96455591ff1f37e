from __future__ import annotations

from postgres_here import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
