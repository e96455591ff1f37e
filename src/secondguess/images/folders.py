"""Folders of image files: class folders, split folders of class folders, or images without labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondguess.errors import UserError
from secondguess.images.dataset import canonical_split
from secondguess.images.decode import EXTENSIONS
from secondguess.images.encoded import FileSource, Options, choose_shape, evenly, without_bad
from secondguess.images.image_set import ImageSet
from secondguess.images.listing import Found, find_files

__all__ = ["read_folder"]


@dataclass(frozen=True)
class Listing:
    """The image files of one split in a fixed order with their labels, and a sentence for each kind left out."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    notes: tuple[str, ...]


def read_folder(root: Path, options: Options) -> dict[str, ImageSet]:
    """Find the splits below `root`, or one part "all" where there are none.

    `root/train/cat/1.png` has splits and classes, `root/cat/1.png` classes, `root/1.png` neither. Folders
    called train, val, test (or training, validation, ...) are splits unless they lie beside other folders of
    images: then they are classes. Hidden files and files that are not images are ignored. Links are followed, and an
    image that several paths lead to counts once in its split.
    """
    listings = {key: _list_split(folder) for key, folder in _split_folders(root).items()}
    inspected = (
        (listing.files[row], str(listing.files[row]))
        for listing in listings.values()
        for row in evenly(len(listing.files))
    )
    shape, notes = choose_shape(inspected, options)
    return {key: _image_set(root, key, listing, shape, notes, options) for key, listing in listings.items()}


def _image_set(
    root: Path,
    split: str,
    listing: Listing,
    shape: tuple[int, int, int],
    notes: tuple[str, ...],
    options: Options,
) -> ImageSet:
    image_set = ImageSet(
        images=FileSource(listing.files, shape, options.resize),
        labels=np.array(listing.labels, dtype=np.int64),
        class_names=listing.class_names,
        name=root.name if split == "all" else f"{root.name}/{split}",
        ids=tuple(file.relative_to(root).as_posix() for file in listing.files),
        notes=(*notes, *listing.notes),
    )
    return without_bad(image_set) if options.skip_bad else image_set


def _split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split, or {"all": root}."""
    folders = _subfolders(root)
    splits = [folder for folder in folders if canonical_split(folder.name)]
    if not splits or (len(splits) < len(folders) and _has_classes(root)):
        return {"all": root}
    found: dict[str, Path] = {}
    for folder in splits:
        key = canonical_split(folder.name) or ""
        if key in found:
            raise UserError(f"{found[key]} and {folder} both hold the {key} split; remove or rename one of them.")
        found[key] = folder
    return found


def _has_classes(root: Path) -> bool:
    """Whether images lie in folders that are not called like splits."""
    insides = (file.relative_to(root).parts for file in find_files(root).images)
    return any(len(inside) > 1 and not canonical_split(inside[0]) for inside in insides)


def _list_split(folder: Path) -> Listing:
    folders, found = _subfolders(folder), find_files(folder)
    repeated = set(found.repeated)
    classes: dict[Path, list[Path]] = {child: [] for child in folders if child not in repeated}
    loose: list[Path] = []
    for file in found.images:
        inside = file.relative_to(folder).parts
        if len(inside) == 1:
            loose.append(file)
        elif folder / inside[0] in classes:  # a folder that has come since then is not looked at
            classes[folder / inside[0]].append(file)
    notes = _notes(found, folder)
    if not any(classes.values()):
        if not loose:
            raise UserError(" ".join([f"There is no image ({', '.join(EXTENSIONS)}) in the folder {folder}.", *notes]))
        return Listing(tuple(loose), (-1,) * len(loose), (), notes)
    if loose:
        raise UserError(
            f"The folder {folder} holds both images (such as {loose[0].name}) and class folders (such as "
            f"{next(iter(classes)).name}); move the images into class folders."
        )
    for child, images in classes.items():
        if not images:
            raise UserError(f"The class folder {child} holds no image ({', '.join(EXTENSIONS)}); fill it or remove it.")
    return Listing(
        files=tuple(file for images in classes.values() for file in images),
        labels=tuple(label for label, images in enumerate(classes.values()) for _ in images),
        class_names=tuple(child.name for child in classes),
        notes=notes,
    )


def _notes(found: Found, folder: Path) -> tuple[str, ...]:
    """One sentence for each kind of thing that was left out."""
    notes = []
    if found.others:
        notes.append(f"{found.others} files that are not {', '.join(EXTENSIONS)} images were ignored.")
    if found.repeated:
        first = found.repeated[0].relative_to(folder)
        notes.append(f"{len(found.repeated)} links to what is counted already were left out (such as {first}).")
    if found.odd:
        first = found.odd[0].relative_to(folder)
        notes.append(f"{len(found.odd)} things named like images that are no files were left out (such as {first}).")
    return tuple(notes)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
