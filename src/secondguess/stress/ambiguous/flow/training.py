"""Training of a conditional flow (Lipman et al., "Flow matching for generative modeling", 2023; rectified flow).

With an image x, noise z from a standard normal distribution and t = sigmoid(normal),

    x_t = (1 - t) z + t x          loss = mean |v(x_t, t, y) - (x - z)|^2

and in a tenth of the cases y is "no class". What is kept is an exponential moving average of the weights. The learning
rate rises in the first steps and falls linearly to zero over the last third.

Everything random in a step is drawn from (seed, step), so that a training that is taken up again gives what an
uninterrupted one gives. A batch that does not fit into the memory of a GPU is learnt from in parts, whose gradients add
up to those of the whole.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.devices import compile_network, isolated_rng, seed_rng
from secondguess.errors import UserError
from secondguess.files import write_bytes
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.flow.fields import VelocityField
from secondguess.stress.ambiguous.flow.network import Architecture, FlowNetwork
from secondguess.stress.ambiguous.flow.pixels import flattened_digest, from_padded, to_padded
from secondguess.stress.ambiguous.flow.sampling import integrate, noise_of
from secondguess.stress.ambiguous.gan_training import sample_sheet
from secondguess.training._checkpoint import Checkpoint, copy_state
from secondguess.training._examples import derive_seed

__all__ = ["Schedule", "train_flow"]

SHOWN = 128  # images of a sheet


@dataclass(frozen=True)
class Schedule:
    """How a flow is trained.

    Attributes:
        steps: of the optimiser.
        batch_size: images per step.
        lr: the highest learning rate of AdamW.
        warm_up: steps until it is reached.
        decay: share of the steps, the last ones, over which it falls to zero.
        average: decay of the moving average; shorter in the beginning.
        unconditional: share of the images whose class is hidden.
        flips: whether images are mirrored at random, which is right for photographs and wrong for digits.
        seed: of everything random.
    """

    steps: int
    batch_size: int = 512
    lr: float = 4e-4
    warm_up: int = 200
    decay: float = 0.3
    average: float = 0.999
    unconditional: float = 0.1
    flips: bool = False
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = min(1.0, (step + 1) / max(1, self.warm_up))
        falling = min(1.0, (self.steps - step) / max(1.0, self.decay * self.steps))
        return self.lr * rising * falling

    def average_at(self, step: int) -> float:
        """The decay of the moving average after a step."""
        return min(self.average, (1 + step) / (10 + step))


def train_flow(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    architecture: Architecture,
    schedule: Schedule,
    *,
    device: torch.device,
    folder: Path | None = None,
    save_every: int = 1000,
    progress: Progress | None = None,
) -> tuple[FlowNetwork, list[dict[str, float]]]:
    """Train one flow; taken up again where the folder holds an unfinished state of the same training.

    Args:
        images: uint8 (n, C, H, W).
        labels: (n,), all known.
        architecture: of the network.
        schedule: of the training.
        device: where to train.
        folder: where the state is kept, and a sheet of samples with each; None keeps nothing.
        save_every: steps between two states.
        progress: where to report.

    Returns:
        The averaged network in evaluation mode, and the mean loss of every `save_every` steps.
    """
    with isolated_rng(device):
        seed_rng(derive_seed(schedule.seed), device)
        run = _Run(FlowNetwork(architecture).to(device), schedule, images, labels, device)
        checkpoint = None
        if folder is not None:
            checkpoint = Checkpoint(folder, run.settings(save_every))
            run.take_up(checkpoint)
        with (progress or Silent()).task("Training the flow", schedule.steps) as advance:
            while run.step < schedule.steps:
                run.round(min(schedule.steps, (len(run.rows) + 1) * save_every), advance)
                if checkpoint is not None:
                    rounds = len(run.rows)
                    checkpoint.save(run.rows, run.network, run.optimiser, rounds, copy_state(run.average))
                    write_bytes(checkpoint.folder / f"samples-{run.step:06}.png", _sheet(run.average))
    return run.average.eval(), run.rows


def _sheet(network: FlowNetwork) -> bytes:
    """A PNG of plain samples, one class after another: what has been learnt so far."""
    field, shape = VelocityField(network, compiled=False), network.architecture.padded
    classes = (torch.arange(SHOWN) % network.nothing).to(field.device)[:, None]
    noise, whole = noise_of(SHOWN, shape, 0, field.device), torch.ones(SHOWN, 1, device=field.device)
    images = integrate(field, network.nothing, noise, classes, whole, guidance=1.5, steps=12)
    return sample_sheet(torch.from_numpy(from_padded(images, network.architecture)) / 255)


class _Run:
    """The state of one training between its rounds."""

    def __init__(
        self,
        network: FlowNetwork,
        schedule: Schedule,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64],
        device: torch.device,
    ) -> None:
        self.network = network.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = copy.deepcopy(network).requires_grad_(False)
        self.schedule, self.device = schedule, device
        self.data = flattened_digest(images, labels)
        self.images = to_padded(images, network.architecture).to(device)
        self.labels = torch.from_numpy(labels).to(device)
        # The fused optimiser wants its step on the device; moments are saved and loaded either way.
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=schedule.lr, betas=(0.9, 0.99), weight_decay=0.0, fused=device.type == "cuda"
        )
        self.forward: Any = compile_network(network) if device.type == "cuda" else network
        self.rows: list[dict[str, float]] = []
        self.step, self.parts = 0, 1

    def settings(self, save_every: int) -> dict[str, Any]:
        """What determines the result."""
        return {
            "architecture": self.network.architecture.to_dict(),
            "schedule": asdict(self.schedule),
            "data": self.data,
            "save_every": save_every,
        }

    def take_up(self, checkpoint: Checkpoint) -> None:
        """Continue from a saved state, where there is one."""
        saved = checkpoint.load(self.network, self.optimiser)
        if saved.best is not None:
            self.average.load_state_dict(saved.best)
            self.rows = saved.history
            self.step = int(self.rows[-1]["step"])

    def round(self, until: int, advance: Any) -> None:
        """Train until a step and note the mean loss of these steps."""
        total, begun = torch.zeros((), device=self.device), self.step
        while self.step < until:
            total += self._learn()
            self.step += 1
            advance(self.step, self.schedule.steps)
        loss = float(total) / (self.step - begun)
        if not np.isfinite(loss):
            raise UserError(
                f"The loss of the flow is no longer a finite number after step {self.step}; lower the learning rate "
                f"(it is {self.schedule.lr})."
            )
        self.rows.append({"step": float(self.step), "loss": loss})

    def _learn(self) -> Tensor:
        schedule = self.schedule
        seed_rng(derive_seed(schedule.seed, self.step), self.device)
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.rate(self.step)
        x, weights = self._batch()
        z, t = torch.randn_like(x), torch.sigmoid(torch.randn(len(x), device=self.device))
        at = t[:, None, None, None]
        noisy = ((1 - at) * z + at * x).contiguous(memory_format=torch.channels_last)
        loss = self._gradients(noisy, t, weights, x - z)
        self.optimiser.step()
        kept = schedule.average_at(self.step)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - kept)
        return loss

    def _gradients(self, noisy: Tensor, t: Tensor, weights: Tensor, velocity: Tensor) -> Tensor:
        """Let the parameters have the gradients of the loss, and return it."""
        while True:
            size = -(-len(noisy) // self.parts)
            total = torch.zeros((), device=self.device)
            self.optimiser.zero_grad(set_to_none=True)
            try:
                for chosen in zip(
                    *(torch.split(values, size) for values in (noisy, t, weights, velocity)), strict=True
                ):
                    with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                        found = self.forward(*chosen[:3])
                    loss = (found.float() - chosen[3]).square().mean() * (len(found) / len(noisy))
                    torch.autograd.backward(loss)
                    total += loss.detach()
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.parts *= 2
                torch.cuda.empty_cache()
                continue
            return total

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Images (n, C, H, W) in [-1, 1] and the weights (n, K + 1) of their classes."""
        schedule, count = self.schedule, len(self.images)
        size = min(schedule.batch_size, count)
        per_epoch = count // size  # what is left over of an epoch comes in another one
        epoch, place = divmod(self.step, per_epoch)
        if place == 0 or not hasattr(self, "_order"):
            order = np.random.default_rng([schedule.seed, epoch]).permutation(count)
            self._order = torch.from_numpy(order).to(self.device)
        rows = self._order[place * size : (place + 1) * size]
        x = self.images[rows].float() / 127.5 - 1
        if schedule.flips:
            mirrored = torch.rand(size, 1, 1, 1, device=self.device) < 0.5
            x = torch.where(mirrored, x.flip(3), x)
        hidden = torch.rand(size, device=self.device) < schedule.unconditional
        classes = torch.where(hidden, self.network.nothing, self.labels[rows])
        return x, torch.nn.functional.one_hot(classes, self.network.nothing + 1).to(x.dtype)
