"""A plan: the parts of a long job, how large each is, how long it is expected to take and how long it took.

A plan is made before the work and kept to. The code that works says which part it does (`with plan.doing(name)`) and
asks how large that is to be (`plan.size(name)`). When a part has taken longer or shorter than expected, the parts that
have not begun are sized again, so that the whole still fits. A size that somebody has asked for stands, whether or not
its part has begun: what was done with it cannot be undone. A part that may be left out has a deadline: reported
progress (`plan.watched(progress)`) beyond it ends that part with `OutOfTime`.

Sizes depend on the machine and on what else it does. They are recorded, and the same sizes give the same results.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.planning.part import NOTABLE, SLACK, Part, spoken
from secondguess.planning.price import Price, choose_sizes
from secondguess.progress import Advance, Progress, announce, beating

__all__ = ["OutOfTime", "Plan", "recorded_sizes"]

RESERVE = 0.85  # of the budget is planned; the rest is for what no part accounts for
CHEAP = 0.05  # of the budget: for the cheapest parts, even where there is no time left
PRIOR = 0.2  # of the budget: so much work as expected weighs against what was measured
PATIENCE = 2.0  # times the expected seconds that every part is granted
FASTEST, SLOWEST = 0.8, 3.0  # factors by which the rest of the work is believed to differ from what was expected
SHOWN = 30.0  # seconds: a shorter job begins without a table


class OutOfTime(UserError):
    """A part was ended because it took much longer than planned."""


@dataclass
class Plan:
    """The parts of a job, sized so that they fit into a given time.

    Args:
        parts: in the order in which they are done.
        minutes: that the job may take; None for full sizes.
        clock: what tells the time.
        path: a file that holds the sizes, for `kept`; None to write none.
        key: what the sizes depend on.
        spent: seconds of the time that were needed to draw it up.
    """

    parts: list[Part]
    minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    path: Path | None = None
    key: str = ""
    spent: float = 0.0

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise UserError(f"{self.minutes:g} minutes were given; a job needs more than 0.")
        self._began = self.clock()
        self._stack: list[list[float]] = []  # of the parts under way: when it went on last, seconds so far
        self._doing: list[Part] = []
        self._tell: Callable[[str], None] = lambda text: None
        self._choose(self.parts, RESERVE * self.seconds if self.seconds is not None else None, 1.0)
        self.planned = sum(part.expected for part in self.parts)
        self._keep()

    @classmethod
    def kept(cls, path: Path, key: str, minutes: float | None) -> Plan | None:
        """The plan that a former run for the same key has kept: its sizes once more, without timing anything.

        An interrupted job thus goes on with what is finished, and a job that is repeated gives the same numbers.
        """
        try:
            record = read_json(path)
            if record["key"] != key or any(one.get("hindrance") for one in record["parts"]):
                return None  # made for something else, or what could not be done then may be possible now
            parts = [Part(one["name"], one["does"], _price(one), given=one["size"]) for one in record["parts"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(parts, minutes, path=path, key=key)

    @classmethod
    def drawn_up(
        cls,
        parts: Iterable[Part],
        count: int,
        minutes: float | None,
        *,
        fixed: AbstractSet[str] = frozenset(),
        sizes: Mapping[str, int] | None = None,
        path: Path | None = None,
        key: str = "",
        progress: Progress,
    ) -> Plan:
        """Time the parts, one after the other, size them, and show the plan where it is worth it.

        Args:
            parts: each is timed when it is asked for.
            count: how many there are, about.
            minutes: that the job may take; None for full sizes.
            fixed: names of parts that stay at their full size.
            sizes: of parts, by name, that are not up for discussion.
            path: a file that holds the sizes, for `kept`.
            key: what the sizes depend on.
            progress: where to report.
        """
        timed: list[Part] = []
        began = time.monotonic()
        with progress.task("Timing the model", count) as advance:
            with beating(lambda: advance(min(len(timed), count), count)):  # timing one part may take seconds
                for part in parts:
                    part.given = (sizes or {}).get(part.name, part.price.full if part.name in fixed else None)
                    timed.append(part)
                    advance(min(len(timed), count), count)
            advance(count, count)
        plan = cls(timed, minutes, path=path, key=key, spent=time.monotonic() - began)
        if plan.is_notable:
            announce(progress, f"What will be done, and how long it takes here:\n{plan.table()}")
        return plan

    @property
    def seconds(self) -> float | None:
        """That the job may take, from the plan on."""
        return None if self.minutes is None else max(0.0, 60 * self.minutes - self.spent)

    @property
    def elapsed(self) -> float:
        """Seconds since the plan was made."""
        return self.clock() - self._began

    @property
    def is_notable(self) -> bool:
        """Whether it takes long enough, or leaves out enough, to be shown before the work."""
        return self.planned >= SHOWN or any(part.remark for part in self.parts)

    def part(self, name: str) -> Part | None:
        """The part of that name, if there is one."""
        return next((part for part in self.parts if part.name == name), None)

    def size(self, name: str) -> int | None:
        """How large a part is to be; 0: left out; None: there is no such part, and nothing limits it.

        Whoever asks keeps to the answer, so that it stands from then on. `part(name).size` only looks.
        """
        part = self.part(name)
        if part is None:
            return None
        part.used = True
        return part.size

    def reduced(self, name: str) -> int | None:
        """As `require`, but None for a full size too: nothing limits it."""
        size, part = self.require(name), self.part(name)
        return None if part is None or size == part.price.full else size

    def require(self, name: str) -> int | None:
        """As `size`, but a part that is left out raises `OutOfTime` with the reason."""
        size, part = self.size(name), self.part(name)
        if part is not None and not size:
            raise OutOfTime(f"Too little time: {part.lacking}; allow more (--minutes, or --full).")
        return size

    def leaves_out(self, name: str) -> bool:
        """Whether a part is left out as things are; that may change until somebody asks for its size."""
        part = self.part(name)
        return part is not None and not part.size

    def shared_out(self, name: str, among: Iterable[str]) -> int | None:
        """As `size`, of a part that is never under way itself: it is done within others, which take its time.

        Args:
            name: of the part.
            among: names of the parts within which it is done, as much of it in one as in another.
        """
        size, part = self.size(name), self.part(name)
        hosts = [one for one in map(self.part, among) if one is not None]
        if part is None or not size or not hosts:
            return size
        share = part.priced / len(hosts)
        for host in hosts:
            if host.begun or host.price.hindrance:  # what cannot be done has no share in it either
                continue
            host.price = replace(host.price, fixed=host.price.fixed + share)
            host.least_seconds += host.slowness * share
            host.expected += host.slowness * share if host.size else 0.0
        part.price = replace(part.price, each=0.0, fixed=0.0, beside={})
        part.expected, part.among = 0.0, tuple(host.name for host in hosts)
        return size

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """The block is this part; what other parts take within it is theirs. Then the rest is planned anew.

        A part that ends with `OutOfTime` has nothing to show and is recorded as left out.
        """
        part = self.part(name)
        if part is None:
            yield
            return
        part.begun = True
        now = self.clock()
        if self._stack:
            self._stack[-1][1] += now - self._stack[-1][0]
        self._stack.append([now, 0.0])
        self._doing.append(part)
        try:
            yield
        except OutOfTime:
            if part.size and part.seconds is None:  # neither left out before, nor finished once
                part.size, part.ended = 0, True  # who repeats the plan leaves it out too
            raise
        finally:
            now = self.clock()
            since, spent = self._stack.pop()
            self._doing.pop()
            part.seconds = (part.seconds or 0.0) + spent + now - since
            if self._stack:
                self._stack[-1][0] = now
            self._again()
            self._keep()

    def watched(self, progress: Progress) -> Progress:
        """The progress that ends a part when it is far beyond what it was planned to take, and knows the time left."""
        if attend := getattr(progress, "attend", None):
            attend(self.state)
        self._tell = partial(announce, progress)
        return _Watched(progress, self)

    def state(self) -> str | None:
        """What goes on, and how long all of it will still take; None where no part is under way."""
        if not self._doing:
            return None
        part, (since, spent) = self._doing[-1], self._stack[-1]
        took = spent + self.clock() - since
        rest = self._factor() * sum(one.priced for one in self._waiting())
        what = f"{part.does[:1].upper()}{part.does[1:]}: {spoken(took)} so far"
        if took > part.expected:
            return f"{what} instead of {spoken(part.expected)}, then about {spoken(rest)}"
        return f"{what}, about {spoken(part.expected - took + rest)} left in all"

    def check(self) -> None:
        """Raise `OutOfTime` where the part under way has passed its deadline."""
        if self.seconds is None or not self._doing or self._doing[-1].offer.stays:
            return
        part, (since, spent) = self._doing[-1], self._stack[-1]
        took = spent + self.clock() - since
        rest = sum(one.expected if one.used else one.least_seconds for one in self._waiting() if one.size)
        # All that others can spare is granted, so that no work is thrown away without need.
        if took > PATIENCE * part.expected and self.elapsed + rest > self.seconds:
            longer = f"It was expected to take {spoken(part.expected)} and was ended after {spoken(took)}, for the"
            raise OutOfTime(
                f"{longer if took >= 1 else 'There was no time left for it: the'} {self.minutes:g} minutes are over; "
                "allow more (--minutes, or --full)."
            )

    def table(self) -> str:
        """What will be done, for a person: size, seconds and what is left out; small parts share a line."""
        shown = [part for part in self.parts if part.expected >= NOTABLE or part.remark]
        others = [part for part in self.parts if part not in shown]
        rows = [(part.does, part.sized, part.timed, part.remark) for part in shown]
        if others:
            rows.append((f"{len(others)} short parts", "", spoken(sum(part.expected for part in others)), ""))
        limit = (
            "no limit of time"
            if self.minutes is None
            else f"{self.minutes:g} minute{'s' * (self.minutes != 1)} allowed"
        )
        rows.append(("in all", "", spoken(self.planned), limit))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in rows
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan and what became of it, as JSON can hold it."""
        return {
            "minutes": self.minutes,
            "planned_seconds": round(self.planned, 3),
            "seconds": round(self.elapsed, 3),
            "parts": [part.to_dict() for part in self.parts],
        }

    def _keep(self) -> None:
        if self.path is not None:
            write_json_sealed(self.path, self.to_dict() | {"key": self.key})

    def _waiting(self) -> list[Part]:
        return [part for part in self.parts if not part.begun]

    def _again(self) -> None:
        """Size anew what has not begun and nobody has asked for, if the end has moved by more than a little."""
        waiting = self._waiting()
        free = [part for part in waiting if not part.used]
        if self.seconds is None or not free:
            return
        running = sum(max(0.0, part.expected - (part.seconds or 0.0)) for part in self._doing)
        left, factor = self.seconds - self.elapsed - running, self._factor()
        expected = factor * sum(part.priced for part in waiting)
        # Only where the new sizes can be larger: planned is less than all that is left.
        spare = min(left - SLACK * self.seconds, RESERVE * left)
        short = any(part.size < part.price.full for part in free)
        if expected > left or (short and expected < spare):
            before = {part.name: part.size for part in free}
            standing = factor * sum(part.priced for part in waiting if part.used)
            self._choose(free, max(0.0, RESERVE * left - standing), factor)
            self._say_changes(free, before, longer=expected > left)

    def _say_changes(self, parts: Iterable[Part], before: Mapping[str, int], *, longer: bool) -> None:
        """Announce the parts whose sizes have changed notably; that the pace is why, only where they all say so."""
        changed = [
            (part.size > before[part.name], said) for part in parts if (said := part.changed_from(before[part.name]))
        ]
        if not changed:
            return
        # Where a part comes back, others may have to shrink; so the pace explains only what all sizes say.
        told = "The time that is left is shared out anew"
        if all(grown != longer for grown, _ in changed):
            told = f"It {'takes longer' if longer else 'goes faster'} than planned; the rest is sized anew"
        self._tell(f"{told}: {'; '.join(said for _, said in changed)}.")

    def _factor(self) -> float:
        """How many times longer than expected work takes, as far as can be told by now."""
        done = [part for part in self.parts if part.seconds is not None and part not in self._doing]
        done = [part for part in done if part.size or part.ended]
        notable = [part for part in done if max(part.expected, part.seconds or 0) >= NOTABLE]
        prior = PRIOR * (self.seconds or 0.0)  # a few seconds say little about minutes
        took = prior + sum(part.seconds or 0.0 for part in notable)
        expected = prior + sum(part.priced for part in notable)
        return min(SLOWEST, max(FASTEST, took / expected)) if expected else 1.0

    def _choose(self, parts: Iterable[Part], seconds: float | None, factor: float) -> None:
        prices = {part.name: part.offer.slower(factor) for part in parts}
        full = {name: price.full for name, price in prices.items()}
        settled = {part.name: part.size for part in self.parts if part.name not in prices}
        spare = CHEAP * 60 * (self.minutes or 0.0)
        sizes = full if seconds is None else choose_sizes(prices, seconds, spare, settled)
        for part in parts:
            price, part.size, part.slowness = prices[part.name], sizes[part.name], factor
            part.expected = price.seconds(part.size, settled | sizes)
            least = price if price.least else part.price.slower(factor)  # of what a kept plan has left out
            part.least_seconds = least.seconds(least.least, settled | sizes)


