"""The overall verdict of an audit, in plain words, with the three reasons that carry it.

It is derived from the numbers of the sections by these rules. Each topic gives one reason: good, a caution, or
a blocker.

    softmax     blocker   the probabilities say nothing (`model.degenerate`)
    gates       blocker   a gate of the user's does not hold, or its number does not exist
    accuracy    blocker   another normalisation of the pixels would make clearly more answers right (where the
                          probabilities say nothing, most of them); or the lower end of the interval does not exceed the
                          share of the most frequent class, or the model is wrong more often than right
                caution   a class of which, by the upper end of its interval, less than half is found
    knowing     blocker   the best supervisor ranks a mistake above a right answer in less than 70% of cases (AUROC)
                caution   in less than 80%, or its interval holds 50%: there are too few mistakes to tell
    guard       blocker   more than half of the images of some kind of stress are answered wrongly without an alarm;
                          not of attacked ones, which not everybody has to fear
                caution   more than a fifth of them, of attacked ones too; or a kind that was asked for could not be
                          tried

One blocker, and the model is not ready: the first one says before what. Without blockers it is ready to be deployed
with a guard, if accuracy, knowing and guard were all measured; else there is no verdict. Kinds of stress that were
asked for and could not be tried are named beside it. Reasons: blockers first, then accuracy, knowing and guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from secondguess._text import listed
from secondguess.audits.findings import Number
from secondguess.metrics import Interval

if TYPE_CHECKING:
    from secondguess.audits.result import AuditResult

__all__ = ["FAIR", "FED", "GOOD", "READY", "RENORMALISED", "RULES", "Reason", "Verdict", "decide_verdict", "too_poor"]

READY = "Ready to deploy with a guard"
REASONS = 3
COIN, FAIR, GOOD = 0.5, 0.7, 0.8  # AUROC of mistakes against right answers
HARMFUL, NOTABLE = 0.5, 0.2  # share of stress images that are answered wrongly without an alarm
HARDLY = 0.01  # of the images of a kind: not worth a name
ATTACKED = "adversarial"  # how the names of stress sets of attacks begin
BETTER_THAN_ONE = "it beats always giving the most frequent class"
MORE_OFTEN = "it is right more often than wrong"
AS_TRAINED = "its pixels are normalised as in its training"
RARELY_FOUND = 0.5  # recall of a class
MOSTLY = 0.5  # accuracy of a model that is right more often than wrong
FED = "Fed wrongly?"  # a line of the summary of the accuracy
RENORMALISED = "accuracy.renormalised"  # what would be right with another normalisation, where that is clearly more
MEASURES = {"accuracy": "its accuracy", "knowing": "whether its mistakes can be noticed", "guard": "what a guard sees"}

RULES = (
    ("Softmax", "the probabilities say nothing", ""),
    ("Gates", "a gate of yours does not hold, or its number does not exist", ""),
    (
        "Accuracy",
        "another normalisation of the pixels would make clearly more answers right (where the probabilities say "
        "nothing, most of them); always giving the most frequent class may be as good; or it is wrong more often than "
        "right",
        f"of some class surely less than {RARELY_FOUND:.0%} is found",
    ),
    (
        "Knowing its limits",
        f"the best score of suspicion ranks a mistake above a right answer in less than {FAIR:.0%} of cases",
        f"it does so in less than {GOOD:.0%}, or there are so few mistakes that this may be chance",
    ),
    (
        "With a guard",
        f"more than {HARMFUL:.0%} of the images of some kind, attacked ones excepted, are answered wrongly without an "
        "alarm",
        f"these are more than {NOTABLE:.0%}, of attacked images too; or a kind that was asked for could not be tried",
    ),
)  # topic, what speaks against it, what calls for care

Weight = Literal["blocker", "caution", "good", "unknown"]


@dataclass(frozen=True)
class Reason:
    """What one topic contributes to the verdict.

    Attributes:
        topic: `softmax`, `gates`, `accuracy`, `knowing` or `guard`.
        weight: `blocker`, `caution`, `good`, or `unknown` where it was not measured.
        title: the topic in a word or two.
        text: the reason in a sentence.
        before: of a blocker: what has to happen before the model is deployed.
        section: where the audit says more; "" for the audit as a whole.
    """

    topic: str
    weight: Weight
    title: str
    text: str
    before: str = ""
    section: str = ""

    def to_dict(self) -> dict[str, str]:
        """The attributes that say something."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Verdict:
    """Whether the model may be deployed.

    Attributes:
        ready: None where too little was measured to say so.
        headline: the verdict in plain words.
        reasons: the three that carry it, the gravest first.
    """

    ready: bool | None
    headline: str
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """The attributes, as JSON can hold them."""
        return {"ready": self.ready, "headline": self.headline, "reasons": [one.to_dict() for one in self.reasons]}


