"""Many models of one architecture as a single computation.

The parameters of M models are stacked, each (…) into (M, …), and the forward pass is vectorised over that
axis. The loss is summed over the members, so the gradient of each is its own, and an optimiser that works
element by element on the stacks is M independent optimisers.

A convolution vectorised over its weights becomes a grouped convolution. `secondguess bench fleet` measures the speed of
a stack on your machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from secondguess.devices import seed_rng
from secondguess.training._examples import Examples, derive_seed, epoch_batches
from secondguess.training._loss import example_losses
from secondguess.training._optimiser import Optimisation
from secondguess.training._replay import prepared

__all__ = ["Stack", "normalises"]


class Stack:
    """Models of one architecture, stacked on a device.

    Args:
        models: all of the same layers; they are put in evaluation mode, and keep their weights until
            `write_back`.
        device: where to compute.
    """

    def __init__(self, models: Sequence[nn.Module], device: torch.device) -> None:
        self.models = models
        self.device = device
        parameters, buffers = stack_module_state([model.eval() for model in models])
        self.parameters = {k: v.detach().to(device).requires_grad_() for k, v in parameters.items()}
        self.buffers = {k: v.to(device) for k, v in buffers.items()}
        self.template = copy.deepcopy(models[0]).to("meta")

    def write_back(self) -> None:
        """Copy the stacked weights into the models."""
        for member, model in enumerate(self.models):
            state = {**self.parameters, **self.buffers}
            model.load_state_dict({name: stacked[member].detach() for name, stacked in state.items()})
            model.eval()

    def fit(
        self,
        examples: Examples,
        parts: Sequence[NDArray[np.int64]],
        seeds: Sequence[int],
        optimisation: Optimisation,
        batch_size: int,
        epochs: int,
        after_epoch: Callable[[int, NDArray[np.float64]], None],
        *,
        replay: bool = False,
    ) -> None:
        """Train all members for `epochs` epochs, each on its part of the examples in the order of its seed.

        The parts must take the same number of steps; where their last batches differ in size, the smaller
        ones are padded with examples of weight zero. `replay` records the step (see `_replay`).
        """
        self.template.train()
        optimiser = optimisation.build(self.parameters.items(), self.template, recordable=replay)
        members = vmap(self._member_loss, randomness="different")

        def learnt(images: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
            losses = members(self.parameters, self.buffers, images, targets, weights)
            optimiser.zero_grad()
            torch.autograd.backward(losses.sum())
            optimiser.step()
            return (losses.detach(),)

        step = prepared(learnt, replay=replay)
        sizes = torch.tensor([len(part) for part in parts], device=self.device)
        for epoch in range(epochs):
            seed_rng(derive_seed(seeds[0], epoch), self.device)
            if optimisation.start_epoch(optimiser, epoch):
                step = prepared(learnt, replay=replay)
            batches = [epoch_batches(s, epoch, len(p), batch_size) for s, p in zip(seeds, parts, strict=True)]
            total = torch.zeros(len(parts), device=self.device)
            for indices in zip(*batches, strict=True):
                images, targets, weights = _stack_batch(examples, parts, indices)
                (losses,) = step(images, targets, weights)
                total += losses * weights.sum(dim=1)
            after_epoch(epoch, (total / sizes).cpu().double().numpy())

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """The logits (M, n, K) of every member in evaluation mode for the same images (n, C, H, W)."""
        self.template.eval()

        def member_logits(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            output: Tensor = functional_call(self.template, (parameters, buffers), (images,))
            return output

        output: Tensor = vmap(member_logits)(self.parameters, self.buffers)
        return output

    def _member_loss(
        self,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        images: Tensor,
        targets: Tensor,
        weights: Tensor,
    ) -> Tensor:
        logits = functional_call(self.template, (parameters, buffers), (images,))
        return (example_losses(logits, targets) * weights).sum() / weights.sum()


def _stack_batch(
    examples: Examples, parts: Sequence[NDArray[np.int64]], indices: Sequence[NDArray[np.int64]]
) -> tuple[Tensor, Tensor, Tensor]:
    """One batch of every member: images (M, B, C, H, W), targets (M, B) or (M, B, K), weights (M, B)."""
    width = max(map(len, indices))
    padded = np.stack([np.pad(index, (0, width - len(index)), mode="edge") for index in indices])
    weights = np.stack([np.arange(width) < len(index) for index in indices])
    chosen = np.stack([part[row] for part, row in zip(parts, padded, strict=True)])
    images, targets = examples.images_at(chosen.ravel()), examples.targets_at(chosen.ravel())
    return (
        images.reshape(*chosen.shape, *images.shape[1:]),
        targets.reshape(*chosen.shape, *targets.shape[1:]),
        torch.from_numpy(weights).to(images),
    )


def normalises(model: nn.Module) -> bool:
    """Whether the model has batch normalisation, which is affected even by padding of weight zero."""
    return any(isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for layer in model.modules())
