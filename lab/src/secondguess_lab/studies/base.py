"""What a study is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from secondguess.engine import Task, TaskData
from secondguess.errors import UserError
from secondguess_lab.studies.tables import Table

__all__ = ["Recorded", "Sources", "Study", "check_known"]

PUBLISHED = Path(__file__).parent / "published"

Settings = Mapping[str, Any]
Result = dict[str, Any]


class Sources(dict[str, TaskData]):
    """The data of a study by the part they play in it."""

    def __missing__(self, role: str) -> TaskData:
        raise UserError(f"The study needs the data {role!r} for this; give --data {role}=PLACE.")


@dataclass(frozen=True)
class Recorded:
    """Numbers that were measured before.

    Attributes:
        table: the cells.
        records: of each file they come from: its path within the results, hardware, versions and settings.
        full: cells that were measured at the paper's scale, whatever the other records of the table are.
    """

    table: Table
    records: Sequence[Mapping[str, Any]] = ()
    full: Collection[tuple[str, str]] = ()


def check_known(given: Collection[str], known: Collection[str], what: str, *, some: bool = True) -> None:
    """Raise a `UserError` if a setting names something that there is not, or, where there must be some, nothing."""
    unknown = [one for one in given if one not in known]
    if unknown or (some and not given):
        named = f"There is no {what} {unknown[0]!r}" if unknown else f"No {what} was named"
        raise UserError(f"{named} in this study; choose among: {', '.join(known)}.")


def _no_record(results: Path) -> Recorded | None:
    return None


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper.

    Attributes:
        name: such as "surprise-table1".
        paper: authors, short title and year.
        table: what it is there, such as "Table 1".
        summary: one sentence on what is compared.
        stand_ins: the part each data set plays, and the embedded one that stands in for it in a quick run.
        scale: the settings at which the paper worked, or as near as this study comes.
        quick: what is smaller in a quick run.
        grid: makes the tasks from data and settings.
        tabulate: makes cells from the tasks' results, in the order of the tasks.
        recorded: reads records of an earlier form below a folder of results; None where there are none.
        note: what somebody must know who compares the numbers.
        not_at_hand: why published cells cannot be tried with the data that there are, by a pattern of "row: column".
        script: that makes its record, where `study run` cannot.
        needs_all: whether results of tasks are held against each other, so that some of them make no table.
    """

    name: str
    paper: str
    table: str
    summary: str
    stand_ins: Mapping[str, str]
    scale: Settings
    quick: Settings
    grid: Callable[[Sources, Settings], list[Task]]
    tabulate: Callable[[Sequence[Result], Settings], Table]
    recorded: Callable[[Path], Recorded | None] = field(default=_no_record)
    note: str = ""
    not_at_hand: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    needs_all: bool = False

    @cached_property
    def published(self) -> Table:
        """What the paper printed; no cells where it shows curves only, or where no paper has the table."""
        path = PUBLISHED / f"{self.name}.csv"
        return Table.read(path) if path.is_file() else Table({})

    @classmethod
    def by_script(cls, script: str, file: str, cells: Callable[[Result], Table], **about: Any) -> Study:
        """A study whose record a script makes at the paper's scale, without tasks.

        Args:
            script: that makes the record.
            file: the record, below the folder of results.
            cells: makes a table of it.
            **about: the other attributes.
        """
        from secondguess_lab.studies.records import read_record

        def recorded(results: Path) -> Recorded | None:
            found = read_record(results, file)
            return None if found is None else Recorded(cells(found[0]), [found[1] | {"scale": "paper"}])

        return cls(
            **about,
            stand_ins={},
            scale={},
            quick={},
            grid=lambda sources, settings: [],
            tabulate=lambda results, settings: Table({}),
            recorded=recorded,
            script=script,
        )
