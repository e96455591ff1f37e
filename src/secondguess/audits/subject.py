"""What is audited: a classifier with its test and training images, opened, loaded, or trained for the purpose."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, load, load_images
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, Silent, Titled

__all__ = ["Images", "Subject", "as_dataset", "train_subject"]

Images = str | os.PathLike[str] | Dataset | ImageSet

DEFAULT_DATA, DEFAULT_ARCHITECTURE, TINY_ARCHITECTURE = "mnist5k", "simple_cnn", "fully_connected"
SMALLEST = 12  # pixels per side that the default architecture takes


@dataclass(frozen=True)
class Subject:
    """A classifier and its images.

    Attributes:
        classifier: the system under test.
        data: its test images, and its training images where they were given.
    """

    classifier: Classifier
    data: Dataset

    @classmethod
    def opened(
        cls, model: Any, data: Images | None, test: Images | None, train: Images | None, device: str, loading: Any
    ) -> Subject:
        """A model of the user's with images of the user's, which are loaded in the shape that it takes."""
        if data is None and test is None:
            raise UserError("A model was given without images; say which with `test` (and `train`), or with `data`.")
        classifier = model if isinstance(model, Classifier) else Classifier.open(model, device=device)
        given = {name: value for name, value in loading.items() if value is not None}
        return cls(classifier, as_dataset(data, test, train, classifier.loading | given))

    @classmethod
    def trained(
        cls,
        architecture: str | None,
        data: Images | None,
        *,
        folder: Path,
        epochs: int | None,
        seed: int,
        device: str,
        progress: Progress,
        loading: Any,
    ) -> Subject:
        """An architecture of the zoo, trained on the training split of the data."""
        dataset = as_dataset(DEFAULT_DATA if data is None else data, None, None, loading)
        small = min(dataset.test.shape[1:]) < SMALLEST
        chosen = architecture or (TINY_ARCHITECTURE if small else DEFAULT_ARCHITECTURE)
        options: Any = {"epochs": epochs, "seed": seed, "device": device, "progress": progress}
        return cls(train_subject(chosen, dataset, folder=folder, **options), dataset)


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
    """Train an architecture with the recipe of its paper; checkpoints in `folder` make an interrupted training go on.

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
            "give a model."
        )
    model = zoo.make(architecture, num_classes=len(dataset.class_names), input_shape=dataset.train.shape, seed=seed)
    settings = zoo.get(architecture).recipe.as_kwargs()
    if epochs is not None:
        settings["epochs"] = epochs
    training.train(
        model,
        dataset.train.images,
        dataset.train.labels,
        **settings,
        seed=seed,
        device=device,
        checkpoint=folder / f"{architecture}-{_key(dataset, settings, seed)}",
        progress=Titled(progress or Silent(), f"Training {architecture}"),
    )
    return Classifier(model, class_names=dataset.class_names, name=architecture, device=device)


def _key(dataset: Dataset, settings: dict[str, Any], seed: int) -> str:
    parts = json.dumps([dataset.fingerprint, settings, seed], sort_keys=True, default=str)
    return hashlib.blake2b(parts.encode("utf-8"), digest_size=6).hexdigest()


def as_dataset(data: Images | None, test: Images | None, train: Images | None, loading: Any) -> Dataset:
    """One data set from `data`, or from `test` and `train`; an image set given as `data` is the test set."""
    if isinstance(data, ImageSet) and test is None:
        data, test = None, data
    if data is not None:
        if test is not None or train is not None:
            raise UserError("Images were given twice; give either `data`, or `test` and `train`, not both.")
        return data if isinstance(data, Dataset) else load(data, **loading)  # type: ignore[arg-type]
    if test is None:
        raise UserError("Training images were given without test images; say which to test on with `test`.")
    tested = _test_images(test, loading)
    if train is None:
        return Dataset(tested.name, None, tested)
    shape = tested.shape
    # Training images are brought to the size of the test images only where that is known to be what the model takes.
    sized = {"size": shape[1:]} if loading.get("size") else {}
    trained = _training_images(train, loading | sized | {"channels": shape[0]})
    if trained.shape[1:] != shape[1:] and not isinstance(train, (ImageSet, Dataset)):
        raise UserError(
            f"The training images {trained.name} have {_pixels(trained)} pixels, but the test images {tested.name} "
            f"{_pixels(tested)}, and the model does not say which it takes; say it with size (--size "
            f"{_pixels(trained)} if it was trained on them as they are), or under [input] in its model.toml."
        )
    dataset = Dataset(tested.name, trained, tested)
    if trained.content_fingerprint == tested.content_fingerprint:
        raise UserError(
            f"The training images {trained.name} and the test images {tested.name} are the same images; "
            "supervisors must not learn from the test, so give others."
        )
    return dataset


def _pixels(images: ImageSet) -> str:
    """Height and width, as the option --size takes them."""
    return "{}x{}".format(*images.shape[1:])


def _test_images(test: Images, loading: Any) -> ImageSet:
    if isinstance(test, (ImageSet, Dataset)):
        return test if isinstance(test, ImageSet) else test.test
    return replace(load_images(test, **loading), name=os.fspath(test))


def _training_images(train: Images, loading: Any) -> ImageSet:
    """The training split, or everything where there is only one split."""
    if isinstance(train, ImageSet):
        return train
    loaded = train if isinstance(train, Dataset) else load(train, **loading)
    images = loaded.train or loaded.test
    return images if isinstance(train, Dataset) else replace(images, name=os.fspath(train))
