"""ConvNeXt and ViT through `transformers` (extra `models`): fine-tuned from local weights, or small and from scratch.

Teixeira et al. (2025) fine-tune both on binary tasks with Adam, learning rate 1e-3, for 10 epochs. That is ten to a
hundred times the usual rate for fine-tuning a transformer; the recipes below take 5e-5 for given weights and 1e-3 for
small networks from scratch.

These networks are not in the registry of the zoo, whose networks need nothing but torch and draw their weights by the
rules of their papers. They map images (n, C, H, W) in [0, 1] to logits (n, K) like all others: what the weights expect
(size, three channels, mean and standard deviation) is done inside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.devices import isolated_rng, seed_rng
from secondguess.errors import UserError, require
from secondguess.zoo.registry import Recipe

__all__ = ["FINE_TUNING", "FROM_SCRATCH", "PretrainedClassifier", "convnext", "vit"]

Shape = tuple[int, int, int]

FINE_TUNING = Recipe(epochs=5, batch_size=64, lr=5e-5, eps=1e-8, validation=0.1, keep_best=True)
FROM_SCRATCH = Recipe(epochs=15, batch_size=64, lr=1e-3, eps=1e-8, validation=0.1, keep_best=True)

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SMALLEST = 8  # pixels per side


class PretrainedClassifier(nn.Module):
    """A network of `transformers` with the interface of the zoo.

    Args:
        network: a model for image classification; its output has `logits`.
        size: pixels per side that it takes; None leaves images as they are.
        channels: the number that it takes; grey images are repeated.
        mean: subtracted from each channel.
        std: what each channel is divided by.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        size: int | None = None,
        channels: int = 3,
        mean: tuple[float, ...] = (0.5,),
        std: tuple[float, ...] = (0.5,),
    ) -> None:
        super().__init__()
        self.network = network
        self.size, self.channels = size, channels
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Turn images (n, C, H, W) in [0, 1] into logits (n, K)."""
        if images.shape[1] != self.channels:
            images = images[:, :1].repeat(1, self.channels, 1, 1)
        if self.size is not None and tuple(images.shape[2:]) != (self.size, self.size):
            side = (self.size, self.size)
            images = functional.interpolate(images, side, mode="bilinear", align_corners=False, antialias=False)
        logits: Tensor = self.network(pixel_values=(images - self.mean) / self.std).logits
        return logits


def convnext(
    *,
    num_classes: int = 10,
    input_shape: Shape = (1, 28, 28),
    weights: str | os.PathLike[str] | None = None,
    download: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Build ConvNeXt (Liu et al. 2022).

    Args:
        num_classes: number of logits, K.
        input_shape: (C, H, W) of the images.
        weights: a folder in the format of Hugging Face, or a name such as `"facebook/convnext-tiny-224"` in its local
            cache, with a new last layer; None builds a small network (three stages of 32, 64 and 128 channels).
        download: whether weights may be downloaded by name.
        seed: of all weights that are not given.
    """
    return _build("convnext", num_classes, input_shape, weights, download, seed)


def vit(
    *,
    num_classes: int = 10,
    input_shape: Shape = (1, 28, 28),
    weights: str | os.PathLike[str] | None = None,
    download: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Build a vision transformer (Dosovitskiy et al. 2021); arguments as in `convnext`.

    Without weights: six layers of width 96 on patches of 4 pixels.
    """
    return _build("vit", num_classes, input_shape, weights, download, seed)


def _build(
    kind: Literal["convnext", "vit"],
    num_classes: int,
    input_shape: Shape,
    weights: str | os.PathLike[str] | None,
    download: bool,
    seed: int,
) -> nn.Module:
    transformers = require("transformers", "models")
    if num_classes < 1 or len(input_shape) != 3 or input_shape[0] not in (1, 3) or min(input_shape[1:]) < SMALLEST:
        raise UserError(
            f"{num_classes} classes of images {tuple(input_shape)} were asked for; at least one class and images "
            f"(channels, height, width) of 1 or 3 channels and {SMALLEST} pixels per side are needed."
        )
    with isolated_rng():
        seed_rng(seed)
        if weights is None:
            return _small(transformers, kind, num_classes, input_shape)
        return _given(transformers, kind, num_classes, os.fspath(weights), download)


def _small(transformers: Any, kind: str, num_classes: int, input_shape: Shape) -> nn.Module:
    channels, height, width = input_shape
    if kind == "convnext":
        config = transformers.ConvNextConfig(
            num_channels=channels,
            patch_size=2,
            num_stages=3,
            hidden_sizes=[32, 64, 128],
            depths=[2, 2, 4],
            num_labels=num_classes,
        )
        return PretrainedClassifier(transformers.ConvNextForImageClassification(config), channels=channels)
    side = max(height, width) + -max(height, width) % 4  # a whole number of patches
    config = transformers.ViTConfig(
        image_size=side,
        patch_size=4,
        num_channels=channels,
        hidden_size=96,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=192,
        num_labels=num_classes,
    )
    return PretrainedClassifier(transformers.ViTForImageClassification(config), size=side, channels=channels)


def _given(transformers: Any, kind: str, num_classes: int, weights: str, download: bool) -> nn.Module:
    where = {"local_files_only": not download}
    maker = (
        transformers.ConvNextForImageClassification if kind == "convnext" else transformers.ViTForImageClassification
    )
    try:
        config = transformers.AutoConfig.from_pretrained(weights, **where)
        if config.model_type != kind:
            raise UserError(f"{weights!r} holds a model of the type {config.model_type}, not {kind}.")
        with _quiet(transformers):
            options = {"num_labels": num_classes, "ignore_mismatched_sizes": True, "use_safetensors": True}
            network = maker.from_pretrained(weights, **options, **where)
    except (OSError, ValueError) as error:
        asked = "not even on the network" if download else "nothing is downloaded unless download=True"
        raise UserError(
            f"No {kind} weights were found as {weights!r} ({asked}); "
            "give a folder with config.json and model.safetensors."
        ) from error
    mean, std, size = _preprocessing(_beside(transformers, weights, where), network.config)
    return PretrainedClassifier(network, size=size, channels=network.config.num_channels, mean=mean, std=std)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress progress bars and the warning about the last layer, which is new by design; both are global settings."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _beside(transformers: Any, weights: str, where: dict[str, bool]) -> Path | None:
    """The description of the preprocessing that came with the weights, in their folder or in the cache."""
    try:
        file = transformers.utils.cached_file(weights, "preprocessor_config.json", **where)
    except OSError:
        return None
    return None if file is None else Path(file)


def _preprocessing(file: Path | None, config: Any) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Mean, standard deviation and size that the weights expect: from the file beside them, or ImageNet's."""
    saved: dict[str, Any] = {} if file is None else json.loads(file.read_text("utf-8"))
    colour = config.num_channels == 3
    asked = saved.get("size", getattr(config, "image_size", None) or 224)
    if isinstance(asked, dict):
        asked = asked.get("height") or asked.get("shortest_edge") or 224
    mean = tuple(saved.get("image_mean", IMAGENET_MEAN if colour else (0.5,)))
    std = tuple(saved.get("image_std", IMAGENET_STD if colour else (0.5,)))
    return mean, std, int(asked)
