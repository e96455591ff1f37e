"""What all supervisors that read activation traces share: which layers, their traces side by side, and broken ones.

A trace that holds NaN or infinity is no place in any space. The same rule holds for all of them: `fit` refuses such a
trace (`TraceSupervisor._training_matrix`), and `score` gives that image +inf and leaves the others as they are
(`TraceSupervisor._by_row`, or `finite_rows` where rows are not measured one by one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor

__all__ = [
    "Layers",
    "TraceSupervisor",
    "chosen_traces",
    "directions",
    "finite_rows",
    "row_blocks",
    "same_width",
    "side_by_side",
]

Layers = str | Trace | Sequence[str | Trace]

_BLOCK_CELLS = 1 << 20  # 8 MiB in double precision


class TraceSupervisor(Supervisor):
    """A supervisor of one or several layers; a subclass calls `super().__init__(layers)`.

    The traces of a single layer are used where they are, which may be a memory-mapped file larger than memory. Those of
    several layers are copied into one matrix in memory, n times the sum of their widths: where that is too much, take
    a narrower `Trace(layer, "grid")`, or one supervisor per layer.

    Args:
        layers: the name of a layer, a `Trace` where the reduction matters, or several of them, whose traces are put
            side by side in that order.
    """

    def __init__(self, layers: Layers = "penultimate") -> None:
        self.layers = list(layers) if isinstance(layers, tuple) else layers  # a saved file holds lists only
        chosen_traces(layers)

    @property
    def needs(self) -> Needs:
        """The traces of the chosen layers."""
        return Needs(traces=frozenset(chosen_traces(self.layers)))

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the chosen layers, in their order."""
        return chosen_traces(self.layers)

    def _matrix(self, observation: Observation) -> NDArray[np.float32]:
        """The traces of the chosen layers, (n, d), whatever they hold."""
        return side_by_side(observation, chosen_traces(self.layers))

    def _training_matrix(self, observation: Observation) -> NDArray[np.float32]:
        """The traces of the chosen layers, (n, d); a `UserError` if one holds NaN or infinity."""
        matrix = self._matrix(observation)
        if (finite := finite_rows(matrix)) is not None:
            raise UserError(
                f"The trace of image {int(finite.argmin())} holds NaN or infinity, from which {self.name!r} cannot "
                "learn; leave such images out, or choose another layer."
            )
        return matrix

    def _by_row(
        self,
        observation: Observation,
        width: int,
        measure: Callable[..., NDArray[np.float64]],
        *beside: NDArray[Any],
    ) -> NDArray[np.float64]:
        """Measure every trace on its own, block by block; (n,), +inf where a trace holds NaN or infinity.

        Args:
            observation: of n images.
            width: how many neurons the training traces had; a `UserError` if these have another number.
            measure: from finite traces (b, d), and what stands beside them, to one number each, (b,).
            beside: further arrays (n, ...), whose rows `measure` takes too.
        """
        matrix = same_width(self._matrix(observation), width, self.name)
        values = np.full(len(matrix), np.inf)
        for rows in row_blocks(*matrix.shape):
            block = np.asarray(matrix[rows], dtype=np.float64)
            finite = np.isfinite(block).all(axis=1)
            others = (np.asarray(array[rows])[finite] for array in beside)
            values[rows][finite] = measure(block if finite.all() else block[finite], *others)
        return values


def chosen_traces(layers: Layers) -> tuple[Trace, ...]:
    """The traces that a choice of layers stands for."""
    single: list[Any] = [layers] if isinstance(layers, str | Trace) else list(layers)
    if not single:
        raise UserError("No layer was chosen; name at least one, or leave the default 'penultimate'.")
    return tuple(one if isinstance(one, Trace) else Trace(one) for one in single)


def side_by_side(observation: Observation, traces: Sequence[Trace]) -> NDArray[np.float32]:
    """The traces of several layers in one matrix (n, d).

    A single one is handed on as it is, memory-mapped or not; several are copied into a new array in memory.
    """
    matrices = [observation.trace(trace) for trace in traces]
    return matrices[0] if len(matrices) == 1 else np.concatenate(matrices, axis=1)


def same_width(matrix: NDArray[np.float32], width: int, name: str) -> NDArray[np.float32]:
    """The matrix (n, d), if it has as many columns as the training traces had; else a `UserError`."""
    if matrix.shape[1] != width:
        raise UserError(
            f"The supervisor {name!r} was fitted on traces of {width} neurons, but these have {matrix.shape[1]}; "
            "observe the same layers of the same model."
        )
    return matrix


def directions(traces: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Traces (n, d) of length one, in float64; those of zeros stay."""
    rows = np.array(traces, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, where=lengths > 0, out=np.zeros_like(rows))


def finite_rows(matrix: NDArray[np.floating[Any]]) -> NDArray[np.bool_] | None:
    """Which rows of a matrix (n, d) hold neither NaN nor infinity, (n,); None if all of them do.

    The matrix may be memory-mapped: it is read once, a block at a time, and never copied as a whole.
    """
    finite = np.ones(len(matrix), dtype=bool)
    for rows in row_blocks(*matrix.shape):
        np.isfinite(matrix[rows]).all(axis=1, out=finite[rows])
    return None if finite.all() else finite


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Consecutive slices of rows, so short that a float64 copy of one is small."""
    step = max(1, _BLOCK_CELLS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
