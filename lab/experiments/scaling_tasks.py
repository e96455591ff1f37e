"""A task that does nothing, in a module of its own so that workers can import it."""

from __future__ import annotations


def nothing(*, seed):
    """The seed."""
    return {"seed": seed}
