"""The supervisors that a guard uses by default.

They are what the comparison in `docs/supervisors.md` advises: no single one detects everything, so there is one of each
kind. Entropy and margin detect ambiguity, the logits and the distances to the training data at three depths of the
model detect the rest, and how the pixels look detects what is spoilt, however sure the model is. `dsa` keeps 10,000
training traces, so that a guard stays a file of moderate size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondguess.model.needs import Trace
from secondguess.supervisors import make, make_all
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["RECOMMENDED", "recommended"]

RECOMMENDED = "recommended"
EARLY = ("25%", "50%")  # of the depth; there, defects of the pixels still show
KEPT = 10_000  # training traces of `dsa`


def recommended(classifier: Classifier) -> list[Supervisor]:
    """The supervisors to take for a classifier, as far as it gives what they need."""
    made = make_all(["entropy", "pcs", "appearance"])
    if "logits" in classifier.gives:
        made += make_all(["max_logit", "energy"])
    if "traces" in classifier.gives:
        made.append(make("dissector", batch_size=256))
        made += make_all(["mdsa", "relative_mahalanobis", "normalised_mahalanobis"])
        made += make_all(["vim"] if "logits" in classifier.gives else [])
        made.append(make("dsa", subsampling=KEPT, other_distances="fit"))
        for share in EARLY:
            made.append(make("mdsa_global", layers=Trace(share, "grid")))
            made.append(make("relative_mahalanobis", layers=Trace(share, "grid")))
    return made
