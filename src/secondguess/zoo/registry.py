"""Architectures by name: adding one is writing one function under `@register(...)`.

The functions are called on torch's "meta" device, where building a layer allocates nothing, draws nothing and
a trial pass costs nothing but its shapes; the finished network then gets its memory and its weights.

Other packages add architectures by an entry point in the group `secondguess.architectures`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from secondguess.contracts.registry import Registry
from secondguess.devices import isolated_rng, seed_rng
from secondguess.errors import UserError
from secondguess.zoo._layers import ImageTooSmall, Initialisation, Shape, initialise

__all__ = ["REGISTRY", "Architecture", "Recipe", "get", "make", "make_all", "names", "register"]

Builder = Callable[..., nn.Module]


@dataclass(frozen=True)
class Recipe:
    """How a paper trained a network; the fields are arguments of `secondguess.training.train`.

    Attributes:
        epochs: passes over the training data.
        batch_size: images per step.
        lr: learning rate.
        optimiser: `"adam"`, `"sgd"`, `"adadelta"` or `"rmsprop"`.
        eps: the term that keeps the adaptive optimisers from dividing by zero (Keras has 1e-7, PyTorch 1e-8).
        momentum: of `"sgd"`.
        nesterov: whether that momentum is Nesterov's.
        weight_decay: coupled decay: the gradient gets `weight_decay` times the weight. A Keras penalty l2(c)
            is weight_decay = 2 c.
        decay: which parameters decay: `"all"`, the `"kernels"` of convolutions and dense layers, or those of
            `"convolutions"` alone.
        halve_every: halve the learning rate each time this number of epochs has passed.
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
    """A network of the zoo: what is known about it, and how it is built.

    Calling it builds the network with fresh weights.

    Attributes:
        name: what `make` knows it by.
        summary: the layers in a line.
        source: the paper, and the data it classified there.
        input_shape: (channels, height, width) in the paper.
        num_classes: number of logits in the paper.
        recipe: the paper's training.
        build: `(num_classes, input_shape, **options) -> module`.
        initialisation: of its weights.
        recipe_note: where the recipe is ours because the paper gives none, or what it leaves out; else empty.
    """

    name: str
    summary: str
    source: str
    input_shape: Shape
    num_classes: int
    recipe: Recipe
    build: Builder
    initialisation: Initialisation
    recipe_note: str = ""

    @property
    def origin(self) -> tuple[str, str]:
        """Module and name of the function that builds it."""
        return self.build.__module__, self.build.__qualname__

    def __call__(
        self,
        *,
        num_classes: int = 10,
        input_shape: tuple[int, int, int] = (1, 28, 28),
        seed: int | None = None,
        **options: Any,
    ) -> nn.Module:
        """Build the network with fresh weights, on the processor, in training mode.

        Args:
            num_classes: number of logits, K.
            input_shape: (channels, height, width) of the images; it need not be the paper's.
            seed: makes the weights reproducible and leaves torch's global random state alone; without it they are
                drawn from the global state.
            **options: further arguments of that architecture (`channels` of `"ambiguity_member"`).

        Returns:
            A module that maps images (n, channels, height, width) to logits (n, K).

        Raises:
            UserError: for impossible sizes, or images too small for the network.
        """
        _check_sizes(num_classes, input_shape)
        try:
            with torch.device("meta"):
                model = self.build(num_classes, tuple(input_shape), **options)
        except ImageTooSmall as error:
            raise UserError(
                f"Images of {input_shape[1]}x{input_shape[2]} pixels are too small for {self.name!r}, "
                f"which its paper used with {'x'.join(map(str, self.input_shape[1:]))}: "
                "resize the images or pick a shallower network."
            ) from error
        model.to_empty(device="cpu")
        with nullcontext() if seed is None else isolated_rng():
            if seed is not None:
                seed_rng(seed)
            initialise(model, self.initialisation)
        return model


REGISTRY: Registry[Architecture, nn.Module] = Registry(
    "architecture",
    base=Architecture,
    public="secondguess.zoo.Architecture",
    package="secondguess.zoo",
    group="secondguess.architectures",
    modules=("small", "densenet", "resnet", "icos"),
    classes=False,
)
names, get, make, make_all = REGISTRY.names, REGISTRY.get, REGISTRY.make, REGISTRY.make_all


def register(
    *,
    summary: str,
    source: str,
    recipe: Recipe,
    recipe_note: str = "",
    input_shape: Shape = (1, 28, 28),
    num_classes: int = 10,
    initialisation: Initialisation = "glorot_uniform",
    name: str | None = None,
) -> Callable[[Builder], Architecture]:
    """Decorator: the builder `(num_classes, input_shape, **options) -> module` becomes a registered `Architecture`.

    It is known by the name of the function unless another is given.
    """

    def enter(build: Builder) -> Architecture:
        key = name or build.__name__
        return REGISTRY.register(
            Architecture(
                key, summary, source, input_shape, num_classes, recipe, build, initialisation, recipe_note=recipe_note
            )
        )

    return enter


def _check_sizes(num_classes: int, input_shape: tuple[int, ...]) -> None:
    if num_classes < 1:
        raise UserError(f"num_classes is {num_classes}, but a network needs at least one logit.")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise UserError(
            f"input_shape is {tuple(input_shape)}, but three positive sizes are needed: (channels, height, width)."
        )
