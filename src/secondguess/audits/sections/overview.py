"""What was audited: the data and the model, with fingerprints by which they can be recognised again."""

from __future__ import annotations

import numpy as np

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.errors import UserError
from secondguess.report import data_uri

EXAMPLES = 20


@register
class Overview(Section):
    """What was audited: the data and the model, with fingerprints by which they can be recognised again."""

    name = "overview"
    title = "What was audited"
    template = "overview.html"
    reads_scores = False

    def run(self, context: Context) -> Findings:
        """Describe data and model, and show some test images."""
        classifier, test = context.classifier, context.test
        seen = context.nominal
        try:
            layers = classifier.layers() if "traces" in classifier.gives else []
        except UserError:
            layers = []
        return Findings(
            summary=[
                (
                    "Subject",
                    f"{classifier.name}, {seen.num_classes} classes, audited on {len(test):,} images of {test.name}",
                )
            ],
            view={
                "test": test.describe(),
                "train": context.train.describe() if context.train else None,
                "model": {
                    "name": classifier.name,
                    "kind": classifier.backend.kind,
                    "gives": sorted(classifier.gives),
                    "fingerprint": classifier.fingerprint,
                    "classes": seen.num_classes,
                },
                "layers": layers,
                "examples": _examples(context),
                "absent": _absent(context),
            },
        )


def _absent(context: Context) -> str:
    """That the images are of some of the model's classes only, where it is so."""
    counts = np.bincount(context.test.labels[context.test.labels >= 0], minlength=context.test.num_classes)
    present = int((counts > 0).sum())
    if not present or present == len(counts):
        return ""
    return (
        f"The test images are of {present:,} of the model's {len(counts):,} classes. Its answers are judged among all "
        "of them; to restrict them to those that are present, say"
    )


def _examples(context: Context) -> list[dict[str, str]]:
    """Test images, the classes taking turns."""
    labels = context.test.labels
    turn = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        turn[rows] = np.arange(len(rows))
    first = np.lexsort((labels, turn))[:EXAMPLES]
    names = context.test.class_names
    return [
        {
            "uri": data_uri(context.test.images[int(row)]),
            "label": names[labels[row]] if labels[row] >= 0 else "unknown",
        }
        for row in first
    ]
