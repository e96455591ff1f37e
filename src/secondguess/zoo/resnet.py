"""ResNet50 as Keras builds it, with the AmbiGuess paper's head.

It differs from other ResNet50s: a block strides in its first 1x1 convolution, the convolutions have biases,
and batch normalisation has eps 1.001e-5. The paper started from ImageNet weights; here the weights are drawn
afresh.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secondguess.zoo._layers import RepeatChannels, Shape, keras_batch_norm, stack
from secondguess.zoo.registry import Recipe, register
from secondguess.zoo.small import AMBIGUESS

__all__ = ["Bottleneck"]

EPS = 1.001e-5


class Bottleneck(nn.Module):
    """A residual block of three convolutions: 1x1 (with the stride), 3x3, 1x1 to four times the width."""

    def __init__(self, inputs: int, width: int, *, stride: int, project: bool) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, stride=stride)
        self.norm1 = keras_batch_norm(width, eps=EPS)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = keras_batch_norm(width, eps=EPS)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, outputs, 1)
        self.norm3 = keras_batch_norm(outputs, eps=EPS)
        self.shortcut: nn.Module = nn.Identity()
        if project:
            self.shortcut = stack(
                conv=nn.Conv2d(inputs, outputs, 1, stride=stride), norm=keras_batch_norm(outputs, eps=EPS)
            )
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, inputs, H, W) to (n, 4 width, H / stride, W / stride)."""
        residual = self.relu1(self.norm1(self.conv1(x)))
        residual = self.relu2(self.norm2(self.conv2(residual)))
        residual = self.norm3(self.conv3(residual))
        output: Tensor = self.relu3(torch.add(self.shortcut(x), residual))
        return output


def _stage(inputs: int, width: int, depth: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride=stride, project=True)
    rest = [Bottleneck(4 * width, width, stride=1, project=False) for _ in range(depth - 1)]
    return stack(**{f"block{number}": block for number, block in enumerate([first, *rest], start=1)})


@register(
    summary="ResNet50 on three channels (grey is repeated), dense256, dense125 with dropout .2, dense",
    source=AMBIGUESS,
    recipe=Recipe(epochs=30, batch_size=128, validation=0.1),
    recipe_note="The paper fine-tuned all weights from ImageNet's; from fresh weights expect lower accuracy.",
)
def resnet50(num_classes: int, input_shape: Shape) -> nn.Module:
    """Grey images become three channels; images with more channels are taken as they are."""
    channels = 3 if input_shape[0] == 1 else input_shape[0]
    return stack(
        repeat=RepeatChannels(3) if input_shape[0] == 1 else nn.Identity(),
        conv1=nn.Conv2d(channels, 64, 7, stride=2, padding=3),
        norm1=keras_batch_norm(64, eps=EPS),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, stride=2, padding=1),
        stage2=_stage(64, 64, depth=3, stride=1),
        stage3=_stage(256, 128, depth=4, stride=2),
        stage4=_stage(512, 256, depth=6, stride=2),
        stage5=_stage(1024, 512, depth=3, stride=2),
        pool5=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        dense1=nn.Linear(2048, 256),
        relu_dense1=nn.ReLU(),
        dropout1=nn.Dropout(0.2),
        dense2=nn.Linear(256, 125),
        relu_dense2=nn.ReLU(),
        dropout2=nn.Dropout(0.2),
        logits=nn.Linear(125, num_classes),
    )
