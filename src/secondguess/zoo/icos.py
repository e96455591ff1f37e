"""Networks A to N of the oracle-surrogate study, except G and I, whose layers are not known.

A, B, C, E and F are in the authors' repository. D, H, L, M and N are inferred: these layers have exactly the
published numbers of parameters. The repository has another network under D's name, with A's layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from secondguess.zoo._layers import Shape, flat_size, keras_batch_norm, stack
from secondguess.zoo.registry import Recipe, register

__all__: list[str] = []

ICOS = (
    "Guerriero, Lyu, Pietrantuono, Russo: Assessing operational accuracy of CNN-based image classifiers using an "
    "oracle surrogate, Intelligent Systems with Applications 2023"
)
NO_RECIPE = "The paper gives no recipe for this network; this is the one of "


@register(
    summary="conv30 3x3, pool, conv15 3x3, pool, conv7 1x1, dense",
    source=f"{ICOS} (network A, MNIST)",
    recipe=Recipe(epochs=4, batch_size=128, lr=1.0, optimiser="adadelta"),
)
def icos_a(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network A; its first dense layer works on every pixel separately, which is a 1x1 convolution."""
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 30, 3),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(30, 15, 3),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        conv3=nn.Conv2d(15, 7, 1),
        relu3=nn.ReLU(),
        flatten=nn.Flatten(),
    )
    model.add_module("logits", nn.Linear(flat_size(model, input_shape), num_classes))
    return model


