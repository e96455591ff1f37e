"""Softmax regression on the activations of one layer: how well that layer predicts the class.

A sub-model gives the class logits x W + b of a row x of activations. It is trained with Adam (1e-3) on the mean cross
entropy; the gradient has a closed form, x^T (softmax(x W + b) - one_hot(y)) / batch, so nothing is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["SubmodelRecipe", "class_logits", "train_submodel"]

Floats = NDArray[np.float32]
Index = NDArray[np.int64]

BLOCK_BYTES = 32 << 20  # of activations in double precision at a time
ENOUGH = 20  # images below which none is held out


@dataclass(frozen=True)
class SubmodelRecipe:
    """How sub-models are trained.

    Attributes:
        epochs: the largest number of passes over the images.
        batch_size: images per step.
        patience: stop after this number of epochs without a smaller loss.
        seed: of the order of the images, and of the first weights where they are random.
        legacy: as the replication package does it: random first weights, activations as they are, the last tenth of the
            images unused, the training loss decides when to stop, and the last weights are kept. Else: weights from
            zero, activations divided by their root mean square, a random tenth decides, and its best weights are kept.
    """

    epochs: int = 30
    batch_size: int = 32
    patience: int = 2
    seed: int = 0
    legacy: bool = False


def train_submodel(
    activations: Floats,
    classes: Index,
    rows: Index,
    num_classes: int,
    recipe: SubmodelRecipe,
    done: Callable[[int], None] = lambda epoch: None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Learn the classes of images from their activations.

    Args:
        activations: (n, d), possibly memory-mapped; only the rows of a batch are read at a time.
        classes: (n,), each below `num_classes`.
        rows: the positions (m,) of the images to learn from.
        num_classes: K.
        recipe: how.
        done: called with the number of the epoch that has ended.

    Returns:
        The weights (d, K) and the biases (K,), for activations as they are given.
    """
    import torch

    learning, watched = _split(rows, recipe)
    magnitude = _root_mean_square(activations, learning)
    if not np.isfinite(magnitude):
        raise UserError(
            "The activations of the training images hold NaN or infinity, so no sub-model can be learnt from them; "
            "leave out the images that cause it or choose another layer."
        )
    scale = 1.0 if recipe.legacy else magnitude
    rng = np.random.default_rng(recipe.seed)
    bound = np.sqrt(6 / (activations.shape[1] + num_classes)) if recipe.legacy else 0.0
    start = rng.uniform(-bound, bound, (activations.shape[1], num_classes)).astype(np.float32)
    weights, biases = torch.from_numpy(start), torch.zeros(num_classes)
    optimiser = torch.optim.Adam([weights, biases], lr=1e-3, eps=1e-7)

    def losses_of(batch: Index, *, learn: bool) -> float:
        """The summed loss of a batch; with `learn`, a step is taken."""
        inputs = torch.from_numpy(activations[batch]) / scale
        targets = torch.from_numpy(classes[batch])[:, None]
        logs = torch.log_softmax(torch.addmm(biases, inputs, weights), dim=1)
        if learn:
            residuals = logs.exp().scatter_add_(1, targets, torch.full(targets.shape, -1.0)) / len(batch)
            weights.grad, biases.grad = inputs.T @ residuals, residuals.sum(dim=0)
            optimiser.step()
        return -float(logs.gather(1, targets).sum())

    best, kept, since = np.inf, (weights.clone(), biases.clone()), 0
    with torch.no_grad():
        for epoch in range(recipe.epochs):
            order = rng.permutation(learning)
            loss = sum(losses_of(batch, learn=True) for batch in _batches(order, recipe.batch_size)) / len(order)
            if len(watched):
                loss = sum(losses_of(batch, learn=False) for batch in _batches(watched, 1024)) / len(watched)
            since = 0 if loss < best else since + 1
            if since == 0 or recipe.legacy:
                kept = (weights.clone(), biases.clone())
            best = min(best, loss)
            done(epoch + 1)
            if since >= recipe.patience:
                break
    return kept[0].double().numpy() / scale, kept[1].double().numpy()


def class_logits(activations: Floats, weights: NDArray[np.float64], biases: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logits (n, K) of a sub-model with weights (d, K) and biases (K,) for activations (n, d)."""
    rows = max(1, BLOCK_BYTES // (8 * activations.shape[1]))
    starts = range(0, len(activations), rows)
    return np.concatenate([activations[i : i + rows].astype(np.float64) @ weights + biases for i in starts])


def _split(rows: Index, recipe: SubmodelRecipe) -> tuple[Index, Index]:
    """The rows to learn from, and those that decide when to stop, if any."""
    if recipe.legacy:
        return rows[: max(1, int(0.9 * len(rows)))], rows[:0]
    if len(rows) < ENOUGH:
        return rows, rows[:0]
    shuffled = np.random.default_rng([recipe.seed, 1]).permutation(rows)
    held = len(rows) // 10
    return np.sort(shuffled[held:]), np.sort(shuffled[:held])


def _root_mean_square(activations: Floats, rows: Index) -> float:
    """One number for the whole layer, so that the learning rate means the same whatever a model's activations are."""
    step = max(1, BLOCK_BYTES // (8 * activations.shape[1]))
    squares = sum(
        float(np.square(activations[batch], dtype=np.float64).mean(axis=1).sum()) for batch in _batches(rows, step)
    )
    return float(np.sqrt(squares / len(rows))) or 1.0


def _batches(rows: Index, size: int) -> list[Index]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
