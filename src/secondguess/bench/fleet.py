"""How much faster a fleet of small models trains stacked than one after another."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from secondguess._progress import Progress, Silent
from secondguess._versions import versions

__all__ = ["run"]

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
    """Train the same fleet in a loop, stacked, and as `mode="auto"` chooses.

    Returns:
        `{"rows": [{"mode", "seconds", "speed_up"}, ...], ...}`; `speed_up` is loop / this mode.
    """
    import torch

    from secondguess import training, zoo
    from secondguess._device import pick_device

    target = pick_device(device)
    rng = np.random.default_rng(0)
    pixels = rng.random((images, *SHAPE), dtype=np.float32)
    labels = np.arange(images, dtype=np.int64) % 10

    def seconds(mode: Any, steps: int) -> float:
        began = time.perf_counter()
        training.train_fleet(
            lambda member: zoo.make(architecture, seed=member),
            members,
            pixels,
            labels,
            epochs=steps,
            mode=mode,
            device=device,
        )
        if target.type == "cuda":
            torch.cuda.synchronize(target)
        return time.perf_counter() - began

    times: dict[str, float] = {}
    modes = ("loop", "stacked", "auto")
    with (progress or Silent()).task("Training fleets", len(modes)) as advance:
        for done, mode in enumerate(modes):
            if target.type == "cuda":
                seconds(mode, 1)  # the first kernels of a kind are compiled and tuned
            times[mode] = seconds(mode, epochs)
            advance(done + 1, len(modes))
    rows = [{"mode": mode, "seconds": taken, "speed_up": times["loop"] / taken} for mode, taken in times.items()]
    return {
        "architecture": architecture,
        "members": members,
        "images": images,
        "epochs": epochs,
        "device": str(target),
        "versions": versions(),
        "rows": rows,
    }
