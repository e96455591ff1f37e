"""One split of a data set: images, and what is known about each of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.images.labels import check_soft, infer_class_names, parse_labels
from secondguess.images.sources import ArraySource, Floats, ImageSource, Layout, Shape, Source, ViewSource, resolve_rows

__all__ = ["ImageSet"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set of n images of one shape with their labels.

    Attributes:
        images: the pixels, read on demand.
        labels: int64 (n,), -1 where unknown.
        class_names: the K names; () where nothing is known about classes.
        name: what to call the set in messages and reports.
        soft_labels: float64 (n, K), the probability of each class, or None.
        is_ambiguous: bool (n,), or None.
        ids: one string per image, such as its file name, or None.
        columns: further arrays (n,) by name, such as the provenance of each image.
        notes: what a loader decided on the user's behalf, one sentence each.
        skipped: names of the images that could not be read and were left out at the user's request.
    """

    images: ImageSource
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    name: str = "images"
    soft_labels: NDArray[np.float64] | None = None
    is_ambiguous: NDArray[np.bool_] | None = None
    ids: tuple[str, ...] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n, k = len(self.images), len(self.class_names)
        if n == 0:
            raise UserError(f"The set {self.name!r} is empty; at least one image is needed.")
        labels = np.asarray(self.labels)
        if labels.shape != (n,) or labels.dtype.kind not in "iu":
            raise UserError(
                f"{n} images but labels of shape {labels.shape} and dtype {labels.dtype} were given; "
                f"{n} integers are needed."
            )
        if labels.min() < -1 or labels.max() >= k:
            allowed = f"0..{k - 1}, or -1 for unknown" if k else "-1, for unknown"
            raise UserError(
                f"The labels of {self.name!r} run from {labels.min()} to {labels.max()}, but with {k} "
                f"classes a label is {allowed}."
            )
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))
        object.__setattr__(self, "class_names", tuple(self.class_names))
        if self.soft_labels is not None:
            object.__setattr__(self, "soft_labels", check_soft(self.soft_labels, n, k))
        if self.is_ambiguous is not None:
            object.__setattr__(self, "is_ambiguous", np.asarray(self.is_ambiguous).astype(bool))
        aligned = {"is_ambiguous": self.is_ambiguous, "ids": self.ids, **self.columns}
        for key, values in aligned.items():
            if values is not None and len(values) != n:
                raise UserError(f"{n} images but {len(values)} values of {key!r} were given; they must be as many.")

    @classmethod
    def from_arrays(
        cls,
        images: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        soft_labels: ArrayLike | None = None,
        name: str = "images",
        layout: Layout = "auto",
        is_ambiguous: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> ImageSet:
        """Make a set of arrays; nothing is copied, and memory maps stay on disk.

        Args:
            images: uint8 (0..255) or floats in [0, 1], of shape (n, H, W), (n, H, W, C) or (n, C, H, W).
            labels: integers (n,) or (n, 1) with -1 for unknown, strings (n,), one-hot or soft rows (n, K), or
                None.
            class_names: the K names; "0".."K-1" (or the strings in `labels`) when not given.
            soft_labels: probabilities (n, K); without `labels`, the likeliest class becomes the label.
            name: what to call the set.
            layout: where the channels of a 4-dimensional array are; "auto" finds an axis of size 1 or 3.
            is_ambiguous: booleans (n,).
            ids: one string per image.
            columns: further arrays (n,) by name.
        """
        try:
            array = np.asanyarray(images)
        except ValueError as error:
            raise UserError(f"The images do not form one array ({error}); bring them to one size.") from error
        return cls.from_source(
            ArraySource(array, layout),
            labels,
            class_names=class_names,
            soft_labels=soft_labels,
            name=name,
            is_ambiguous=is_ambiguous,
            ids=ids,
            columns=columns,
        )

    @classmethod
    def from_source(
        cls,
        images: ImageSource,
        labels: ArrayLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        soft_labels: ArrayLike | None = None,
        name: str = "images",
        is_ambiguous: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> ImageSet:
        """Make a set of any `ImageSource`; the labels may have every form that `from_arrays` takes."""
        soft = None if soft_labels is None else np.asarray(soft_labels)
        given = None if labels is None else np.asarray(labels)
        if class_names is None:
            class_names = infer_class_names([given, soft])
        hard, soft_from_labels = parse_labels(given, len(images), class_names)
        if soft is None:
            soft = soft_from_labels
        elif given is None:
            hard = check_soft(soft, len(images), len(class_names)).argmax(axis=1)
        return cls(
            images,
            hard,
            tuple(class_names),
            name,
            soft,
            None if is_ambiguous is None else np.asarray(is_ambiguous, dtype=bool),
            None if ids is None else tuple(ids),
            dict(columns or {}),
        )

    def __len__(self) -> int:
        """The number of images n."""
        return len(self.images)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        unknown = int((self.labels < 0).sum())
        labels = f"{self.num_classes} classes" + (f", {unknown:,} unlabelled" if unknown else "")
        return f"ImageSet({self.name!r}: {len(self):,} images of {shape}, {labels})"

    @property
    def shape(self) -> Shape:
        """The shape (C, H, W) of one image."""
        return self.images.shape

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.class_names)

    @property
    def is_labelled(self) -> bool:
        """Whether at least one label is known."""
        return bool((self.labels >= 0).any())

    @cached_property
    def content_fingerprint(self) -> str:
        """Digest of the images alone: what a classifier's outputs depend on."""
        return self.images.fingerprint

    @property
    def digests(self) -> NDArray[np.uint8]:
        """Digest (n, 16) of each image: the same image has the same one in every set."""
        images = self.images if isinstance(self.images, Source) else ViewSource(self.images, np.arange(len(self)))
        return images.digests

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the images, labels, soft labels and class names."""
        digest = hashlib.blake2b(self.content_fingerprint.encode(), digest_size=16)
        digest.update(json.dumps([self.class_names, self.soft_labels is not None]).encode())
        digest.update(self.labels.astype("<i8").tobytes())
        if self.soft_labels is not None:
            digest.update(self.soft_labels.astype("<f8").tobytes())
        return digest.hexdigest()

    def batches(self, size: int) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
        """Yield images (m, C, H, W) and labels (m,) in order, m = `size` except in the last batch."""
        if size < 1:
            raise UserError(f"A batch size of {size} was given; it must be at least 1.")
        for start in range(0, len(self), size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def take(self, indices: ArrayLike) -> ImageSet:
        """A view on the images at `indices`, positions (m,) or a mask (n,), with their labels and columns."""
        rows = resolve_rows(indices, len(self))
        return replace(
            self,
            images=ViewSource(self.images, rows),
            labels=self.labels[rows],
            soft_labels=None if self.soft_labels is None else self.soft_labels[rows],
            is_ambiguous=None if self.is_ambiguous is None else self.is_ambiguous[rows],
            ids=None if self.ids is None else tuple(self.ids[row] for row in rows),
            columns={key: np.asarray(values)[rows] for key, values in self.columns.items()},
        )

    def among(self, names: tuple[str, ...], places: NDArray[np.int64]) -> ImageSet:
        """The same images as images of the classes `names`, among which their own are at `places` (K,)."""
        soft = None
        if self.soft_labels is not None:
            soft = np.zeros((len(self), len(names)))
            np.add.at(soft.T, places, self.soft_labels.T)
        labels = np.where(self.labels < 0, -1, places[self.labels])
        return replace(self, labels=labels, soft_labels=soft, class_names=names)

    def head(self, n: int, *, seed: int | None = None) -> ImageSet:
        """The first n images, or with a seed n random ones in their old order; all if there are fewer."""
        if n < 1:
            raise UserError(f"The first {n} images were asked for; ask for at least 1.")
        if n >= len(self):
            return self
        if seed is None:
            return self.take(np.arange(n))
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False)))

    def split(self, share: float, *, seed: int = 0, stratify: bool = True) -> tuple[ImageSet, ImageSet]:
        """Split at random into sets of `share` * n and (1 - `share`) * n images, each in its old order.

        Args:
            share: the part of the images that goes into the first set, between 0 and 1.
            seed: which of the possible splits is made.
            stratify: keep the share within each class (and among the unknown), to the nearest image.
        """
        chosen = np.zeros(len(self), dtype=bool)
        total = round(share * len(self))
        if not 0 < total < len(self):
            raise UserError(
                f"A share of {share} of {len(self)} images leaves one side of the split empty; "
                "choose a share between 0 and 1 that gives each side an image."
            )
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self))
        if not stratify:
            chosen[order[:total]] = True
            return self.take(chosen), self.take(~chosen)
        classes, counts = np.unique(self.labels, return_counts=True)
        for label, quota in zip(classes, _quotas(counts, share, total), strict=True):
            chosen[order[self.labels[order] == label][:quota]] = True
        return self.take(chosen), self.take(~chosen)

    def materialise(self) -> Floats:
        """Read all images into memory: float32 (n, C, H, W)."""
        return self.images[0 : len(self)]

    def describe(self) -> dict[str, Any]:
        """A JSON-able card: size, shape, images per class, fingerprint, and the loader's notes."""
        counts = np.bincount(self.labels[self.labels >= 0], minlength=self.num_classes)
        return {
            "name": self.name,
            "images": len(self),
            "shape": list(self.shape),
            "classes": {name: int(count) for name, count in zip(self.class_names, counts, strict=True)},
            "unlabelled": int((self.labels < 0).sum()),
            "soft_labels": self.soft_labels is not None,
            "ambiguous": None if self.is_ambiguous is None else int(self.is_ambiguous.sum()),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
            "skipped": list(self.skipped),
        }


def _quotas(counts: NDArray[np.int64], share: float, total: int) -> NDArray[np.int64]:
    """Shares of `counts` rounded to whole numbers that sum to `total`, by the largest remainder."""
    exact = counts * share
    quotas: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    most_cut = np.argsort(quotas - exact, kind="stable")
    quotas[most_cut[: total - int(quotas.sum())]] += 1
    return quotas
