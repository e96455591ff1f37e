"""Possible errors in the description of a model: one function for each, which returns its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.agreement import relabelled
from secondguess.model.classifier import Classifier
from secondguess.model.degenerate import CERTAIN, find_degenerate
from secondguess.model.normalisations import CLEARLY, Candidate, assigned, best_of, fits_better
from secondguess.model.outputs import TOLERANCE

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.outputs import Convention

__all__ = [
    "Finding",
    "about_classes",
    "about_confidence",
    "about_names",
    "about_normalisation",
    "about_one_class",
    "about_output_kind",
    "about_outputs",
    "about_softmax",
]

SHOWN = 6  # names in a sentence


@dataclass(frozen=True)
class Finding:
    """One finding of a check.

    Attributes:
        severity: `wrong` should be corrected, `doubtful` should be inspected, a `note` needs no action.
        about: what it concerns: `accuracy`, `normalisation`, `classes`, `outputs`, `output_kind`, `softmax` or
            `confidence`.
        text: what was found, and what to do about it, in a sentence.
        numbers: what was measured.
        change: fields of the description that would put it right, as `Classifier.open` takes them.
    """

    severity: Literal["wrong", "doubtful", "note"]
    about: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The attributes, in values that JSON can hold."""
        change = {name: list(value) if isinstance(value, tuple) else value for name, value in self.change.items()}
        return {
            "severity": self.severity,
            "about": self.about,
            "text": self.text,
            "numbers": dict(self.numbers),
            "change": change,
        }


def about_output_kind(raw: NDArray[Any], described: str) -> tuple[str, Convention, list[Finding]]:
    """What the values (n, K) are, how they are best read, and whether the description agrees."""
    low, high, sums = float(raw.min()), float(raw.max()), raw.sum(axis=1, dtype=np.float64)
    if low < -TOLERANCE or high > 1 + TOLERANCE:
        looks: Literal["logits", "probabilities", "neither"] = "logits"
    elif raw.shape[1] == 1 or np.abs(sums - 1).max() <= TOLERANCE:
        looks = "probabilities"
    else:
        looks = "neither"
    numbers = {"lowest": low, "highest": high, "smallest_sum": float(sums.min()), "largest_sum": float(sums.max())}
    if looks == "neither":
        severity: Literal["wrong", "doubtful"] = "doubtful" if described == "logits" else "wrong"
        text = (
            f"The outputs lie between {low:.3g} and {high:.3g} and a row sums to {sums.min():.3g} to {sums.max():.3g}: "
            "neither probabilities of exclusive classes nor, it seems, logits (a sigmoid per class, or features?); "
            "let the model return its logits."
        )
        return looks, "logits", [Finding(severity, "output_kind", text, numbers)]
    if described in ("auto", looks):
        return looks, looks, []
    text = f"The model is described to return {described}, but its outputs are {looks}"
    text += ", to which softmax would be applied a second time" if looks == "probabilities" else ""
    change = {"output_kind": looks}
    return looks, looks, [Finding("wrong", "output_kind", f'{text}; set kind = "{looks}".', numbers, change)]


def about_names(
    classifier: Classifier, images: ImageSet, outputs: int
) -> tuple[NDArray[np.int64], tuple[str, ...], list[Finding]]:
    """The labels (n,) in the order of the model's outputs, what they are called, and whether the names fit."""
    names, own = classifier.class_names, images.class_names
    findings = []
    if names and len(names) != outputs:
        text = f"The model gives {outputs} classes, but {len(names)} names are described."
        findings.append(Finding("wrong", "classes", text, {"outputs": outputs, "names": len(names)}))
        names = ()
    if len(own) > outputs:
        text = f"The data have {len(own)} classes, but the model gives {outputs}: {_some(own)}."
        findings.append(Finding("wrong", "classes", text, {"outputs": outputs, "classes": len(own)}))
    if not names:
        if not findings:
            text = f"The model has no class names; those of the data are taken in their order: {_some(own)}."
            findings.append(Finding("note", "classes", text))
        return images.labels, own, findings
    try:
        return relabelled(images, names, classifier.description.names).labels, names, findings
    except UserError:
        strange, unused = [one for one in own if one not in names], [one for one in names if one not in own]
        text = f"The data have classes that the model has not ({_some(strange)})"
        text += f", and the model has some that the data have not ({_some(unused)})" if unused else ""
        return images.labels, own, [*findings, Finding("wrong", "classes", f"{text}; name them alike.")]


