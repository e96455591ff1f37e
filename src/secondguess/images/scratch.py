"""Room for images that are being made: memory for few of them, an unnamed file for many."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["IN_MEMORY", "scratch"]

IN_MEMORY = 128 << 20  # bytes


def scratch(shape: tuple[int, ...], dtype: DTypeLike, folder: Path | None = None) -> NDArray[Any]:
    """An uninitialised array: in memory up to 128 MiB, else mapped from a file that vanishes with it.

    Pages of the file that nobody looks at go back to the system, so that a set of any size takes little memory.

    Args:
        shape: of the array.
        dtype: of its values.
        folder: where the file is made; the system's folder for temporary files if left out.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:  # the mapping keeps what the name no longer leads to
        file.truncate(size)
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
