"""Models of two classes under test: trained on real images, asked about companion sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess import zoo
from secondguess.errors import require
from secondguess.images import ImageSet
from secondguess.metrics.confusion_distance import acd
from secondguess.metrics.hubris import hubris, relative_hubris
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator
from secondguess.training import Fleet, train_fleet
from secondguess_lab.studies.tasks.companion_measures import of_classes

__all__ = ["ask_models", "check_families", "predict", "scored", "trained"]

TRANSFORMERS = ("convnext", "vit")  # small ones, from scratch, through `transformers`
SMALLEST = 1e-6  # of a reference's probability

Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]


def check_families(families: Sequence[str]) -> None:
    """Refuse families that cannot be made here, before hours are spent on what they would look at."""
    for family in families:
        if family in TRANSFORMERS:
            require("transformers", "models")
        else:
            zoo.get(family)


def ask_models(
    train: ImageSet,
    test: ImageSet,
    sets: Mapping[str, Pixels],
    reference: AmbiguityEstimator,
    *,
    families: Sequence[str],
    models: int,
    epochs: int,
    seed: int = 0,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """One row for every model and set, with its accuracy in the row of the real test images.

    Args:
        train: labelled images; the models learn those of the reference's two classes.
        test: labelled images, of which those of the two classes are the set "real".
        sets: images (n, C, H, W) by name.
        reference: of relative hubris.
        families: names of the zoo, "convnext" or "vit".
        models: how many of each family.
        epochs: of their training.
        seed: of their weights and order.
        device: where to compute.
    """
    first, second = reference.classes
    images, which = of_classes(train, (first, second))
    real, truth = of_classes(test, (first, second))
    sets = {**sets, "real": real}
    references = {name: np.clip(reference.predict(one), SMALLEST, 1 - SMALLEST) for name, one in sets.items()}
    rows = []
    for family in families:
        fleet = trained(family, models, images, which, epochs, seed, device)
        for name, one in sets.items():
            for member, p in enumerate(predict(fleet, family, one, device)):
                row = {"family": family, "seed": member, "set": name, **scored(p)}
                row["relative"] = relative_hubris(p, references[name])
                rows.append(row | ({"accuracy": float(((p < 0.5) == truth).mean())} if name == "real" else {}))
    return rows


def trained(
    family: str, models: int, images: Pixels, which: NDArray[np.int64], epochs: int, seed: int, device: str
) -> Fleet:
    """Some models of a family that tell two classes apart, 0 and 1 in `which`."""
    shape = (images.shape[1], images.shape[2], images.shape[3])

    def make(member: int) -> nn.Module:
        if family not in TRANSFORMERS:
            return zoo.make(family, num_classes=2, input_shape=shape, seed=member)
        from secondguess.zoo import pretrained

        build = pretrained.convnext if family == "convnext" else pretrained.vit
        return build(num_classes=2, input_shape=shape, seed=member)

    batch_size = 64 if family in TRANSFORMERS else 128  # the paper's, and the usual one of the zoo
    return train_fleet(
        make,
        models,
        images,
        which,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        device=device,
        mode=_mode(family),
    )


def _mode(family: str) -> Literal["auto", "loop"]:
    """How a fleet is computed: networks of `transformers` are not stacked."""
    return "loop" if family in TRANSFORMERS else "auto"


def predict(fleet: Fleet, family: str, images: Pixels, device: str) -> Floats:
    """The probability of the first class, (models, n)."""
    logits = torch.from_numpy(fleet.predict(images, device=device, mode=_mode(family))).double()
    first: Floats = torch.softmax(logits, dim=2)[..., 0].numpy()
    return first


def scored(p: Floats) -> dict[str, float]:
    """ACD and absolute hubris of predictions (n,)."""
    absolute = hubris(p, resamples=200)
    return {
        "acd": acd(p),
        "absolute": absolute.value.value,
        "low": absolute.value.low,
        "high": absolute.value.high,
        "mean_kl": absolute.mean_kl.value,
    }
