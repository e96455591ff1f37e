"""What is seen when a classifier looks at a set of images, and the language in which to ask for it.

`Needs` says what somebody wants to see, `Observation` is what was seen in one pass. Supervisors, oracles and searches
declare their needs; whoever runs them takes the union and makes a single pass for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.data import ImageSource

__all__ = ["Needs", "Observation", "Trace"]

PENULTIMATE = "penultimate"


@dataclass(frozen=True, order=True)
class Trace:
    """One layer's activations as a matrix (n, d).

    Attributes:
        layer: a name from `classifier.layers()`, or `"penultimate"`: what the last layer with weights is fed.
        reduce: what happens to outputs with more than one axis an image. `"flatten"` keeps every number; `"mean"`
            averages over positions: all axes after the channels of a convolution (n, C, H, W), the tokens of a
            transformer (n, T, d).
    """

    layer: str = PENULTIMATE
    reduce: Literal["flatten", "mean"] = "flatten"

    def __post_init__(self) -> None:
        if self.reduce not in ("flatten", "mean"):
            raise UserError(f"A trace is reduced by 'flatten' or 'mean', not by {self.reduce!r}.")

    def __str__(self) -> str:
        return f"{self.layer}/{self.reduce}"

    def apply(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Reduce the raw output (n, ...) of the layer to (n, d)."""
        if self.reduce == "mean" and values.ndim > 3:
            values = values.mean(axis=tuple(range(2, values.ndim)), dtype=np.float32)
        elif self.reduce == "mean" and values.ndim == 3:
            values = values.mean(axis=1, dtype=np.float32)
        return values.reshape(len(values), -1)

    def width(self, shape: tuple[int, ...]) -> int:
        """The number of columns d for a layer whose output has this shape, the batch axis left out."""
        if self.reduce == "mean" and len(shape) > 1:
            return shape[0] if len(shape) > 2 else shape[1]
        return int(np.prod(shape))


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
            from secondguess.data.sources import ViewSource

            images = ViewSource(images, np.arange(len(self))[indices])
        return replace(
            self,
            probabilities=self.probabilities[indices],
            logits=None if self.logits is None else self.logits[indices],
            traces={trace: values[indices] for trace, values in self.traces.items()},
            samples=None if self.samples is None else self.samples[indices],
            images=images,
        )
