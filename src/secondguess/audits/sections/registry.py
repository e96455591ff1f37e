"""Sections of the audit by name: built-in ones by decorator, others by an entry point in `secondguess.sections`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.contracts.parameters import Parametrised
from secondguess.contracts.registry import Registry
from secondguess.planning import Pace, Price

__all__ = ["Section", "get", "in_order", "make", "make_all", "names", "register"]


class Section(Parametrised, ABC):
    """A part of the audit.

    A section that raises is reported as failed, with its reason, and the others go on; one that has nothing to say
    about these images raises `NotApplicable` and is skipped.

    Attributes:
        name: by which it is known; also the anchor of its place in the report.
        title: its heading in the report.
        after: the name of the section that it follows in the report; without one it stands at the end.
        last: whether it runs after all others, wherever it stands in the report: it builds on what they have measured.
        template: the file beside its module that shows `findings.view`; without one, `findings.parts` are shown.
        reads_scores: whether it asks for scores of supervisors, which workers of an engine then give in the pass that
            observes the images.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    after: ClassVar[str] = ""
    last: ClassVar[bool] = False
    template: ClassVar[str] = ""
    reads_scores: ClassVar[bool] = True

    def price(self, context: Context, pace: Pace) -> Price:
        """What it costs, beyond observing images and fitting supervisors; next to nothing unless a section says more.

        A section with a size asks for it when it runs: `context.plan.size(f"section.{self.name}")`.
        """
        return Price()

    @abstractmethod
    def run(self, context: Context) -> Findings:
        """Measure, and return the findings."""


REGISTRY: Registry[type[Section], Section] = Registry(
    "section",
    base=Section,
    public="secondguess.audits.Section",
    package="secondguess.audits.sections",
    group="secondguess.sections",
    # What needs only the test images comes first: an audit that is interrupted while it makes stress sets has these.
    modules=(
        "overview",
        "accuracy",
        "calibration",
        "gallery",
        "ambiguity",
        "boundary",
        "overconfidence",
        "human_doubt",
        "supervisors",
        "risk",
        "confident_errors",
        "priorities",
        "surprise_coverage",
        "label_free",
        "deploy",
    ),
    bare=True,
)
register, get, make = REGISTRY.register, REGISTRY.get, REGISTRY.make


def names() -> list[str]:
    """The names of all sections, in the order of the report."""
    return [section.name for section in make_all("all")]


def make_all(which: str | Iterable[str | Section] = "all") -> list[Section]:
    """Several sections: names, ready-made ones as they are, or `"all"` in the order of the report."""
    made = REGISTRY.make_all(which)
    return in_order(made) if which == "all" else made


def in_order(sections: Sequence[Section]) -> list[Section]:
    """Each section behind the one that it follows, where that is present; the others in the order given."""
    known = {one.name for one in sections}

    def followers(name: str) -> Iterator[Section]:
        for one in sections:
            if (one.after if one.after in known else "") == name:
                yield one
                yield from followers(one.name)

    found = list(followers(""))
    return found + [one for one in sections if one not in found]  # two that follow each other