def about_outputs(classifier: Classifier, images: ImageSet, labels: NDArray[np.int64], own: Candidate) -> list[Finding]:
    """Which output is used where a file has several, and whether another one answers better."""
    names, used = classifier.backend.outputs, getattr(classifier.backend, "output", None)
    if len(names) < 2:
        return []
    text = f"The model has {len(names)} outputs ({', '.join(names)}); {used} is used"
    accuracies = {str(used): own.accuracy.value}
    for name in names:
        if name != used:
            value = _accuracy_of(classifier, name, images, labels)
            accuracies |= {} if value is None else {name: value}
    best = max(accuracies, key=lambda name: accuracies[name])
    if accuracies[best] > own.accuracy.value + CLEARLY:
        text += (
            f", with which {own.accuracy.value:.1%} are right; with {best} it is {accuracies[best]:.1%}: set use = "
            f'"{best}" under [output].'
        )
        return [Finding("wrong", "outputs", text, accuracies, {"output": best})]
    return [Finding("note", "outputs", f"{text}.", accuracies)]


def about_normalisation(found: list[Candidate]) -> list[Finding]:
    """Whether one of the usual normalisations fits better than the one described, which is the first."""
    own, best = found[0], best_of(found)
    how = fits_better(best, own)
    if not how:
        return []
    named = f"{best.name} (mean {_numbers(best.mean)}, std {_numbers(best.std)})"
    change = {"mean": best.mean, "std": best.std}
    numbers = {"accuracy": own.fitting, "better": best.fitting, "nll": own.nll, "better_nll": best.nll}
    if how == "accuracy":
        # Where the order of the classes is wrong as well, the accuracy as described says nothing about pixels.
        also = ", each with the classes in its best order" if _is_out_of_order(best) else ""
        text = f"Another normalisation fits better: {best.fitting:.1%} right with {named}, {own.fitting:.1%} with the "
        text += f"described one{also}"
        similar = [one for one in found[1:] if one is not best and fits_better(best, one) != "accuracy"]
        if similar:
            text += "; not clearly worse on these images: " + ", ".join(
                f"{one.name} {one.fitting:.1%}" for one in similar[:2]
            )
        return [Finding("wrong", "normalisation", f"{text}.", numbers, change)]
    text = (
        f"Another normalisation may be meant: with {named} the confidences fit better (mean log-loss {best.nll:.3g} "
        f"instead of {own.nll:.3g}; {best.fitting:.1%} instead of {own.fitting:.1%} right)."
    )
    return [Finding("doubtful", "normalisation", text, numbers, change)]


def about_one_class(name: str) -> Finding:
    """That normalisations and orders of classes cannot be told apart: whatever answers this class more often wins."""
    text = f"All of these images are of the class {name}; normalisation and order of classes are checked on several."
    return Finding("note", "classes", text)


def about_classes(found: list[Candidate], labels: NDArray[np.int64], names: tuple[str, ...]) -> list[Finding]:
    """Whether the classes in another order would make the answers right."""
    best = best_of(found)
    plain = best.accuracy.value
    if not _is_out_of_order(best):
        return []
    outputs = best.probabilities.shape[1]
    _, places = assigned(best.predictions, labels, outputs)
    numbers = {"accuracy": plain, "better": best.fitting}
    fed = f" (normalised by {best.name})" if fits_better(best, found[0]) else ""
    text = f"The classes are in another order: {plain:.1%} are right as they are named{fed}, {best.fitting:.1%} "
    if len(names) != outputs or len(np.unique(labels)) < outputs:
        return [Finding("wrong", "classes", f"{text}with the outputs in the order that fits best.", numbers)]
    order = tuple(names[label] for label in np.argsort(places))
    return [Finding("wrong", "classes", f"{text}in the order {', '.join(order)}.", numbers, {"classes": order})]


