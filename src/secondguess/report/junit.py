"""Results in the XML dialect that every CI system reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

__all__ = ["Case", "junit_xml"]


@dataclass(frozen=True)
class Case:
    """One line in a CI's list of tests.

    Attributes:
        group: shown before the name.
        name: what was checked.
        outcome: passed, failed (a gate), error (could not be checked) or skipped.
        message: why, unless it passed.
        seconds: how long it took.
    """

    group: str
    name: str
    outcome: Literal["passed", "failed", "error", "skipped"] = "passed"
    message: str = ""
    seconds: float = 0.0


TAGS = {"failed": "failure", "error": "error", "skipped": "skipped"}
# What XML 1.0 has no way to write, not even escaped; the colours in a library's error message are of that kind.
UNWRITABLE = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(suite: str, cases: Sequence[Case]) -> str:
    """The cases as a JUnit document."""
    outcomes = [case.outcome for case in cases]
    root = ElementTree.Element(
        "testsuite",
        name=_writable(suite),
        tests=str(len(cases)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        element = ElementTree.SubElement(
            root, "testcase", classname=_writable(case.group), name=_writable(case.name), time=f"{case.seconds:.3f}"
        )
        if case.outcome != "passed":
            ElementTree.SubElement(element, TAGS[case.outcome], message=_writable(case.message))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _writable(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)
