"""How the model classifies images to which two answers are right.

On a truly ambiguous image a good model names the two classes and hesitates between them. `top pair` counts how often
its two likeliest classes are the two right ones; the entropy says how much it hesitates; the distance compares its
probabilities with the soft label of the image.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.images import ImageSet
from secondguess.metrics import (
    Interval,
    has_pairs,
    mean_entropy_interval,
    nll_interval,
    soft_ece_interval,
    top_k_accuracy_interval,
    top_pair_accuracy_interval,
    total_variation_interval,
)
from secondguess.model.observation import Observation
from secondguess.report import data_uri, figures
from secondguess.stress.ambiguous import AmbiguousGenerator, PixelBlend

PAIRS, SHOWN = 8, 8
SURE = 0.95


@register
class Ambiguity(Section):
    """How the model classifies images to which two answers are right."""

    name = "ambiguity"
    title = "Ambiguity"
    template = "ambiguity.html"
    reads_scores = False

    def run(self, context: Context) -> Findings:
        """Metrics on nominal and on ambiguous images, a gallery by pair, the latent space of one autoencoder."""
        findings = Findings()
        stressed = context.stressed  # first, since a plan may replace a generator by a shorter one when its set is made
        made = {one.name: one for one in context.stress if isinstance(one, AmbiguousGenerator)}
        found = {name: stressed[name] for name in made if name in stressed}
        if not found:
            reasons = [context.failed_stress[name] for name in made if name in context.failed_stress]
            said = reasons[0] if reasons else "No ambiguous images were asked for."
            findings.view = {"sets": [], "reason": said, "note": ""}
            return findings
        nominal = (
            _measure(context, findings, "nominal", context.test, context.nominal) if context.test.is_labelled else None
        )
        sets = []
        for name, (images, observation) in found.items():
            last = made[name].last
            sets.append(
                {
                    "name": name,
                    "rows": _measure(context, findings, name, images, observation),
                    "card": last.card if last else {},
                    "gallery": _gallery(images, observation),
                    "latent": _latent(last),
                    "words": _words(findings, name, images, observation),
                }
            )
        findings.view = {"nominal": nominal, "sets": sets, "reason": "", "note": context.ambiguous_note}
        findings.summary = [("Ambiguous images", sets[0]["words"])]
        return findings


def _words(findings: Findings, name: str, images: ImageSet, observation: Observation) -> str:
    """How often the model names both classes, where there are more than two, and how often it is sure of one."""
    pair = findings.numbers.get(f"ambiguity.{name}.top_pair") if observation.num_classes > 2 else None
    sure = float((observation.confidences >= SURE).mean())
    words = f"both right classes on top in {pair.value:.0%} of {len(images):,} images; " if pair else ""
    end = "; these are plain blends, a weak stand-in" if name == PixelBlend.name else ", and must not be"
    return f"{words}in {sure:.0%} it is {SURE:.0%} sure or more{end}"


def _measure(
    context: Context, findings: Findings, name: str, images: ImageSet, observation: Observation
) -> dict[str, Interval | None]:
    """The metrics of one set; None where one cannot be calculated."""
    known = images.labels >= 0
    probabilities, labels = observation.probabilities[known], images.labels[known]
    soft = images.soft_labels[known] if images.soft_labels is not None else np.eye(observation.num_classes)[labels]
    measures: dict[str, Interval | None] = {
        "top_1": top_k_accuracy_interval(probabilities, labels, 1),
        "top_2": top_k_accuracy_interval(probabilities, labels, 2),
        "top_pair": top_pair_accuracy_interval(probabilities, soft) if has_pairs(soft) else None,
        "entropy_bits": mean_entropy_interval(probabilities, seed=context.seed),
        "cross_entropy": nll_interval(probabilities, soft, seed=context.seed),
        "calibration": soft_ece_interval(probabilities, soft, seed=context.seed),
        "distance": total_variation_interval(probabilities, soft, seed=context.seed),
    }
    for measure, value in measures.items():
        if value is not None:
            findings.numbers[f"ambiguity.{name}.{measure}"] = context.number(value, images)
    return measures


def _gallery(images: ImageSet, observation: Observation) -> list[dict[str, Any]]:
    """Some images of each of some pairs, with their soft label and what the model says."""
    if not {"class_1", "class_2"} <= images.columns.keys() or images.soft_labels is None:
        return []
    pairs = np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1)
    names, groups = images.class_names, []
    for pair in np.unique(pairs, axis=0)[:PAIRS]:
        cards = []
        for row in np.flatnonzero((pairs == pair).all(axis=1))[:SHOWN]:
            guess = int(observation.predictions[row])
            cards.append(
                {
                    "uri": data_uri(images.images[int(row)]),
                    "truth": [(names[k], float(images.soft_labels[row, k])) for k in pair],
                    "guess": names[guess],
                    "confidence": float(observation.confidences[row]),
                    "outside": guess not in pair,
                }
            )
        groups.append({"pair": [names[k] for k in pair], "cards": cards})
    return groups


def _latent(last: Any) -> Any:
    picture = last.latent if last else None
    if picture is None:
        return None
    return figures.latent_space(picture.z, picture.which, picture.weights, picture.bounds, picture.drawn, picture.pair)
