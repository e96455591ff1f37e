"""The network of the flow: a U-Net that gives the velocity of a noisy image, given the time and the classes.

The classes are given as weights over the rows of one table of embeddings; the last row stands for "no class". A one-hot
row asks for one class, equal weights for the mean of several embeddings.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.errors import UserError, require

__all__ = ["Architecture", "FlowNetwork", "Preset", "architecture_for", "group_norm"]

SMALLEST, LARGEST = 8, 64  # pixels per side
MOST_CLASSES = 100
TIME_SCALE = 1000.0  # the sinusoids of the time embedding are made for steps 0 to 1000

Preset = str
PRESETS: dict[str, dict[str, Any]] = {
    # 29 million parameters at 32 pixels: what the measurements in docs/evidence/ambiguity.md are about.
    "full": {"width": 128, "multipliers": (1, 2, 2), "blocks": 2, "head": 64},
    # For grey images on a GPU: a quarter of the computing.
    "medium": {"width": 64, "multipliers": (1, 2, 2), "blocks": 2, "head": 64},
    # For grey images of 28 pixels on a processor.
    "small": {"width": 32, "multipliers": (1, 2), "blocks": 1, "head": 32, "patch": 2, "dropout": 0.0},
    # For tests of the machinery.
    "tiny": {"width": 8, "multipliers": (1, 2), "blocks": 1, "head": 8, "dropout": 0.0},
}


@dataclass(frozen=True)
class Architecture:
    """Everything that determines the network.

    Attributes:
        shape: (C, H, W) of the images; inside the network they are padded to a multiple of what it halves.
        classes: K.
        width: channels of the first level.
        multipliers: of the channels, for each level; every level but the last halves the image.
        blocks: residual blocks of a level.
        head: channels of an attention head; attention is at every level but the first.
        patch: pixels per side that become channels before the first level; 2 makes everything four times cheaper.
        dropout: in the residual blocks.
    """

    shape: tuple[int, int, int]
    classes: int
    width: int = 128
    multipliers: tuple[int, ...] = (1, 2, 2)
    blocks: int = 2
    head: int = 64
    patch: int = 1
    dropout: float = 0.1

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self) | {"shape": list(self.shape), "multipliers": list(self.multipliers)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """The opposite of `to_dict`."""
        lists = {"shape": tuple(values["shape"]), "multipliers": tuple(values["multipliers"])}
        return cls(**{**values, **lists})

    @property
    def padded(self) -> tuple[int, int, int]:
        """(C, H, W) that the network computes with."""
        step = self.patch * 2 ** (len(self.multipliers) - 1)
        channels, height, width = self.shape
        return channels, -(-height // step) * step, -(-width // step) * step


def architecture_for(shape: tuple[int, int, int], classes: int, preset: Preset) -> Architecture:
    """The network of a preset for these images; those beyond 40 pixels are computed in patches of 2 x 2 pixels."""
    if preset not in PRESETS:
        raise UserError(f"The preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    if min(shape[1:]) < SMALLEST or max(shape[1:]) > LARGEST:
        raise UserError(
            f"The images have {shape[1]} x {shape[2]} pixels, but the flow is made for {SMALLEST} to {LARGEST}; "
            "give another size with --size."
        )
    if not 2 <= classes <= MOST_CLASSES:
        raise UserError(f"There are {classes} classes, but the flow is made for 2 to {MOST_CLASSES}.")
    settings = dict(PRESETS[preset])
    if max(shape[1:]) > 40:  # four times cheaper than another level, which leaves the first one as large as it is
        settings["patch"] = 2
    return Architecture(shape, classes, **settings)


class FlowNetwork(nn.Module):
    """Velocities of noisy images; `diffusers` has the U-Net."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        patch = architecture.patch
        channels, height, width = architecture.padded
        channels *= patch**2
        levels = len(architecture.multipliers)
        unet = require("diffusers", "flow").UNet2DModel
        self.unet = unet(
            sample_size=(height // patch, width // patch),
            in_channels=channels,
            out_channels=channels,
            layers_per_block=architecture.blocks,
            block_out_channels=tuple(architecture.width * factor for factor in architecture.multipliers),
            down_block_types=("DownBlock2D",) + ("AttnDownBlock2D",) * (levels - 1),
            up_block_types=("AttnUpBlock2D",) * (levels - 1) + ("UpBlock2D",),
            norm_num_groups=math.gcd(32, architecture.width),
            attention_head_dim=architecture.head,
            resnet_time_scale_shift="scale_shift",
            dropout=architecture.dropout,
            class_embed_type="identity",
        )
        for module in self.unet.modules():
            if type(module) is nn.GroupNorm:
                module.__class__ = _GroupNorm
        nn.init.zeros_(self.unet.conv_out.weight)
        nn.init.zeros_(self.unet.conv_out.bias)
        self.table = nn.Parameter(torch.randn(architecture.classes + 1, 4 * architecture.width))

    @property
    def nothing(self) -> int:
        """The row of the table that stands for no class."""
        return self.architecture.classes

    def forward(self, x: Tensor, t: Tensor, weights: Tensor) -> Tensor:
        """The velocity (n, C, H, W) at x (n, C, H, W) and t (n,), for classes with weights (n, K + 1)."""
        patch = self.architecture.patch
        x = functional.pixel_unshuffle(x, patch)
        velocity: Tensor = self.unet(x, t * TIME_SCALE, class_labels=weights @ self.table, return_dict=False)[0]
        return functional.pixel_shuffle(velocity, patch)


class _GroupNorm(nn.GroupNorm):
    """Its parent for GPUs, whose compiled reductions read channels-last images in small pieces, which is slow."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, C, ...)."""
        return group_norm(x, self) if x.is_cuda else super().forward(x)


def group_norm(x: Tensor, norm: nn.GroupNorm) -> Tensor:
    """The group norm of x (n, C, ...) from sums over pixels first, then over the channels of a group.

    It is computed in float32 and returned as x came. Where means are a hundred times the deviations, as those of
    activations are not, the variance from sums of squares loses its digits.
    """
    n, channels = x.shape[:2]
    groups, pixels = norm.num_groups, tuple(range(2, x.ndim))
    with torch.autocast(x.device.type, enabled=False):
        y = x.float()
        sums = torch.stack([y.sum(pixels), y.square().sum(pixels)])  # (2, n, C)
        mean, square = sums.view(2, n, groups, -1).sum(3) * (groups * n / x.numel())
        rate = torch.rsqrt((square - mean.square()).clamp_min(0) + norm.eps)
        scale = (rate[:, :, None] * norm.weight.view(groups, -1)).view(n, channels)
        shift = norm.bias - mean.repeat_interleave(channels // groups, dim=1) * scale
        shape = (n, channels) + (1,) * len(pixels)
        return (y * scale.view(shape) + shift.view(shape)).to(x.dtype)
