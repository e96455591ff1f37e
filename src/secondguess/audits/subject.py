"""A classifier to audit when the user brings none: an architecture of the zoo, trained on the training split."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.images import Dataset
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, Silent

__all__ = ["train_subject"]


def train_subject(
    architecture: str,
    dataset: Dataset,
    *,
    folder: Path,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Classifier:
    """Train `architecture` with the recipe of its paper; checkpoints in `folder` make an interrupted training go on.

    Args:
        architecture: a name of `secondguess.zoo`.
        dataset: with a labelled training split.
        folder: for the checkpoints; each combination of architecture, data and settings has its own inside.
        epochs: instead of the recipe's.
        seed: of initialisation, shuffling and dropout.
        device: where to train.
        progress: where to report.
    """
    from secondguess import training, zoo

    if dataset.train is None or not dataset.train.is_labelled:
        raise UserError(
            f"The data {dataset.name!r} has no labelled training images, so no model can be trained on them; "
            "give one with --model."
        )
    model = zoo.make(architecture, num_classes=len(dataset.class_names), input_shape=dataset.train.shape, seed=seed)
    settings = zoo.describe(architecture).recipe.as_kwargs()
    if epochs is not None:
        settings["epochs"] = epochs
    with (progress or Silent()).task(f"Training {architecture}", settings["epochs"]) as advance:
        training.train(
            model,
            dataset.train.images,
            dataset.train.labels,
            **settings,
            seed=seed,
            device=device,
            checkpoint=folder / f"{architecture}-{_key(dataset, settings, seed)}",
            progress=lambda done, total, _row: advance(done, total),
        )
    return Classifier(model, class_names=dataset.class_names, name=architecture, device=device)


def _key(dataset: Dataset, settings: dict[str, Any], seed: int) -> str:
    parts = json.dumps([dataset.fingerprint, settings, seed], sort_keys=True, default=str)
    return hashlib.blake2b(parts.encode("utf-8"), digest_size=6).hexdigest()
