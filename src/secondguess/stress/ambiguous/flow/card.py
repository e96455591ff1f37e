"""The card of a set that AmbiFlow made: what, from what, and how much of it survived which check."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from secondguess.images import ImageSet
from secondguess.stress.ambiguous.base import Candidates
from secondguess.stress.ambiguous.flow.drawing import FlowDrawer
from secondguess.stress.ambiguous.flow.model import Flow
from secondguess.stress.ambiguous.flow.reality import nearest_distances
from secondguess.stress.ambiguous.flow.selection import CHECKS

__all__ = ["flow_card"]

LEAST_FOR_KERNEL = 20  # images


def flow_card(
    train: ImageSet, flow: Flow, drawer: FlowDrawer, chosen: Candidates, count: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """A JSON-able description of `chosen`, which was drawn when `count` images were asked for."""
    names = train.class_names
    images = Counter((int(a), int(b)) for a, b in chosen.pair)
    both = np.stack([chosen.p1, 1 - chosen.p1])
    entropy = -(both * np.log2(np.maximum(both, 1e-300))).sum(axis=0)
    barren = [pair for pair in sorted(drawer.drawn) if not drawer.passed[CHECKS[-1]][pair]]
    notes = []
    if barren:
        spelt = ", ".join(f"{names[a]}-{names[b]}" for a, b in barren)
        notes.append(f"No composition of {spelt} passed every check.")
    if len(chosen) < count:
        reason = "the time was up" if drawer.out_of_time else "the pairs did not yield more"
        notes.append(f"{len(chosen)} images instead of {count}: {reason}.")
    distance = nearest_distances(chosen.images, train)
    reality, committee = drawer.selection.reality, drawer.selection.committee
    measured = reality.measure(chosen.images) if reality and len(chosen) >= LEAST_FOR_KERNEL else None
    return {
        "generator": "AmbiFlow",
        "settings": settings,
        "train": train.describe(),
        "images": len(chosen),
        "label_entropy_bits": float(entropy.mean()),
        "judge": flow.history.get("judge"),
        "scale_of_shares": {
            "judge": flow.judge.shares.scale,
            "committee": None if committee is None else committee.shares.scale,
        },
        "pool": None if committee is None else drawer.selection.pool.to_dict(),
        "dial": {"slope": drawer.dial.slope, "followed": drawer.dial.followed()},
        "dial_again": {"slope": drawer.dial_again.slope, "kept": drawer.dial_again.kept},
        "seconds": drawer.seconds,
        "drawn": sum(drawer.drawn.values()),
        "again": sum(drawer.again.values()),
        "passed": {check: sum(drawer.passed[check].values()) for check in CHECKS},
        "realism": measured,
        "nearest_training_image": {
            "median": float(np.median(distance)),
            "smallest": float(distance.min()),
        },
        "pairs": [
            {
                "pair": [names[a], names[b]],
                "images": images[a, b],
                "drawn": drawer.drawn[a, b],
                "again": drawer.again[a, b],
                **{check: drawer.passed[check][a, b] for check in CHECKS},
            }
            for a, b in sorted(drawer.drawn)
        ],
        "notes": notes,
    }
