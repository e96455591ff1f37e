"""The losses of stage 2: besides being realistic, the generator's images should be ambiguous to the judges.

With members' probabilities p_m of the first class, their mean p, and the target r (1/2 in the papers):

| name        | loss                                                | source                                        |
|-------------|-----------------------------------------------------|-----------------------------------------------|
| confusion   | mean abs(p - r)                                     | GASTeN, Cunha et al. 2023                     |
| gaussian    | log(v)/2 + mean (p - r)^2 / 2v                      | GASTeN v2 (one classifier), AmbiGAN (50), 2025|
| agreement   | log(v)/2 + mean over members of (p_m - r)^2 / 2v    | ours                                          |

with the variance v. Since mean (p_m - r)^2 = (p - r)^2 + variance of the p_m, the last is the one before plus the
members' disagreement: an image that half of the members are sure of either way costs nothing in the second row and the
maximum in the third. log(v)/2 has no gradient.

Every one of them can be cheated: an image so faint that no judge recognises anything leaves all of them undecided. The
third, which asks the most, is cheated first. So ours comes with a guard (`guarded`), which takes the gradients of
both losses at the images G(z), g of realism and a of ambiguity, and goes on with g + a', where for each image

    a' = a without its parts along the image itself and along a constant, shortened to alpha mean |g| if it is longer.

The first two directions are contrast and brightness: images cannot become ambiguous by fading. The bound, of which the
mean is over the batch, keeps the judges from dominating the discriminator, whatever the variance.

For K classes, with targets t: half the sum over the classes of abs(p_k - t_k) or (p_k - t_k)^2, which is the above for
K = 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from secondguess.errors import UserError

__all__ = ["Combine", "LossName", "Target", "ambiguity_loss", "confusion", "guarded", "target_distance"]

LossName = Literal["confusion", "gaussian", "agreement"]
Combine = Literal["sum", "alternate", "guarded"]
TINY = 1e-12
DIALLED = (0.05, 0.95)  # the targets a dial is trained on: at 0 and 1 nothing is ambiguous


@dataclass(frozen=True)
class Target:
    """What probabilities the judges should give.

    Attributes:
        classes: their number K.
        probabilities: the target of each class, or None for a dial: another target for every image.
    """

    classes: int
    probabilities: tuple[float, ...] | None

    @classmethod
    def parse(cls, r: float | str | Sequence[float], classes: int) -> Target:
        """From the probability of the first of two classes, from those of all classes, or from `"dial"`."""
        if r == "dial":
            return cls(classes, None)
        try:
            values = [float(r)] if isinstance(r, str | float | int) else [float(value) for value in r]
        except ValueError as error:
            raise UserError(f"r is {r!r}; give a probability between 0 and 1, or 'dial'.") from error
        if len(values) == 1 and classes == 2:
            values = [values[0], 1 - values[0]]
        elif values == [0.5]:  # the default means: equally likely
            values = [1 / classes] * classes
        if len(values) != classes or min(values) < 0 or abs(sum(values) - 1) > 1e-6:
            raise UserError(
                f"r is {r!r}; give the probability of the first of two classes, one probability for each of {classes} "
                "classes with sum 1, or 'dial'."
            )
        return cls(classes, tuple(values))

    @property
    def inputs(self) -> int:
        """Number of inputs that encode the target for a generator."""
        return 1 if self.classes == 2 else self.classes

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Targets (*shape, K) on the generator's device."""
        device = generator.device
        if self.probabilities is not None:
            return torch.tensor(self.probabilities, device=device).expand(*shape, self.classes).contiguous()
        if self.classes == 2:
            low, high = DIALLED
            r = low + (high - low) * torch.rand(shape, generator=generator, device=device)
            return torch.stack([r, 1 - r], dim=-1)
        # Uniform on the simplex: normalised exponentials.
        drawn = -torch.log(torch.rand((*shape, self.classes), generator=generator, device=device).clamp_min(1e-12))
        return drawn / drawn.sum(dim=-1, keepdim=True)


def ambiguity_loss(name: LossName, members: Tensor, target: Tensor, variance: float) -> Tensor:
    """The loss of members' probabilities (M, n, K) for targets (n, K); one number."""
    if name == "confusion":
        return confusion(members, target).mean()
    judged = members if name == "agreement" else members.mean(dim=0)
    squared = (judged - target).square().sum(dim=-1) / 2
    return 0.5 * math.log(variance) + squared.mean() / (2 * variance)


def confusion(members: Tensor, target: Tensor) -> Tensor:
    """Confusion distance (n,) of the members' mean from targets (n, K); abs(p - r) for two classes."""
    return (members.mean(dim=0) - target).abs().sum(dim=-1) / 2


def guarded(realism: Tensor, ambiguity: Tensor, images: Tensor, alpha: float) -> Tensor:
    """The gradient (n, C, H, W) of realism at images plus what is let through of that of ambiguity, g + a'.

    Args:
        realism: gradient (n, C, H, W) of the generator's own loss at the images.
        ambiguity: that of the ambiguity loss.
        images: the images (n, C, H, W).
        alpha: how long the second may be, in units of the mean norm of the first.
    """
    flat = images.flatten(1)
    contrast = flat - flat.mean(dim=1, keepdim=True)
    wish = ambiguity.flatten(1)
    wish = wish - wish.mean(dim=1, keepdim=True)
    share = (wish * contrast).sum(dim=1, keepdim=True) / contrast.square().sum(dim=1, keepdim=True).clamp_min(TINY)
    wish = wish - share * contrast
    bound = alpha * realism.flatten(1).norm(dim=1).mean()
    wish = wish * (bound / wish.norm(dim=1, keepdim=True).clamp_min(TINY)).clamp_max(1)
    return realism + wish.reshape(realism.shape)


def target_distance(mean: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Confusion distance (n,) of mean probabilities (n, K) from targets (n, K)."""
    return np.asarray(np.abs(mean - target).sum(axis=-1) / 2)
