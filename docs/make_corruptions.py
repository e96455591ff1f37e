"""Draw docs/images/corruptions.png: every corruption at its default severity, on a digit and on a patch of a photo."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from secondguess.images import load_images
from secondguess.stress.corruptions import CORRUPTIONS, FASHION_MNIST_C, MNIST_C, corrupt

SHEET = Path(__file__).parent / "images" / "corruptions.png"
COLUMNS, SEED = 6, 5
DIGIT, PHOTO = 14, 24  # of the test images


def main() -> None:
    """Draw the sheet: one cell a corruption, the digit beside the photo."""
    digit, photo = load_images("mnist5k").images[[DIGIT]], load_images("photos").images[[PHOTO]]
    standard = list(dict.fromkeys(MNIST_C + FASHION_MNIST_C))
    names = ["identity", *standard, *sorted(set(CORRUPTIONS) - set(standard) - {"identity"})]
    rows = -(-len(names) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(2.15 * COLUMNS, 1.3 * rows), layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names, strict=False):
        left, right = (_square(corrupt(image, name, seed=SEED)[0]) for image in (digit, photo))
        axis.imshow(np.concatenate([left, np.ones((64, 3, 3)), right], axis=1), interpolation="nearest")
        axis.set_title(name, fontsize=9, pad=3)
    figure.savefig(SHEET, dpi=100, pil_kwargs={"optimize": True})
    _shrink(SHEET)


def _square(image: np.ndarray) -> np.ndarray:
    """An image (C, H, W) as 64 x 64 pixels in colour, by repetition."""
    pick = np.arange(64) * image.shape[1] // 64
    return np.broadcast_to(image[:, pick][:, :, pick].transpose(1, 2, 0), (64, 64, 3))


def _shrink(path: Path) -> None:
    """Keep 256 colours: enough to see what each corruption does."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256)
    small.save(path, optimize=True)


if __name__ == "__main__":
    main()
