"""Images with their targets, checked once and handed out in batches; and the order in which training sees them."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secondguess.errors import UserError

__all__ = [
    "Examples",
    "Images",
    "check_labels",
    "check_schedule",
    "count_outputs",
    "derive_seed",
    "epoch_batches",
]

# Images that take at most this much as float32 move to the accelerator once, not batch by batch.
RESIDENT_BYTES = 4 * 1024**3

Index = NDArray[np.int64]


class Images(Protocol):
    """Anything that holds n images: `images[index]` gives float32 (len(index), C, H, W) in [0, 1]."""

    def __len__(self) -> int:
        """The number of images, n."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """The images at a slice or at an array of indices."""
        ...


class Examples:
    """Images and targets of one data set, or of a part of it, on one device.

    Args:
        images: n images.
        labels: int64 (n,), or float (n, K) when soft.
        device: where the batches are wanted.
    """

    def __init__(self, images: Images, labels: NDArray[Any], device: torch.device) -> None:
        if len(images) == 0:
            raise UserError("The set of images is empty; give at least one image.")
        _check_images(images[:1])
        labels = check_labels(labels, len(images))
        self.labels = labels if labels.ndim == 1 else labels.astype(np.float32)
        self.device = device
        self.index: Index = np.arange(len(images))
        self._images = images
        self._resident: Tensor | None = None
        if device.type != "cpu" and 4 * len(images) * images[:1].size <= RESIDENT_BYTES:
            self._resident = torch.cat([self.images_at(part) for part in self._blocks()])

    def __len__(self) -> int:
        return len(self.index)

    def subset(self, index: NDArray[Any]) -> Examples:
        """The examples at `index`, sharing the images."""
        part = object.__new__(Examples)
        part.__dict__.update(self.__dict__)
        part.index = self.index[index]
        return part

    def images_at(self, index: Index) -> Tensor:
        """The images (len(index), C, H, W) at these positions, float32, on the device."""
        chosen = self.index[index]
        if self._resident is not None:
            return self._resident[torch.from_numpy(chosen).to(self.device)]
        batch = np.ascontiguousarray(self._images[chosen], dtype=np.float32)
        if not batch.flags.writeable:  # torch warns of read-only memory
            batch = batch.copy()
        return torch.from_numpy(batch).to(self.device)

    def targets_at(self, index: Index) -> Tensor:
        """The targets at these positions: int64 (len(index),), or float32 (len(index), K) when soft."""
        return torch.from_numpy(self.labels[self.index[index]]).to(self.device)

    def check_against(self, model: nn.Module) -> None:
        """Raise if the model cannot take these images or has too few outputs for these labels."""
        outputs = count_outputs(model, self.images_at(np.arange(min(2, len(self)))))
        labels = self.labels[self.index]
        if labels.ndim == 2 and labels.shape[1] != outputs:
            raise UserError(
                f"The soft labels have {labels.shape[1]} columns, but the model has {outputs} outputs; make the model "
                "with num_classes equal to the number of columns."
            )
        classes = max(outputs, 2)  # a single logit separates classes 0 and 1
        if labels.ndim == 1 and labels.max() >= classes:
            raise UserError(
                f"The labels go up to {labels.max()}, but the model tells {classes} classes apart (0 to "
                f"{classes - 1}); make the model with more classes or correct the labels."
            )

    def check_learnable(self, whose: str = "The labels") -> None:
        """Raise if the labels hold fewer than two classes."""
        labels = self.labels[self.index]
        one_class = np.count_nonzero(labels.any(axis=0)) < 2 if labels.ndim == 2 else np.ptp(labels) == 0
        if one_class:
            raise UserError(
                f"{whose} hold one class only, from which no classifier can be trained; add images of another class."
            )

    @property
    def fingerprint(self) -> str:
        """A hash of the labels and of every image."""
        digest = hashlib.sha256(self.index.tobytes())
        digest.update(self.labels.tobytes())
        own = getattr(self._images, "fingerprint", None)
        if isinstance(own, str):  # an image source may know a quicker way than reading every image
            digest.update(own.encode())
            return digest.hexdigest()[:16]
        for block in self._blocks():
            pixels = np.asarray(self._images[self.index[block]], dtype=np.float32)
            digest.update(repr(pixels.shape).encode() + pixels.tobytes())
        return digest.hexdigest()[:16]

    def diverged(self, epoch: int, lr: float, *, who: str = "the model") -> UserError:
        """The error for a loss on these examples that is not finite: bad pixels, or else the learning rate."""
        if not all(bool(torch.isfinite(self.images_at(block)).all()) for block in self._blocks()):
            return UserError("Some images contain NaN or infinity; remove or repair them before training.")
        return UserError(
            f"The loss of {who} is no longer a finite number in epoch {epoch}; lower the learning rate (it is {lr})."
        )

    def _blocks(self) -> list[Index]:
        return np.array_split(np.arange(len(self)), -(-len(self) // 1024))


def _check_images(first: Any) -> None:
    shape, dtype = np.shape(first), getattr(first, "dtype", None)
    if len(shape) != 4:
        raise UserError(
            f"The images have the shape (n, {', '.join(map(str, shape[1:]))}), but (n, channels, height, width) is "
            "needed; reshape them."
        )
    if dtype is None or not np.issubdtype(dtype, np.floating):
        raise UserError(f"The images are {dtype}, but float32 in [0, 1] is needed; divide whole numbers by 255.")


def check_labels(labels: NDArray[Any], count: int) -> NDArray[Any]:
    """Check labels for `count` images; return int64 (n,), or float64 (n, K) when soft."""
    labels = np.asarray(labels)
    if len(labels) != count:
        raise UserError(f"There are {count} images but {len(labels)} labels; give one label for every image.")
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
        if labels.min() < 0:
            raise UserError(
                f"{np.count_nonzero(labels < 0)} of the labels are negative, which means unknown; "
                "leave the images without a label out of the training."
            )
        return labels.astype(np.int64)
    if labels.ndim == 2 and np.issubdtype(labels.dtype, np.floating):
        if not (np.all(labels >= 0) and np.allclose(labels.sum(axis=1), 1, atol=1e-4)):
            raise UserError("Every row of the soft labels must be probabilities that add up to 1; normalise them.")
        return labels.astype(np.float64)
    raise UserError(
        f"The labels are {labels.dtype} of shape {labels.shape}, but whole numbers (n,) or probabilities (n, K) are "
        "needed."
    )


def count_outputs(model: nn.Module, images: Tensor) -> int:
    """The number of logits `model` gives for these images; raise if it cannot take them or gives no logits."""
    model.eval()
    try:
        with torch.no_grad():
            logits = model(images)
    except RuntimeError as error:
        raise UserError(
            f"The model cannot take images of shape {tuple(images.shape[1:])} ({_first_line(error)}); make it for "
            "this input shape or resize the images."
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        given = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(f"The model returns {given}, but logits of shape (n, K) are needed.")
    sums = logits.sum(dim=1)
    if logits.shape[1] > 1 and bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums)):
        raise UserError("The model returns probabilities, but logits are needed; take its final softmax away.")
    return int(logits.shape[1])


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def derive_seed(*parts: int) -> int:
    """Mix numbers into a seed below 2^63: equal parts give equal seeds, different parts unrelated ones."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


def epoch_batches(seed: int, epoch: int, count: int, batch_size: int) -> list[Index]:
    """The batches of an epoch: a permutation of 0 .. count - 1, drawn from (seed, epoch) alone, cut to size.

    The last piece may be smaller; a single example left over joins the piece before it, since batch
    normalisation cannot learn from one.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count)
    starts = list(range(batch_size, count, batch_size))
    if starts and count - starts[-1] == 1 and batch_size > 1:
        starts.pop()
    return np.split(order, starts)


def check_schedule(epochs: int, batch_size: int, seed: int) -> None:
    """Raise unless there is something to do, in batches of at least one image, from a seed numpy accepts."""
    if epochs < 1 or batch_size < 1:
        raise UserError(f"epochs is {epochs} and batch_size {batch_size}, but both must be at least 1.")
    if seed < 0:
        raise UserError(f"The seed is {seed}, but it must not be negative.")
