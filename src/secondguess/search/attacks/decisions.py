"""The model as an attack sees it: pixels in, classes out, every query charged to the image it was made for.

A torch model is asked where it is, under `inference_mode`, without a detour over NumPy; anything else through
`Classifier.predict`, with the cache switched off, since no probe is ever seen twice.

An unusable answer, such as NaN, is `UNUSABLE` and counted; it is not another decision, so that no
counterexample rests on it. A batch at which the model raises an error is asked again in halves until the images at
fault stand alone. Each of them counts as unusable if the model still answers another image; if it answers nothing any
more, the error is raised. What is asked again is charged once: no image pays for another one at fault.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.backends.base import ModelFailed

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["UNUSABLE", "Decisions", "decided"]

UNLIMITED = 1 << 62
UNUSABLE = -1  # in place of a class
WITNESSES = 8  # images that are tried to see whether the model answers at all


class Decisions:
    """Answers of a classifier, and the ledger of what each image has cost.

    Args:
        classifier: the model under attack.
        count: the number n of images that can be charged.
        budget: the most queries an image may cost, or None.
                batch_size: images per forward pass.

    Attributes:
        device: where images must be; the model's own.
        spent: (n,) int64 queries made for each image, on `device`.
        unusable: (n,) int64 how many of them had no answer that can be used.
        batch_size: images per forward pass.
        heard: called after every forward pass, so that progress can be reported while a step is under way.
    """

    heard: Callable[[], None] | None = None

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
        self.unusable = torch.zeros_like(self.spent)
        self._witness: Tensor | None = None  # an image that the model has answered

    def left(self, rows: Tensor) -> Tensor:
        """(m,) int64 queries that the images at `rows` (m,) may still cost; one is kept for the last check."""
        return self.budget - 1 - self.spent[rows]

    def classes(self, images: Tensor, rows: Tensor) -> Tensor:
        """(m,) int64 decisions on images (m, C, H, W), one query each at the expense of `rows` (m,).

        Where there is no answer that can be used, `UNUSABLE`.
        """
        size = self.batch_size
        parts = [self._ask(images[at : at + size], rows[at : at + size]) for at in range(0, len(rows), size)]
        return torch.cat(parts) if parts else rows.new_zeros(0)

    def logits(self, images: Tensor, rows: Tensor) -> Tensor:
        """(m, K) logits that gradients can follow back to the images, for white-box attacks."""
        assert self._logits is not None, "a white-box attack sets `needs_gradients`"
        logits = self._logits(images)
        self.charge(rows, decided(logits))
        return logits

    def charge(self, rows: Tensor, answers: Tensor) -> None:
        """Enter answers (m,) into the ledger, one query each at the expense of `rows` (m,)."""
        self.spent.index_add_(0, rows, torch.ones_like(rows))
        self.unusable.index_add_(0, rows, (answers == UNUSABLE).to(rows.dtype))
        if self.heard is not None:
            self.heard()

    def _ask(self, images: Tensor, rows: Tensor) -> Tensor:
        try:
            answers = self._answers(images)
        except Exception as error:  # a black box may raise anything
            answers = self._apart(images, error, images[:WITNESSES])
        self.charge(rows, answers)
        return answers

    def _answers(self, images: Tensor) -> Tensor:
        """(m,) decisions of one forward pass."""
        if self._logits is not None:
            with torch.inference_mode():
                answers = decided(self._logits(images))
        else:
            seen = self._classifier.predict(ImageSet.from_arrays(images.numpy(), layout="NCHW"))
            answers = torch.from_numpy(seen.argmax(axis=1))
        if self._witness is None:
            self._witness = images[:1].clone()
        return answers

    def _apart(self, images: Tensor, error: Exception, others: Tensor) -> Tensor:
        """(m,) decisions on images that the model has raised an error at, asked about in halves.

        Args:
            images: (m, C, H, W).
            error: the error at the whole batch.
            others: images that may show that the model still answers, if none is known yet.
        """
        if len(images) == 1:
            self._bear_witness(error, others)
            return torch.full((1,), UNUSABLE, device=images.device)
        parts = []
        for half in images.tensor_split(2):
            try:
                parts.append(self._answers(half))
            except Exception:
                parts.append(self._apart(half, error, others))
        return torch.cat(parts)

    def _bear_witness(self, error: Exception, others: Tensor) -> None:
        """Raise the error again if the model does not answer an image that it has answered, or any of the others."""
        for image in others if self._witness is None else self._witness:
            try:
                self._answers(image[None])
            except Exception:
                continue
            return
        cause = error.__cause__ if isinstance(error, ModelFailed) else error
        if isinstance(cause, UserError):
            raise error
        raise UserError(
            f"The model answers no more ({type(cause).__name__}: {cause}); once it does, the same call goes on from "
            "the checkpoint, if a folder was named for one."
        ) from error


def decided(logits: Tensor) -> Tensor:
    """(m,) int64 classes of logits (m, K), `UNUSABLE` where they are not all finite."""
    return torch.where(logits.detach().isfinite().all(dim=1), logits.detach().argmax(dim=1), UNUSABLE)
