"""The interface between `Classifier` and what runs the model.

A backend is fed normalised images and returns the model's raw output with the requested activations. Probabilities,
caches and data sets are left to `Classifier`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

if TYPE_CHECKING:
    import torch

__all__ = [
    "ONNX_VALUES",
    "TORCH_VALUES",
    "Backend",
    "Layer",
    "ModelFailed",
    "Recorder",
    "chosen_output",
    "digest",
    "first_line",
    "foreign_code",
    "without_padding",
]

Array = NDArray[np.float32]
TORCH_VALUES = 1 << 18  # of the images in a pass on a processor: 85 colour images of 32 pixels, 21 of 64
# The same for ONNX Runtime, which keeps the memory that its largest pass took: 682 of 32 pixels, 13 of 224.
ONNX_VALUES = 1 << 21


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


class ModelFailed(UserError):
    """Code of the user's raised an error, which is the cause of this one."""


class Backend(ABC):
    """Runs a model.

    Attributes:
        kind: what it wraps, in words, for messages.
        input_shape: (C, H, W) if the model states it, else None.
        outputs: the names of what the model returns; empty where it does not name them.
        values: of the images in a pass, at most; None where a large pass is as quick as any. On a processor the system
            hands out and clears the memory for large activations anew each time, which can double the time; and 256
            photographs of 224 pixels take gigabytes in the first layers of a network.
    """

    kind: ClassVar[str]
    input_shape: tuple[int, int, int] | None = None
    outputs: tuple[str, ...] = ()
    values: int | None = None

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """What this model provides: a subset of probabilities, traces, gradients, dropout."""

    @abstractmethod
    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Run the model once on (n, C, H, W) images.

        Returns:
            The raw output, and the raw output of every layer in `layers`.
        """

    def recorder(self, layers: Sequence[str], shape: tuple[int, ...]) -> Recorder:
        """A recorder that runs the model repeatedly on images (C, H, W) and records the same layers each time."""
        return Recorder(self, layers, shape)

    def layers(self, probe: Array) -> list[Layer]:
        """The layers in the order in which they run, their shapes found by running the one image `probe`."""
        return []

    def penultimate(self, probe: Array) -> str:
        """The name under which `forward` records what the last layer with weights is fed."""
        raise self.without_penultimate()

    def sample(self, images: Array, count: int, seed: int) -> Array:
        """Run `count` passes with dropout switched on; returns raw outputs (n, count, K).

        Pass s must not depend on `count`, so that fewer samples are the first of many.
        """
        raise UserError(f"{self.kind} has no dropout layers that can be switched on.")

    def differentiable(self, images: torch.Tensor) -> torch.Tensor:
        """Run the model on a tensor (n, C, H, W) and return its raw output, with gradients for the images alone."""
        raise UserError(f"{self.kind} has no gradients.")

    def identity(self) -> str | None:
        """A digest of weights and structure, or None where the content cannot be known."""
        return None

    def without_penultimate(self) -> UserError:
        """The error for a model whose last layer with weights is fed the image itself, or that has none."""
        return UserError(
            "This model has no layer before its last layer with weights, so it has no 'penultimate' trace; "
            "name a layer (classifier.layers() lists them)."
        )

    def without_layers(self, unknown: Sequence[str], known: Sequence[str]) -> UserError:
        """The error for layer names the model does not have."""
        import difflib

        close = [match for name in unknown for match in difflib.get_close_matches(name, known, n=3)]
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"it has: {', '.join(known)}."
        return UserError(f"The model has no layer {', '.join(map(repr, unknown))}; {hint}")


class Recorder:
    """Runs a model for a session: many times, on few images, with the same layers recorded each time.

    This one calls `Backend.forward`; a backend that can prepare something beforehand has its own. Several threads may
    call it at the same time.

    Args:
        backend: runs the model.
        layers: whose outputs are recorded.
        shape: (C, H, W) of the images.
    """

    def __init__(self, backend: Backend, layers: Sequence[str], shape: tuple[int, ...]) -> None:
        self._backend, self._layers, self.shape = backend, tuple(layers), shape

    def __call__(self, images: Array) -> tuple[Array, dict[str, Array]]:
        """What `Backend.forward` returns for (n, C, H, W) images."""
        return self._backend.forward(images, self._layers)

    def close(self) -> None:
        """Release what was prepared."""


@contextmanager
def foreign_code(what: str, *of: object, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Run code of the user's: whatever it raises becomes one sentence, and it cannot end the process by an exit.

    Args:
        what: the beginning of the sentence, such as "The model failed on images of shape".
        of: what follows it, such as (3, 32, 32); becomes text only if it is needed, because the text of a shape is
            what a trace of torch's cannot follow.
        passing: errors that the caller has a better sentence for.
    """
    untouched: tuple[type[Exception], ...] = (UserError, Warning, *passing)  # warnings are raised on demand only
    try:
        yield
    except untouched:
        raise
    except (Exception, SystemExit) as error:
        beginning = " ".join([what, *map(str, of)])
        raise ModelFailed(f"{beginning} ({type(error).__name__}: {first_line(error)}); --debug shows where.") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def chosen_output(output: Any, which: int | str | None, kind: str) -> Any:
    """The class scores among what a model returned: a tensor, several of them, or several by name.

    Args:
        output: what the model returned.
        which: the name or the number of the class scores; None where there is only one, or where it is `logits`.
        kind: the model in words, for the message.
    """
    several = isinstance(output, (tuple, list, dict))
    if which is None:
        if hasattr(output, "logits"):  # what Hugging Face models return
            return output.logits
        if not several:
            return output
        if len(output) == 1 and not isinstance(output, dict):
            return output[0]
        names = ", ".join(map(str, output if isinstance(output, dict) else range(len(output))))
        raise UserError(
            f"{kind} returned {type(output).__name__} (outputs {names}) where one tensor (n, K) was expected; say "
            "which has the class scores with output= (`use` under [output] in a model.toml)."
        )
    if several:
        with suppress(KeyError, IndexError, TypeError):
            return output[which]
    if isinstance(which, str) and hasattr(output, which):
        return getattr(output, which)
    if which == 0 and not several:
        return output
    raise UserError(f"{kind} has no output {which!r}; it returned {type(output).__name__}.")


def digest(*parts: bytes | memoryview | str) -> str:
    """A hexadecimal digest of the parts, each delimited so that no two lists of parts collide."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def without_padding(parts: Sequence[Array], count: int, batch: int | None) -> Array:
    """Join the outputs of consecutive batches and cut off the rows that filled up the last one.

    Args:
        parts: one output per batch.
        count: the number of images.
        batch: the fixed batch size of the model, or None.

    Returns:
        One row per image; an output with another number of rows per batch is joined and left as it is.
    """
    whole: Array = np.concatenate([np.atleast_1d(part) for part in parts])
    return whole[:count] if len(whole) == len(parts) * (batch or count) else whole
