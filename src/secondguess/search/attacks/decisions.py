"""The model as an attack sees it: pixels in, classes out, every query charged to the image it was made for.

A torch model is asked where it is, under `inference_mode`, without a detour over NumPy; anything else through
`Classifier.predict`, with the cache switched off, since no probe is ever seen twice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from secondguess.data import ImageSet
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.classifier import Classifier

__all__ = ["Decisions"]

UNLIMITED = 1 << 62


class Decisions:
    """Answers of a classifier, and the ledger of what each image has cost.

    Args:
        classifier: the model under attack.
        count: the number n of images that can be charged.
        budget: the most queries an image may cost, or None.
        batch_size: images a forward pass.

    Attributes:
        device: where images must be; the model's own.
        spent: (n,) int64 queries made for each image, on `device`.
        batch_size: images a forward pass.
    """

    def __init__(self, classifier: Classifier, count: int, *, budget: int | None, batch_size: int) -> None:
        self._classifier = copy.copy(classifier)
        self._classifier.cache = None
        self._classifier.batch_size = batch_size
        self._logits: Callable[[Tensor], Tensor] | None = None
        self.device = torch.device("cpu")
        if "gradients" in classifier.gives:
            model = classifier.differentiable()
            self._logits, self.device = model, model.device
        self.budget = UNLIMITED if budget is None else budget
        self.batch_size = batch_size
        self.spent = torch.zeros(count, dtype=torch.int64, device=self.device)
        self._unsound = torch.zeros((), dtype=torch.bool, device=self.device)

    def left(self, rows: Tensor) -> Tensor:
        """(m,) int64 queries that the images at `rows` (m,) may still cost; one is kept for the last check."""
        return self.budget - 1 - self.spent[rows]

    def classes(self, images: Tensor, rows: Tensor) -> Tensor:
        """(m,) int64 decisions on images (m, C, H, W), one query each at the expense of `rows` (m,)."""
        size = self.batch_size
        parts = [self._ask(images[at : at + size], rows[at : at + size]) for at in range(0, len(rows), size)]
        return torch.cat(parts) if parts else rows.new_zeros(0)

    def logits(self, images: Tensor, rows: Tensor) -> Tensor:
        """(m, K) logits that gradients can follow back to the images, for attacks that look inside."""
        if self._logits is None:
            raise UserError(
                f"The gradient attack needs gradients, but {self._classifier.name} gives decisions only; "
                'use attack="hop_skip_jump".'
            )
        self._charge(rows)
        return self._sound(self._logits(images))

    def check(self) -> None:
        """Raise a `UserError` if any answer so far was not a number.

        To be called once a round: looking waits for the device.
        """
        if bool(self._unsound):
            raise UserError(
                "The model returned NaN or infinity for a changed image; check its weights and normalisation."
            )

    def _ask(self, images: Tensor, rows: Tensor) -> Tensor:
        self._charge(rows)
        if self._logits is not None:
            with torch.inference_mode():
                return self._sound(self._logits(images)).argmax(dim=1)
        answer = self._classifier.predict(ImageSet.from_arrays(images.numpy(), layout="NCHW"))
        return torch.from_numpy(answer.argmax(axis=1))

    def _charge(self, rows: Tensor) -> None:
        self.spent.index_add_(0, rows, torch.ones_like(rows))

    def _sound(self, logits: Tensor) -> Tensor:
        self._unsound |= ~logits.detach().isfinite().all()
        return logits
