"""Adversarial distance: how far must an image be moved until a black-box classifier decides otherwise?

For an image x, a search for the x' nearest to it that the classifier gives another class. Three numbers say how far
away that is, over all d pixels and channels of images in [0, 1]:

    MAE = (1/d) Σ |x'_i - x_i|,    L2 = sqrt(Σ (x'_i - x_i)²),    L∞ = max |x'_i - x_i|

A search finds an upper bound of the true distance. MAE, in its logarithm, is what Bennette, Maurer & Sisti (*Harnessing
Adversarial Distances to Discover High-Confidence Errors*, IJCNN 2020) rank images by. Nobody checks that x' still shows
what x shows, nor what the truth is: the question is how firmly the classifier stands by its answer.

Departures from their measurement: the default attack spends 1,000 queries an image instead of about 22,000; an image
for which no x' is found has the distance infinity and is marked; many images are attacked at once, and none influences
another.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess._files import atomic_path
from secondguess._progress import Progress, Silent
from secondguess.data import ImageSet, ImageSource
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.search.attacks import Attack
    from secondguess.search.attacks.decisions import Decisions

__all__ = ["Distances", "measure_distances"]


@dataclass(frozen=True, eq=False)
class Distances:
    """How far n images are from another decision.

    Attributes:
        mae: (n,) float64 mean absolute change of a pixel; infinity where no twin was found.
        l2: (n,) float64 Euclidean length of the change.
        linf: (n,) float64 largest change of a pixel.
        queries: (n,) int64 questions put to the model for each image, the first and the last included.
        failed: (n,) bool, where no image with another decision was found.
        twins: (n, C, H, W) float32 in [0, 1], the images with the other decision; the image itself where failed. It may
            be mapped from a file.
        twin_predictions: (n,) int64 what the model says of the twins.
        start_queries: questions about the images in `starts`, which belong to no image.
    """

    mae: NDArray[np.float64]
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    queries: NDArray[np.int64]
    failed: NDArray[np.bool_]
    twins: NDArray[np.float32]
    twin_predictions: NDArray[np.int64]
    start_queries: int = 0

    def __len__(self) -> int:
        """The number of images n."""
        return len(self.mae)

    @property
    def log_mae(self) -> NDArray[np.float64]:
        """(n,) float64 natural logarithm of the MAE; infinity where failed."""
        return np.log(np.maximum(self.mae, np.finfo(np.float64).tiny))

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file, atomically."""
        arrays = {one.name: np.asarray(getattr(self, one.name)) for one in fields(self)}
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Distances:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays: dict[str, Any] = {one.name: file[one.name] for one in fields(cls)}
            return cls(**arrays | {"start_queries": int(arrays["start_queries"])})
        except FileNotFoundError as error:
            raise UserError(f"There are no distances at {path}.") from error
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise UserError(f"{path} does not hold distances that `Distances.save` wrote ({error}).") from error


def measure_distances(
    classifier: Classifier,
    images: Any,
    *,
    attack: str | Attack = "hop_skip_jump",
    budget: int | None = None,
    seed: int = 0,
    starts: Any = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    batch_size: int | None = None,
) -> Distances:
    """Look for the nearest image with another decision, for every image of a set.

    What is found for an image does not depend on the batch size, nor on the other images, except that they are where it
    starts from (up to the rounding of the model itself, whose answer to an image may depend on the batch it is in).

    Args:
        classifier: the model; its decisions are all that is used, except by the gradient attack.
        images: an `ImageSet`, an image source, or an array (n, C, H, W) in [0, 1].
        attack: `"hop_skip_jump"`, `"boundary"`, `"gradient"`, or one of the attack objects of
            `secondguess.search.attacks` with parameters of its own.
        budget: the most questions that may be put to the model for an image; left out, 1,000 for `"hop_skip_jump"`,
            while the other attacks end by themselves.
        seed: of all that is random.
        starts: images to start from, besides the set itself; needed where all images of the set have one decision.
        checkpoint: a folder in which the state is kept now and then; the same call takes the work up where it was.
        progress: where to report to.
        batch_size: images a forward pass; the classifier's own if left out.

    Raises:
        UserError: if the budget is too small, the folder holds another measurement, or the model's answers are not
            numbers.
    """
    from secondguess.search.attacks import open_attack
    from secondguess.search.attacks.checkpoint import Results
    from secondguess.search.attacks.decisions import Decisions
    from secondguess.search.attacks.engine import Engine
    from secondguess.search.attacks.starts import Starts

    chosen = open_attack(attack)
    budget = chosen.usual_budget if budget is None else budget
    size = classifier.batch_size if batch_size is None else batch_size
    if budget is not None and budget < chosen.least_queries:
        raise UserError(
            f"A budget of {budget} queries an image was given, but {chosen.name} needs at least {chosen.least_queries}."
        )
    if size < 1:
        raise UserError(f"The batch size is {size}; it must be at least 1.")
    source, others = _source(images), None if starts is None else _source(starts)
    if others is not None and others.shape != source.shape:
        raise UserError(f"The images have the shape {source.shape}, but the starts {others.shape}; they must be alike.")
    settings: dict[str, Any] = {**chosen.settings(), "budget": budget, "seed": seed}
    if checkpoint is not None:
        settings |= {"model": classifier.fingerprint, "images": source.fingerprint()}
        settings |= {"starts": None if others is None else others.fingerprint()}
    results = Results(len(source), source.shape, None if checkpoint is None else Path(checkpoint), settings)
    decide = Decisions(classifier, len(source), budget=budget, batch_size=size)
    known = results.known()
    if known is None:
        known = {"images": _answers(source, decide), "starts": np.zeros(0, dtype=np.int64)}
        if others is not None:
            known["starts"] = _answers(others, Decisions(classifier, len(others), budget=None, batch_size=size))
        results.keep_known(known)
    else:
        decide.spent += 1  # the answers were paid for before
    pool = Starts.choose(source, known["images"], seed)
    if others is not None:
        pool = pool.joined(Starts.choose(others, known["starts"], seed))
    with (progress or Silent()).task("Measuring distances", len(source)) as advance:
        Engine(chosen, source, decide, results, seed).run(known["images"], pool, advance)
    arrays = {name: array for name, array in results.arrays.items() if name != "done"}
    return Distances(**arrays, twins=results.twins, start_queries=len(known["starts"]))


def _source(images: Any) -> ImageSource:
    if isinstance(images, ImageSet):
        return images.images
    if isinstance(images, ImageSource):
        return images
    return ImageSet.from_arrays(np.asarray(images)).images


def _answers(source: ImageSource, decide: Decisions) -> NDArray[np.int64]:
    """(n,) what the model says of the images as they are, one query each."""
    import torch

    parts = []
    for first in range(0, len(source), decide.batch_size):
        pixels = torch.from_numpy(source[first : first + decide.batch_size]).to(decide.device)
        rows = torch.arange(first, first + len(pixels), device=decide.device)
        parts.append(decide.classes(pixels, rows).cpu().numpy())
    decide.check()
    return np.concatenate(parts)
