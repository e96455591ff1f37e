from __future__ import annotations

from full_sizes import hurried

__all__ = ["hurried"]
