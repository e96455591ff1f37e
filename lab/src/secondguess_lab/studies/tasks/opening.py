"""The data of a task, opened once a process."""

from __future__ import annotations

import platform
from functools import lru_cache

import numpy as np

from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, load

__all__ = ["joined", "opened", "training_images"]


@lru_cache(maxsize=8)
def opened(source: TaskData) -> Dataset:
    """The data at a place, if they are those that the task is about."""
    data = load(source.place)
    if data.fingerprint != source.fingerprint:
        raise UserError(
            f"The data at {source.place} on {platform.node()} are not those that the study was planned with; put the "
            "same data there."
        )
    return data


def training_images(data: Dataset) -> ImageSet:
    """The training split, which every study needs."""
    if data.train is None:
        raise UserError(f"The data {data.name!r} have no training images; give data with a training and a test split.")
    return data.train


def joined(*sets: ImageSet) -> ImageSet:
    """Labelled images of several sets in one."""
    return ImageSet.from_arrays(
        np.concatenate([one.materialise() for one in sets]),
        np.concatenate([one.labels for one in sets]),
        class_names=sets[0].class_names,
        layout="NCHW",
    )
