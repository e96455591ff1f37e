"""docs/evidence/ambiguity_baselines.md: three generators by one standard."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, find, record, rows, says

PAGE = "docs/evidence/ambiguity_baselines.md"
LINE = " | {:.0f} | {:.2f} | {:.2f} |"


def claims() -> Iterator[Claim]:
    """All of them."""
    kept = record("ambiguity/baselines.json")
    blend, mixture, checked, unchecked = (
        find(kept["rows"], generator=name)
        for name in ("Pixel blend", "Latent mixture", "AmbiGuess", "AmbiGuess, nothing rejected")
    )
    measures = ("seconds", "label_entropy_bits", "realism_share")
    yield rows(
        ("| pixel blend" + LINE, *(blend[key] for key in measures)),
        ("| latent mixture" + LINE, *(mixture[key] for key in measures)),
        ("| AmbiGuess without its realism check | | {:.2f} | {:.2f} |", *(unchecked[key] for key in measures[1:])),
        ("| AmbiGuess" + LINE, *(checked[key] for key in measures)),
    )
    yield says(
        "a third of the blends pass the check of realism all the same, nearly as many as of AmbiGuess' images",
        provided=abs(blend["realism_share"] - 1 / 3) < 0.03
        and 0 < unchecked["realism_share"] - blend["realism_share"] < 0.05,
    )
    labels = mixture["largest_labels_shown"]
    yield says(
        "But {} of the {} images above have a label above 85 %", sum(label > 0.85 for label in labels), len(labels)
    )
