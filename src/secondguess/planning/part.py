"""A part of a long job: what it does, how large it is to be, how long that takes, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from secondguess.planning.price import Price

__all__ = ["NOTABLE", "SLACK", "Part", "spoken"]

NOTABLE = 1.0  # seconds: parts below share a line of the table, and say nothing about the pace of the others
MENTIONED = 5.0  # seconds: whether a shorter part is done after all may change several times
SLACK = 0.1  # of a size or of the budget: a smaller deviation changes nothing


@dataclass
class Part:
    """A part of a long job.

    Attributes:
        name: by which sizes are recorded.
        does: what it does, in a few words.
        price: its cost by its size.
        size: the chosen size; 0 where it is left out.
        expected: seconds that it is planned to take at this size.
        least_seconds: what it would take at its least size.
        seconds: what it took; None until it has ended.
        slowness: how many times longer than its price says it was expected to take when its size was chosen.
        begun: whether it has begun, and its size thus stands.
        used: whether somebody has asked how large it is to be, and its size thus stands.
        ended: whether it was ended before it had anything to show, because the time was over; its size is 0 then.
        given: its size, where that is not up for discussion.
        among: the parts within which it is done, which take its time; () where it is done by itself.
    """

    name: str
    does: str
    price: Price
    size: int = 0
    expected: float = 0.0
    least_seconds: float = 0.0
    seconds: float | None = None
    slowness: float = 1.0
    begun: bool = False
    used: bool = False
    ended: bool = False
    given: int | None = None
    among: tuple[str, ...] = ()

    @property
    def offer(self) -> Price:
        """The price, at the size that was given if one was."""
        return self.price if self.given is None else self.price.at(self.given)

    @property
    def priced(self) -> float:
        """Seconds by its price alone at the chosen size, whatever the pace at which the rest was done."""
        return self.expected / self.slowness

    @property
    def remark(self) -> str:
        """What is left out or made smaller; "" where nothing is."""
        if self.price.hindrance:
            return f"cannot be done: {self.price.hindrance}"
        if self.ended:
            return "ended, since the time was over; allow more minutes"
        if not self.size:
            return f"left out: {self.lacking}; allow more minutes"
        return f"instead of {self.price.full:,}" if self.size < self.price.full else ""

    @property
    def lacking(self) -> str:
        """Why there is no time for it, where it is left out."""
        least = self.least_seconds
        return f"it takes {spoken(least)} at least" if least >= NOTABLE else "there is no time left for it"

    @property
    def sized(self) -> str:
        """How large it is, in words; "" where it has no size or cannot be done."""
        return f"{self.size:,} {self.price.unit}" if self.price.unit and self.size and not self.price.hindrance else ""

    @property
    def timed(self) -> str:
        """How long it is expected to take, in words; "" where it is not done."""
        return spoken(self.expected) if self.size and not self.price.hindrance else ""

    def changed_from(self, before: int) -> str:
        """What became of it when it was sized anew; "" where nobody would mind, or it may soon change again."""
        if self.price.hindrance or abs(self.size - before) <= SLACK * max(self.size, before):
            return ""
        if max(self.expected, self.least_seconds) < MENTIONED:
            return ""
        if not self.size or not before:
            return f"without {self.does}" if before else f"{self.does} after all"
        unit = "" if self.does.endswith(self.price.unit) else f" {self.price.unit}"
        return f"{self.does}: {self.size:,}{unit} instead of {before:,}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "name": self.name,
            "does": self.does,
            "size": self.size,
            "full": self.price.full,
            "least": self.price.least,
            "unit": self.price.unit,
            "planned_seconds": round(self.expected, 3),
            "least_seconds": round(self.least_seconds, 3),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "remark": self.remark,
        } | {name: value for name, value in (("hindrance", self.price.hindrance), ("among", list(self.among))) if value}


def spoken(seconds: float) -> str:
    """Seconds as people say them."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
