"""What to do about a verdict.

The defaults are those that Weiss, Garcia Gomez and Tonella (Empirical Software Engineering, 2023) recommend: an
ambiguous image gets a probabilistic answer, an out-of-distribution image goes to a person and its label into the next
training set, an invalid one is refused, an attack is an alarm. An ordinary image that is probably answered
wrongly goes to a person, too. Where a verdict leaves two kinds open, the more careful
action is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from secondguess.errors import UserError
from secondguess.guard.verdicts import KINDS, MISTAKEN, SUSPICIOUS, Kind, Verdict

__all__ = ["ACTIONS", "DEFAULT", "Action", "Actions"]

Action = Literal["accept", "hedge", "ask", "refuse", "alarm"]

ACTIONS: tuple[Action, ...] = get_args(Action)
"""From the most trusting to the most careful."""

DEFAULT: Mapping[Kind, Action] = {
    "nominal": "accept",
    "ambiguous": "hedge",
    "out-of-distribution": "ask",
    "adversarial": "alarm",
    "invalid": "refuse",
    MISTAKEN: "ask",
    SUSPICIOUS: "ask",
}


@dataclass(frozen=True)
class Actions:
    """Which action follows which kind of anomaly.

    >>> Actions({"adversarial": "refuse"})(Verdict(("adversarial", "ambiguous")))
    'refuse'

    Attributes:
        chosen: what differs from the defaults: `accept` the prediction, `hedge` (answer with the probabilities of all
            classes), `ask` a person, `refuse` to answer, or raise an `alarm`.
    """

    chosen: Mapping[Kind, Action] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, action in self.chosen.items():
            if kind not in DEFAULT:
                raise UserError(f"There is no kind of anomaly {kind!r}; there is {', '.join(KINDS)}.")
            if action not in ACTIONS:
                raise UserError(f"There is no action {action!r} for {kind!r}; there is {', '.join(ACTIONS)}.")

    def __call__(self, verdict: Verdict) -> Action:
        """The action for a verdict; of two kinds, the more careful one."""
        return max((self.of(kind) for kind in verdict.kinds), key=ACTIONS.index)

    def of(self, kind: Kind) -> Action:
        """The action for one kind."""
        return self.chosen.get(kind, DEFAULT[kind])

    def to_dict(self) -> dict[str, str]:
        """The action of every kind, by name."""
        return {kind: self.of(kind) for kind in DEFAULT}
