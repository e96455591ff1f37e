"""A callable as a model: an endpoint, another framework, anything that maps images to class scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from secondguess.errors import UserError
from secondguess.model.backends.base import Array, Backend, chosen_output, foreign_code

__all__ = ["FunctionBackend"]


class FunctionBackend(Backend):
    """Wraps `function(images) -> (n, K)`; `images` are float32 (n, C, H, W) NumPy arrays."""

    kind = "A callable"

    def __init__(
        self, function: Callable[[Array], Any], *, identity: str | None = None, output: int | str | None = None
    ) -> None:
        self.function, self.output = function, output
        self._identity = identity

    @property
    def gives(self) -> frozenset[str]:
        """Probabilities only: the inside of a callable cannot be observed."""
        return frozenset({"probabilities"})

    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Call the function; lists, torch tensors and other array-likes are taken too."""
        if layers:
            raise UserError("A callable has no layers to observe; wrap the torch module or the ONNX file itself.")
        with foreign_code("The model failed on images of shape", images.shape[1:]):
            output = self.function(images)
        if self.output is not None:
            output = chosen_output(output, self.output, self.kind)
        if hasattr(output, "detach"):
            output = output.detach().cpu()
        try:
            # float64, if given, keeps apart the probabilities close to 1 that float32 rounds to 1
            return np.asarray(output, dtype=np.float64), {}
        except (TypeError, ValueError) as error:
            raise UserError(
                f"The callable returned {type(output).__name__}, which is not an array of numbers (n, K)."
            ) from error

    def identity(self) -> str | None:
        """The version given by the user; code behind a callable cannot be hashed."""
        return self._identity
