"""Scores and predictions in one call, for users of the older packages of surprise adequacy.

    scores, predictions = calc("dsa", classifier, test_images, train=train_images)
    scores = calc_arrays("lsa", train_traces, train_predictions, test_traces, test_predictions)

A `Classifier(..., cache=FOLDER)` keeps traces by content (weights, layers, images): they are never stale, and read back
instead of computed again. Every call that is given training images learns from them anew; to score several sets, fit a
supervisor once and hand it over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation, Trace
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import make

__all__ = ["calc", "calc_arrays", "observation_of"]


def calc(
    supervisor: str | Supervisor, classifier: Classifier, images: Any, *, train: Any = None, **params: Any
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The scores (n,) and the predictions (n,) of images.

    Args:
        supervisor: a name such as `"dsa"`, or a supervisor, which is left as it is.
        classifier: the model under test.
        images: whatever `classifier.observe` takes.
        train: training images, to fit on, with their labels if it is an `ImageSet`; left out, the supervisor must have
            been fitted.
        params: the parameters of the supervisor, or those to change.
    """
    from secondguess.images import ImageSet

    chosen = _made(supervisor, params)
    if train is not None:
        labels = train.labels if isinstance(train, ImageSet) else None
        chosen = chosen.clone().fit(classifier.observe(train, chosen.needs), labels)
    elif chosen.requires_fit and not chosen.is_fitted:
        raise UserError(f"The supervisor {chosen.name!r} must see training images first; give train=images.")
    observation = classifier.observe(images, chosen.needs)
    return chosen.score(observation), observation.predictions


def calc_arrays(
    supervisor: str | Supervisor,
    train_traces: NDArray[np.floating[Any]],
    train_predictions: NDArray[np.integer[Any]],
    test_traces: NDArray[np.floating[Any]],
    test_predictions: NDArray[np.integer[Any]],
    **params: Any,
) -> NDArray[np.float64]:
    """The scores (m,) of test traces, from plain arrays and without a model.

    Args:
        supervisor: a name such as `"dsa"`, or a supervisor of a single layer, which is left as it is.
        train_traces: (n, d).
        train_predictions: (n,) classes from 0 on.
        test_traces: (m, d).
        test_predictions: (m,) classes; one that never occurs in training scores +inf.
        params: the parameters of the supervisor, or those to change.
    """
    chosen = _made(supervisor, params)
    needs = chosen.needs
    if not needs.traces:
        raise UserError(f"The supervisor {chosen.name!r} does not read traces; use calc(...) with a classifier.")
    if len(needs.traces) != 1 or needs.samples or needs.logits or needs.images:
        raise UserError(
            f"The supervisor {chosen.name!r} needs more than the traces of one layer; use calc(...) with a classifier."
        )
    trace = next(iter(needs.traces))
    predictions = [np.asarray(given) for given in (train_predictions, test_predictions)]
    classes = max((int(given.max()) for given in predictions if given.size), default=0) + 1
    train, test = (
        observation_of(traces, given, max(classes, 2), trace)
        for traces, given in zip((train_traces, test_traces), predictions, strict=True)
    )
    return chosen.clone().fit(train).score(test)


def observation_of(
    traces: NDArray[np.floating[Any]], predictions: NDArray[np.integer[Any]], classes: int, trace: Trace | None = None
) -> Observation:
    """What supervisors that read nothing but traces and predictions need, without a matrix (n, K) of probabilities.

    Args:
        traces: (n, d), maybe memory-mapped; floats of any precision are kept as they are, without a copy.
        predictions: (n,) numbers below `classes`.
        classes: K.
        trace: of which layer the traces are; the penultimate one if left out.

    Returns:
        An observation whose probabilities are unknown, that is NaN.
    """
    traces, predictions = np.asanyarray(traces), np.asarray(predictions)
    if traces.ndim != 2 or predictions.shape != traces.shape[:1]:
        raise UserError(f"Traces must be (n, d) with one prediction a row, not {traces.shape} and {predictions.shape}.")
    if not np.issubdtype(predictions.dtype, np.integer) or ((predictions < 0) | (predictions >= classes)).any():
        raise UserError(f"Predictions must be whole numbers from 0 on and below {classes}, one for each trace.")
    # Doubles are not rounded here: a supervisor centres them first, so that traces far from zero keep their digits.
    floats = traces if np.issubdtype(traces.dtype, np.floating) else traces.astype(np.float32)
    return _Predicted(
        np.broadcast_to(np.nan, (len(traces), classes)),
        traces={trace or Trace(): floats},
        given=predictions.astype(np.int64, copy=False),
    )


@dataclass(frozen=True, eq=False)
class _Predicted(Observation):
    """An observation of which the predictions are known and the probabilities are not."""

    given: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The predictions (n,), as they were given."""
        return self.given

    def take(self, indices: NDArray[np.int64] | slice) -> Observation:
        """The observation of some of the rows, in the order of `indices`."""
        return replace(super().take(indices), given=self.given[indices])  # type: ignore[call-arg]


def _made(supervisor: str | Supervisor, params: dict[str, Any]) -> Supervisor:
    if isinstance(supervisor, str):
        return make(supervisor, **params)
    return supervisor.clone(**params) if params else supervisor
