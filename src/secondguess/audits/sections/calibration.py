"""Whether a confidence of 90% means being right nine times in ten."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.errors import UserError
from secondguess.metrics import brier_interval, ece, ece_interval, nll_interval, reliability, wilson
from secondguess.report import figures
from secondguess.training.temperature import apply_temperature, fit_temperature

BINS = 15
CERTAINLY = 0.995  # what rounds to 100%


@register
class Calibration(Section):
    """Whether a confidence of 90% means being right nine times in ten."""

    name = "calibration"
    title = "Calibration"
    template = "calibration.html"
    reads_scores = False

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
            temperature, after = _with_temperature(_logits(context)[known], labels, context.seed)
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
            "temperature_text": _degrees(temperature),
            "ece_after": after,
            "bins": BINS,
            "diagram": figures.reliability(diagram.edges, diagram.confidence, diagram.accuracy, diagram.count),
        }
        words = _words(context, measures["ece"].value, lean, temperature)
        findings.view |= {"words": words, "softmax": context.softmax.text if context.softmax else ""}
        findings.summary = [("Confidence", words)]
        return findings


def _words(context: Context, error: float, lean: float, temperature: float | None) -> str:
    """What the confidence is good for.

    Nobody may read it as a probability where mistakes are made with 100%, or where the model knows nothing: a low
    confidence for every image is then right on average, and useless.
    """
    seen, wrong = context.nominal, (context.nominal.predictions != context.labels) & (context.labels >= 0)
    mistakes, certain = int(wrong.sum()), int((seen.confidences[wrong] >= CERTAINLY).sum())
    measured = f"expected calibration error {error:.1%}, {'over' if lean > 0 else 'under'}confident by {abs(lean):.1%}"
    if context.softmax is not None:
        advice = "" if temperature is None else f"; a temperature of {_degrees(temperature)} would mend the most"
        return f"says nothing ({context.softmax.name}): {measured} on average{advice}"
    if _is_guessing(context):
        return f"says nothing: the model is no better than always giving the most frequent class; {measured} on average"
    if 2 * certain > mistakes:
        return f"says nothing about mistakes: {certain} of {mistakes} were made with 100%; {measured} on average"
    known = "may be read" if error < 0.02 else "is off" if error < 0.05 else "cannot be read"
    return f"{known}{'' if known == 'is off' else ' as a probability'}: {measured} on average"


def _is_guessing(context: Context) -> bool:
    """Whether the accuracy does not surely exceed the share of the most frequent class, where there are several."""
    known = context.labels >= 0
    _, counts = np.unique(context.labels[known], return_counts=True)
    right = int((context.nominal.predictions == context.labels)[known].sum())
    return len(counts) > 1 and wilson(right, int(known.sum())).low <= counts.max() / known.sum()


def _degrees(temperature: float | None) -> str:
    if temperature is None:
        return ""
    return f"{temperature:,.0f}" if temperature >= 100 else f"{temperature:.3g}"


def _logits(context: Context) -> NDArray[np.float64]:
    """The logits (n, K), or the logarithms of the probabilities, which may be 0, in their place."""
    if context.nominal.logits is not None:
        return context.nominal.logits.astype(np.float64)
    return np.log(np.maximum(context.nominal.probabilities, np.finfo(np.float64).tiny))


def _with_temperature(logits: NDArray[np.float64], labels: NDArray[np.int64], seed: int) -> tuple[float, float]:
    """The mean temperature of two halves, and the calibration error when each half uses the other's.

    Fitting and measuring on the same images would be too optimistic.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    scaled = np.empty_like(logits)
    temperatures = []
    for fit, use in (halves, halves[::-1]):
        temperatures.append(fit_temperature(logits[fit], labels[fit]))
        scaled[use] = apply_temperature(logits[use], temperatures[-1])
    return float(np.mean(temperatures)), ece(scaled, labels, bins=BINS)
