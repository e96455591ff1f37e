"""What `secondguess label` does with `--supervisors` and `--train`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from secondguess._files import atomic_path
from secondguess.cli.options import listed, training_images
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.progress import Progress
    from secondguess.search.pool import Pool
    from secondguess.supervisors import Supervisor

__all__ = ["advisers", "nominal_images", "with_kept_scores", "with_scores"]

READS_SCORES = "adaptive"  # the search that learns from scores of supervisors
KEY = "about"  # in the file of scores, beside the names of supervisors


def advisers(classifier: Classifier, search: str, supervisors: str | None, train: str | None) -> list[Supervisor]:
    """The supervisors of `--supervisors`, not fitted yet; whatever would stop them later is told now."""
    from secondguess.supervisors import make_all

    if supervisors is None:
        if train is not None:
            raise UserError("--train is what supervisors are fitted on; name them with --supervisors, or leave it out.")
        return []
    if search != READS_SCORES:
        raise UserError(
            f"--supervisors was given, but the search {search!r} does not look at their scores; leave it out, or take "
            f"--search {READS_SCORES}."
        )
    made = make_all(listed(supervisors))
    if not made:
        raise UserError(f"--supervisors is {supervisors!r}; give names separated by commas, such as knn,mdsa.")
    names = [one.name for one in made]
    for one in made:
        if names.count(one.name) > 1:
            raise UserError(f"The supervisor {one.name!r} was given more than once; leave one out.")
        if one.requires_fit and train is None:
            raise UserError(
                f"The supervisor {one.name!r} must be fitted first; give labelled images the model was trained on with "
                "--train, or leave it out."
            )
        classifier.check(one.needs, f"The supervisor {one.name!r}")
    return made


def nominal_images(
    classifier: Classifier,
    asked: Sequence[Supervisor],
    train: str | None,
    shape: tuple[int, int, int],
    loading: dict[str, Any],
) -> ImageSet | None:
    """The images of `--train` in the shape (C, H, W) of those to search, or None where nothing is fitted on them."""
    if train is None or not any(one.requires_fit for one in asked):
        return None
    images = training_images(train, loading | {"size": shape[1:], "channels": shape[0]})
    if not images.is_labelled:
        raise UserError(f"The images of --train {train} have no labels; give labelled ones.")
    names = classifier.class_names = classifier.class_names or images.class_names
    if names != images.class_names:
        raise UserError(
            f"The model's classes ({', '.join(names[:5])} ...) and those of --train {train} "
            f"({', '.join(images.class_names[:5])} ...) differ; they must be the same, in the same order."
        )
    return images


def with_scores(
    pool: Pool,
    classifier: Classifier,
    asked: Sequence[Supervisor],
    nominal: ImageSet | None,
    seed: int,
    progress: Progress,
) -> Pool:
    """The same pool with the scores of supervisors, of which those that learn are fitted on the nominal images."""
    from secondguess.model.observation import Needs
    from secondguess.search.pool import Pool

    if nominal is not None:
        learners = [one for one in asked if one.requires_fit]
        needs = reduce(Needs.__or__, (one.needs for one in learners), Needs())
        with progress.task(f"Looking at {nominal.name}", len(nominal)) as advance:
            seen = classifier.observe(nominal, needs, seed=seed, progress=advance)
        for one in learners:
            with progress.task(f"Fitting {one.name}", 1) as advance:
                one.fit(seen, nominal.labels)
                advance(1, 1)
    with progress.task(f"Scoring {pool.images.name}", len(pool)) as advance, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The model had no usable answer")  # told after the first look
        scored = Pool.of(
            classifier, pool.images, supervisors=asked, features=pool.features, seed=seed, progress=advance
        )
    return replace(pool, scores=scored.scores)


def with_kept_scores(pool: Pool, path: Path, about: Mapping[str, Any], score: Callable[[], Pool]) -> Pool:
    """The same pool with scores from an earlier start of the session; else as `score` makes it, which is kept.

    Args:
        pool: without scores.
        path: of the file.
        about: what the scores depend on; those of a model without a fingerprint are made at every start.
        score: makes the pool with scores.
    """
    if not about["model"]:
        return score()
    key = json.dumps(about, sort_keys=True)
    if scores := _read_scores(path, key, len(pool)):
        return replace(pool, scores=scores)
    scored = score()
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **cast("Any", {KEY: np.array(key), **scored.scores}))
    return scored


def _read_scores(path: Path, key: str, count: int) -> dict[str, NDArray[np.float64]] | None:
    """The scores in a file, if they are about the same, and of so many images."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = dict(file)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None
    same = str(found.pop(KEY, "")) == key
    return found if same and all(values.shape == (count,) for values in found.values()) else None