def _is_out_of_order(best: Candidate) -> bool:
    """Whether clearly more answers are right with the classes in another order."""
    return best.fitting > best.accuracy.value + CLEARLY


def about_softmax(found: list[Candidate], labels: NDArray[np.int64]) -> list[Finding]:
    """Whether the probabilities say anything at all, and which normalisation would make them."""
    own, best = found[0], best_of(found)
    degenerate = find_degenerate(own.probabilities, labels)
    if degenerate is None:
        return []
    text, change = degenerate.text, {}
    if best is not own and find_degenerate(best.probabilities, labels) is None:
        text += f" Normalised by {best.name}, {best.fitting:.1%} are right with a mean confidence of "
        text += f"{best.confidence:.1%}."
        change = {"mean": best.mean, "std": best.std}
    severity: Literal["wrong", "doubtful"] = "doubtful" if degenerate.name == "saturated" else "wrong"
    return [Finding(severity, "softmax", text, {degenerate.name: degenerate.share}, change)]


def about_confidence(
    found: list[Candidate], labels: NDArray[np.int64], looks: str, *, explained: bool
) -> list[Finding]:
    """Whether the answers are better than guessing, and the confidences informative."""
    own = found[0]
    accuracy, outputs = own.accuracy, own.probabilities.shape[1]
    findings = []
    most = float(np.bincount(labels).max() / len(labels))
    if accuracy.low <= 1 / outputs:
        text = f"{accuracy.value:.1%} of the images are right; guessing among {outputs} classes gives {1 / outputs:.1%}"
        if not explained:
            text += ", and neither another normalisation nor another order of the classes explains it: are the weights "
            text += "trained, and are these images of its task"
        text += "." if explained else "?"
        numbers = {"accuracy": accuracy.value, "chance": 1 / outputs}
        findings.append(Finding("wrong", "accuracy", text, numbers))
    elif accuracy.value <= most:
        text = f"{accuracy.value:.1%} of the images are right; always giving the most frequent class is as good."
        findings.append(Finding("doubtful", "accuracy", text, {"accuracy": accuracy.value, "most_frequent": most}))
    saturated = float((own.probabilities.max(axis=1) >= CERTAIN).mean())
    if looks == "probabilities" and saturated >= 0.05:
        text = (
            f"{saturated:.1%} of the confidences are exactly 1, so that these images cannot be ranked; let the "
            "model return its logits."
        )
        findings.append(Finding("doubtful", "confidence", text, {"saturated": saturated}))
    gap = own.confidence - accuracy.high
    if gap > 0.15 and not explained:
        text = f"The model is overconfident: mean confidence {own.confidence:.1%}, but {accuracy.value:.1%} are right."
        findings.append(Finding("doubtful", "confidence", text, {"confidence": own.confidence}))
    return findings


def _accuracy_of(classifier: Classifier, output: str, images: ImageSet, labels: NDArray[np.int64]) -> float | None:
    """The accuracy with another output of the same file; None where that is no output of class scores."""
    path = classifier.description.path
    if path is None or not Path(path).is_file():
        return None
    try:
        other = Classifier.open(classifier.description.changed(output=output, output_kind="logits"))
        scores = other.observe(images).probabilities
    except UserError:
        return None
    return float((scores.argmax(axis=1) == labels).mean()) if scores.shape[1] > labels.max() else None


def _some(names: Any) -> str:
    names = list(names)
    return ", ".join(map(str, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.6g}" for value in values)
