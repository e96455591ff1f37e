"""The AmbiGuess paper's DenseNet: two dense blocks with squeeze-and-excitation around and between them.

Batch norm precedes ReLU precedes convolution, the growth is 32 channels per layer through a bottleneck of 128,
the transition keeps all channels, and dropout .1 follows every convolution but the first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secondguess.zoo._layers import Shape, flat_size, keras_batch_norm, stack
from secondguess.zoo.registry import Recipe, register
from secondguess.zoo.small import AMBIGUESS

__all__ = ["DenseLayer", "SqueezeExcite"]

GROWTH = 32
DROPOUT = 0.1


class SqueezeExcite(nn.Module):
    """Scale every channel by a factor in (0, 1) that a small network computes from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dense1 = nn.Linear(channels, channels // 16)
        self.relu = nn.ReLU()
        self.dense2 = nn.Linear(channels // 16, channels)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels, H, W) to the same shape."""
        means = self.flatten(self.squeeze(x))
        factors: Tensor = self.sigmoid(self.dense2(self.relu(self.dense1(means))))
        return x * factors[:, :, None, None]


class DenseLayer(nn.Module):
    """Compute `GROWTH` new channels from all channels so far and append them."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = keras_batch_norm(inputs)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, 4 * GROWTH, 1, bias=False)
        self.dropout1 = nn.Dropout(DROPOUT)
        self.norm2 = keras_batch_norm(4 * GROWTH)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)
        self.dropout2 = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, inputs, H, W) to (n, inputs + GROWTH, H, W)."""
        new = self.dropout1(self.conv1(self.relu1(self.norm1(x))))
        new = self.dropout2(self.conv2(self.relu2(self.norm2(new))))
        return torch.cat([x, new], dim=1)


def _dense_block(inputs: int, depth: int) -> nn.Sequential:
    return stack(**{f"layer{i + 1}": DenseLayer(inputs + i * GROWTH) for i in range(depth)})


@register(
    summary="conv16 7x7, pool, dense blocks of 6 and 12 layers with squeeze-and-excitation, global pool, dense",
    source=AMBIGUESS,
    recipe=Recipe(epochs=15, batch_size=256, validation=0.1),
)
def densenet_se(num_classes: int, input_shape: Shape) -> nn.Module:
    """The 592 outputs of `pool3` are the traces that the paper takes; `se1` to `se3` hold Dissector's layers."""
    middle = 16 + 6 * GROWTH
    outputs = middle + 12 * GROWTH
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 16, 7, stride=2, padding=3, bias=False),
        norm1=keras_batch_norm(16),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, stride=2, padding=1),
        block1=_dense_block(16, depth=6),
        se1=SqueezeExcite(middle),
        norm2=keras_batch_norm(middle),
        relu2=nn.ReLU(),
        conv2=nn.Conv2d(middle, middle, 1, bias=False),
        dropout2=nn.Dropout(DROPOUT),
        pool2=nn.AvgPool2d(2),
        se2=SqueezeExcite(middle),
        block2=_dense_block(middle, depth=12),
        se3=SqueezeExcite(outputs),
        norm3=keras_batch_norm(outputs),
        relu3=nn.ReLU(),
        pool3=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )
    model.add_module("logits", nn.Linear(flat_size(model, input_shape), num_classes))
    return model
