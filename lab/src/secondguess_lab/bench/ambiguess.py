"""What an autoencoder of AmbiGuess costs, alone and in a fleet, and how many of its points survive the final filter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from secondguess.progress import Progress, Silent

__all__ = ["lines", "run"]

PAIR = (3, 8)


def run(
    *,
    data: str = "mnist5k",
    members: int = 8,
    epochs: int = 80,
    batch_size: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train one autoencoder, then `members` of them together, and draw from those.

    Returns:
        `{"rows": [{"work", "autoencoders", "seconds", "seconds_each"}, ...], "final_filter_share": ...}`.
    """
    import torch

    from secondguess.devices import pick_device
    from secondguess.images import load
    from secondguess.stress.ambiguous import AmbiGuess

    dataset = load(data)
    train = dataset.train or dataset.test
    target = pick_device(device)
    rows, trained = [], None
    with (progress or Silent()).task("Training autoencoders", 2) as advance:
        for done, (work, count) in enumerate((("alone", 1), ("in a fleet", members))):
            guess = AmbiGuess(pairs=[PAIR], autoencoders=count, epochs=epochs, batch_size=batch_size, device=device)
            began = time.perf_counter()
            trained = guess.train(train, [PAIR])
            if target.type == "cuda":
                torch.cuda.synchronize(target)
            seconds = time.perf_counter() - began
            rows.append({"work": work, "autoencoders": count, "seconds": seconds, "seconds_each": seconds / count})
            advance(done + 1, 2)
    made = AmbiGuess(pairs=[PAIR], realism=False, device=device).generate(train, 500, trained=trained)
    return {
        "data": data,
        "images": int(sum((train.labels == label).sum() for label in PAIR)),
        "epochs": epochs,
        "device": str(target),
        "final_filter_share": made.card["final_filter_share"],
        "accepted": made.card["autoencoders"]["accepted"],
        "rows": rows,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"pair 3-8 of {result['data']}: {result['images']:,} images, {result['epochs']} epochs, {result['device']}"
    for row in result["rows"]:
        yield f"  {row['work']:<12} {row['autoencoders']:>3} autoencoders   {row['seconds_each']:8.2f} s each"
    yield f"  {result['final_filter_share']:.1%} of the drawn points survive the final filter"
