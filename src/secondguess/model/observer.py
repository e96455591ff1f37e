"""The base class of learners from observations: supervisors, oracles and estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from secondguess.contracts.learner import Learner
from secondguess.contracts.saving import Writable
from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation

__all__ = ["TRACE", "Observer"]

TRACE = Writable(Trace, asdict, lambda fields: Trace(**fields))


class Observer(Learner):
    """A learner that is fitted on observations and applied to others; its parameters may be traces."""

    @property
    def needs(self) -> Needs:
        """What must have been observed; probabilities alone unless a class says otherwise."""
        return Needs()

    def _check_needs(self, needs: Needs, observation: Observation) -> None:
        """Raise a `UserError` unless an observation holds what is needed."""
        for trace in sorted(needs.traces):
            observation.trace(trace)
        have = 0 if observation.samples is None else observation.samples.shape[1]
        lacking = {
            "logits": needs.logits and observation.logits is None,
            f"{needs.samples} dropout samples": needs.samples > have,
            "the images": needs.images and observation.pixels is None,
        }
        if missing := [what for what, lacks in lacking.items() if lacks]:
            raise UserError(
                f"The {self.noun} {self.name!r} needs {' and '.join(missing)}, which this observation does not hold; "
                f"observe with classifier.observe(images, {self.noun}.needs)."
            )

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        return {"trace": TRACE}
