"""What the builders share: stacks of named layers, flattened sizes, Keras' batch normalisation and initialisation."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = [
    "ImageTooSmall",
    "Initialisation",
    "RawPixels",
    "RepeatChannels",
    "Shape",
    "flat_size",
    "initialise",
    "keras_batch_norm",
    "stack",
]

Shape = tuple[int, int, int]
Initialisation = Literal["glorot_uniform", "he_uniform", "torch"]


class ImageTooSmall(Exception):
    """A convolution or pooling has no pixel left to work on."""


class RawPixels(nn.Module):
    """Bring pixels in [0, 1] back to 0..255, for networks whose recipe was made for unscaled images."""

    def forward(self, images: Tensor) -> Tensor:
        """Multiply (n, C, H, W) by 255."""
        return 255 * images


class RepeatChannels(nn.Module):
    """Repeat the one channel of a grey image, for networks made for colour."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, images: Tensor) -> Tensor:
        """Turn (n, 1, H, W) into (n, times, H, W)."""
        return images.repeat(1, self.times, 1, 1)

    def extra_repr(self) -> str:
        """The number of copies, for `print(model)`."""
        return str(self.times)


def stack(**layers: nn.Module) -> nn.Sequential:
    """A sequence of layers, each under its own name."""
    return nn.Sequential(OrderedDict(layers))


def flat_size(features: nn.Module, input_shape: Shape) -> int:
    """The number of outputs of `features` for an image of `input_shape`."""
    try:
        output: Tensor = features(torch.empty((2, *input_shape), device="meta"))
    except (RuntimeError, ValueError) as error:
        raise ImageTooSmall from error
    if output.numel() == 0:
        raise ImageTooSmall
    return output[0].numel()


def keras_batch_norm(channels: int, *, dense: bool = False, eps: float = 1e-3) -> nn.Module:
    """Batch normalisation with Keras' defaults: eps .001, and running statistics that keep 99 % of their past."""
    kind = nn.BatchNorm1d if dense else nn.BatchNorm2d
    return kind(channels, eps=eps, momentum=0.01)


def initialise(model: nn.Module, initialisation: Initialisation) -> None:
    """Draw fresh weights from torch's global generator.

    `"torch"` leaves it to every layer's own default. The other two are Keras': zero biases, and kernels
    uniform in ±sqrt(6 / (fan_in + fan_out)) for `"glorot_uniform"` or ±sqrt(6 / fan_in) for `"he_uniform"`;
    the output layer (`logits`) always gets the former, as no ReLU follows it.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and initialisation != "torch":
            if initialisation == "he_uniform" and name != "logits":
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            else:
                nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_parameters()
        elif next(layer.parameters(recurse=False), None) is not None:
            raise AssertionError(f"no rule to initialise {type(layer).__name__} ({name})")
