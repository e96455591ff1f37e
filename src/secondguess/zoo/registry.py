"""The list of architectures: adding one is writing one function under `@architecture(...)`.

The functions are called on torch's "meta" device, where building a layer allocates nothing, draws nothing and
a trial pass costs nothing but its shapes; `make` then gives the finished network memory and draws its
weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from secondguess._device import isolated_rng, seed_rng
from secondguess.errors import UserError
from secondguess.zoo._layers import ImageTooSmall, Initialisation, Shape, initialise

__all__ = ["Architecture", "Recipe", "architecture", "describe", "make", "names"]

Builder = Callable[..., nn.Module]


@dataclass(frozen=True)
class Recipe:
    """How a paper trained a network; the fields are arguments of `secondguess.training.train`.

    Attributes:
        epochs: passes over the training data.
        batch_size: images a step.
        lr: learning rate.
        optimiser: `"adam"`, `"sgd"`, `"adadelta"` or `"rmsprop"`.
        eps: the term that keeps the adaptive optimisers from dividing by zero (Keras has 1e-7, PyTorch 1e-8).
        momentum: of `"sgd"`.
        nesterov: whether that momentum is Nesterov's.
        weight_decay: coupled decay: the gradient gets `weight_decay` times the weight. A Keras penalty l2(c)
            is weight_decay = 2 c.
        decay: which parameters decay: `"all"`, the `"kernels"` of convolutions and dense layers, or those of
            `"convolutions"` alone.
        halve_every: halve the learning rate after so many epochs, again and again.
        validation: share of the training data that is held out to watch the training.
        keep_best: end with the weights of the epoch with the lowest validation loss.
    """

    epochs: int
    batch_size: int
    lr: float = 1e-3
    optimiser: Literal["adam", "sgd", "adadelta", "rmsprop"] = "adam"
    eps: float = 1e-7
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: Literal["all", "kernels", "convolutions"] = "all"
    halve_every: int | None = None
    validation: float | None = None
    keep_best: bool = False

    def as_kwargs(self, *, fleet: bool = False) -> dict[str, Any]:
        """The recipe as keyword arguments: `train(model, images, labels, **recipe.as_kwargs())`.

        Args:
            fleet: leave out what needs held-out data, which `train_fleet` has not.
        """
        kwargs = asdict(self)
        if fleet:
            del kwargs["validation"], kwargs["keep_best"]
        return kwargs


@dataclass(frozen=True)
class Architecture:
    """What is known about a network of the zoo.

    Attributes:
        name: what `make` knows it by.
        summary: the layers in a line.
        source: the paper, and the data it classified there.
        input_shape: (channels, height, width) in the paper.
        num_classes: number of logits in the paper.
        recipe: the paper's training.
        recipe_note: where the recipe is ours because the paper gives none, or what it leaves out; else empty.
    """

    name: str
    summary: str
    source: str
    input_shape: Shape
    num_classes: int
    recipe: Recipe
    recipe_note: str = ""


@dataclass(frozen=True)
class _Entry:
    description: Architecture
    build: Builder
    initialisation: Initialisation


_REGISTRY: dict[str, _Entry] = {}


def architecture(
    *,
    summary: str,
    source: str,
    recipe: Recipe,
    recipe_note: str = "",
    input_shape: Shape = (1, 28, 28),
    num_classes: int = 10,
    initialisation: Initialisation = "glorot_uniform",
    name: str | None = None,
) -> Callable[[Builder], Builder]:
    """Register the decorated builder `(num_classes, input_shape, **options) -> module` under its function's name."""

    def register(build: Builder) -> Builder:
        key = name or build.__name__
        about = Architecture(key, summary, source, input_shape, num_classes, recipe, recipe_note)
        _REGISTRY[key] = _Entry(about, build, initialisation)
        return build

    return register


def names() -> list[str]:
    """The names `make` understands, in alphabetical order."""
    return sorted(_REGISTRY)


def describe(name: str) -> Architecture:
    """What is known about the architecture `name`: its layers, its paper and how it was trained there."""
    return _entry(name).description


def make(
    name: str,
    *,
    num_classes: int = 10,
    input_shape: tuple[int, int, int] = (1, 28, 28),
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Build a network of the zoo with fresh weights, on the processor, in training mode.

    Args:
        name: one of `names()`.
        num_classes: number of logits, K.
        input_shape: (channels, height, width) of the images; it need not be the paper's.
        seed: makes the weights reproducible and leaves torch's global random state alone; without it they are
            drawn from the global state.
        **options: further arguments of that architecture (`channels` of `"ambiguity_member"`).

    Returns:
        A module that maps images (n, channels, height, width) to logits (n, K).

    Raises:
        UserError: for an unknown name, impossible sizes, or images too small for the network.
    """
    entry = _entry(name)
    _check_sizes(num_classes, input_shape)
    try:
        with torch.device("meta"):
            model = entry.build(num_classes, tuple(input_shape), **options)
    except ImageTooSmall as error:
        raise UserError(
            f"Images of {input_shape[1]}x{input_shape[2]} pixels are too small for {name!r}, "
            f"which its paper used with {'x'.join(map(str, entry.description.input_shape[1:]))}: "
            "resize the images or pick a shallower network."
        ) from error
    model.to_empty(device="cpu")
    with nullcontext() if seed is None else isolated_rng():
        if seed is not None:
            seed_rng(seed)
        initialise(model, entry.initialisation)
    return model


def _entry(name: str) -> _Entry:
    if name not in _REGISTRY:
        close = difflib.get_close_matches(name, _REGISTRY, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are {', '.join(names())}."
        raise UserError(f"There is no architecture {name!r} in the zoo; {hint}")
    return _REGISTRY[name]


def _check_sizes(num_classes: int, input_shape: tuple[int, ...]) -> None:
    if num_classes < 1:
        raise UserError(f"num_classes is {num_classes}, but a network needs at least one logit.")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise UserError(
            f"input_shape is {tuple(input_shape)}, but three positive sizes are needed: (channels, height, width)."
        )
