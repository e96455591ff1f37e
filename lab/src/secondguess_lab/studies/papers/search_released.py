"""The pool that Maurer and Bennette released in 2019, before their paper on adversarial distances.

It is made by lab/experiments/search_released.py: the file holds distances and answers, and no images to run a task on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess_lab.studies.base import Study
from secondguess_lab.studies.papers.search import TITLES
from secondguess_lab.studies.tables import Cell, Table

__all__ = ["STUDIES"]


def _table(kept: Mapping[str, Any]) -> Table:
    """Discovery ratios and lifts: of searches on parts of the pool, and of the authors' own order on all of it."""
    study = kept["study"]
    cells = {("whole pool", "SDR"): Cell(study["pool_sdr"])}
    for smoother, ratios in kept["whole"].items():
        row = f"all images, adversarial distance, {smoother}"
        for queries, ratio in ratios.items():
            cells[row, f"{queries} queries"] = Cell(ratio)
            cells[row, f"{queries} queries, lift"] = Cell(ratio / study["pool_sdr"])
    for one in study["table"]:
        row = f"parts of {study['subset']:,}, {TITLES[one['method']]}"
        cells[row, f"{one['queries']} queries"] = Cell(one["sdr"]["pooled"], n=study["replications"])
        cells[row, f"{one['queries']} queries, lift"] = Cell(one["lift"]["pooled"], n=study["replications"])
    return Table(cells)


STUDIES = (
    Study.by_script(
        "lab/experiments/search_released.py",
        "search/released.json",
        _table,
        name="search-released",
        paper="Maurer, Bennette: Facility locations utility for uncovering classifier overconfidence, 2019",
        table="The released pool",
        summary="Discovery ratio of adversarial distance on the pool that its authors released, beside the pool's own.",
        note="Photographs predicted dog by a network of February 2019; it is not the pool of the paper of 2020. "
        "Quadratic is the smoother of the authors' R code, whose number they print; linear, robust that of their "
        "Python code. A lift is the ratio over that of the whole pool.",
    ),
)
