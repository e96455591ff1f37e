"""A guard behind the interface of an image-classification pipeline of transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.errors import UserError
from secondguess.guard import Guard, Guarded, Judgement

__all__ = ["GuardedPipeline"]

TOP = 5  # answers for each image, as a pipeline gives them
REMOTE = ("http://", "https://")


class GuardedPipeline:
    """Called like the pipeline that it guards, and answers as it does, with the verdict beside each label.

        pipe = pipeline("image-classification", "my/model")
        guard = sg.Guard().fit(pipe, train, validation)
        pipe = GuardedPipeline(pipe, guard)
        pipe("cat.jpg")[0]
        # {"label": "cat", "score": 0.97, "verdict": "nominal", "action": "accept", "p_value": 0.4}

    Images are resized as those were that the guard was fitted on, since its promise holds for no others; for images of
    another size the scores may therefore differ a little from those of the pipeline alone.

    Args:
        pipeline: of transformers, for image classification.
        guard: fitted on it, or the folder that such a guard was saved in.
    """

    task = "image-classification"

    def __init__(self, pipeline: Any, guard: Guard | str | Path) -> None:
        self.pipeline = pipeline
        self.guarded = Guarded(pipeline, guard)

    def __call__(self, inputs: Any = None, *, images: Any = None, top_k: int | None = TOP, batch_size: int = 1) -> Any:
        """The most probable labels of one image, as a list; of several, a list of such lists.

        Args:
            inputs: a path, a picture of Pillow's, or a list of these; an iterator is answered lazily, by an iterator.
            images: another name for them, as pipelines have it.
            top_k: how many labels; None for all.
            batch_size: how many images of an iterator are judged at a time.
        """
        given = images if inputs is None else inputs
        if given is None:
            raise UserError("No image was given; give a path, a picture, or a list of these.")
        if top_k is not None and top_k < 1:
            raise UserError(f"top_k is {top_k}; ask for at least 1 label, or None for all.")
        if isinstance(given, Iterator):
            return self._stream(given, top_k, batch_size)
        if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            return self._answers(given, top_k)
        return self._answers([given], top_k)[0]

    def _stream(self, images: Iterator[Any], top_k: int | None, batch_size: int) -> Iterator[list[dict[str, Any]]]:
        while some := list(islice(images, batch_size)):
            yield from self._answers(some, top_k)

    def _answers(self, images: Sequence[Any], top_k: int | None) -> list[list[dict[str, Any]]]:
        for one in images:
            if isinstance(one, str) and one.startswith(REMOTE):
                raise UserError(f"{one} is an address; fetch the image and give its path or its bytes.")
        if not images:
            return []
        judged = self.guarded([os.fspath(one) if isinstance(one, os.PathLike) else one for one in images])
        return [_answer(one, judged.class_names, top_k) for one in judged]


def _answer(one: Judgement, names: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """The most probable labels first, as a pipeline has them, and what is the same for all of them."""
    said = {"verdict": str(one.verdict), "action": one.action, "p_value": one.p_value}
    best = np.argsort(-one.probabilities, kind="stable")[:top_k]
    return [{"label": names[place], "score": float(one.probabilities[place]), **said} for place in best]
