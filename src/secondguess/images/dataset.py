"""A named data set: a test split, and a training split where there is one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet

__all__ = ["Dataset", "assemble", "canonical_split"]

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
    """A training split (or None) and a test split that agree on classes and image shape.

    Where only one of the two knows the class names, the other takes them over: an unlabelled test set may
    come with a labelled training set.
    """

    name: str
    train: ImageSet | None
    test: ImageSet

    def __post_init__(self) -> None:
        if self.train is None:
            return
        if not self.test.class_names:
            object.__setattr__(self, "test", replace(self.test, class_names=self.train.class_names))
        if not self.train.class_names:
            object.__setattr__(self, "train", replace(self.train, class_names=self.test.class_names))
        _check_agreement(self.name, self.train, self.test)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, train={self.train!r}, test={self.test!r})"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K class names, or () where none are known."""
        return self.test.class_names

    @property
    def fingerprint(self) -> str:
        """Digest of both splits."""
        parts = [None if part is None else part.fingerprint for part in (self.train, self.test)]
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of the unreadable images that were left out."""
        return (self.train.skipped if self.train else ()) + self.test.skipped

    def describe(self) -> dict[str, Any]:
        """A JSON-able card of the data set and of each split."""
        return {
            "name": self.name,
            "shape": list(self.test.shape),
            "class_names": list(self.class_names),
            "fingerprint": self.fingerprint,
            "train": None if self.train is None else self.train.describe(),
            "test": self.test.describe(),
        }


def canonical_split(name: str) -> str | None:
    """The split ("train", "val" or "test") that a folder or file of this name holds, or None."""
    return SPLIT_NAMES.get(name.lower())


def assemble(name: str, parts: Mapping[str, ImageSet], split: str | None = None) -> Dataset:
    """Choose the training and the test set among the parts that a loader found.

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
    return Dataset(name, parts.get("train") if key != "train" else None, parts[key])


def _check_agreement(name: str, train: ImageSet, test: ImageSet) -> None:
    if train.class_names != test.class_names:
        only_train = sorted(set(train.class_names) - set(test.class_names))
        only_test = sorted(set(test.class_names) - set(train.class_names))
        difference = "; ".join(
            f"only in {where}: {', '.join(names)}"
            for where, names in (("train", only_train), ("test", only_test))
            if names
        )
        raise UserError(
            f"The classes of train and test differ in {name} ({difference or 'another order'}); make them agree."
        )
    if train.shape != test.shape:
        raise UserError(
            f"The images of train and test differ in shape in {name} ({train.shape} and {test.shape}); "
            "load both with one size and number of channels."
        )
