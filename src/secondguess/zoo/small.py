"""The small networks: of AmbiGuess, of Surprise Adequacy, LeNet, cats against dogs, ambiguity estimators.

Deliberate departures from the papers' words, all towards their code: the "fully connected" network has no
activation between its layers, so it is a linear classifier with dropout (its published accuracy is that of a
linear one); the members of the ambiguity estimator end in a logit, not in its sigmoid; the network for cats and
dogs multiplies its input by 255, as it was trained on raw pixels: its small learning rate and strong weight decay
leave it underfitted on pixels in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from secondguess.errors import UserError
from secondguess.zoo._layers import RawPixels, Shape, flat_size, stack
from secondguess.zoo.registry import Recipe, register

__all__ = ["ambiguity_members"]

AMBIGUESS = (
    "Weiss, García Gómez, Tonella: Generating and detecting true ambiguity: a forgotten danger in DNN supervision "
    "testing, EMSE 2023 (MNIST, Fashion-MNIST)"
)


@register(
    summary="conv32 3x3, pool, conv64 3x3, pool, dropout .5, dense",
    source=AMBIGUESS,
    recipe=Recipe(epochs=15, batch_size=128, validation=0.1),
)
def simple_cnn(num_classes: int, input_shape: Shape) -> nn.Module:
    """The convolutional network that also serves as Keras' MNIST example."""
    features = stack(
        conv1=nn.Conv2d(input_shape[0], 32, 3),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
    )
    features.add_module("dropout", nn.Dropout(0.5))
    features.add_module("logits", nn.Linear(flat_size(features, input_shape), num_classes))
    return features


@register(
    summary="dense512, dropout .2, dense512, dropout .2, dense64, dense: no activations, hence linear",
    source=AMBIGUESS,
    recipe=Recipe(epochs=30, batch_size=128, validation=0.1),
)
def fully_connected(num_classes: int, input_shape: Shape) -> nn.Module:
    """Dense layers without activations between them."""
    channels, height, width = input_shape
    return stack(
        flatten=nn.Flatten(),
        dense1=nn.Linear(channels * height * width, 512),
        dropout1=nn.Dropout(0.2),
        dense2=nn.Linear(512, 512),
        dropout2=nn.Dropout(0.2),
        dense3=nn.Linear(512, 64),
        logits=nn.Linear(64, num_classes),
    )


@register(
    summary="conv32 3x3, pool, conv64 3x3, pool, dropout .5, linear dense10, dense",
    source="Weiss, Chakraborty, Tonella: A review and refinement of Surprise Adequacy, DeepTest 2021 (MNIST)",
    recipe=Recipe(epochs=15, batch_size=128, validation=0.1),
)
def surprise_cnn(num_classes: int, input_shape: Shape) -> nn.Module:
    """Like `simple_cnn`, with one more linear layer, `last_dense`, whose ten outputs are the activation traces."""
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 32, 3),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        dropout=nn.Dropout(0.5),
        flatten=nn.Flatten(),
    )
    model.add_module("last_dense", nn.Linear(flat_size(model, input_shape), 10))
    model.add_module("logits", nn.Linear(10, num_classes))
    return model


@register(
    summary="conv6 5x5, pool, conv16 5x5, pool, dense120, dense84, dense",
    source=(
        "Mukhoti, Kirsch, van Amersfoort, Torr, Gal: Deep deterministic uncertainty, 2021: five of them label "
        "AmbiguousMNIST (MNIST)"
    ),
    recipe=Recipe(epochs=19, batch_size=128, eps=1e-8, validation=0.1, keep_best=True),
    recipe_note="The original kept the epoch with the lowest loss on the test set; here it is held-out training data.",
    initialisation="torch",
)
def lenet(num_classes: int, input_shape: Shape) -> nn.Module:
    """LeNet-5 with ReLU and max pooling, unpadded."""
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 6, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
    )
    model.add_module("dense1", nn.Linear(flat_size(model, input_shape), 120))
    model.add_module("relu3", nn.ReLU())
    model.add_module("dense2", nn.Linear(120, 84))
    model.add_module("relu4", nn.ReLU())
    model.add_module("logits", nn.Linear(84, num_classes))
    return model