def decide_verdict(audit: AuditResult) -> Verdict:
    """The verdict that follows from what an audit found."""
    essential = (_accuracy(audit), _knowing(audit), _guard(audit))
    reasons = [*_softmax(audit), *_gates(audit), *essential]
    blockers = [one for one in reasons if one.weight == "blocker"]
    blockers.sort(key=lambda one: one.before != AS_TRAINED)  # whatever else was measured follows from that
    shown = tuple([*blockers, *(one for one in essential if one.weight != "blocker")][:REASONS])
    if blockers:
        return Verdict(False, f"Not before {blockers[0].before}", shown)
    missing = [one for one in essential if one.weight == "unknown"]
    if missing:
        what = " and ".join(MEASURES[one.topic] for one in missing)
        return Verdict(None, f"No verdict: {what} {'were' if missing[1:] else 'was'} not measured", shown)
    untried = _untried(audit)
    return Verdict(True, f"{READY}, not tried against {listed(untried)} images" if untried else READY, shown)


def _softmax(audit: AuditResult) -> Iterator[Reason]:
    found = audit.softmax
    if found is not None:
        yield Reason("softmax", "blocker", "Softmax", found.text, "its confidence means something", "calibration")


def _gates(audit: AuditResult) -> Iterator[Reason]:
    broken = [one for one in audit.gates if one.outcome != "passed"]
    if broken:
        text = f"{len(broken)} of {len(audit.gates)} gates do not hold. {broken[0].reason}"
        yield Reason("gates", "blocker", "Gates", text, "every gate holds", "summary")


def _accuracy(audit: AuditResult) -> Reason:
    number = audit.numbers.get("accuracy.test")
    about: dict[str, Any] = {"topic": "accuracy", "title": "Accuracy", "section": "accuracy"}
    if number is None or number.interval is None:
        return _unknown(audit, about, "The accuracy was not measured.")
    found = number.interval
    text = f"It is right on {found.value:.1%} of {found.n:,} test images ({found.low:.1%} to {found.high:.1%})"
    better = audit.numbers.get(RENORMALISED)
    if better is not None and _explains(better.value, audit):
        text += f", but on {better.value:.1%} where pixels are normalised otherwise than described. "
        text = (text + _said(audit, "accuracy", FED)).rstrip()
        return Reason(weight="blocker", text=text, before=AS_TRAINED, **about)
    frequent = _most_frequent(audit.about)
    if before := too_poor(found, frequent):
        one = f"; always giving the most frequent class would be right on {frequent:.1%}."
        text += one if before == BETTER_THAN_ONE else ": wrong more often than right."
        return Reason(weight="blocker", text=text, before=before, **about)
    rare = _rarely_found(audit.numbers)
    if rare:
        name, share = rare[0]
        others = f", and less than half of {len(rare) - 1} other classes" if len(rare) > 1 else ""
        return Reason(weight="caution", text=f"{text}, but finds only {share:.0%} of {name}{others}.", **about)
    return Reason(weight="good", text=f"{text}.", **about)


def _explains(better: float, audit: AuditResult) -> bool:
    """Whether another normalisation is what is wrong: of a softmax that says nothing, only if it makes a fair model."""
    return audit.softmax is None or better >= MOSTLY


def too_poor(accuracy: Interval, frequent: float) -> str:
    """What has to happen before a model of this accuracy is deployed; "" where it is not too poor for that.

    Args:
        accuracy: on labelled test images.
        frequent: the share of their most frequent class; 0 where they are of one class only.
    """
    if accuracy.low <= frequent:
        return BETTER_THAN_ONE
    return MORE_OFTEN if accuracy.value < MOSTLY else ""


def _knowing(audit: AuditResult) -> Reason:
    about: dict[str, Any] = {"topic": "knowing", "title": "Knowing its limits", "section": "supervisors"}
    found = _best(audit.numbers, "mistakes")
    if found is not None:
        name, value = found
        what = f"the best score of suspicion ({name}) ranks a mistake above a right answer in {_told_apart(value)} "
        what += "of cases"
        if noticed := audit.numbers.get(f"supervisor.{name}.mistakes.detection"):
            what += f" and notices {noticed.value:.0%} of them at the audit's rate of false alarms"
    else:
        kinds = [one for kind in audit.about.get("stress", ()) if (one := _best(audit.numbers, kind)) is not None]
        if not kinds:
            return _unknown(audit, about, "There are neither stress images nor enough mistakes to try supervisors on.")
        name, value = min(kinds, key=lambda one: one[1])
        what = f"there are too few mistakes or right answers to compare, but {name} ranks stress images above ordinary "
        what += f"ones in {_told_apart(value)} of cases or more"
    if value < FAIR:
        text = f"It does not know what it does not know: {what}; a coin would give 50%."
        return Reason(weight="blocker", text=text, before="something notices its mistakes", **about)
    if value < GOOD:
        return Reason(weight="caution", text=f"It hardly knows what it does not know: {what}.", **about)
    if found is not None and _may_be_chance(audit.numbers[f"supervisor.{name}.mistakes.auroc"]):
        text = f"It may know what it does not know: {what}, but of so few mistakes that this may be chance."
        return Reason(weight="caution", text=text, **about)
    return Reason(weight="good", text=f"It knows what it does not know: {what}.", **about)