@dataclass(frozen=True)
class _Watched:
    progress: Progress
    plan: Plan

    def task(self, label: str, total: int) -> AbstractContextManager[Advance]:
        return self._task(label, total)

    @contextmanager
    def _task(self, label: str, total: int) -> Iterator[Advance]:
        with self.progress.task(label, total) as advance:

            def watched(done: int, total: int) -> None:
                advance(done, total)
                if done < total:  # finished work is never thrown away
                    self.plan.check()

            yield watched

    def say(self, text: str) -> None:
        announce(self.progress, text)


def recorded_sizes(record: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a plan that was carried out, from an `audit.json`, `guard.json`, `estimate.json`, or its content."""
    content: Any = record
    if not isinstance(record, Mapping):
        try:
            content = json.loads(Path(record).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{record} is no audit.json, guard.json or estimate.json whose plan could be repeated."
            ) from error
    plan: Any = None
    if isinstance(content, Mapping):
        plan = content.get("plan") or content.get("record", {}).get("plan")
    try:
        return {part["name"]: int(part["size"]) for part in plan["parts"]}
    except (TypeError, KeyError, ValueError):
        raise UserError(
            "No plan is recorded there; give the audit.json, guard.json or estimate.json of a run that had one."
        ) from None


def _price(record: Mapping[str, Any]) -> Price:
    """A price that gives what was planned at the recorded size."""
    seconds = record["planned_seconds"] if record["size"] else record["least_seconds"]
    return Price(0.0, seconds, record["full"], record["least"], record["unit"])
