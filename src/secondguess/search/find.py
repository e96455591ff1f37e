"""Preparation of a search for errors: the images, what may be asked about, scores of supervisors, distances.

`make_pool`, `add_scores` and `add_distances` are the three steps, each of which takes long; `scoring_supervisors` and
`fitting_images` check beforehand whether they are possible. What is kept in a folder is not computed again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.archives import load_npz
from secondguess.errors import UserError
from secondguess.files import atomic_path
from secondguess.images import Dataset, ImageSet, as_image_set, load
from secondguess.progress import Progress, Titled
from secondguess.search.pool import Pool

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier
    from secondguess.supervisors import Supervisor

__all__ = [
    "add_distances",
    "add_scores",
    "affordable",
    "as_many_as_open",
    "fitting_images",
    "make_pool",
    "open_images",
    "remarks",
    "sampled",
    "scoring_supervisors",
]

READS_SCORES = "adaptive"  # the search that learns from scores of supervisors
OPENING, FEWEST = 15.0, 500  # seconds that the model may look at images before a page opens, and images at least
KEY = "about"  # in the file of scores, beside the names of supervisors


def open_images(images: Any, classifier: Classifier, loading: Mapping[str, Any]) -> ImageSet:
    """The images to search, in any form that `as_image_set` takes.

    Folders below a folder are not taken for classes: incoming images are not sorted by class.
    """
    found = as_image_set(images, classifier.input_shape, **loading)
    if isinstance(images, (str, Path)) and Path(images).is_dir():
        return replace(found, class_names=(), labels=np.full(len(found), -1), soft_labels=None)
    return found


def scoring_supervisors(
    classifier: Classifier, search: str, supervisors: str | Iterable[str | Supervisor] | None, train: Any
) -> list[Supervisor]:
    """The supervisors whose scores the search learns from; raises early whatever would stop them later."""
    from secondguess.supervisors import make_all

    if supervisors is None:
        if train is not None:
            raise UserError(
                "Training images were given, but no supervisors to fit on them; name supervisors, or leave them out."
            )
        return []
    if search != READS_SCORES:
        raise UserError(
            f"Supervisors were given, but the search {search!r} does not use their scores; leave them out, or take "
            f"the search {READS_SCORES!r}."
        )
    made = make_all(supervisors)
    if not made:
        raise UserError("The list of supervisors is empty; give names such as knn and mdsa, or leave it out.")
    names = [one.name for one in made]
    for one in made:
        if names.count(one.name) > 1:
            raise UserError(f"The supervisor {one.name!r} was given more than once; leave one out.")
        if one.requires_fit and not one.is_fitted and train is None:
            raise UserError(
                f"The supervisor {one.name!r} must be fitted first; give labelled images that the model was trained on "
                "as train, or leave it out."
            )
        classifier.check(one.needs, f"The supervisor {one.name!r}")
    return made


def fitting_images(
    asked: Sequence[Supervisor], train: Any, shape: tuple[int, int, int], loading: Mapping[str, Any]
) -> ImageSet | None:
    """The training images in the shape (C, H, W) of those to search, or None where nothing is fitted on them."""
    if train is None or all(one.is_fitted or not one.requires_fit for one in asked):
        return None
    if isinstance(train, (str, Path)):
        loaded = load(train, **{**loading, "size": shape[1:], "channels": shape[0]})
        train = replace(loaded.train or loaded.test, name=str(train))
    images = (train.train or train.test) if isinstance(train, Dataset) else train
    if not isinstance(images, ImageSet):
        raise UserError(f"Training images of the type {type(images).__name__} were given; give an ImageSet or a path.")
    if not images.is_labelled:
        raise UserError(f"The training images {images.name} have no labels; give labelled ones.")
    return images


def make_pool(
    classifier: Classifier,
    images: ImageSet,
    critical: int | str | None,
    min_confidence: float,
    seed: int,
    progress: Progress,
) -> Pool:
    """The pool of the images, at least one of which may be asked about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # images without an answer are counted among the remarks
        pool = Pool.of(
            classifier, images, critical=critical, min_confidence=min_confidence, seed=seed, progress=progress
        )
    if pool.size == 0:
        what = "any class" if critical is None else critical
        raise UserError(
            f"None of the {len(images):,} images is given {what} with a confidence above {min_confidence}; lower "
            "`min_confidence`."
        )
    return pool


def add_scores(
    pool: Pool,
    classifier: Classifier,
    asked: Sequence[Supervisor],
    training: ImageSet | None,
    seed: int,
    progress: Progress,
    *,
    kept: Path | None = None,
    about: Mapping[str, Any] | None = None,
) -> Pool:
    """The pool with the scores of supervisors, of which those that learn are fitted on the training images.

    Args:
        pool: without scores.
        classifier: the model.
        asked: the supervisors; nothing is done where there are none.
        training: what those that learn are fitted on.
        seed: of what the supervisors draw.
        progress: where to report to.
        kept: a file in which the scores are kept, and found again by the next call.
        about: what the scores depend on; those of a model without a fingerprint are computed at every call.
    """
    if not asked:
        return pool
    if kept is None or about is None or not about["model"]:
        return _scored(pool, classifier, asked, training, seed, progress)
    key = json.dumps(about, sort_keys=True)
    if scores := _read_scores(kept, key, len(pool)):
        return replace(pool, scores=scores)
    found = _scored(pool, classifier, asked, training, seed, progress)
    with atomic_path(kept) as temporary, temporary.open("wb") as file:
        np.savez(file, **cast("Any", {KEY: np.array(key), **found.scores}))
    return found


