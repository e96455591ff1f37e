"""How sure the model is of images to which two answers are right, and what of that a temperature would mend.

Hubris is 0 for a model that is as uncertain as the images are. It means something only beside its controls: the same
model after temperature scaling, which needs no ambiguous image, and clean images, on which being sure is right.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.errors import UserError
from secondguess.hubris import CompanionSet, ModelRow, measure
from secondguess.hubris.picture import response_chart
from secondguess.images import ImageSet
from secondguess.model.observation import Observation
from secondguess.report import data_uri
from secondguess.stress.ambiguous import AmbiguousGenerator

SHOWN = 24
OF_PAIRS = 4  # at least, if there are that many
HELPS = 0.1  # part of the hubris that a temperature has to take away to be worth it
RESAMPLES = 200  # of each interval; more would make the section too expensive


@register
class Overconfidence(Section):
    """How sure the model is of images to which two answers are right, and what of that a temperature would mend."""

    name = "overconfidence"
    title = "Overconfidence"
    template = "overconfidence.html"
    reads_scores = False

    def run(self, context: Context) -> Findings:
        """Hubris on every ambiguous set, before and after a temperature, on clean images, and the worst answers."""
        findings = Findings()
        makers = [one.name for one in context.stress if isinstance(one, AmbiguousGenerator)]
        found = {name: context.stressed[name] for name in makers if name in context.stressed}
        if not found:
            reasons = [context.failed_stress[name] for name in makers if name in context.failed_stress]
            findings.view = {"sets": [], "reason": reasons[0] if reasons else "No ambiguous images were asked for."}
            return findings
        sets = []
        for name, (images, observation) in found.items():
            companion = CompanionSet.of(images)
            row = _measured(context, companion, observation)
            _record(context, findings, name, row, images)
            sets.append(
                {
                    "name": name,
                    "row": row,
                    "plain": _plain(row),
                    "chart": _chart(row),
                    "gallery": _gallery(companion, row, observation),
                }
            )
        findings.view = {"sets": sets, "reason": ""}
        findings.summary = [("Overconfidence", _words(sets[0]["row"]))]
        return findings


def _measured(context: Context, companion: CompanionSet, observation: Observation) -> ModelRow:
    labels, real = context.labels, context.nominal.probabilities
    try:
        return measure(observation.probabilities, companion, real, labels, resamples=RESAMPLES, seed=context.seed)
    except UserError as error:  # too few real images of the classes, say: no defect, and no reason to fail the audit
        raise NotApplicable(str(error)) from error


def _record(context: Context, findings: Findings, name: str, row: ModelRow, images: ImageSet) -> None:
    """The numbers of one set, under names that gates can use."""
    start = f"overconfidence.{name}"
    for suffix, scores in (("", row.ambiguous), ("_after_temperature", row.ambiguous_scaled)):
        findings.numbers[f"{start}.absolute{suffix}"] = context.number(scores.absolute.value, images)
        if scores.relative is not None:
            findings.numbers[f"{start}.relative{suffix}"] = context.number(scores.relative.value, images)
        findings.numbers[f"{start}.acd{suffix}"] = context.number(scores.acd, images)
    findings.numbers[f"{start}.mass"] = context.number(row.mass, images)
    if row.response is not None and row.response.slope is not None:
        findings.numbers[f"{start}.slope"] = context.number(row.response.slope, images)
    findings.numbers[f"{start}.clean"] = context.number(row.clean.absolute.value)
    findings.numbers[f"{start}.temperature"] = context.number(row.temperature)


def _chart(row: ModelRow) -> Any:
    if row.response is None or row.response_scaled is None:
        return None
    return response_chart(row.response, row.response_scaled)


def _gallery(companion: CompanionSet, row: ModelRow, observation: Observation) -> list[dict[str, Any]]:
    """The images on which the model is surest beyond what their labels allow, of several pairs of classes."""
    scores = row.ambiguous.main.scores
    names = observation.class_names
    cards: list[dict[str, Any]] = []
    # Images of one pair are similar; where there are many pairs, no single one fills the gallery.
    most = -(-SHOWN // min(OF_PAIRS, len(np.unique(np.sort(companion.pairs, axis=1), axis=0))))
    taken: Counter[frozenset[int]] = Counter()
    for place in np.argsort(-scores, kind="stable"):
        if scores[place] <= 0 or len(cards) == SHOWN:
            break
        pair = frozenset(companion.pairs[place].tolist())
        taken[pair] += 1
        if taken[pair] > most:
            continue
        first, second = (names[k] for k in companion.pairs[place])
        answer = float(row.answers[place])
        dial = None if companion.dial is None else float(companion.dial[place])
        cards.append(
            {
                "uri": data_uri(companion.images.images[int(place)]),
                "pair": (first, second),
                "truth": None if dial is None else (dial, 1 - dial),
                "answer": (answer, 1 - answer),
            }
        )
    return cards


def _plain(row: ModelRow) -> str:
    """The same for somebody who does not know the measure: where the model stands between doubt and certainty."""
    now, after = row.ambiguous.absolute, row.ambiguous_scaled.absolute.value.value
    share = now.value.value / now.ceiling
    how = (
        "nearly as sure as can be" if share > 0.9 else "far too sure" if share > 0.5 else "too sure, though not always"
    )
    text = f"Asked to choose between the two right classes of an ambiguous image, the model is {how}."
    if now.value.value - after > HELPS * now.value.value:
        return f"{text} A temperature of {row.temperature:.2f}, fitted on clear images, mends part of it."
    return f"{text} A temperature, which mends calibration, does not help here."


def _words(row: ModelRow) -> str:
    """For a manager: how bad, of how much, and what helps."""
    now, after = row.ambiguous.absolute, row.ambiguous_scaled.absolute.value.value
    return (
        f"hubris {now.value.value:.2f} of at most {now.ceiling:.2f} on ambiguous images, {after:.2f} with temperature "
        f"{row.temperature:.2f}; {row.clean.absolute.value.value:.2f} on clear ones, where being sure is right"
    )
