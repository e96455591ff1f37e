"""The attacks, through foolbox, in the L-infinity norm and with its defaults.

    fgsm      x + ε sign ∇L                                    one step                 Goodfellow et al. 2015
    bim       ten steps of ε/5, each back into the ball        from the image itself    Kurakin et al. 2017
    pgd       forty steps of ε/30, each back into the ball     from a random point      Madry et al. 2018
    deepfool  up to fifty steps to the nearest linear border   once, then cut to ε      Moosavi-Dezfooli et al. 2016

L is the cross-entropy of the logits. Departures from foolbox:

* The random start of an image depends on the seed and its place in the set alone, not on what else is in the batch, and
  points in the same direction at every ε.
* Where the largest logit leads by more than 50, all logits of the image are divided until it leads by 50. Beyond a lead
  of about 100 the gradient of the cross-entropy is zero in float32 and no step would be made.
* For a surrogate, DeepFool's change is scaled to ε rather than cut, because one that barely crosses the surrogate's
  border seldom crosses the classifier's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from secondguess.errors import require
from secondguess.model.backends.differentiable import Differentiable
from secondguess.stress.adversarial.search import Floats, GridAttack, Ints

__all__ = ["open_attack", "require_foolbox"]

LARGEST_LEAD = 50.0


def open_attack(
    name: str,
    model: Differentiable,
    *,
    seed: int,
    transfer: bool,
    legacy: bool,
    heard: Callable[[], None] | None = None,
) -> GridAttack:
    """Make an attack on a model.

    Args:
        name: `"fgsm"`, `"bim"`, `"pgd"` or `"deepfool"`.
        model: pixels -> logits.
        seed: of random starts.
        transfer: whether the model is a surrogate.
        legacy: attack the softmax as if it were logits.
        heard: called after every forward pass.
    """
    foolbox = require_foolbox()
    attacked = nn.Sequential(model, nn.Softmax(dim=1) if legacy else _Tempered()).eval()
    if heard is not None:
        attacked.register_forward_hook(lambda *_: heard())
    target = foolbox.PyTorchModel(attacked, bounds=(0, 1), device=model.device)
    if name == "deepfool":
        return _DeepFool(foolbox.attacks.LinfDeepFoolAttack(), target, scale=transfer)
    kinds = {
        "fgsm": foolbox.attacks.LinfFastGradientAttack,
        "bim": foolbox.attacks.LinfBasicIterativeAttack,
        "pgd": foolbox.attacks.LinfProjectedGradientDescentAttack,
    }
    return _Steps(kinds[name](), target, seed)


def require_foolbox() -> ModuleType:
    """The library, or an error that says how to install it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it imports from a module that SciPy has renamed
        return require("foolbox", "attacks")


class _Tempered(nn.Module):
    """Divides the logits (n, K) of images in which one leads by too much; the order of the classes stays."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        two = logits.detach().topk(2, dim=1).values
        lead = two[:, :1] - two[:, 1:]
        return logits / (lead / LARGEST_LEAD).clamp_min(1)


class _Steps:
    """Steps along the sign of the gradient, within the ball of radius ε."""

    def __init__(self, attack: Any, target: Any, seed: int) -> None:
        self.attack, self.target, self.seed = attack, target, seed

    def prepare(self, images: Floats, labels: Ints, rows: Ints) -> Floats:
        """The start within a ball of radius 1, or its centre."""
        if not self.attack.random_start:
            return np.zeros_like(images)
        draws = [np.random.default_rng([self.seed, row]).random(images.shape[1:], dtype=np.float32) for row in rows]
        return 2 * np.stack(draws) - 1

    def perturb(self, images: Floats, labels: Ints, prepared: Floats, epsilon: float) -> Floats:
        """Run all steps."""
        start = torch.from_numpy(prepared).to(self.target.device)
        self.attack.get_random_start = lambda inputs, radius: inputs + radius * start
        inputs, classes = _tensors(images, labels, self.target.device)
        return _within(images, self.attack.run(self.target, inputs, classes, epsilon=epsilon), epsilon)


class _DeepFool:
    """The nearest border, found once."""

    def __init__(self, attack: Any, target: Any, *, scale: bool) -> None:
        self.attack, self.target, self.scale = attack, target, scale

    def prepare(self, images: Floats, labels: Ints, rows: Ints) -> Floats:
        """The change that crosses the border, whatever its size."""
        inputs, classes = _tensors(images, labels, self.target.device)
        change: Floats = (self.attack.run(self.target, inputs, classes) - inputs).cpu().numpy()
        if self.scale:
            size = np.abs(change).max(axis=(1, 2, 3), keepdims=True)
            change = change / np.maximum(size, np.finfo(np.float32).tiny)
        return change

    def perturb(self, images: Floats, labels: Ints, prepared: Floats, epsilon: float) -> Floats:
        """Cut the change to ε, or scale it."""
        return _within(images, torch.from_numpy(images + (epsilon if self.scale else 1) * prepared), epsilon)


def _tensors(images: Floats, labels: Ints, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)


def _within(images: Floats, changed: torch.Tensor, epsilon: float) -> Floats:
    """Cut what rounding has added to a change of at most ε, and to pixels in [0, 1]."""
    change = np.clip(changed.detach().cpu().numpy() - images, -epsilon, epsilon)
    return np.clip(images + change, 0, 1).astype(np.float32, copy=False)
