"""docs/ambiguity.md: what to expect of a generator of photographs."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, record, says
from secondguess.stress.ambiguous.flow.generator import STEPS

PAGE = "docs/ambiguity.md"


def claims() -> Iterator[Claim]:
    """All of them."""
    made = record("ambiguity/photos.json")["generation"]
    card = made["card"]
    counts = [row["images"] for row in card["pairs"]]
    yield says(
        "with {:,} steps (5,000 is the default) and {:,} images on one H200: {:.0f} seconds of training, beside which "
        "the committee learnt, and {:.0f} of calibrating the judge, then {:.0f} seconds for a thousand "
        "images; one candidate in {:.1f} is accepted. All {} pairs have the {} images that were asked for.",
        made["training"]["origin"]["schedule"]["steps"],
        card["images"],
        *(made["training"]["seconds"][part] for part in ("training", "calibration")),
        1000 * card["seconds"] / card["images"],
        card["drawn"] / card["passed"]["settled"],
        len(counts),
        min(counts),
        provided=len(set(counts)) == 1 and STEPS["full"] == 5000,
    )
