"""Draw docs/images/ambiguity_baselines.png and write results/ambiguity/baselines.json, the record of its page.

Three generators make ambiguous digits from the same training images; their first images are shown, unpicked. All are
judged by real images that none of them has seen. Afterwards `python docs/make_numbers.py` puts the numbers into the
page.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch

from secondguess.environment import versions
from secondguess.images import ImageSet, load
from secondguess.progress import for_terminal
from secondguess.stress.ambiguous.ambiguess import AmbiGuess
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages
from secondguess.stress.ambiguous.blend import PixelBlend
from secondguess.stress.ambiguous.comparison import realism_share
from secondguess.stress.ambiguous.realism import Realism
from secondguess_lab.rivals.latent_mixture import LatentMixture

SHEET = Path(__file__).parent / "images" / "ambiguity_baselines.png"
RECORD = Path(__file__).parents[1] / "results" / "ambiguity" / "baselines.json"
COUNT, SHOWN, COLUMNS, SEED = 600, 28, 14, 0


def main() -> None:
    """Generate, judge, draw."""
    data = load("mnist5k")
    check = Realism(data.test)
    with tempfile.TemporaryDirectory() as folder:
        generators: dict[str, AmbiguousGenerator] = {
            "Pixel blend": PixelBlend(),
            "Latent mixture": LatentMixture(),
            "AmbiGuess": AmbiGuess(folder=folder),
            "AmbiGuess, nothing rejected": AmbiGuess(folder=folder, realism=False),
        }
        made: dict[str, AmbiguousImages] = {}
        rows = []
        for name, generator in generators.items():
            began = time.monotonic()
            made[name] = generator.generate(data.train, COUNT, seed=SEED, progress=for_terminal())
            seconds = time.monotonic() - began
            rows.append(
                {
                    "generator": name,
                    "seconds": round(seconds, 1),
                    "label_entropy_bits": made[name].card["label_entropy_bits"],
                    "realism_share": realism_share(made[name].images, check),
                    "largest_labels_shown": made[name].images.soft_labels[:SHOWN].max(axis=1).round(4).tolist(),
                }
            )
    record = {
        "command": "python docs/make_ambiguity_baselines.py",
        "settings": {"data": "mnist5k", "images": COUNT, "seed": SEED, "shown": SHOWN},
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads",
        "versions": versions(),
        "rows": rows,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _draw({name: made[name].images for name in list(made)[:3]})


def _draw(sets: dict[str, ImageSet]) -> None:
    """The first images of each set in two rows, with their soft labels."""
    lines = SHOWN // COLUMNS
    figure = plt.figure(figsize=(0.8 * COLUMNS, 1.18 * lines * len(sets)), layout="constrained")
    for part, (name, images) in zip(figure.subfigures(len(sets), 1), sets.items(), strict=True):
        part.suptitle(name, fontsize=11, x=0.01, ha="left")
        for row, axis in enumerate(part.subplots(lines, COLUMNS).flat):
            axis.imshow(images.images[row][0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_title(_label(images, row), fontsize=7, y=-0.34)
            axis.set_axis_off()
    figure.savefig(SHEET, dpi=100, pil_kwargs={"optimize": True})


def _label(images: ImageSet, row: int) -> str:
    """The two likeliest classes with at least 5 %, such as "4 55%  9 45%"; a plus sign says that there are more."""
    soft = images.soft_labels[row]
    order = [k for k in np.argsort(-soft)[:3] if soft[k] >= 0.05]
    return "  ".join(f"{images.class_names[k]} {100 * soft[k]:.0f}%" for k in order[:2]) + ("+" if order[2:] else "")


if __name__ == "__main__":
    main()
