"""A trained network as a function of any number of images: fixed batches, so that one compilation serves all.

Batches that do not fit into the memory of a GPU are halved, once and for all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from secondguess.devices import compile_network
from secondguess.stress.ambiguous.flow.network import FlowNetwork

__all__ = ["VelocityField"]

ON_DEVICE, ON_PROCESSOR = 2048, 256  # images of 32 x 32 pixels in a batch
FEWEST = 16  # images in a batch: where these do not fit, nothing does


class VelocityField:
    """Velocities under a trained network, in bfloat16 on CUDA.

    Args:
        network: in evaluation mode.
        compiled: whether to compile it; None compiles on CUDA.
        batch_size: images at a time; None suits the device and the size of the images.
    """

    def __init__(self, network: FlowNetwork, *, compiled: bool | None = None, batch_size: int | None = None) -> None:
        # Without gradients: a network that was read and one that was just trained share a compilation then.
        self.network = network.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device = network.table.device
        on_cuda = self.device.type == "cuda"
        _, height, width = network.architecture.padded
        usual = ON_DEVICE if on_cuda else ON_PROCESSOR
        self.batch_size = batch_size or max(32, usual * 1024 // (height * width) // 32 * 32)
        # Not dynamic: another size that the same code was compiled for, in training, would make it so.
        self._forward: Any = network
        if on_cuda if compiled is None else compiled:
            self._forward = compile_network(self.network)
        self._on_cuda = on_cuda

    @property
    def classes(self) -> int:
        """K."""
        return self.network.architecture.classes

    @torch.no_grad()
    def __call__(self, x: Tensor, t: Tensor, labels: Tensor) -> Tensor:
        """Velocities (n, C, H, W) at x and t (n,), for classes (n,); K stands for no class.

        Classes may also be weights (n, K + 1) of their embeddings.
        """
        weights = labels if labels.ndim == 2 else torch.nn.functional.one_hot(labels, self.classes + 1)
        weights = weights.to(x.dtype)
        parts: list[Tensor] = []
        while (start := sum(map(len, parts))) < len(x):
            try:
                parts.append(self._batch(*(values[start : start + self.batch_size] for values in (x, t, weights))))
            except torch.OutOfMemoryError:
                if self.batch_size <= FEWEST:
                    raise
                self.batch_size //= 2
                torch.cuda.empty_cache()
        return torch.cat(parts) if parts else x[:0]

    def _batch(self, x: Tensor, t: Tensor, weights: Tensor) -> Tensor:
        missing = self.batch_size - len(x) if self._on_cuda else 0
        if missing:  # a batch of another size would be compiled anew
            x, t, weights = (torch.cat([one, one[:1].expand(missing, *one.shape[1:])]) for one in (x, t, weights))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._on_cuda):
            velocity = self._forward(x.contiguous(memory_format=torch.channels_last), t, weights)
        return velocity[: len(velocity) - missing].float()
