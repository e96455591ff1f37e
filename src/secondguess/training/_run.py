"""The loop inside `train`: the state of one training, and one epoch of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from secondguess.devices import seed_rng
from secondguess.errors import UserError
from secondguess.training._checkpoint import SavedState, copy_state
from secondguess.training._examples import Examples, derive_seed, epoch_batches
from secondguess.training._loss import example_losses, hits
from secondguess.training._optimiser import Optimisation
from secondguess.training._replay import Step, prepared

__all__ = ["Monitor", "Run", "deterministic", "laid_out"]

Monitor = Literal["validation_loss", "validation_accuracy"]

EVALUATION_BATCH = 512


class Run:
    """The state of one training between its epochs."""

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        held_out: Examples | None,
        optimisation: Optimisation,
        batch_size: int,
        seed: int,
        monitor: Monitor | None,
        *,
        replay: bool = False,
    ) -> None:
        self.model = model
        self.examples = examples
        self.held_out = held_out
        self.optimisation = optimisation
        self.replay = replay
        self.optimiser = optimisation.build(model.named_parameters(), model, recordable=replay)
        self._step = self._prepared()
        self.batch_size = batch_size
        self.seed = seed
        self.monitor = monitor
        self.rows: list[dict[str, float]] = []
        self.best: dict[str, Tensor] | None = None
        self.alive: Callable[[], None] = lambda: None  # called after every step

    def settings(self) -> dict[str, Any]:
        """Everything that determines the weights after an epoch, as JSON; to be read before the first epoch."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}
        return {
            **asdict(self.optimisation),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "monitor": self.monitor,
            "model": hashlib.sha256(f"{self.model}{shapes}".encode()).hexdigest()[:16],
            "initial_weights": hashlib.sha256(save(copy_state(self.model))).hexdigest()[:16],
            "data": self.examples.fingerprint,
            "validation": None if self.held_out is None else self.held_out.fingerprint,
        }

    def take_up(self, saved: SavedState, epochs: int) -> None:
        """Continue from a saved state."""
        if len(saved.history) > epochs:
            raise UserError(
                f"The checkpoint is already at epoch {len(saved.history)} of the {epochs} asked for; ask for more "
                "epochs, or pass resume=False to start afresh."
            )
        self.rows, self.best = saved.history, saved.best

    @property
    def best_epoch(self) -> int | None:
        """The best epoch so far, counted from 1; the first of equals; None where the last one counts."""
        if self.monitor is None or not self.rows:
            return None
        values = [row[self.monitor] for row in self.rows]
        return 1 + int(np.argmin(values) if self.monitor == "validation_loss" else np.argmax(values))

    def out_of(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought no improvement."""
        return patience is not None and len(self.rows) - (self.best_epoch or 0) >= patience

    def epoch(self) -> dict[str, float]:
        """Train for one epoch and return its row."""
        number = len(self.rows)
        seed_rng(derive_seed(self.seed, number), self.examples.device)
        if self.optimisation.start_epoch(self.optimiser, number):
            self._step = self._prepared()
        batches = epoch_batches(self.seed, number, len(self.examples), self.batch_size)
        loss, accuracy = self._pass_over(self.examples, batches, self._step, learn=True)
        row = {"loss": loss, "accuracy": accuracy}
        if self.held_out is not None:
            batches = np.array_split(np.arange(len(self.held_out)), -(-len(self.held_out) // EVALUATION_BATCH))
            row["validation_loss"], row["validation_accuracy"] = self._pass_over(
                self.held_out, batches, partial(_look, self.model), learn=False
            )
        if not np.isfinite(list(row.values())).all():
            suspect = self.examples if self.held_out is None or not np.isfinite(loss) else self.held_out
            raise suspect.diverged(number + 1, self.optimisation.lr)
        self.rows.append(row)
        if self.best_epoch == len(self.rows):
            self.best = copy_state(self.model)
        return row

    def _prepared(self) -> Step:
        return prepared(partial(_learn, self.model, self.optimiser), replay=self.replay)

    def _pass_over(
        self, examples: Examples, batches: list[NDArray[np.int64]], step: Step, *, learn: bool
    ) -> tuple[float, float]:
        """One pass; the mean loss and the accuracy, read from the device only once, at the end."""
        self.model.train(learn)
        layout = _memory_format(self.model)
        losses, correct = [], []
        with torch.set_grad_enabled(learn):
            for index in batches:
                images = examples.images_at(index).contiguous(memory_format=layout)
                targets = examples.targets_at(index)
                loss, right = step(images, targets)
                losses.append(loss * len(index))
                self.alive()
                correct.append(right)
        total_loss = torch.stack(losses).cpu().double().sum()
        return float(total_loss) / len(examples), float(torch.stack(correct).sum()) / len(examples)


def _learn(model: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """One step; the mean loss of the batch before it, and how many of its images were right."""
    logits = model(images)
    loss = example_losses(logits, targets).mean()
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    optimiser.step()
    return loss.detach(), hits(logits.detach(), targets).sum()


def _look(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """The mean loss of a batch, and how many of its images are right."""
    logits = model(images)
    return example_losses(logits, targets).mean(), hits(logits, targets).sum()


@contextmanager
def deterministic() -> Iterator[None]:
    """Let cuDNN choose only algorithms that give the same result every time."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


@contextmanager
def laid_out(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put the model on the device in the layout that is fastest there; leave it contiguous, in evaluation mode."""
    model.to(device)
    model.to(memory_format=_memory_format(model))  # type: ignore[call-overload]
    try:
        yield
    finally:
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        model.eval()


def _memory_format(model: nn.Module) -> torch.memory_format:
    """The memory layout of the model: convolutions run faster on a processor with the channels last."""
    convolves = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    return torch.channels_last if convolves else torch.contiguous_format
