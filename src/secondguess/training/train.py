"""Train one classifier: deterministic by seed, resumable to the bit, with optional early stopping.

All random numbers of epoch e (the order of the images, dropout) are drawn from (seed, e) alone. Nothing is
carried over from epoch to epoch but the weights and the optimiser's moments, so a run that is interrupted and
taken up again ends with the weights of one that was not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess.devices import isolated_rng, pick_device
from secondguess.errors import UserError
from secondguess.progress import Heartbeat, Progress, shown
from secondguess.training._checkpoint import Checkpoint
from secondguess.training._examples import Examples, Images, check_schedule, derive_seed
from secondguess.training._optimiser import Decay, Optimisation, OptimiserName
from secondguess.training._run import Monitor, Run, deterministic, laid_out

__all__ = ["TrainingHistory", "train"]

Validation = float | tuple[Images, NDArray[Any]]


@dataclass(frozen=True)
class TrainingHistory:
    """How a training went.

    Attributes:
        rows: for every epoch its `loss` and `accuracy` on the training images (as seen while training,
            dropout on) and, with validation data, `validation_loss` and `validation_accuracy` after it.
        kept_epoch: the epoch, counted from 1, whose weights the model has now.
        stopped_early: whether patience ran out before the last epoch.
    """

    rows: tuple[dict[str, float], ...]
    kept_epoch: int
    stopped_early: bool

    def column(self, name: str) -> list[float]:
        """One quantity over the epochs, such as `"loss"`."""
        return [row[name] for row in self.rows]


def train(
    model: nn.Module,
    images: Images,
    labels: NDArray[Any],
    *,
    epochs: int = 15,
    batch_size: int = 128,
    lr: float = 1e-3,
    optimiser: OptimiserName = "adam",
    eps: float = 1e-7,
    momentum: float = 0.0,
    nesterov: bool = False,
    rho: float | None = None,
    weight_decay: float = 0.0,
    decay: Decay = "all",
    halve_every: int | None = None,
    validation: Validation | None = None,
    monitor: Monitor = "validation_loss",
    patience: int | None = None,
    keep_best: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    checkpoint: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> TrainingHistory:
    """Train `model` in place with cross-entropy and leave it in evaluation mode on the device.

    Args:
        model: maps images (n, C, H, W) to logits (n, K); with K = 1 the logit of class 1 against class 0.
        images: n images; `images[index]` gives float32 (m, C, H, W) in [0, 1]: a numpy array or an image
            source.
        labels: int (n,), or soft: probabilities (n, K).
        epochs: passes over the images.
        batch_size: images per step. A single image left over at the end joins the batch before it.
        lr: learning rate.
        optimiser: `"adam"`, `"sgd"`, `"adadelta"` or `"rmsprop"`.
        eps: the term in the denominator of the adaptive optimisers; the default is Keras'.
        momentum: of `"sgd"` and `"rmsprop"`.
        nesterov: whether the momentum of `"sgd"` is Nesterov's.
        rho: how much of their past the averages of `"adadelta"` (default .95) and `"rmsprop"` (default .9)
            keep.
        weight_decay: added to the gradient, times the weight.
        decay: which parameters decay: `"all"`, the `"kernels"` of convolutions and dense layers, or those of
            `"convolutions"`.
        halve_every: halve the learning rate each time this number of epochs has passed.
        validation: held-out data as a pair (images, labels), or the share of the images to hold out, drawn by
            `seed`.
        monitor: the criterion of a better epoch: a lower `"validation_loss"` or a higher `"validation_accuracy"`.
        patience: stop after this number of epochs without a better one, and end with the weights of the best.
        keep_best: end with the weights of the best epoch even without patience.
        seed: the same seed gives the same weights on the same device; torch's global random state is left
            alone.
        device: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` or `"mps"`.
        checkpoint: a folder for the state after every epoch. Called again with the same settings, the
            training goes on from there and ends with the same weights; asking for more epochs than before is
            allowed.
        resume: False ignores a state in that folder and replaces it.
        progress: where to report the epochs done, each once it is saved; by default a bar in a notebook.

    Returns:
        The history, including epochs that were done before an interruption.

    Raises:
        UserError: for data that cannot be trained on, a loss that is no longer finite, or a checkpoint of
            another training.
    """
    optimisation = Optimisation(optimiser, lr, eps, momentum, nesterov, rho, weight_decay, decay, halve_every)
    check_schedule(epochs, batch_size, seed)
    keep_best = keep_best or patience is not None
    _check_stopping(validation, monitor, patience, keep_best)
    where = pick_device(device)
    examples, held_out = _split(Examples(images, labels, where), validation, seed)
    with isolated_rng(where), deterministic(), laid_out(model, where):
        for part in (examples, held_out):
            if part is not None:
                part.check_against(model)
        examples.check_learnable()
        run = Run(model, examples, held_out, optimisation, batch_size, seed, monitor if keep_best else None)
        store = None
        if checkpoint is not None:
            store = Checkpoint(Path(checkpoint), run.settings())
            if resume:
                run.take_up(store.load(model, run.optimiser), epochs)
        with shown(progress).task("Training", epochs) as advance:
            run.alive = Heartbeat(lambda: advance(len(run.rows), epochs))
            while len(run.rows) < epochs and not run.out_of(patience):
                run.epoch()
                if store is not None:
                    store.save(run.rows, model, run.optimiser, run.best_epoch, run.best)
                advance(len(run.rows), epochs)
        if run.best is not None:
            model.load_state_dict(run.best)
    return TrainingHistory(tuple(run.rows), run.best_epoch or len(run.rows), len(run.rows) < epochs)


def _split(examples: Examples, validation: Validation | None, seed: int) -> tuple[Examples, Examples | None]:
    """The examples to train on, and those to validate on."""
    if validation is None:
        return examples, None
    if isinstance(validation, tuple):
        return examples, Examples(*validation, examples.device)
    held_out = round(validation * len(examples))
    if not 0 < held_out < len(examples):
        raise UserError(
            f"A share of {validation} of {len(examples)} images leaves {held_out} to validate on and "
            f"{len(examples) - held_out} to train on; give a share that leaves some of both."
        )
    order = np.random.default_rng(derive_seed(seed, 0, 1)).permutation(len(examples))
    return examples.subset(np.sort(order[held_out:])), examples.subset(np.sort(order[:held_out]))


def _check_stopping(validation: Validation | None, monitor: str, patience: int | None, keep_best: bool) -> None:
    if monitor not in ("validation_loss", "validation_accuracy"):
        raise UserError(f"monitor is {monitor!r}; use 'validation_loss' or 'validation_accuracy'.")
    if keep_best and validation is None:
        raise UserError("patience and keep_best need validation data; pass validation=0.1, say.")
    if patience is not None and patience < 1:
        raise UserError(f"patience is {patience}, but it counts epochs: give at least 1, or None.")
