"""Arrays with a row for each image as a Parquet file, exactly as they were: scores, probabilities, logits, traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import require

__all__ = ["are_columns", "read_table", "write_table"]

WIDEST = 1 << 14  # numbers in a row: beyond it are images, which nobody reads as a table


def are_columns(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether arrays are numbers (n,) or (n, m), with the same n and at least one row."""
    shapes = [array.shape for array in arrays.values()]
    if not shapes or not all(len(shape) in (1, 2) and 0 < shape[0] == shapes[0][0] for shape in shapes):
        return False
    narrow = all(len(shape) == 1 or 0 < shape[1] <= WIDEST for shape in shapes)
    return narrow and all(array.dtype.kind in "iuf" for array in arrays.values())


def write_table(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a column for each array, one of lists where it is (n, m)."""
    arrow, parquet = require("pyarrow", "hub"), require("pyarrow.parquet", "hub")
    columns = {}
    for name, array in arrays.items():
        flat = arrow.array(np.ascontiguousarray(array).reshape(-1))
        columns[name] = flat if array.ndim == 1 else arrow.FixedSizeListArray.from_arrays(flat, array.shape[1])
    # Numbers of a model hardly ever repeat: neither a dictionary nor compression saves what it costs.
    with path.open("wb") as file:  # Python's own file says in the usual words what is wrong with a disk
        parquet.write_table(arrow.table(columns), file, use_dictionary=False, compression="none")


def read_table(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `write_table` wrote."""
    table = require("pyarrow.parquet", "hub").read_table(path)
    found = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        width = getattr(column.type, "list_size", None)
        flat = (column if width is None else column.flatten()).to_numpy(zero_copy_only=False)
        found[name] = np.array(flat).reshape(len(table), *([] if width is None else [width]))
    return found
