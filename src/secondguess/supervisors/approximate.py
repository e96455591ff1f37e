"""Approximate nearest neighbours through FAISS: traces are sorted into cells, and only the nearest cells searched.

An inverted file with flat lists (Johnson, Douze and Jegou, Billion-scale similarity search with GPUs, 2019; FAISS's
`IndexIVFFlat`): about sqrt(m) cells by k-means. FAISS only names candidates; their distances are measured in double
precision from the traces as they were given.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import require

__all__ = ["Cells"]

PER_CELL = 39  # traces that k-means wants for each cell, below which FAISS warns
MOST_LEARNT_FROM = 256  # for each cell


class Cells:
    """Unit vectors (m, d), sorted into cells.

    Args:
        units: the vectors.
        seed: of the k-means.
    """

    def __init__(self, units: NDArray[np.float64], seed: int) -> None:
        faiss = require("faiss", "faiss")
        rows, width = np.ascontiguousarray(units, dtype=np.float32), units.shape[1]
        cells = max(1, min(int(math.sqrt(len(rows))), len(rows) // PER_CELL))
        self._index = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, cells)
        self._index.cp.seed, self._index.cp.max_points_per_centroid = seed, MOST_LEARNT_FROM
        self._index.train(rows)
        self._index.add(rows)

    def candidates(self, units: NDArray[np.float64], count: int, probes: int) -> NDArray[np.int64]:
        """About the nearest vectors (n, count) to each of these (n, d), -1 where fewer were found."""
        self._index.nprobe = min(probes, self._index.nlist)
        asked = np.ascontiguousarray(units, dtype=np.float32)
        found: NDArray[np.int64] = self._index.search(asked, count)[1]
        return found
