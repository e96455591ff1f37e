"""What a guard is fitted on and asked about: any form of data, in the shape and with the classes of the model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess._text import few
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, as_image_set, load
from secondguess.model.agreement import agree

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard
    from secondguess.guard.judgements import Judgement
    from secondguess.model.classifier import Classifier

SHOWN = 20  # names of images that were left out

__all__ = ["fitting_images", "images_at", "judge_places", "nominal_images"]


def fitting_images(
    classifier: Classifier, train: Any, validation: Any, loading: dict[str, Any]
) -> tuple[Classifier, ImageSet, ImageSet | None]:
    """The images that a guard is fitted and calibrated on, and the classifier with their class names.

    Args:
        classifier: the system under test.
        train: a set; a data set, of which the training images are meant; or what `load` takes.
        validation: the same, of which the validation images are meant, or else the only or the test images; None for
            the validation images of `train`, where that is a data set with some.
        loading: options of `load`, where they differ from what the model wants.
    """
    how = classifier.loading | loading
    data = _data_set(train, how)
    if data is not None:
        train = data.train or data.test
        if validation is None and data.train is not None:
            validation = data.validation
    held_out = None if validation is None else _data_set(validation, how)
    if held_out is not None:
        validation = held_out.validation or held_out.test
    same_size = validation is not None and len(validation) == len(train)  # else nothing need be read
    if same_size and validation.content_fingerprint == train.content_fingerprint:
        raise UserError(
            f"The training images {train.name} and the validation images {validation.name} are the same images; a "
            "model is surer of what it was trained on, and a threshold set there brings more false alarms than "
            "promised: give others, or leave them out to have some of the training images split off."
        )
    return agree(classifier, train, validation)


def _data_set(what: Any, how: dict[str, Any]) -> Dataset | None:
    """The data set that is meant, its sets named by its place; None for a single set of images."""
    if isinstance(what, ImageSet):
        return None
    if isinstance(what, Dataset):
        return what
    found = load(what, **how)
    named: dict[str, Any] = {split: replace(images, name=os.fspath(what)) for split, images in found.splits.items()}
    return replace(found, **named)


def nominal_images(guard: Guard, nominal: Any, loading: dict[str, Any]) -> ImageSet:
    """Fresh nominal images for a fitted guard, loaded as those that it was fitted on."""
    return as_image_set(nominal, guard.shape, **_as_fitted(guard) | loading)


def judge_places(
    guard: Guard, places: Sequence[str], *, resize: str | None = None, skip_bad: bool = False, batch_size: int = 256
) -> Iterator[tuple[str, Judgement]]:
    """Judge what lies at several places, a few images at a time.

    Args:
        guard: fitted.
        places: image files or their URLs, folders, or anything else that `load` takes.
        resize: how images are resized; by default as those that the guard was fitted on.
        skip_bad: leave out images that cannot be read, with a warning that names them.
        batch_size: images at a time.

    Yields:
        The name of every image, and what the guard says of it.
    """
    for names, source in images_at(guard, places, resize, skip_bad=skip_bad):
        for start in range(0, len(source), batch_size):
            rows = slice(start, min(start + batch_size, len(source)))
            yield from zip(names[rows], guard.judge(source[rows]), strict=True)


def images_at(
    guard: Guard, places: Sequence[str], resize: str | None, *, skip_bad: bool = False
) -> list[tuple[Sequence[str], Any]]:
    """The names and the source of the images at several places, in the shape that a guard takes.

    Args:
        guard: fitted.
        places: image files or their URLs, folders, or anything else that `load` takes.
        resize: how images are resized; by default as those that the guard was fitted on.
        skip_bad: leave out images that cannot be read, with a warning that names them.
    """
    from secondguess.images.decode import EXTENSIONS
    from secondguess.images.encoded import FileSource
    from secondguess.images.fitting import check_resize
    from secondguess.images.remote import is_url
    from secondguess.images.sources import ViewSource

    how = _as_fitted(guard) | ({} if resize is None else {"resize": check_resize(resize)})
    images = [place for place in places if place.lower().endswith(EXTENSIONS)]
    single = [place for place in images if not is_url(place) and not Path(place).is_dir()]
    files = [Path(place) for place in single]
    if missing := next((path for path in files if not path.is_file()), None):
        raise UserError(f"There is no image {missing}.")
    found: list[tuple[Sequence[str], Any]] = []
    skipped: list[str] = []

    def of_files(names: list[str], source: FileSource) -> None:
        bad = source.unreadable() if skip_bad else {}
        good = [row for row in range(len(names)) if row not in bad]
        skipped.extend(bad.values())
        if good:
            found.append(([names[row] for row in good], ViewSource(source, np.array(good)) if bad else source))

    if files:
        of_files([str(path) for path in files], FileSource(files, guard.shape, how["resize"]))
    for place in places:
        if is_url(place) and place in images:
            folder, _, name = place.rpartition("/")
            of_files([place], FileSource([name], guard.shape, how["resize"], root=folder))
        elif place not in single and (names := _loose_and_below(Path(place))):
            of_files(names, FileSource([Path(name) for name in names], guard.shape, how["resize"]))
        elif place not in single:
            some = as_image_set(place, **how, skip_bad=skip_bad)
            skipped.extend(some.skipped)
            found.append((some.ids or [f"{place}[{row}]" for row in range(len(some))], some.images))
    if skipped:
        warnings.warn(f"Left out, as they cannot be read: {few(skipped, SHOWN)}.", stacklevel=2)
    return found


def _loose_and_below(place: Path) -> list[str]:
    """All images of a folder that has some of its own and others in folders below, which are no classes then.

    Files beside images that are not named like such are said to be left out.
    """
    from secondguess.images.decode import EXTENSIONS
    from secondguess.images.listing import Found, find_files

    found = find_files(place) if place.is_dir() else Found()
    if found.images and found.others:
        others = f"{found.others:,} file{'s' if found.others > 1 else ''}"
        warnings.warn(f"Left out of {place}: {others} whose names do not end in {', '.join(EXTENSIONS)}.", stacklevel=3)
    loose = found.images.get("", [])
    below = [name for folder, names in found.images.items() if folder for name in names]
    return [str(place / name) for name in (*loose, *below)] if loose and below else []


def _as_fitted(guard: Guard) -> dict[str, Any]:
    channels, *sides = guard.shape
    return {"size": tuple(sides), "channels": channels, "resize": guard.resized_by}