def add_distances(
    pool: Pool,
    classifier: Classifier,
    attack: str,
    budget: int | None,
    seed: int,
    progress: Progress,
    *,
    kept: Path | None = None,
) -> Pool:
    """The pool with the distances of the images that may be asked about; counterexamples stay in the folder `kept`."""
    from secondguess.search.distance import measure_distances

    found = measure_distances(
        classifier,
        pool.images,
        rows=pool.rows,
        attack=attack,
        budget=budget,
        seed=seed,
        checkpoint=kept,
        progress=progress,
    )
    return pool.with_distances(found)


def affordable(classifier: Classifier, pool: Pool, attack: str, minutes: float) -> int | None:
    """The questions about each image that can be asked in so many minutes; None where the attack asks no more."""
    from secondguess.planning import Pace
    from secondguess.search.attacks import open_attack

    chosen = open_attack(attack)
    if chosen.usual_budget is None:
        return None
    fits = int(60 * minutes / (max(1, pool.size) * Pace(classifier, pool.images).observing()))
    return None if fits >= chosen.usual_budget else max(chosen.least_queries, fits)


def as_many_as_open(classifier: Classifier, images: ImageSet) -> int:
    """How many of the images the model can look at before a page opens."""
    from secondguess.planning import Pace

    if len(images) <= FEWEST:
        return len(images)
    return min(len(images), max(FEWEST, int(OPENING / Pace(classifier, images).observing())))


def sampled(images: ImageSet, count: int, seed: int) -> ImageSet:
    """So many of the images, drawn at random, each with the id or the position that it has among all."""
    ids = images.ids or tuple(map(str, range(len(images))))
    return replace(images, ids=ids).head(count, seed=seed) if count < len(images) else images


def remarks(pool: Pool) -> list[str]:
    """Problems with images and their distances, one sentence each."""
    found = []
    if pool.unanswered:
        found.append(
            f"The model had no usable answer (NaN or an error) to {pool.unanswered:,} of {len(pool):,} images; these "
            "are left out."
        )
    if pool.distances is None:
        return found
    failed, unusable = int(pool.distances.failed[pool.rows].sum()), pool.distances.unusable[pool.rows]
    if unusable.any():
        found.append(
            f"{int(unusable.sum()):,} questions about {int((unusable > 0).sum()):,} images had no answer that can be "
            "used (NaN or an error); the distances of these images may be too large."
        )
    if failed:
        found.append(f"No other decision was found near {failed:,} images; they are asked about last.")
    return found


def _scored(
    pool: Pool,
    classifier: Classifier,
    asked: Sequence[Supervisor],
    training: ImageSet | None,
    seed: int,
    progress: Progress,
) -> Pool:
    from secondguess.model.needs import Needs

    if training is not None:
        learners = [one for one in asked if one.requires_fit and not one.is_fitted]
        needs = Needs.union(learners)
        seen = classifier.observe(training, needs, seed=seed, progress=progress)
        for one in learners:
            with progress.task(f"Fitting {one.name}", 1) as advance:
                one.fit(seen, seen.labels)  # in the order of the model's classes
                advance(1, 1)
    titled = Titled(progress, f"Scoring {pool.images.name}")
    if scores := _scored_there(pool, classifier, asked, seed, titled):
        return replace(pool, scores=scores)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The model had no usable answer")  # counted at the first observation
        found = Pool.of(classifier, pool.images, supervisors=asked, features=pool.features, seed=seed, progress=titled)
    return replace(pool, scores=found.scores)


def _scored_there(
    pool: Pool, classifier: Classifier, asked: Sequence[Supervisor], seed: int, progress: Progress
) -> dict[str, NDArray[np.float64]] | None:
    """The scores as workers of an engine give them in one pass, or None where they have to be computed here."""
    from secondguess.engine.shared import travels
    from secondguess.model.shards import goes_to_workers, observe_and_score

    # Images without a usable answer are left out of a pass, which a worker cannot know beforehand.
    if pool.unanswered or not goes_to_workers(classifier, len(pool)) or not all(map(travels, asked)):
        return None
    found = observe_and_score(classifier, pool.images, asked, seed=seed, progress=progress)
    for message in dict.fromkeys(message for said in found.warnings.values() for message in said):
        warnings.warn(message, stacklevel=2)
    return found.scores if len(found.scores) == len(asked) else None


def _read_scores(path: Path, key: str, count: int) -> dict[str, NDArray[np.float64]] | None:
    """The scores in a file, if it has this key and this number of images."""
    try:
        found = load_npz(path)
    except (OSError, ValueError, UserError):
        return None
    same = str(found.pop(KEY, "")) == key
    return found if same and all(values.shape == (count,) for values in found.values()) else None
