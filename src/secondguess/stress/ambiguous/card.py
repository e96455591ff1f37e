"""The ambiguity card: what was made, from what, and how much of it survived which check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from secondguess.images import ImageSet
from secondguess.stress.ambiguous.acceptance import TrainedFleet
from secondguess.stress.ambiguous.base import Candidates, LatentPicture
from secondguess.stress.ambiguous.drawing import Drawer
from secondguess.stress.ambiguous.latent import survey

__all__ = ["ambiguity_card", "latent_picture"]

PICTURED = 1500  # training images in the picture of a latent space


def ambiguity_card(
    train: ImageSet, drawer: Drawer, chosen: Candidates, count: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """A JSON-able description of `chosen`, which was drawn when `count` images were asked for."""
    members = [(m, ok) for one in drawer.trained for m, ok in zip(one.fleet.members, one.accepted, strict=True)]
    tried = Counter(member.pair for member, _ in members)
    accepted = Counter(member.pair for member, ok in members if ok)
    images = Counter((int(a), int(b)) for a, b in chosen.pair)
    names = train.class_names
    both = np.stack([chosen.p1, 1 - chosen.p1])
    entropy = -(both * np.log2(np.maximum(both, 1e-300))).sum(axis=0)
    notes = []
    if unaccepted := [pair for pair in tried if not accepted[pair]]:
        notes.append(f"No autoencoder was accepted for {_spelt(unaccepted, names)}.")
    if drawer.barren:
        notes.append(f"No realistic ambiguity was found between {_spelt(sorted(drawer.barren), names)}.")
    if len(chosen) < count:
        notes.append(f"{len(chosen)} images instead of {count}: the pairs did not yield more.")
    return {
        "generator": "AmbiGuess",
        "settings": settings,
        "train": train.describe(),
        "images": len(chosen),
        "label_entropy_bits": float(entropy.mean()),
        "autoencoders": {
            "trained": len(members),
            "accepted": sum(accepted.values()),
            "reconstruction_mse": float(np.concatenate([one.reconstruction for one in drawer.trained]).mean()),
        },
        "final_filter_share": _ratio(drawer.ambiguous, drawer.drawn),
        "realism_share": _ratio(drawer.realistic, drawer.ambiguous),
        "pairs": [
            {
                "pair": [names[a], names[b]],
                "images": images[a, b],
                "autoencoders": tried[a, b],
                "accepted": accepted[a, b],
                "realism_share": drawer.realistic[a, b] / max(1, drawer.ambiguous[a, b]),
            }
            for a, b in sorted(tried)
        ],
        "notes": notes,
    }


@torch.no_grad()
def latent_picture(
    train: ImageSet, trained: Sequence[TrainedFleet], chosen: Candidates, *, delta_max: float, cells: int, mode: Any
) -> LatentPicture:
    """The plane of the autoencoder that gave the most images."""
    keys = Counter(zip(map(tuple, chosen.pair.tolist()), chosen.origin["autoencoder"].tolist(), strict=True))
    pair, number = keys.most_common(1)[0][0]
    one = next(
        stack.fleet.only(index)
        for stack in trained
        for index, member in enumerate(stack.fleet.members)
        if (member.pair, member.number) == (pair, number)
    )
    rows = np.flatnonzero(np.isin(train.labels, pair))
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), PICTURED)).astype(np.int64)]  # they may be sorted by class
    z = one.encode(torch.from_numpy(train.images[rows]).to(one.device)[None])[0].cpu().numpy()
    grid = survey(one, delta_max=delta_max, cells=cells, mode=mode)
    mine = (chosen.pair == pair).all(axis=1) & (chosen.origin["autoencoder"] == number)
    half_width, half_height = (side * cells / 2 for side in grid.cell)
    return LatentPicture(
        pair=(train.class_names[pair[0]], train.class_names[pair[1]]),
        z=z.astype(np.float64),
        which=(train.labels[rows] == pair[1]).astype(np.int64),
        weights=grid.weights[0].cpu().numpy().astype(np.float64),
        bounds=(-half_width, half_width, -half_height, half_height),
        drawn=np.stack([chosen.origin["z_1"][mine], chosen.origin["z_2"][mine]], axis=1),
    )


def _ratio(part: Counter[tuple[int, int]], whole: Counter[tuple[int, int]]) -> float:
    """The mean over pairs: productive pairs are drawn from less often, so that a plain ratio would underweight them."""
    return float(np.mean([part[pair] / whole[pair] for pair in whole if whole[pair]])) if whole else 0.0


def _spelt(pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    return ", ".join(f"{names[a]}-{names[b]}" for a, b in pairs)
