"""Check of the description of a model on labelled images.

A model that is fed or read wrongly does not fail, it only predicts badly. Each check tests one way in which that
happens and reports what would explain it, with the measured accuracies: another normalisation, another order of the
classes, another output, softmax applied twice or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.files import make_folder, write_json
from secondguess.metrics.interval import Interval, wilson
from secondguess.model.check_findings import (
    Finding,
    about_classes,
    about_confidence,
    about_names,
    about_normalisation,
    about_one_class,
    about_output_kind,
    about_outputs,
    about_softmax,
)
from secondguess.model.classifier import Classifier
from secondguess.model.description_fields import toml_lines
from secondguess.model.normalisations import Candidate, try_normalisations
from secondguess.model.outputs import as_matrix
from secondguess.progress import Progress, Silent
from secondguess.results import Result

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["ModelCheck", "check_model"]

MARKS = {"wrong": "WRONG", "doubtful": "doubtful", "note": "note"}
LINES = 10
UNREADABLE = "nothing readable"
LONGEST = 200  # characters of a line of TOML in a summary


@dataclass(frozen=True)
class ModelCheck(Result):
    """What a check of a model found.

    Attributes:
        model: the name of the model.
        images: how many labelled images it was tried on.
        accuracy: on these images, as the model is described.
        confidence: the mean confidence there.
        output_kind: what the model returns, judged by its values.
        findings: probabilities that say nothing, then the worst first.
        normalisations: the usual normalisations, with the accuracy of each.
    """

    model: str
    images: int
    accuracy: Interval
    confidence: float
    output_kind: str
    findings: tuple[Finding, ...]
    normalisations: tuple[Candidate, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not any(one.severity == "wrong" for one in self.findings)

    def summary(self) -> str:
        """Accuracy, then the findings, then what to put into `model.toml`."""
        said = f"{self.accuracy.value:.1%} of {self.images:,} images right, mean confidence {self.confidence:.1%}"
        said += f", returns {self.output_kind}"
        lines = [f"{self.model}: {'no answer that can be read' if self.output_kind == UNREADABLE else said}"]
        lines += [f"  {MARKS[one.severity]:<8}  {one.text}" for one in self.findings]
        fix = [line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in self.toml().splitlines()]
        fix = ["In model.toml:", *(f"  {line}" for line in fix)] if fix else []
        if len(lines) + len(fix) > LINES:
            kept = LINES - 1 - len(fix)
            lines = [*lines[:kept], f"  and {len(lines) - kept} more findings"]
        return "\n".join([*lines, *fix] if self.findings else [*lines, "  Nothing seems wrong."])

    def toml(self) -> str:
        """The lines of a `model.toml` that would put right what is wrong, or else what is doubtful; may be empty."""
        for severity in ("wrong", "doubtful"):
            changes = [one.change for one in self.findings if one.severity == severity]
            if merged := {name: value for change in changes for name, value in change.items()}:
                return "\n".join(toml_lines(merged))
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, in values that JSON can hold."""
        return {
            "model": self.model,
            "images": self.images,
            "passed": self.passed,
            "accuracy": {"value": self.accuracy.value, "low": self.accuracy.low, "high": self.accuracy.high},
            "confidence": self.confidence,
            "output_kind": self.output_kind,
            "findings": [one.to_dict() for one in self.findings],
            "toml": self.toml(),
            "normalisations": [one.to_dict() for one in self.normalisations],
        }

    def save(self, folder: str | Path) -> Path:
        """Write `check.json`."""
        write_json(make_folder(folder) / "check.json", self.to_dict())
        return Path(folder)


def check_model(
    model: Any,
    data: Any,
    *,
    max_images: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
    **loading: Any,
) -> ModelCheck:
    """Try a model on labelled images and report what seems wrong.

    Args:
        model: anything that `Classifier.open` takes.
        data: labelled images that the model should know: anything that `secondguess.load` takes, or an `ImageSet`.
        max_images: the largest number of images to use, drawn at random.
        seed: of the draw.
        progress: where to report.
        loading: further arguments of `secondguess.load`.
    """
    classifier = Classifier.open(model)
    images = _labelled(classifier, data, loading, max_images, seed)
    raw, unreadable = _raw(classifier, images)
    if raw is None:
        broken = Finding("wrong", "outputs", unreadable)
        return ModelCheck(classifier.name, len(images), wilson(0, len(images)), 0.0, UNREADABLE, (broken,), ())
    looks, kind, findings = about_output_kind(raw, classifier.description.output_kind)
    classifier = Classifier.open(classifier, output_kind=kind)
    classes = max(raw.shape[1], 2)
    labels, names, named = about_names(classifier, images, classes)
    classifier = classifier.keeping(()).with_classes(())  # names that do not fit would stop an observation
    found = try_normalisations(classifier, images, labels, progress or Silent())
    own = found[0]
    findings += [*named, *about_outputs(classifier, images, labels, own)]
    several = len(np.unique(labels)) > 1  # else nothing can be ruled out
    if several:
        findings += [*about_normalisation(found), *about_classes(found, labels, names)]
    else:
        findings.append(about_one_class(names[labels[0]] if labels[0] < len(names) else str(labels[0])))
    explained = not several or any(one.severity == "wrong" for one in findings)
    findings += about_confidence(found, labels, looks, explained=explained)
    rank = list(MARKS)
    # Probabilities that say nothing come first: they cast doubt on whatever else was found.
    ordered = (
        *about_softmax(found if several else found[:1], labels),
        *sorted(findings, key=lambda one: rank.index(one.severity)),
    )
    return ModelCheck(classifier.name, len(images), own.accuracy, own.confidence, looks, ordered, tuple(found))


def _labelled(classifier: Classifier, data: Any, loading: dict[str, Any], most: int, seed: int) -> ImageSet:
    """At most `most` labelled images in the shape that the model takes."""
    from secondguess.images import Dataset, ImageSet, load_images
    from secondguess.images.fitting import conform

    images = data.test if isinstance(data, Dataset) else data
    if not isinstance(images, ImageSet):
        images = load_images(images, **classifier.loading | loading)
    if classifier.input_shape is not None:
        images = conform(images, classifier.input_shape, resize=classifier.description.resize)  # type: ignore[arg-type]
    known = np.flatnonzero(images.labels >= 0)
    if len(known) == 0:
        raise UserError(f"{images.name} has no labels; a model is checked on labelled images.")
    drawn = np.sort(np.random.default_rng(seed).permutation(known)[:most])
    return images.take(drawn)


def _raw(classifier: Classifier, images: ImageSet) -> tuple[NDArray[Any] | None, str]:
    """What the model returns as it is, (n, K), or why that cannot be read."""
    parts = []
    size = classifier.batch_size
    for start in range(0, len(images), size):
        batch = images.images[start : min(start + size, len(images))]
        try:
            output, _ = classifier.backend.forward(classifier.normalised(batch))
            parts.append(as_matrix(output, len(batch)))
        except UserError as error:
            return None, str(error)
    return np.concatenate(parts), ""
