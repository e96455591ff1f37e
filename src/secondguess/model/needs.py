"""What to record of a classifier: needs, and traces of layers.

Supervisors, oracles and searches declare their needs; the union of them is observed in a single pass for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["ADVICE", "PENULTIMATE", "Needs", "Trace"]

PENULTIMATE = "penultimate"
GRID_SIDE, GRID_WIDTH = 4, 2048
ADVICE = {  # where a model lacks an ability
    "traces": "wrap the torch module or the ONNX file itself instead of a callable",
    "dropout": "use a torch module with torch.nn.Dropout layers",
    "gradients": "use a torch module",
    "logits": "let the model return its logits",
}


@dataclass(frozen=True, order=True)
class Trace:
    """One layer's activations as a matrix (n, d).

    Attributes:
        layer: a name from `classifier.layers()`; or `"penultimate"`: what the last layer with weights is fed; or a
            share of the depth, such as `"25%"`, which needs no knowledge of the model: the layer that is a quarter of
            the way through `classifier.layers()`, rounded up, so that `"100%"` is the last.
        reduce: what happens to outputs with more than one axis per image. `"flatten"` keeps every number; `"mean"`
            averages over positions: all axes after the channels of a convolution (n, C, H, W), the tokens of a
            transformer (n, T, d). `"grid"` keeps d at 2,048 or less: it averages over tokens, over the cells of a grid
            of at most 4 by 4 positions (fewer where there are many channels), and over runs of neighbours in a row
            that is still longer.
    """

    layer: str = PENULTIMATE
    reduce: Literal["flatten", "mean", "grid"] = "flatten"

    def __post_init__(self) -> None:
        if self.reduce not in ("flatten", "mean", "grid"):
            raise UserError(f"A trace is reduced by 'flatten', 'mean' or 'grid', not by {self.reduce!r}.")
        if self.layer.endswith("%"):
            self._share()

    def __str__(self) -> str:
        return f"{self.layer}/{self.reduce}"

    def apply(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Reduce the raw output (n, ...) of the layer to (n, d)."""
        if self.reduce == "grid" and values.ndim > 3:
            side = self._side(values.shape[1:])
            for axis in range(2, values.ndim):
                values = _cells(values, axis, side)
        if values.ndim == 3 and self.reduce != "flatten":
            values = values.mean(axis=1, dtype=np.float32)
        elif self.reduce == "mean" and values.ndim > 3:
            values = values.mean(axis=tuple(range(2, values.ndim)), dtype=np.float32)
        values = values.reshape(len(values), -1)
        return _cells(values, 1, GRID_WIDTH) if self.reduce == "grid" else values

    def width(self, shape: tuple[int, ...]) -> int:
        """The number of columns d for a layer whose output has this shape, the batch axis left out."""
        if self.reduce != "flatten" and len(shape) == 2:
            shape = shape[1:]
        elif self.reduce == "mean":
            shape = shape[:1]
        elif self.reduce == "grid" and len(shape) > 2:
            shape = (shape[0], *(min(size, self._side(shape)) for size in shape[1:]))
        columns = int(np.prod(shape))
        return min(columns, GRID_WIDTH) if self.reduce == "grid" else columns

    def pick(self, layers: Sequence[str]) -> str:
        """The layer meant, where `layer` is a share of the depth; else `layer` itself.

        Args:
            layers: the names of all layers, in the order in which they run.
        """
        if not self.layer.endswith("%"):
            return self.layer
        if not layers:
            raise UserError(f"The model has no layers that can be traced, so {self.layer!r} of its depth is nowhere.")
        return layers[max(1, ceil(self._share() * len(layers))) - 1]

    def _share(self) -> Fraction:
        try:
            share = Fraction(self.layer.removesuffix("%")) / 100
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        if not 0 < share <= 1:
            raise UserError(f"{self.layer!r} is no share of a model's depth; use '25%', above 0% and up to 100%.")
        return share

    @staticmethod
    def _side(shape: tuple[int, ...]) -> int:
        """The finest grid, at most 4 cells per side, with which the output (C, H, W) keeps to 2,048 numbers."""
        sides = range(GRID_SIDE, 1, -1)
        return next((side for side in sides if shape[0] * side ** (len(shape) - 1) <= GRID_WIDTH), 1)


def _cells(values: NDArray[np.float32], axis: int, most: int) -> NDArray[np.float32]:
    """Means over at most `most` runs of neighbours along an axis, as equally long as can be."""
    size = values.shape[axis]
    if size <= most:
        return values
    starts = np.arange(most) * size // most
    lengths = np.diff(starts, append=size).astype(np.float32)
    sums = np.add.reduceat(values, starts, axis=axis, dtype=np.float32)
    return np.asarray(sums / lengths.reshape(-1, *[1] * (values.ndim - axis - 1)))


@dataclass(frozen=True)
class Needs:
    """What to record of a classifier. Probabilities are always recorded; `a | b` is the union.

    Attributes:
        logits: the outputs before the softmax.
        traces: activations of layers.
        samples: how many stochastic passes with dropout switched on.
        images: the pixels themselves.
        gradients: the model can be differentiated (for attacks); nothing is recorded for it.
    """

    logits: bool = False
    traces: frozenset[Trace] = frozenset()
    samples: int = 0
    images: bool = False
    gradients: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "traces", frozenset(self.traces))
        if self.samples < 0:
            raise UserError(f"The number of dropout samples is {self.samples}; it must be 0 or more.")

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            logits=self.logits or other.logits,
            traces=self.traces | other.traces,
            samples=max(self.samples, other.samples),
            images=self.images or other.images,
            gradients=self.gradients or other.gradients,
        )

    @classmethod
    def union(cls, things: Iterable[Any]) -> Needs:
        """What several things need together, each of which has `needs` or is a `Needs` itself."""
        found = cls()
        for one in things:
            found |= one if isinstance(one, Needs) else one.needs
        return found

    @property
    def abilities(self) -> frozenset[str]:
        """The abilities a classifier must have, in the words of `Classifier.gives`."""
        wanted = {
            "logits": self.logits,
            "traces": bool(self.traces),
            "dropout": self.samples > 0,
            "gradients": self.gradients,
        }
        return frozenset({"probabilities"} | {name for name, needed in wanted.items() if needed})
