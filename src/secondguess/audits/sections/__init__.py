"""The sections of an audit, in the order of the report.

A section is a module with a `NAME`, a `TITLE`, a function `run(context) -> Findings`, and a template of the same name
beside it. To add one, write the two files and put the module into `SECTIONS`.
"""

from __future__ import annotations

from typing import Protocol

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections import (
    accuracy,
    ambiguity,
    calibration,
    confident_errors,
    deploy,
    gallery,
    label_free,
    overconfidence,
    overview,
    supervisors,
)

__all__ = ["SECTIONS", "Section"]


class Section(Protocol):
    """What a section module looks like."""

    NAME: str
    TITLE: str

    def run(self, context: Context, /) -> Findings:
        """Measure."""


# What needs only the test images comes first: whoever interrupts the making of stress sets has that already.
SECTIONS: tuple[Section, ...] = (
    overview,
    accuracy,
    calibration,
    gallery,
    ambiguity,
    overconfidence,
    supervisors,
    confident_errors,
    label_free,
    deploy,
)
