"""The optimisers of the papers' recipes, with Keras' constants.

Departure: PyTorch's Adam adds eps after the bias correction of the second moment and Keras before it; with
eps 1e-7 the difference is far below the noise between two seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from secondguess.errors import UserError

__all__ = ["Decay", "Optimisation", "OptimiserName"]

OptimiserName = Literal["adam", "sgd", "adadelta", "rmsprop"]
Decay = Literal["all", "kernels", "convolutions"]

_DECAYING: dict[str, tuple[type[nn.Module], ...]] = {
    "kernels": (nn.Conv2d, nn.Linear),
    "convolutions": (nn.Conv2d,),
}


@dataclass(frozen=True)
class Optimisation:
    """An optimiser with its constants; see `secondguess.training.train` for their meaning."""

    optimiser: OptimiserName = "adam"
    lr: float = 1e-3
    eps: float = 1e-7
    momentum: float = 0.0
    nesterov: bool = False
    rho: float | None = None
    weight_decay: float = 0.0
    decay: Decay = "all"
    halve_every: int | None = None

    def __post_init__(self) -> None:
        if self.optimiser not in ("adam", "sgd", "adadelta", "rmsprop"):
            raise UserError(f"There is no optimiser {self.optimiser!r}; use 'adam', 'sgd', 'adadelta' or 'rmsprop'.")
        if self.decay not in ("all", *_DECAYING):
            raise UserError(f"decay is {self.decay!r}; use 'all', 'kernels' or 'convolutions'.")
        if not self.lr > 0:
            raise UserError(f"The learning rate is {self.lr}, but it must be greater than 0.")
        if self.weight_decay < 0 or self.eps < 0 or not 0 <= self.momentum < 1:
            raise UserError("weight_decay and eps must not be negative, and momentum must lie in [0, 1).")
        if self.nesterov and self.momentum == 0:
            raise UserError("nesterov=True needs a momentum greater than 0.")
        if self.halve_every is not None and self.halve_every < 1:
            raise UserError(f"halve_every is {self.halve_every}, but it counts epochs: give at least 1, or None.")

    def build(
        self, parameters: Iterable[tuple[str, Tensor]], model: nn.Module, *, recordable: bool = False
    ) -> torch.optim.Optimizer:
        """An optimiser over named parameters, which are those of `model` or stacks of them under the same names.

        A recordable one counts its steps on the device, so that a replay continues the count.
        """
        named = dict(parameters)
        decaying = set(named)
        if self.decay != "all":
            kinds = _DECAYING[self.decay]
            decaying = {f"{name}.weight" for name, layer in model.named_modules() if isinstance(layer, kinds)}
        groups: list[dict[str, Any]] = [
            {
                "params": [p for name, p in named.items() if name in decaying],
                "weight_decay": self.weight_decay,
            },
            {"params": [p for name, p in named.items() if name not in decaying], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        if self.optimiser == "adam":
            # Fused: one kernel for all parameters instead of a dozen passes over them.
            return torch.optim.Adam(groups, lr=self.lr, eps=self.eps, capturable=recordable, fused=recordable or None)
        if self.optimiser == "sgd":
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)
        if self.optimiser == "adadelta":
            rho = 0.95 if self.rho is None else self.rho
            return torch.optim.Adadelta(groups, lr=self.lr, rho=rho, eps=self.eps, capturable=recordable)
        alpha = 0.9 if self.rho is None else self.rho
        return torch.optim.RMSprop(
            groups, lr=self.lr, alpha=alpha, eps=self.eps, momentum=self.momentum, capturable=recordable
        )

    def start_epoch(self, optimiser: torch.optim.Optimizer, epoch: int) -> bool:
        """Set the learning rate of the epoch, counted from 0; return whether it changed."""
        halvings = 0 if self.halve_every is None else epoch // self.halve_every
        rate = self.lr * 0.5**halvings
        changed = any(group["lr"] != rate for group in optimiser.param_groups)
        for group in optimiser.param_groups:
            group["lr"] = rate
        return changed
