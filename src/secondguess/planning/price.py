"""What a piece of work costs at which size, and which sizes fit into a given time.

    seconds(size) = fixed + each * size,        size(scale) = least * (full / least) ** scale,   scale in [0, 1]

Some work depends on the size of another piece too: an epoch of training on how many images are learnt from, a
comparison on how many are compared. With n and m the sizes of two such pieces,

    seconds(size) = fixed + each * size * n + beside * m

One scale is common to all pieces: the largest at which the sum fits. A piece whose sizes span a factor of thirty, such
as thirty epochs, is thus shortened more than one that spans a factor of two. Essential pieces, such as the images that
everything else is measured on, stay at their full size as long as shortening the others is enough. Where even the least
sizes do not fit, the most expensive of the pieces that may be left out is, and the others are sized again. Core
pieces, what the job is about, are the last of these, unless one alone wants more than a quarter of the time. What is
left in the end and costs next to nothing stays, since leaving it out would save nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Price", "choose_sizes"]

HALVINGS = 40  # of the interval in which the scale lies
CORE = 0.25  # of the time, up to which a core piece stays longer than others


@dataclass(frozen=True)
class Price:
    """The cost of a piece of work, by its size.

    Attributes:
        each: seconds for one unit of its size; where `per` names another piece, for each unit of that one too.
        fixed: seconds whatever its size.
        full: the size that it has when time does not matter.
        least: the smallest size that is still useful.
        unit: what is counted, in the plural: `"images"`, `"epochs"`.
        essential: whether it is shortened last, and never left out.
        required: whether it is shortened like others, but never left out.
        core: whether it is left out after those that are not.
        per: the piece that `each` is multiplied by; "" for none.
        beside: seconds for each unit of other pieces, by their names.
        within: the piece that it is made of, and than which it cannot be larger; "" for none.
        hindrance: why it cannot be done here, in a sentence; "" where it can.
    """

    each: float = 0.0
    fixed: float = 0.0
    full: int = 1
    least: int = 1
    unit: str = ""
    essential: bool = False
    required: bool = False
    core: bool = False
    per: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)
    within: str = ""
    hindrance: str = ""

    def __post_init__(self) -> None:
        if self.least > self.full:
            object.__setattr__(self, "least", self.full)

    @classmethod
    def line(cls, sizes: Sequence[int], seconds: Sequence[float], **more: Any) -> Price:
        """The price of work of which two sizes were timed.

        Work of size 0 takes no less than nothing: a steeper rise than that is noise, which counts for the more the
        farther the line is followed.
        """
        rise = max(0.0, seconds[1] - seconds[0]) / max(1, sizes[1] - sizes[0])
        each = min(rise, seconds[1] / max(1, sizes[1]))
        return cls(each, max(0.0, seconds[0] - each * sizes[0]), **more)

    def size(self, scale: float) -> int:
        """The size at a scale between 0 (the least) and 1 (full)."""
        return min(self.full, max(self.least, round(self.least * (self.full / max(1, self.least)) ** scale)))

    @property
    def stays(self) -> bool:
        """Whether it is never left out."""
        return self.essential or self.required

    def seconds(self, size: int, others: Mapping[str, int] | None = None) -> float:
        """What this size costs; nothing where it is 0, which means left out.

        Args:
            size: of this piece.
            others: the sizes of the pieces that the price depends on.
        """
        if not size:
            return 0.0
        sizes = others or {}
        each = self.each * (sizes[self.per] if self.per else 1)
        return self.fixed + each * size + sum(rate * sizes[name] for name, rate in self.beside.items())

    def at(self, size: int) -> Price:
        """The same work at a size that is not up for discussion."""
        return replace(self, full=size, least=size, essential=True, within="")

    def slower(self, factor: float) -> Price:
        """The same work on a machine on which it takes so many times longer."""
        beside = {name: factor * rate for name, rate in self.beside.items()}
        return replace(self, each=factor * self.each, fixed=factor * self.fixed, beside=beside)


def choose_sizes(
    prices: Mapping[str, Price], seconds: float, spare: float = 0.0, others: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The largest sizes, by name, whose prices add up to at most `seconds`; 0 where a piece is left out.

    Essential and required pieces are never left out, so that their least sizes may take longer than that.

    Args:
        prices: by name.
        seconds: that all pieces may take.
        spare: seconds for the cheapest of the pieces that may be left out, whatever the others take.
        others: sizes of further pieces, which are settled.
    """
    wanted, settled = dict(prices), others or {}
    while True:
        for essential in (False, True):  # the others are shortened first
            if (sizes := _scaled(wanted, seconds, settled, essential=essential)) is not None:
                return dict.fromkeys(prices, 0) | sizes
        least = {name: price.least for name, price in wanted.items()}
        known = {**settled, **least}
        left = {name: price.seconds(price.least, known) for name, price in wanted.items() if not price.stays}
        if sum(left.values()) <= spare:
            return dict.fromkeys(prices, 0) | least
        expendable = [name for name in left if not (wanted[name].core and left[name] <= CORE * seconds)]
        total = sum(price.seconds(price.least, known) for price in wanted.values())
        if total - sum(left[name] for name in expendable) > seconds:
            expendable = []  # a core piece has to go all the same
        del wanted[max(expendable or left, key=lambda name: left[name])]


def _scaled(
    prices: Mapping[str, Price], seconds: float, others: Mapping[str, int], *, essential: bool
) -> dict[str, int] | None:
    """Sizes that fit if only one sort of pieces is shortened, the other being full or as short as it gets."""

    def sizes(scale: float) -> dict[str, int]:
        found = {
            name: price.size(scale if price.essential == essential else float(price.essential))
            for name, price in prices.items()
        }
        known = {**others, **found}
        return {name: min(size, known.get(prices[name].within, size)) for name, size in found.items()}

    def fits(scale: float) -> bool:
        chosen = sizes(scale)
        known = {**others, **chosen}
        return sum(prices[name].seconds(size, known) for name, size in chosen.items()) <= seconds

    if not fits(0):
        return None
    low, high = 0.0, 1.0
    if fits(1):
        return sizes(1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return sizes(low)
