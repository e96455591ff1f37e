"""What `secondguess generate companion --measure` does: how real the images of a folder are, added to its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess._files import write_json
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.cli.companion import Choices
    from secondguess.hubris import Yardstick
    from secondguess.progress import Progress

__all__ = ["spelt", "with_realism", "yardstick"]


def yardstick(choices: Choices, count: int) -> Yardstick:
    """What the `count` images will be measured against; what cannot be measured is told now, before the long work."""
    from secondguess.cli.companion import class_numbers
    from secondguess.hubris.realism import LEAST, Yardstick
    from secondguess.images import load

    if count < LEAST:
        raise UserError(f"--measure was given for {count} images; at least {LEAST} are needed, give a larger --count.")
    dataset = load(choices.data, **choices.loading)
    classes = class_numbers(choices.classes, dataset.train or dataset.test)
    return Yardstick.of(dataset, classes, seed=choices.seed)


def with_realism(out: Path, real: Yardstick, choices: Choices, progress: Progress) -> dict[str, Any]:
    """Measure the images in `out`, write that into their card, and return it."""
    from secondguess.images import load_images

    images, path = load_images(out / "images.npz"), out / "card.json"
    measured = real.measure(images, seed=choices.seed, device=choices.device, progress=progress)
    card: dict[str, Any] = json.loads(path.read_text("utf-8")) | {"realism": measured}
    write_json(path, card)
    return card


def spelt(realism: dict[str, Any]) -> str:
    """What was measured, in a line; beside each number that of real images which were held out."""
    names = {"frechet": "Fréchet distance", "precision": "precision", "recall": "recall", "coverage": "coverage"}
    made, real = realism["generated"], realism["held_out"]
    parts = [f"{name} {made[key]:.3g} ({real[key]:.3g})" for key, name in names.items()]
    return "realism, in brackets that of held-out real images: " + ", ".join(parts)
