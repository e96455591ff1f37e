"""The seam between `Classifier` and whatever runs the model.

A backend is fed normalised images and returns the model's raw output with the activations that were asked for. It knows
nothing of probabilities, caches or data sets; that is `Classifier`'s business.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["Backend", "Layer", "digest"]

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """One place inside a model whose output can be recorded.

    Attributes:
        name: what to put into `Trace(layer=...)`.
        kind: what computes it, e.g. `Conv2d` or `MaxPool`.
        shape: its output for one image, the batch axis left out.
        weighted: whether it has weights of its own.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    weighted: bool = False


class Backend(ABC):
    """Runs a model.

    Attributes:
        kind: what it wraps, in words, for messages.
        input_shape: (C, H, W) if the model itself tells, else None.
    """

    kind: ClassVar[str]
    input_shape: tuple[int, int, int] | None = None

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """What this model can be asked for: a subset of probabilities, traces, gradients, dropout."""

    @abstractmethod
    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Run the model once on (n, C, H, W) images.

        Returns:
            The raw output, and the raw output of every layer in `layers`.
        """

    def layers(self, probe: Array) -> list[Layer]:
        """The layers in the order in which they run, their shapes found by running the one image `probe`."""
        return []

    def penultimate(self, probe: Array) -> str:
        """The name of the layer that feeds the last layer with weights."""
        names = [(layer.name, layer.weighted) for layer in self.layers(probe)]
        heads = [index for index, (_, weighted) in enumerate(names) if weighted]
        if not heads or heads[-1] == 0:
            raise UserError(
                "This model has no layer before its last layer with weights, so it has no 'penultimate' trace; "
                "name a layer (classifier.layers() lists them)."
            )
        return names[heads[-1] - 1][0]

    def sample(self, images: Array, count: int, seed: int) -> Array:
        """Run `count` passes with dropout switched on, in one batch; returns raw outputs (n, count, K)."""
        raise UserError(f"{self.kind} has no dropout layers that can be switched on.")

    def identity(self) -> str | None:
        """A digest of weights and structure, or None when there is no way to know what is inside."""
        return None

    def without_layers(self, unknown: Sequence[str], known: Sequence[str]) -> UserError:
        """The error for layer names the model does not have."""
        import difflib

        close = [match for name in unknown for match in difflib.get_close_matches(name, known, n=3)]
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"it has: {', '.join(known)}."
        return UserError(f"The model has no layer {', '.join(map(repr, unknown))}; {hint}")


def digest(*parts: bytes | str) -> str:
    """A hexadecimal digest of the parts, each delimited so that no two lists of parts collide."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()
