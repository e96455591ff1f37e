"""Votes of people on the test images: how many chose each class, beside what the model answers.

They are a column of the test images from the moment they are read, so that they stay with their image when only some
are used, and are put into the model's order of classes at the end.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.contracts.archives import load_npz
from secondguess.errors import UserError
from secondguess.hubris.files import read_predictions
from secondguess.images import ImageSet
from secondguess.metrics import vote_shares

__all__ = ["Votes", "votes_in", "with_votes"]

Votes = ArrayLike | str | os.PathLike[str]
Floats = NDArray[np.float64]

COLUMN = "votes of people"
ARRAY = "counts"


def with_votes(images: ImageSet, votes: Votes) -> ImageSet:
    """The images with the votes (n, K) on them, classes in the order of the images' class names.

    Args:
        images: n of them.
        votes: counts (n, K); or an `.npy` file with them, an `.npz` file with an array `counts` (or a single one), or a
            `.csv` file with the columns `counts0`, `counts1` and so on.
    """
    counts = _read(Path(votes)) if isinstance(votes, (str, os.PathLike)) else np.asarray(votes, dtype=np.float64)
    if counts.shape != (len(images), images.num_classes):
        raise UserError(
            f"The votes have shape {counts.shape}, but there are {len(images)} test images of {images.num_classes} "
            "classes; give one row for each test image, in their order, and one column for each class."
        )
    vote_shares(counts)  # whether they are counts
    return replace(images, columns={**images.columns, COLUMN: counts})


def votes_in(images: ImageSet, names: tuple[str, ...]) -> Floats | None:
    """The votes (n, K) on these images, in the order of their class names; None where there are none.

    Args:
        images: of a set that `with_votes` returned, perhaps relabelled.
        names: the class names of that set.
    """
    counts = images.columns.get(COLUMN)
    if counts is None:
        return None
    found = np.zeros((len(counts), images.num_classes))
    for place, name in enumerate(images.class_names):
        if name in names:
            found[:, place] = counts[:, names.index(name)]
    return found


def _read(path: Path) -> Floats:
    if path.suffix.lower() == ".csv":
        return read_predictions(path, ARRAY)
    if not path.is_file():
        raise UserError(f"There is no file {path}; give an .npz, .npy or .csv file with the votes of people.")
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        arrays = load_npz(path)
        return np.asarray(arrays[ARRAY] if ARRAY in arrays or len(arrays) != 1 else next(iter(arrays.values())), float)
    except KeyError as error:
        raise UserError(f"{path.name} has several arrays, but none is called {ARRAY!r}; call the votes so.") from error
    except (ValueError, OSError) as error:
        raise UserError(f"{path.name} cannot be read as an array of votes ({error}).") from error
