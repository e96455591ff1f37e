"""Dissector: whether the layers of the model support its prediction increasingly.

A sub-model (softmax regression, see `_submodels`) reads the class from the activations of each chosen layer. For an
image that the model puts into class x, a sub-model with the probabilities q gives the support value, and the layers
l = 1 ... L together the validity,

    SV_l = q_x / (q_x + max_{c != x} q_c),     PV = sum_l w_l SV_l / sum_l w_l,     score = -PV

with weights that grow with the layer's number t:

| growth | w, alpha = 0 | alpha > 0                                              |
|--------|--------------|--------------------------------------------------------|
| linear | t            | alpha t + 1                                            |
| log    | ln t         | alpha ln(beta t + 1) + 1, or alpha ln t + 1 at beta = 0 |
| exp    | e^(beta t)   | alpha e^(beta t) + 1                                   |

Source: Wang, Xu, Xu, Ma, Lu: "Dissector: Input Validation for Deep Learning Applications by Crossing-layer Dissection"
(ICSE 2020); as compared by Weiss, Garcia Gomez and Tonella (Empirical Software Engineering, 2023).

`mode="paper"`: t = 1 ... L + 1, where the last "layer" is the model's own softmax. `mode="legacy"` does as the
comparison's replication package: t = 0 ... L - 1, so that the first sub-model does not count, no softmax at the end,
all activations (`"flatten"`), and the sub-models' training of `SubmodelRecipe.legacy`. Neither paper describes that
training; ours is the replication package's (Adam, batches of 32, at most 30 epochs, patience 2) with a held-out tenth
that is random.

Departures: weights that are all zero (`log` on one layer) count equally; the difference of two logits goes through one
sigmoid, which is the same number as the quotient and never 0 / 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.supervisors._submodels import SubmodelRecipe, class_logits, train_submodel
from secondguess.supervisors._traces import Layers
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["Dissector", "growing_weights", "support"]

Growth = Literal["linear", "log", "exp"]

AUTO = ("25%", "50%", "75%", "penultimate")


def support(logits: NDArray[np.float64], predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Support values (n,) of the predicted classes (n,) by a sub-model's logits (n, K).

    >>> support(np.log([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2]]), np.array([0, 0])).round(4).tolist()
    [0.6667, 0.25]
    """
    rows = np.arange(len(logits))
    others = logits.copy()
    others[rows, predictions] = -np.inf
    gap = logits[rows, predictions] - others.max(axis=1)
    small = np.exp(-np.abs(gap))
    return np.asarray(np.where(gap >= 0, 1, small) / (1 + small))


def growing_weights(
    numbers: NDArray[np.float64], growth: Growth = "linear", alpha: float = 0.0, beta: float = 1.0
) -> NDArray[np.float64]:
    """The share (L,) of each layer in the validity, by the layers' numbers (L,).

    >>> growing_weights(np.array([1.0, 2.0, 3.0])).round(4).tolist()
    [0.1667, 0.3333, 0.5]
    """
    if growth == "linear":
        weights = alpha * numbers + 1 if alpha else numbers
    elif growth == "log":
        inner = beta * numbers + 1 if alpha and beta else numbers
        logs = np.log(inner, where=inner > 0, out=np.zeros_like(inner))
        weights = alpha * logs + 1 if alpha else logs
    else:
        top = float((beta * numbers).max())  # taken out, so that a long model does not overflow
        weights = np.exp(beta * numbers - top)
        weights = alpha * weights + np.exp(-top) if alpha else weights
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise UserError(
            f"growth={growth!r} with alpha={alpha} and beta={beta} gives weights that are negative or not finite; "
            "use an alpha and a beta of 0 or more."
        )
    total = float(weights.sum())
    return weights / total if total > 0 else np.full(len(numbers), 1 / len(numbers))