@register(
    summary="times 255, four of (two conv 3x3, pool) with 32 to 256 channels, dense256 twice with dropout .5, dense",
    source=(
        "Bennette, Maurer, Sisti: Harnessing adversarial distances to discover high-confidence errors, IJCNN 2020 "
        "(cats and dogs, CelebA, UT-Zap50K)"
    ),
    # l2(.01) in the loss has the gradient .02 w
    recipe=Recipe(epochs=40, batch_size=128, lr=1e-4, weight_decay=0.02, decay="convolutions", validation=0.1),
    input_shape=(3, 64, 64),
    num_classes=2,
)
def cats_dogs_cnn(num_classes: int, input_shape: Shape) -> nn.Module:
    """A small VGG-like network on raw pixels: its first layer, without parameters, undoes the scaling to [0, 1]."""
    model = stack(raw=RawPixels())
    channels = input_shape[0]
    for block, width in enumerate((32, 64, 128, 256), start=1):
        for position in "ab":
            model.add_module(f"conv{block}{position}", nn.Conv2d(channels, width, 3, padding=1))
            model.add_module(f"relu{block}{position}", nn.ReLU())
            channels = width
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
    model.add_module("flatten", nn.Flatten())
    inputs = flat_size(model, input_shape)
    for number in (1, 2):
        model.add_module(f"dense{number}", nn.Linear(inputs, 256))
        model.add_module(f"relu_dense{number}", nn.ReLU())
        model.add_module(f"dropout{number}", nn.Dropout(0.5))
        inputs = 256
    model.add_module("logits", nn.Linear(inputs, num_classes))
    return model


@register(
    summary="a few times (conv 3x3 of 1 to 5 channels, batch norm, pool), dense: 46 to 600 parameters",
    source=(
        "Teixeira, Gomes, Soares, van Rijn: Hubris benchmarking with AmbiGANs, 2025: the mean of fifty of them "
        "estimates ambiguity (MNIST, Fashion-MNIST, two classes)"
    ),
    recipe=Recipe(epochs=200, batch_size=800, eps=1e-8, validation=1 / 6, keep_best=True),
    recipe_note="There a batch of 800 was shared out to the members, 15 or 16 images each.",
    num_classes=1,
    initialisation="torch",
)
def ambiguity_member(num_classes: int, input_shape: Shape, *, channels: Sequence[int] = (3, 3, 3)) -> nn.Module:
    """One member of the ambiguity estimator: a block for every entry of `channels`."""
    if not channels or min(channels) < 1:
        raise UserError(f"channels is {tuple(channels)}, but one positive number for every block is needed.")
    model = stack()
    inputs = input_shape[0]
    for block, width in enumerate(channels, start=1):
        model.add_module(f"conv{block}", nn.Conv2d(inputs, int(width), 3, padding=1))
        model.add_module(f"norm{block}", nn.BatchNorm2d(int(width)))
        model.add_module(f"relu{block}", nn.ReLU())
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
        inputs = int(width)
    model.add_module("flatten", nn.Flatten())
    model.add_module("logits", nn.Linear(flat_size(model, input_shape), num_classes))
    return model


def ambiguity_members(seed: int = 32, count: int = 50) -> list[tuple[int, ...]]:
    """Draw the `channels` of the ambiguity estimator's members, as its authors did (their seed is 32).

    Returns:
        For each member a tuple of 2 to 4 numbers of channels between 1 and 5, for
        `make("ambiguity_member", channels=...)`.
    """
    draw = np.random.RandomState(seed)  # the old generator: a new one would not give the published members
    return [tuple(int(width) for width in draw.randint(1, 6, size=draw.randint(2, 5))) for _ in range(count)]
