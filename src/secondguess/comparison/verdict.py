"""Whether it has become worse, in plain words, with the reasons.

Only what chance does not explain counts (`p_corrected` below 5%), and what supervisors notice only where those of both
were fitted on as many images. The first rule that applies decides:

    gates       a gate of the user's does not hold                            it is worse than allowed
    accuracy    it is right less often                                        yes
    anything    some measure, class or kind has become worse                  in places
    anything    some measure, class or kind has become better                 no, better
    accuracy    the interval excludes a loss of more than one point           no
                else                                                          it cannot be told
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from secondguess.audits.verdict import Reason, Verdict, Weight
from secondguess.comparison.measures import ACCURACY, FAMILIES, Measure

if TYPE_CHECKING:
    from secondguess.comparison.result import Comparison

__all__ = ["decide", "small"]

MARGIN = 0.01  # a loss of accuracy that would be noticed
NO_BREAK = "\u00a0"
NAMED = 3  # measures that a reason names


def decide(found: Comparison) -> Verdict:
    """The verdict that follows from what has changed."""
    reasons = (*_gates(found), *_accuracy(found), *_flips(found), *_families(found))
    accuracy = found.measure(ACCURACY)
    counted = [one for one in found.measures if found.fitted_alike or one.family != "detection"]
    worse, better = ([one for one in counted if one.outcome == side] for side in ("worse", "better"))
    if not found.passed:
        return Verdict(False, "Worse than allowed: a gate does not hold", reasons)
    if accuracy is not None and accuracy.outcome == "worse":
        return Verdict(False, "Yes: it is right less often", reasons)
    if worse:
        but = "more accurate, but " if accuracy is not None and accuracy.outcome == "better" else ""
        return Verdict(None, f"In places: {but}{_counted(worse)} worse", reasons)
    if better:
        return Verdict(True, f"No: {_counted(better)} better, and nothing worse", reasons)
    if accuracy is None:
        return Verdict(None, "No difference shown, but too few images have labels to tell the accuracy", reasons)
    if accuracy.change.interval.low >= -MARGIN:
        return Verdict(True, "No: no difference is shown", reasons)
    return Verdict(None, f"It cannot be told from {accuracy.change.interval.n:,} images", reasons)


def small(p_value: float) -> str:
    """A p-value for people."""
    text = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}" if p_value < 0.1 else f"p = {p_value:.1f}"
    return text.replace(" ", NO_BREAK)


def _gates(found: Comparison) -> Iterator[Reason]:
    broken = [one for one in found.gates if one.outcome != "passed"]
    if broken:
        text = f"{len(broken)} of {len(found.gates)} do not hold. {broken[0].reason}"
        yield Reason("gates", "blocker", "Gates", text, section="gates")


def _accuracy(found: Comparison) -> Iterator[Reason]:
    one = found.measure(ACCURACY)
    if one is None:
        yield Reason("accuracy", "unknown", "Accuracy", "Not known: too few images have labels.")
        return
    where = f"the same {one.change.interval.n:,}" if one.paired else "different"
    text = (
        f"{one.spelt(one.change.before)} before, {one.spelt(one.change.after)} now on {where} images: {_moved(one)}, "
    )
    unsure = one.outcome == "same" and one.change.interval.low < -MARGIN
    weight: Weight = "blocker" if one.outcome == "worse" else "caution" if unsure else "good"
    yield Reason("accuracy", weight, "Accuracy", f"{text}{small(one.p_value)}.", section="overall")


def _flips(found: Comparison) -> Iterator[Reason]:
    if not found.nominal.paired or found.measure(ACCURACY) is None:
        return
    lost, gained = len(found.negative), len(found.positive)
    if not lost + gained:
        text = "No answer has changed from right to wrong, and none from wrong to right."
    else:
        wrong = "is" if lost == 1 else "are"
        text = f"{lost} that {'was' if lost == 1 else 'were'} right {wrong} wrong now, {gained} the other way round."
    yield Reason("flips", "caution" if lost > gained else "good", "Images", text, section="flips" if lost else "")


def _families(found: Comparison) -> Iterator[Reason]:
    for family, title in FAMILIES.items():
        rows = [one for one in found.measures if one.family == family and one.name != ACCURACY]
        if not rows:
            continue
        worse, better = ([one for one in rows if one.outcome == side] for side in ("worse", "better"))
        parts = [f"{word}: {_listed(side)}." for side, word in ((worse, "Worse"), (better, "Better")) if side]
        text = " ".join(parts) or f"No difference shown in {len(rows)} measure{'s' if len(rows) > 1 else ''}."
        weight: Weight = "caution" if worse else "good"
        if family == "detection" and not found.fitted_alike:
            weight, text = "unknown", f"{text} Their supervisors were fitted on other numbers of images."
        shown = "Confidence" if family == "overall" else title
        yield Reason(family, weight, shown, text, section=family)


def _counted(rows: Sequence[Measure]) -> str:
    """What has changed, in a few words."""
    return f"{_called(rows[0])} has become" if len(rows) == 1 else f"{len(rows)} measures have become"


def _listed(rows: Sequence[Measure]) -> str:
    ordered = sorted(rows, key=lambda one: one.p_value)
    names = ", ".join(f"{_called(one)} ({one.moved[0]})" for one in ordered[:NAMED])
    return f"{names} and {len(rows) - NAMED} more" if len(rows) > NAMED else names


def _called(one: Measure) -> str:
    return f"class {one.title}" if one.family == "class" else one.title


def _moved(one: Measure) -> str:
    value, interval = one.moved
    return f"{value} ({interval})"
