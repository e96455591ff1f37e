"""Table I of Bennette, Maurer and Sisti 2020: how accurate the networks are whose errors are searched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess_lab.studies.base import Study
from secondguess_lab.studies.papers.search import NOT_AT_HAND, PAPER
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES"]

PARTS = ("validation", "test")


def _table(kept: Mapping[str, Any]) -> Table:
    """Accuracies over all networks, and over those that were trained without as many of the darkest cats."""
    groups: dict[str, list[Mapping[str, Any]]] = {"cats_dogs": []}
    for network in kept["networks"].values():
        groups["cats_dogs"].append(network)
        groups.setdefault(f"cats_dogs without the darkest {100 * network['share']:.0f} %", []).append(network)
    cells: dict[tuple[str, str], Cell] = {}
    for row, mine in groups.items():
        cells |= {(row, part): cell_of([network[f"{part}_accuracy"] for network in mine]) for part in PARTS}
    return Table(cells)


STUDIES = (
    Study.by_script(
        "lab/experiments/search_networks.py",
        "search/networks.json",
        _table,
        name="search-table1",
        paper=PAPER,
        table="Table I",
        summary="Accuracy of the networks on validation and test images.",
        note="The paper has one network, and does not say how many black cats were left out of its training images. "
        "Validation images are like training images, test images are not: where the two accuracies are equal, little "
        "was left out. Spreads are over the networks.",
        not_at_hand=NOT_AT_HAND,
    ),
)
