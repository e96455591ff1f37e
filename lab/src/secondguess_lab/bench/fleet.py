"""How much faster a fleet of small models trains stacked than one after another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from secondguess.progress import Progress, Silent

__all__ = ["lines", "run"]

SHAPE = (1, 28, 28)


def run(
    *,
    members: int = 20,
    images: int = 2000,
    epochs: int = 1,
    architecture: str = "simple_cnn",
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train the same fleet in a loop, stacked, and as `mode="auto"` chooses; on CUDA with and without replay.

    Returns:
        `{"rows": [{"mode", "replay", "seconds", "speed_up"}, ...], ...}`; `speed_up` is the first row's seconds by
        this one's: a loop, on CUDA without replay.
    """
    import torch

    from secondguess import training, zoo
    from secondguess.devices import pick_device

    target = pick_device(device)
    rng = np.random.default_rng(0)
    pixels = rng.random((images, *SHAPE), dtype=np.float32)
    labels = np.arange(images, dtype=np.int64) % 10

    def seconds(mode: Any, replay: bool, steps: int) -> float:
        began = time.perf_counter()
        training.train_fleet(
            lambda member: zoo.make(architecture, seed=member),
            members,
            pixels,
            labels,
            epochs=steps,
            mode=mode,
            replay=replay,
            device=device,
        )
        if target.type == "cuda":
            torch.cuda.synchronize(target)
        return time.perf_counter() - began

    rows: list[dict[str, Any]] = []
    replays = (False, True) if target.type == "cuda" else (False,)
    ways = [(mode, replay) for mode in ("loop", "stacked", "auto") for replay in replays]
    with (progress or Silent()).task("Training fleets", len(ways)) as advance:
        for mode, replay in ways:
            if target.type == "cuda":
                seconds(mode, replay, 1)  # the first kernels of a kind are compiled and tuned
            taken = seconds(mode, replay, epochs)
            first = rows[0]["seconds"] if rows else taken
            rows.append({"mode": mode, "replay": replay, "seconds": taken, "speed_up": first / taken})
            advance(len(rows), len(ways))
    return {
        "architecture": architecture,
        "members": members,
        "images": images,
        "epochs": epochs,
        "device": str(target),
        "rows": rows,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"{result['members']} x {result['architecture']}, {result['images']:,} images, {result['device']}"
    for row in result["rows"]:
        way = f"{row['mode']}, replayed" if row["replay"] else row["mode"]
        yield f"  {way:<17} {row['seconds']:8.2f} s   {row['speed_up']:5.2f} x the loop"
