"""What a model answers to images of noise, which shows what its outputs are where there are few real ones, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.model.outputs import TOLERANCE, as_matrix

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["answers_to_noise", "with_noise"]

NOISE = 16  # images
ENOUGH = 64  # rows of outputs that show what they are


def answers_to_noise(classifier: Classifier, shape: tuple[int, int, int]) -> NDArray[Any]:
    """The model's output (n, K) for a few images (C, H, W) of noise."""
    noise = np.random.default_rng(0).random((NOISE, *shape), dtype=np.float32)
    return as_matrix(classifier.backend.forward(classifier.normalised(noise))[0], NOISE)


def with_noise(classifier: Classifier, raw: NDArray[Any], shape: tuple[int, int, int] | None) -> NDArray[Any]:
    """Outputs (n, K), with those for noise below them where so few look like probabilities and may be logits.

    They stay as they are where the shape of images is not known, the model cannot take noise, or it is a callable,
    which may be far away and cost something.
    """
    clear = raw.min() < -TOLERANCE or raw.max() > 1 + TOLERANCE
    if len(raw) >= ENOUGH or clear or shape is None or "traces" not in classifier.gives:
        return raw
    try:
        more = answers_to_noise(classifier, shape)
    except Exception:  # a model may refuse noise for any reason, and nobody has asked about it
        return raw
    return np.concatenate([raw, more]) if more.shape[1] == raw.shape[1] else raw
