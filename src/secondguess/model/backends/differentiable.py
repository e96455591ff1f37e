"""A model as a torch module from pixels to logits, for methods that follow gradients.

Attacks need logits. A softmax that is certain rounds to ones and zeros and its gradient to nothing, so a model that
returns probabilities would seem to withstand every attack. Where the output comes straight out of a softmax or sigmoid,
what went in is taken instead; elsewhere a probability p becomes log p, which is a logit too but flat where p is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from secondguess.model.outputs import Convention, detect

__all__ = ["Differentiable", "frozen"]

SQUASHES = ("softmax", "softmax.int", "_softmax.default", "sigmoid", "sigmoid.default")


class Differentiable(nn.Module):
    """Maps pixels (n, C, H, W) in [0, 1] to logits (n, K).

    Args:
        run: normalised images -> raw output, with gradients.
        mean: subtracted from the pixels, one number or one per channel.
        std: what the difference is divided by.
        convention: what the raw output is; None finds it out on the first batch.
        device: where the model is; the pixels must be there too.
        kept: places of the classes that are kept; all if left out.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        run: Callable[[torch.Tensor], torch.Tensor],
        mean: NDArray[np.float32],
        std: NDArray[np.float32],
        convention: Convention | None,
        device: torch.device | str,
        kept: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.device = torch.device(device)
        self._run = run
        self._convention = convention
        self._kept = kept
        for name, numbers in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.from_numpy(numbers.reshape(-1, 1, 1)).to(device))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, K); a single score per image is that of the second of two classes."""
        logits = self._logits(images)
        return logits if self._kept is None else logits[:, self._kept]

    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        with _LastSquash() as last:
            raw = self._run((images - self.mean) / self.std)
        convention = self._convention
        if convention != "logits" and last.result is raw and last.fed is not None:
            raw, convention = last.fed, "logits"
        raw = raw.reshape(len(images), -1)
        if convention is None:
            convention = self._convention = detect(raw.detach().cpu().numpy())
        if convention == "logits":
            return torch.cat([torch.zeros_like(raw), raw], dim=1) if raw.shape[1] == 1 else raw
        if raw.shape[1] == 1:
            raw = torch.cat([1 - raw, raw], dim=1)
        return raw.clamp_min(torch.finfo(raw.dtype).tiny).log()


class _LastSquash(TorchFunctionMode):
    """Remembers what the last softmax or sigmoid was fed and what it returned."""

    fed: torch.Tensor | None = None
    result: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in SQUASHES:
            self.fed, self.result = args[0] if args else None, result
        return result


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let no gradient reach the weights: they keep their own, and the backward pass is faster."""
    learning = [weight for weight in module.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)
