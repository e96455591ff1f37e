"""A named data set: a test split, and training and validation splits where they exist."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.images.remote import Place, file_name

__all__ = ["Dataset", "assemble", "canonical_split", "files_by_split"]

SHOWN = 5  # classes that a message names
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A test split, and training and validation splits or None, that agree on classes and image shape.

    Where only some of them know the class names, the others take them over: an unlabelled test set may come with a
    labelled training set. A split that lacks classes of another one, as small splits of many classes do, takes over
    its names too, with a warning.

    Attributes:
        name: what to call the data set.
        train: the images that a model learns from, or None.
        test: the images to try a model on; those of the validation split where there is no other.
        validation: images that are neither, for calibration and for choosing parameters, or None.
    """

    name: str
    train: ImageSet | None
    test: ImageSet
    validation: ImageSet | None = None

    def __post_init__(self) -> None:
        names = next((part.class_names for part in self.splits.values() if part.class_names), ())
        for key, part in self.splits.items():
            if not part.class_names:
                object.__setattr__(self, key, replace(part, class_names=names))
        widest = max((part.class_names for part in self.splits.values()), key=len)
        for key, part in self.splits.items():
            if set(part.class_names) < set(widest):
                object.__setattr__(self, key, _widened(part, widest, f"{key} images of {self.name}"))
        for key in ("train", "validation"):
            if key in self.splits:
                _check_agreement(self.name, key, self.splits[key], self.test)

    def __repr__(self) -> str:
        validation = "" if self.validation is None else f", validation={self.validation!r}"
        return f"Dataset({self.name!r}, train={self.train!r}, test={self.test!r}{validation})"

    @property
    def splits(self) -> dict[str, ImageSet]:
        """The existing splits by name."""
        found = {"train": self.train, "test": self.test, "validation": self.validation}
        return {key: part for key, part in found.items() if part is not None}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K class names, or () where none are known."""
        return self.test.class_names

    @property
    def fingerprint(self) -> str:
        """Digest of all splits."""
        parts = [None if part is None else part.fingerprint for part in (self.train, self.test)]
        parts += [] if self.validation is None else [self.validation.fingerprint]
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of the unreadable images that were left out."""
        return tuple(name for part in self.splits.values() for name in part.skipped)

    def describe(self) -> dict[str, Any]:
        """A JSON-able card of the data set and of each split."""
        return {
            "name": self.name,
            "shape": list(self.test.shape),
            "class_names": list(self.class_names),
            "fingerprint": self.fingerprint,
            "train": None if self.train is None else self.train.describe(),
            "test": self.test.describe(),
            "validation": None if self.validation is None else self.validation.describe(),
        }


def canonical_split(name: str) -> str | None:
    """The split ("train", "val" or "test") that a folder or file of this name holds, or None."""
    return SPLIT_NAMES.get(name.lower())


def files_by_split(files: Iterable[Place], name: str) -> dict[str, list[Place]]:
    """The files of each split, identified by the letters that their names begin with; "all" where none has a split.

    Args:
        files: in order.
        name: of the data set, for the error where only some have a split.
    """
    groups: dict[str, list[Place]] = {}
    for file in files:
        match = re.match(r"[a-z]+", file_name(file).lower())
        groups.setdefault(canonical_split(match[0] if match else "") or "all", []).append(file)
    if "all" in groups and len(groups) > 1:
        raise UserError(f"{groups['all'][0]} lies beside files of named splits in {name}; rename or remove it.")
    return groups


def assemble(name: str, parts: Mapping[str, ImageSet], split: str | None = None) -> Dataset:
    """Choose the training, the test and the validation set among the parts that a loader found.

    Args:
        name: what to call the data set.
        parts: image sets by split; a loader that knows no splits gives one part of any name.
        split: the part to test on; by default "test", else "val", else the only one.
    """
    if split is None:
        split = next((key for key in ("test", "val") if key in parts), None)
        if split is None and len(parts) == 1:
            split = next(iter(parts))
    key = split if split in parts else canonical_split(split or "")
    if key is None or key not in parts:
        wanted = f"no split {split!r}" if split else "no test split"
        raise UserError(f"{name} has {wanted}; choose one of {', '.join(sorted(parts))} with split=.")
    others = {role: parts.get(role) if role != key else None for role in ("train", "val")}
    return Dataset(name, others["train"], parts[key], others["val"])


def _widened(part: ImageSet, names: tuple[str, ...], what: str) -> ImageSet:
    """The images with classes that they have none of."""
    missing = [name for name in names if name not in set(part.class_names)]
    warnings.warn(f"The {what} have none of {_some(missing)}; nothing is known of these.", stacklevel=4)
    return part.among(names, np.array([names.index(name) for name in part.class_names], dtype=np.int64))


def _some(names: Sequence[str]) -> str:
    """The names, or how many they are where they are many."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{len(names)} classes ({shown}, ...)"


def _check_agreement(name: str, role: str, other: ImageSet, test: ImageSet) -> None:
    if other.class_names != test.class_names:
        only_other = sorted(set(other.class_names) - set(test.class_names))
        only_test = sorted(set(test.class_names) - set(other.class_names))
        difference = "; ".join(
            f"only in {where}: {_some(names)}" for where, names in ((role, only_other), ("test", only_test)) if names
        )
        raise UserError(
            f"The classes of {role} and test differ in {name} ({difference or 'another order'}); make them agree, or "
            "give the splits apart (--train, --test), to a model that names its classes."
        )
    if other.shape != test.shape:
        raise UserError(
            f"The images of {role} and test differ in shape in {name} ({other.shape} and {test.shape}); "
            "load them with one size and number of channels."
        )
