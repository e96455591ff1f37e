"""What models of other libraries say about themselves: class names, size and normalisation of their images.

| what                                     | class names       | size, channels | mean, std       |
|------------------------------------------|-------------------|----------------|-----------------|
| a `transformers` pipeline                | `config.id2label` | processor      | processor       |
| a `transformers` model                   | `config.id2label` | config         | not known       |
| a `timm` model                           | `label_names` (1) | `input_size`   | `mean`, `std`   |
| weights of `torchvision`, as an argument | `categories`      | `crop_size`    | `mean`, `std`   |

(1) Cards of models trained on ImageNet have no names of their own; timm's `ImageNetInfo` has them.

No library is imported: what is looked for are the attributes that their documentation names. What the user says goes
before what a model says.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from secondguess.errors import UserError

__all__ = ["described_by_itself", "of_weights"]

IMAGES = "image-classification"  # the task of a pipeline


def described_by_itself(model: Any) -> tuple[Any, dict[str, Any]]:
    """The module behind a model of another library, and fields of its description; none where it says nothing."""
    processor = getattr(model, "image_processor", None)
    if processor is not None and hasattr(model, "task"):
        if model.task != IMAGES:
            raise UserError(f"The pipeline is made for {model.task}; give one for {IMAGES}.")
        return model.model, _of_config(model.model.config) | _of_processor(processor)
    config = getattr(model, "config", None)
    if hasattr(config, "id2label"):
        return model, _of_config(config)
    card = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if isinstance(card, Mapping) and "input_size" in card:
        return model, _of_timm(model, card)
    return model, {}


def of_weights(weights: Any) -> dict[str, Any]:
    """Arguments of `Classifier.open` for a torchvision model with pre-trained weights.

    Args:
        weights: such as `ResNet18_Weights.DEFAULT`, an entry with `meta` and `transforms()`.
    """
    if not hasattr(weights, "meta") or not callable(getattr(weights, "transforms", None)):
        raise UserError(f"{weights!r} is no entry of torchvision's weights; give one such as ResNet18_Weights.DEFAULT.")
    transforms = weights.transforms()
    size = transforms.crop_size
    side = int(size[0] if isinstance(size, Sequence) else size)
    return {
        "classes": _distinct(weights.meta["categories"]),
        "size": (side, side),
        "channels": 3,
        "mean": tuple(transforms.mean),
        "std": tuple(transforms.std),
        "resize": "crop",
    }


def _of_config(config: Any) -> dict[str, Any]:
    names = [str(config.id2label[number]) for number in sorted(config.id2label)]
    made_up = all(name == f"LABEL_{number}" for number, name in enumerate(names))
    found: dict[str, Any] = {"output_kind": "logits"}  # which is what such models call their output
    if not made_up:
        found["classes"] = _distinct(names)
    side = getattr(config, "image_size", None)
    if side is not None:
        found["size"] = (side, side) if isinstance(side, int) else tuple(side)
        found["channels"] = getattr(config, "num_channels", 3)
    return found


def _of_processor(processor: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if getattr(processor, "do_normalize", False):
        found |= {"mean": tuple(processor.image_mean), "std": tuple(processor.image_std)}
    cropped = bool(getattr(processor, "do_center_crop", False))
    size: Any = getattr(processor, "crop_size" if cropped else "size", None)
    if isinstance(size, Mapping) or hasattr(size, "keys"):
        sides = dict(size)
        if sides.get("height") and sides.get("width"):
            found["size"] = (int(sides["height"]), int(sides["width"]))
        elif sides.get("shortest_edge"):
            found["size"] = (int(sides["shortest_edge"]),) * 2
    return found | ({"resize": "crop"} if cropped else {})


def _of_timm(model: Any, card: Mapping[str, Any]) -> dict[str, Any]:
    channels, height, width = card["input_size"]
    found: dict[str, Any] = {"size": (int(height), int(width)), "channels": int(channels), "resize": "crop"}
    found |= {name: tuple(card[name]) for name in ("mean", "std") if card.get(name)}
    num_classes = getattr(model, "num_classes", None)
    names = card.get("label_names") or (_of_imagenet(card) if card.get("num_classes") == num_classes else [])
    if names and num_classes in (None, len(names)):  # a head that was replaced has other classes
        found["classes"] = _distinct([str(name) for name in names])
    return found


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, those that several classes share with the number of the class: ImageNet has two that are a crane."""
    counts = Counter(names)
    return tuple(f"{name} ({number})" if counts[name] > 1 else name for number, name in enumerate(names))


def _of_imagenet(card: Mapping[str, Any]) -> list[str]:
    """The names of the classes of ImageNet, where a card of timm's is about one of its subsets."""
    data: Any = sys.modules.get("timm.data")  # whoever has a timm model has imported it
    subset = data and data.infer_imagenet_subset(dict(card))
    return data.ImageNetInfo(subset).label_descriptions() if subset else []
