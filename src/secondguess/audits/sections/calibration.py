"""Whether a confidence of 90% means being right nine times in ten."""

from __future__ import annotations

import numpy as np

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.errors import UserError
from secondguess.metrics import brier_interval, ece, ece_interval, nll_interval, reliability
from secondguess.report import figures
from secondguess.training.temperature import apply_temperature, fit_temperature

BINS = 15


@register
class Calibration(Section):
    """Whether a confidence of 90% means being right nine times in ten."""

    name = "calibration"
    title = "Calibration"
    template = "calibration.html"

    def run(self, context: Context) -> Findings:
        """Calibration error, Brier score, likelihood, reliability diagram, and what a temperature would correct."""
        known = context.labels >= 0
        labels, probabilities = context.labels[known], context.nominal.probabilities[known]
        measures = {
            "ece": ece_interval(probabilities, labels, bins=BINS, seed=context.seed),
            "brier": brier_interval(probabilities, labels, seed=context.seed),
            "nll": nll_interval(probabilities, labels, seed=context.seed),
        }
        diagram = reliability(probabilities, labels, bins=BINS)
        findings = Findings(numbers={f"calibration.{name}": context.number(value) for name, value in measures.items()})
        findings.numbers["calibration.mce"] = context.number(diagram.mce)
        findings.numbers["calibration.overconfidence"] = context.number(diagram.overconfidence)
        temperature = after = None
        try:
            temperature, after = _with_temperature(probabilities, labels, context.seed)
            findings.numbers["calibration.temperature"] = context.number(temperature)
            findings.numbers["calibration.ece_after_temperature"] = context.number(after)
        except UserError as error:
            findings.view["no_temperature"] = str(error)
        lean = diagram.overconfidence
        findings.view |= {
            "measures": measures,
            "mce": diagram.mce,
            "overconfidence": lean,
            "temperature": temperature,
            "ece_after": after,
            "bins": BINS,
            "diagram": figures.reliability(diagram.edges, diagram.confidence, diagram.accuracy, diagram.count),
        }
        value = measures["ece"].value
        words = (
            "may be read as a probability"
            if value < 0.02
            else "is off"
            if value < 0.05
            else "cannot be read as a probability"
        )
        leaning = "overconfident" if lean > 0 else "underconfident"
        findings.summary = [
            (
                "Confidence",
                f"{words}: expected calibration error {value:.1%}, {leaning} by {abs(lean):.1%} on average",
            )
        ]
        return findings


def _with_temperature(probabilities: np.ndarray, labels: np.ndarray, seed: int) -> tuple[float, float]:
    """The mean temperature of two halves, and the calibration error when each half uses the other's.

    Fitting and measuring on the same images would be too optimistic.
    """
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    order = np.random.default_rng(seed).permutation(len(labels))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    scaled = np.empty_like(logits)
    temperatures = []
    for fit, use in (halves, halves[::-1]):
        temperatures.append(fit_temperature(logits[fit], labels[fit]))
        scaled[use] = apply_temperature(logits[use], temperatures[-1])
    return float(np.mean(temperatures)), ece(scaled, labels, bins=BINS)
