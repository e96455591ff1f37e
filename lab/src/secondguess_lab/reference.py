"""Networks for photographs on which the product is measured: four families in small sizes, for any image size.

They are what a user of CIFAR-10 would bring, not what a paper of ours defines: `secondguess.zoo` has those. Each ends
with global average pooling and one linear layer, so that its penultimate activations are rectified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["NETWORKS", "build"]


class Block(nn.Module):
    """Two 3x3 convolutions and the image itself (He et al., 2016), projected by 1x1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, inputs, H, W) to (n, outputs, H / stride, W / stride)."""
        residual = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        output: Tensor = self.relu2(self.shortcut(x) + residual)
        return output


def resnet(num_classes: int, depth: int = 3, width: int = 16) -> nn.Sequential:
    """The residual network for CIFAR-10 of He et al. (2016), of 6 `depth` + 2 layers and `width` channels at first."""
    blocks: list[nn.Module] = []
    inputs = width
    for stage in range(3):
        for number in range(depth):
            outputs = width << stage
            blocks.append(Block(inputs, outputs, stride=2 if stage and not number else 1))
            inputs = outputs
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, num_classes),
    )


def resnet18(num_classes: int) -> nn.Sequential:
    """The residual network of 18 layers for images of 224 pixels (He et al., 2016)."""
    blocks: list[nn.Module] = []
    inputs = 64
    for stage in range(4):
        for number in range(2):
            outputs = 64 << stage
            blocks.append(Block(inputs, outputs, stride=2 if stage and not number else 1))
            inputs = outputs
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, num_classes),
    )


def vgg(num_classes: int, width: int = 48, stages: int = 4) -> nn.Sequential:
    """Pairs of 3x3 convolutions with batch normalisation, and pooling (after Simonyan and Zisserman, 2015)."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage in range(stages):
        outputs = width << stage
        for _ in range(2):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2) if stage < stages - 1 else nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, num_classes))


class Growth(nn.Module):
    """A layer of a dense block: `growth` channels are computed from all channels so far and joined to them."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, inputs, H, W) to (n, inputs + growth, H, W)."""
        return torch.cat([x, self.layers(x)], dim=1)


def densenet(num_classes: int, depth: int = 6, growth: int = 12) -> nn.Sequential:
    """DenseNet-BC (Huang et al., 2017): three dense blocks of `depth` layers."""
    channels = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
    for block in range(3):
        for _ in range(depth):
            layers.append(Growth(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if block < 2:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


class Mixing(nn.Module):
    """A depthwise convolution beside the identity, then a pointwise one."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, kernel, groups=width, padding=kernel // 2)
        self.norm1 = nn.BatchNorm2d(width)
        self.pointwise = nn.Conv2d(width, width, 1)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, width, H, W) to the same shape."""
        x = x + self.norm1(functional.relu(self.depthwise(x)))
        return self.norm2(functional.relu(self.pointwise(x)))


def convmixer(num_classes: int, width: int = 128, depth: int = 6, kernel: int = 5, patch: int = 2) -> nn.Sequential:
    """Patches mixed in space and in channels by turns (Trockman and Kolter, 2022)."""
    return nn.Sequential(
        nn.Conv2d(3, width, 2, stride=2),
        nn.ReLU(),
        nn.BatchNorm2d(width),
        *(Mixing(width, kernel) for _ in range(depth)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


NETWORKS: dict[str, Callable[[int], nn.Sequential]] = {
    "resnet8": partial(resnet, depth=1),
    "resnet20": resnet,
    "resnet32": partial(resnet, depth=5),
    "resnet20_wide": partial(resnet, width=32),
    "resnet18": resnet18,
    "vgg": vgg,
    "vgg_narrow": partial(vgg, width=24),
    "densenet22": partial(densenet, depth=3),
    "densenet40": densenet,
    "convmixer": convmixer,
}


def build(name: str, num_classes: int) -> nn.Sequential:
    """A network by its name in `NETWORKS`, with fresh weights."""
    return NETWORKS[name](num_classes)