@register
class Dissector(Supervisor):
    """Suspicious = the layers of the model do not support its answer.

    Formula and sources are in the module's description. The sub-models learn the true labels if `fit` is given any
    (images labelled -1 are left out), else the model's predictions.

    Cost: one product of an image's activations with a (d, K) matrix per layer; the observation
    holds 4 * (sum of d) bytes per image, at most 32 KiB for the automatic layers. Fitting trains one softmax regression
    per layer.

    Good at: images on which early layers support another class, such as out-of-distribution, corrupted and
    adversarial ones; it also detects ambiguity, since the last layer is the model's own softmax. Bad at: models with so
    few or such narrow layers that sub-models are no better than chance.

    Args:
        layers: `"auto"`: a quarter, a half and three quarters of the way through the model, and the penultimate layer;
            (in a model of few layers these may be the same one, which then counts twice); or a layer or `Trace`, or a
            list of them, first to last. Layers given by name are averaged over a grid of positions
            that keeps d at 2,048 or less (`Trace(layer, "grid")`; `"flatten"` in legacy mode).
        mode: `"paper"` or `"legacy"`.
        growth: of the weights with the depth: `"linear"`, `"log"` or `"exp"`.
        alpha: of the growth.
        beta: of the growth.
        epochs: the most passes over the images for a sub-model.
        batch_size: images per step.
        patience: epochs without progress after which a sub-model stops.
        seed: of the sub-models' training.
    """

    name = "dissector"

    def __init__(
        self,
        layers: Layers = "auto",
        mode: Literal["paper", "legacy"] = "paper",
        growth: Growth = "linear",  # advised for small images by the comparison
        alpha: float = 0.0,
        beta: float = 1.0,
        epochs: int = 30,
        batch_size: int = 32,
        patience: int = 2,
        seed: int = 0,
    ) -> None:
        if mode not in ("paper", "legacy"):
            raise UserError(f"The mode of the dissector is 'paper' or 'legacy', not {mode!r}.")
        if growth not in ("linear", "log", "exp"):
            raise UserError(f"The growth of the dissector's weights is 'linear', 'log' or 'exp', not {growth!r}.")
        if min(epochs, batch_size, patience) < 1:
            raise UserError(
                f"epochs={epochs}, batch_size={batch_size} and patience={patience} were given to the dissector; each "
                "must be at least 1."
            )
        self.layers = list(layers) if isinstance(layers, tuple) else layers  # a saved file holds lists only
        self.mode = mode
        self.growth = growth
        self.alpha = alpha
        self.beta = beta
        self.epochs = epochs
        self.batch_size = batch_size
        self.patience = patience
        self.seed = seed
        self._weights()

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the chosen layers, first to last."""
        layers = AUTO if self.layers == "auto" else self.layers
        chosen = [layers] if isinstance(layers, str | Trace) else layers
        if not chosen:
            raise UserError("No layer was chosen for the dissector; name at least one, or leave layers='auto'.")
        reduce: Literal["flatten", "grid"] = "flatten" if self.mode == "legacy" else "grid"
        return tuple(one if isinstance(one, Trace) else Trace(one, reduce) for one in chosen)

    @property
    def needs(self) -> Needs:
        """The traces of the chosen layers."""
        return Needs(traces=frozenset(self.traces))

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        known = np.zeros(0, dtype=np.int64) if labels is None else np.flatnonzero(np.asarray(labels) >= 0)
        classes = np.asarray(labels, dtype=np.int64) if len(known) else observation.predictions
        rows = known if len(known) else np.arange(len(observation))
        if classes.max() >= observation.num_classes:
            raise UserError(
                f"The labels go up to {classes.max()}, but the model has {observation.num_classes} classes (0 to "
                f"{observation.num_classes - 1}); the data and the model must agree on the classes."
            )
        recipe = SubmodelRecipe(self.epochs, self.batch_size, self.patience, self.seed, self.mode == "legacy")
        learnt, total = [], len(self.traces) * self.epochs
        for number, trace in enumerate(self.traces):
            done = partial(self._reported, number * self.epochs, total)
            learnt.append(
                train_submodel(observation.trace(trace), classes, rows, observation.num_classes, recipe, done)
            )
        self.weights_ = {str(number): weights for number, (weights, _) in enumerate(learnt)}
        self.biases_ = np.stack([biases for _, biases in learnt])

    def _reported(self, before: int, total: int, epoch: int) -> None:
        """Report an epoch of a sub-model; one that stops early was expected to take all of them."""
        self._advance(before + epoch, total)

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        return np.asarray(-(self.supports(observation) @ self._weights()))

    def _graph(self) -> ScoreGraph:
        import torch

        from secondguess.supervisors.graph import Graph

        traces, paper = self.traces, self.mode == "paper"

        def validity(
            seen: Tensors, shares: torch.Tensor, biases: torch.Tensor, **weights: torch.Tensor
        ) -> torch.Tensor:
            own = torch.nn.functional.one_hot(seen.predictions, seen.probabilities.shape[1]).bool()
            values = []
            for number, trace in enumerate(traces):
                logits = seen.traces[trace] @ weights[f"weights{number}"] + biases[number]
                lead = logits.masked_fill(~own, -torch.inf).amax(1) - logits.masked_fill(own, -torch.inf).amax(1)
                values.append(torch.where(torch.isfinite(logits).all(1), lead.sigmoid(), torch.zeros_like(lead)))
            if paper:
                top = seen.probabilities.topk(2, dim=1).values
                values.append(top[:, 0] / top.sum(1))
            return -(torch.stack(values, dim=1) @ shares)

        learnt = {f"weights{number}": self.weights_[str(number)] for number in range(len(traces))}
        return Graph(validity, shares=self._weights(), biases=self.biases_, **learnt)

    def supports(self, observation: Observation) -> NDArray[np.float64]:
        """The support values (n, L) of the prediction by each layer, first to last, in [0, 1].

        Activations that hold NaN or infinity support nothing.
        """
        predictions = observation.predictions
        values = [support(self._logits(observation, number), predictions) for number in range(len(self.traces))]
        if self.mode == "paper":
            top_two = np.partition(observation.probabilities, -2, axis=1)[:, -2:]
            values.append(top_two[:, 1] / top_two.sum(axis=1))
        return np.nan_to_num(np.stack(values, axis=1), nan=0.0)

    def _logits(self, observation: Observation, number: int) -> NDArray[np.float64]:
        trace = self.traces[number]
        activations, weights = observation.trace(trace), self.weights_[str(number)]
        if activations.shape[1] != len(weights):
            raise UserError(
                f"The dissector was fitted on {len(weights)} activations of {str(trace)!r}, but this observation has "
                f"{activations.shape[1]}; observe the model that it was fitted on."
            )
        logits = class_logits(activations, weights, self.biases_[number])
        logits[~np.isfinite(logits).all(axis=1)] = np.nan
        return logits

    def _weights(self) -> NDArray[np.float64]:
        """The share of each layer; in paper mode one more than there are sub-models."""
        paper = self.mode == "paper"
        numbers = np.arange(len(self.traces) + paper, dtype=np.float64) + paper
        return growing_weights(numbers, self.growth, self.alpha, self.beta)
