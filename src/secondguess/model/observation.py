"""What is seen when a classifier looks at a set of images, and the language in which to ask for it.

`Needs` says what somebody wants to see, `Observation` is what was seen in one pass. Supervisors, oracles and searches
declare their needs; whoever runs them takes the union and makes a single pass for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["Needs", "Observation", "Trace"]

PENULTIMATE = "penultimate"
GRID_SIDE, GRID_WIDTH = 4, 2048


@dataclass(frozen=True, order=True)
class Trace:
    """One layer's activations as a matrix (n, d).

    Attributes:
        layer: a name from `classifier.layers()`; or `"penultimate"`: what the last layer with weights is fed; or a
            share of the depth, such as `"25%"`, for whoever does not know the model: the layer that is a quarter of
            the way through `classifier.layers()`, rounded up, so that `"100%"` is the last.
        reduce: what happens to outputs with more than one axis an image. `"flatten"` keeps every number; `"mean"`
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
        """The finest grid, at most 4 cells a side, with which the output (C, H, W) keeps to 2,048 numbers."""
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
    """What somebody wants to see of a classifier. Probabilities are always given; `a | b` is the union.

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


@dataclass(frozen=True, eq=False)
class Observation:
    """Everything seen of a classifier on n images in one pass. Immutable; arrays may be memory-mapped.

    Attributes:
        probabilities: (n, K) float64, rows sum to one.
        logits: (n, K) float32, or None where the model gives probabilities only.
        traces: one (n, d) float32 array for every trace that was asked for.
        samples: (n, S, K) float32 probabilities of S passes with dropout, or None.
        images: a handle on the n images.
        class_names: K names.
    """

    probabilities: NDArray[np.float64]
    logits: NDArray[np.float32] | None = None
    traces: Mapping[Trace, NDArray[np.float32]] = field(default_factory=dict)
    samples: NDArray[np.float32] | None = None
    images: ImageSource | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.class_names:
            names = tuple(str(k) for k in range(self.probabilities.shape[1]))
            object.__setattr__(self, "class_names", names)

    def __len__(self) -> int:
        return len(self.probabilities)

    def __repr__(self) -> str:
        seen = ["probabilities"]
        seen += ["logits"] if self.logits is not None else []
        seen += [f"trace {trace}" for trace in sorted(self.traces)]
        seen += [f"{self.samples.shape[1]} dropout samples"] if self.samples is not None else []
        return f"Observation({len(self)} images, {self.num_classes} classes: {', '.join(seen)})"

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.probabilities.shape[1])

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The most probable class of each image, (n,); ties go to the lowest index."""
        return self.probabilities.argmax(axis=1).astype(np.int64)

    @cached_property
    def confidences(self) -> NDArray[np.float64]:
        """The probability of the predicted class, (n,)."""
        return np.asarray(self.probabilities.max(axis=1))

    def trace(self, trace: Trace | str) -> NDArray[np.float32]:
        """The (n, d) activations of a layer, by `Trace` or by the name of the layer if that is unambiguous."""
        if isinstance(trace, Trace):
            matches = [trace] if trace in self.traces else []
        else:
            matches = [known for known in self.traces if known.layer == trace]
        if len(matches) != 1:
            seen = ", ".join(str(known) for known in sorted(self.traces)) or "no traces at all"
            problem = "more than one trace" if matches else "no trace"
            raise UserError(
                f"This observation holds {problem} of {str(trace)!r} (it has: {seen}); "
                "ask for it with observe(images, Needs(traces={Trace(layer, reduce)}))."
            )
        return self.traces[matches[0]]

    def take(self, indices: NDArray[np.int64] | slice) -> Observation:
        """The observation of some of the images, in the order of `indices`."""
        images = self.images
        if images is not None:
            from secondguess.images.sources import ViewSource

            images = ViewSource(images, np.arange(len(self))[indices])
        return replace(
            self,
            probabilities=self.probabilities[indices],
            logits=None if self.logits is None else self.logits[indices],
            traces={trace: values[indices] for trace, values in self.traces.items()},
            samples=None if self.samples is None else self.samples[indices],
            images=images,
        )