@register(
    summary="conv32 3x3, dropout .3, conv16 3x3, dropout .3, dense",
    source=f"{ICOS} (network B, MNIST)",
    recipe=Recipe(epochs=4, batch_size=128),
)
def icos_b(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network B, without pooling."""
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 32, 3),
        relu1=nn.ReLU(),
        dropout1=nn.Dropout(0.3),
        conv2=nn.Conv2d(32, 16, 3),
        relu2=nn.ReLU(),
        dropout2=nn.Dropout(0.3),
        flatten=nn.Flatten(),
    )
    model.add_module("logits", nn.Linear(flat_size(model, input_shape), num_classes))
    return model


@register(
    summary="conv6 5x5, average pool, conv16 5x5, average pool, conv120 5x5, dense84, dense, all with tanh",
    source=f"{ICOS} (network C, MNIST)",
    recipe=Recipe(epochs=4, batch_size=128, lr=0.01, optimiser="sgd"),
)
def icos_c(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network C, a LeNet with tanh; its first pooling has stride 1."""
    model = stack(
        conv1=nn.Conv2d(input_shape[0], 6, 5, padding=2),
        tanh1=nn.Tanh(),
        pool1=nn.AvgPool2d(2, stride=1),
        conv2=nn.Conv2d(6, 16, 5),
        tanh2=nn.Tanh(),
        pool2=nn.AvgPool2d(2),
        conv3=nn.Conv2d(16, 120, 5),
        tanh3=nn.Tanh(),
        flatten=nn.Flatten(),
    )
    model.add_module("dense1", nn.Linear(flat_size(model, input_shape), 84))
    model.add_module("tanh4", nn.Tanh())
    model.add_module("logits", nn.Linear(84, num_classes))
    return model


@register(
    summary="four times (conv 3x3, batch norm, pool) of 32 to 256 channels, dense512, dense256, dense128, dense",
    source=f"{ICOS} (network D, CIFAR-10)",
    recipe=Recipe(epochs=15, batch_size=32, lr=1.0, optimiser="adadelta"),
    recipe_note="The recipe is that of the repository's network D, whose layers are others.",
    input_shape=(3, 32, 32),
)
def icos_d(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network D, with batch norm after every convolution and hidden dense layer."""
    model = stack()
    channels = input_shape[0]
    for block, width in enumerate((32, 64, 128, 256), start=1):
        model.add_module(f"conv{block}", nn.Conv2d(channels, width, 3, padding=1))
        model.add_module(f"relu{block}", nn.ReLU())
        model.add_module(f"norm{block}", keras_batch_norm(width))
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
        channels = width
    model.add_module("flatten", nn.Flatten())
    inputs = flat_size(model, input_shape)
    for number, width in enumerate((512, 256, 128), start=1):
        model.add_module(f"dense{number}", nn.Linear(inputs, width))
        model.add_module(f"relu_dense{number}", nn.ReLU())
        model.add_module(f"norm_dense{number}", keras_batch_norm(width, dense=True))
        inputs = width
    model.add_module("logits", nn.Linear(inputs, num_classes))
    return model


@register(
    summary="three times (conv 3x3, pool) of 32, 64, 128 channels, dense256, dense128, dense",
    source=f"{ICOS} (network E, CIFAR-10)",
    recipe=Recipe(epochs=15, batch_size=32),
    input_shape=(3, 32, 32),
)
def icos_e(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network E."""
    model = stack()
    channels = input_shape[0]
    for block, width in enumerate((32, 64, 128), start=1):
        model.add_module(f"conv{block}", nn.Conv2d(channels, width, 3))
        model.add_module(f"relu{block}", nn.ReLU())
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
        channels = width
    model.add_module("flatten", nn.Flatten())
    model.add_module("dense1", nn.Linear(flat_size(model, input_shape), 256))
    model.add_module("relu_dense1", nn.ReLU())
    model.add_module("dense2", nn.Linear(256, 128))
    model.add_module("relu_dense2", nn.ReLU())
    model.add_module("logits", nn.Linear(128, num_classes))
    return model


register(
    name="icos_h",
    summary="the layers of E, for larger images",
    source=f"{ICOS} (network H, ten classes of ImageNet)",
    recipe=Recipe(epochs=15, batch_size=32),
    recipe_note=f"{NO_RECIPE}E.",
    input_shape=(3, 64, 64),
)(icos_e.build)


def _paired(num_classes: int, input_shape: Shape, widths: Sequence[int], dense: int, normalised: bool) -> nn.Module:
    """Two padded 3x3 convolutions and a pooling for every width, then a hidden dense layer; ReLU, then batch norm."""
    model = stack()
    channels = input_shape[0]
    for block, width in enumerate(widths, start=1):
        for position in "ab":
            model.add_module(f"conv{block}{position}", nn.Conv2d(channels, width, 3, padding=1))
            model.add_module(f"relu{block}{position}", nn.ReLU())
            if normalised:
                model.add_module(f"norm{block}{position}", keras_batch_norm(width))
            channels = width
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
    model.add_module("flatten", nn.Flatten())
    model.add_module("dense1", nn.Linear(flat_size(model, input_shape), dense))
    model.add_module("relu_dense1", nn.ReLU())
    if normalised:
        model.add_module("norm_dense1", keras_batch_norm(dense, dense=True))
    model.add_module("logits", nn.Linear(dense, num_classes))
    return model


@register(
    summary="three times (two conv 3x3, pool) of 32, 64, 128 channels, dense128, dense",
    source=f"{ICOS} (network F, CIFAR-10)",
    recipe=Recipe(epochs=15, batch_size=32, lr=1e-3, optimiser="sgd", momentum=0.9),
    input_shape=(3, 32, 32),
    initialisation="he_uniform",
)
def icos_f(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network F."""
    return _paired(num_classes, input_shape, (32, 64, 128), dense=128, normalised=False)


@register(
    summary="the layers of F with batch norm after every hidden layer",
    source=f"{ICOS} (network M, CIFAR-100)",
    recipe=Recipe(epochs=15, batch_size=32, lr=1e-3, optimiser="sgd", momentum=0.9),
    recipe_note=f"{NO_RECIPE}F.",
    input_shape=(3, 32, 32),
    num_classes=100,
)
def icos_m(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network M."""
    return _paired(num_classes, input_shape, (32, 64, 128), dense=128, normalised=True)


@register(
    summary="four times (two conv 3x3, pool) of 32 to 256 channels, dense256, dense, batch norm throughout",
    source=f"{ICOS} (network N, CIFAR-100)",
    recipe=Recipe(epochs=15, batch_size=32, lr=1e-3, optimiser="sgd", momentum=0.9),
    recipe_note=f"{NO_RECIPE}F.",
    input_shape=(3, 32, 32),
    num_classes=100,
)
def icos_n(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network N."""
    return _paired(num_classes, input_shape, (32, 64, 128, 256), dense=256, normalised=True)


@register(
    summary="VGG16 with batch norm and dropout, dense512, dense",
    source=f"{ICOS} (network L, CIFAR-100; the network of geifmany/cifar-vgg)",
    recipe=Recipe(
        epochs=249,
        batch_size=128,
        lr=0.1,
        optimiser="sgd",
        momentum=0.9,
        nesterov=True,
        weight_decay=1e-3,
        decay="kernels",
        halve_every=25,
    ),
    recipe_note=(
        "The paper took trained weights; this is how they were made, less the standardised inputs and the rotated, "
        "shifted and mirrored images."
    ),
    input_shape=(3, 32, 32),
    num_classes=100,
)
def icos_l(num_classes: int, input_shape: Shape) -> nn.Module:
    """Network L; dropout follows every convolution of a block but the last."""
    model = stack()
    channels = input_shape[0]
    for block, (width, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for position in "abc"[:depth]:
            model.add_module(f"conv{block}{position}", nn.Conv2d(channels, width, 3, padding=1))
            model.add_module(f"relu{block}{position}", nn.ReLU())
            model.add_module(f"norm{block}{position}", keras_batch_norm(width))
            if position != "abc"[depth - 1]:
                model.add_module(f"dropout{block}{position}", nn.Dropout(0.3 if block == 1 else 0.4))
            channels = width
        model.add_module(f"pool{block}", nn.MaxPool2d(2))
    model.add_module("dropout_pool5", nn.Dropout(0.5))
    model.add_module("flatten", nn.Flatten())
    model.add_module("dense1", nn.Linear(flat_size(model, input_shape), 512))
    model.add_module("relu_dense1", nn.ReLU())
    model.add_module("norm_dense1", keras_batch_norm(512, dense=True))
    model.add_module("dropout_dense1", nn.Dropout(0.5))
    model.add_module("logits", nn.Linear(512, num_classes))
    return model