def _may_be_chance(auroc: Number) -> bool:
    """Whether a coin is within the interval."""
    return auroc.interval is not None and auroc.interval.low <= COIN


def _told_apart(value: float) -> str:
    """A share in whole percent, or with so many decimals that it lies on the side of a limit where it is."""
    digits = 0
    while digits < 3 and any((round(value, 2 + digits) < limit) != (value < limit) for limit in (FAIR, GOOD)):
        digits += 1
    return f"{value:.{digits}%}"


def _guard(audit: AuditResult) -> Reason:
    about: dict[str, Any] = {"topic": "guard", "title": "With a guard", "section": "deploy"}
    harm = {
        name.removeprefix("deploy.").removesuffix(".unnoticed"): number.value
        for name, number in audit.numbers.items()
        if name.startswith("deploy.") and name.endswith(".unnoticed")
    }
    alarms = audit.numbers.get("deploy.false_alarms")
    if not harm or alarms is None:
        return _unknown(audit, about, "No guard was tried against stress images.")
    blocking = [name for name, share in harm.items() if share > HARMFUL and not name.startswith(ATTACKED)]
    worst = max(blocking or harm, key=lambda name: harm[name])
    left = f"{harm[worst]:.0%} of {worst.replace('_', ' ')} images"
    if max(harm.values()) < HARDLY:
        left = "fewer than one in a hundred images of each kind that was tried"
    text = (
        f"A guard with {1000 * alarms.value:.0f} false alarms in a thousand (guard fit --false-alarms {_rate(alarms)}) "
        f"leaves {left} answered wrongly without a warning"
    )
    most = len(harm) > 1 and harm[worst] == max(harm.values()) >= HARDLY
    text += ", the most of any kind that was tried." if most else "."
    if untried := _untried(audit):
        text += f" Not tried: {listed(untried)} images."
    if blocking:
        return Reason(
            weight="blocker", text=text, before=f"a guard sees more of what is {worst.replace('_', ' ')}", **about
        )
    return Reason(weight="caution" if untried or harm[worst] > NOTABLE else "good", text=text, **about)


def _rate(alarms: Number) -> str:
    """The rate of false alarms that was asked for, as the option takes it: what came out is near it."""
    return f"{max(0.01, round(alarms.value, 2)):g}"


def _untried(audit: AuditResult) -> list[str]:
    """The kinds of stress that were asked for, but of which too few images could be made to try a guard on."""
    return [name for name in audit.about.get("stress", ()) if f"deploy.{name}.unnoticed" not in audit.numbers]


def _best(numbers: Mapping[str, Number], column: str) -> tuple[str, float] | None:
    """The supervisor with the largest AUROC in a column of their table, and that."""
    start, end = "supervisor.", f".{column}.auroc"
    found = {
        name[len(start) : -len(end)]: number.value
        for name, number in numbers.items()
        if name.startswith(start)
        and name.endswith(end)
        and len(name) > len(start) + len(end)
        and f"{name.removesuffix(end)}.auroc" not in numbers  # a column within a stress set
    }
    return max(found.items(), key=lambda one: one[1]) if found else None


def _rarely_found(numbers: Mapping[str, Number]) -> Sequence[tuple[str, float]]:
    """The classes of which surely less than half is found, the worst first."""
    start, end = "accuracy.class.", ".recall"
    found = [
        (name.removeprefix(start).removesuffix(end), number.value)
        for name, number in numbers.items()
        if name.startswith(start) and name.endswith(end) and number.interval and number.interval.high < RARELY_FOUND
    ]
    return sorted(found, key=lambda one: one[1])


def _most_frequent(about: Mapping[str, Any]) -> float:
    """The share of the most frequent class among the labelled test images; 0 where they are of one class only."""
    counts = [count for count in about["data"]["test"]["classes"].values() if count]
    return max(counts) / sum(counts) if len(counts) > 1 else 0.0


def _said(audit: AuditResult, section: str, topic: str) -> str:
    """What the summary of a section says about a topic; "" where it says nothing."""
    found = next((one.findings for one in audit.sections if one.name == section and one.findings), None)
    return "" if found is None else dict(found.summary).get(topic, "")


def _unknown(audit: AuditResult, about: Mapping[str, str], otherwise: str) -> Reason:
    """That a topic has no numbers: nobody asked for its section, or that says why not, or `otherwise`."""
    section = about["section"]
    found = next((one for one in audit.sections if one.name == section), None)
    if found is None:
        text = f"Not measured: the section {section!r} was left out; add it to the sections (--sections)."
        return Reason(about["topic"], "unknown", about["title"], text)  # the page has no such section to lead to
    return Reason(about["topic"], "unknown", about["title"], found.reason or otherwise, section=section)
