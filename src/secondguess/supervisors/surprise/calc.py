"""Scores and predictions in one call, for users of the older packages of surprise adequacy.

    scores, predictions = calc("dsa", classifier, test_images, train=train_images)
    scores = calc_arrays("lsa", train_traces, train_predictions, test_traces, test_predictions)

A `Classifier(..., cache=FOLDER)` keeps traces by content (weights, layers, images), so nothing is stale and nothing is
computed twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.classifier import Classifier
from secondguess.errors import UserError
from secondguess.observation import Observation, Trace
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import make

__all__ = ["calc", "calc_arrays"]


def calc(
    supervisor: str | Supervisor, classifier: Classifier, images: Any, *, train: Any = None, **params: Any
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The scores (n,) and the predictions (n,) of images.

    Args:
        supervisor: a name such as `"dsa"`, or a supervisor; one that has been fitted is used as it is.
        classifier: the model under test.
        images: whatever `classifier.observe` takes.
        train: training images, to fit on; needed unless the supervisor has been fitted.
        params: for a name, the parameters of the supervisor.
    """
    chosen = _made(supervisor, params)
    if train is not None:
        chosen.fit(classifier.observe(train, chosen.needs))
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
        supervisor: a name such as `"dsa"`, or a supervisor of a single layer.
        train_traces: (n, d).
        train_predictions: (n,) classes from 0 on.
        test_traces: (m, d).
        test_predictions: (m,) classes; one that never occurs in training scores +inf.
        params: for a name, the parameters of the supervisor.
    """
    chosen = _made(supervisor, params)
    needs = chosen.needs
    if len(needs.traces) != 1 or needs.samples or needs.logits or needs.images:
        raise UserError(
            f"The supervisor {chosen.name!r} needs more than the traces of one layer; use calc(...) with a classifier."
        )
    trace = next(iter(needs.traces))
    predictions = [np.asarray(given) for given in (train_predictions, test_predictions)]
    classes = max((int(given.max()) for given in predictions if given.size), default=0) + 1
    train, test = (
        _observed(trace, traces, given, classes)
        for traces, given in zip((train_traces, test_traces), predictions, strict=True)
    )
    return chosen.fit(train).score(test)


def _made(supervisor: str | Supervisor, params: dict[str, Any]) -> Supervisor:
    if isinstance(supervisor, str):
        return make(supervisor, **params)[0]
    return supervisor.clone(**params) if params else supervisor


def _observed(trace: Trace, traces: NDArray[Any], predictions: NDArray[Any], classes: int) -> Observation:
    traces = np.asanyarray(traces)
    if traces.ndim != 2 or predictions.shape != traces.shape[:1]:
        raise UserError(f"Traces must be (n, d) with one prediction a row, not {traces.shape} and {predictions.shape}.")
    if not np.issubdtype(predictions.dtype, np.integer) or (predictions < 0).any():
        raise UserError("Predictions must be whole numbers from 0 on, one for each trace.")
    probabilities = np.zeros((len(traces), max(classes, 2)))
    probabilities[np.arange(len(traces)), predictions] = 1.0
    return Observation(probabilities, traces={trace: traces.astype(np.float32, copy=False)})
