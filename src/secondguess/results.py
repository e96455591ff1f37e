"""What every verb returns: something to read, to keep, and to hand to another program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["Result"]


class Result(ABC):
    """The outcome of a job.

    Subclasses say what they found in three forms: lines for a person, a dictionary for a program, files for the record.
    """

    @abstractmethod
    def summary(self) -> str:
        """At most ten lines for a person."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, in values that JSON can hold."""

    @abstractmethod
    def save(self, folder: str | Path) -> Path:
        """Write the result into a folder, and nothing outside it; returns the folder."""

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{escape(self.summary())}</pre>"
