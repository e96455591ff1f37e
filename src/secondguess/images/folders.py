"""Folders of image files: class folders, split folders of class folders, or images without labels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondguess.errors import UserError
from secondguess.images.dataset import canonical_split
from secondguess.images.decode import EXTENSIONS
from secondguess.images.encoded import FileSource, Options, choose_shape, evenly, without_bad
from secondguess.images.image_set import ImageSet

__all__ = ["read_folder"]


@dataclass(frozen=True)
class Listing:
    """The image files of one split in a fixed order with their labels, and the number of other files."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    others: int


def read_folder(root: Path, options: Options) -> dict[str, ImageSet]:
    """Find the splits below `root`, or one part "all" where there are none.

    `root/train/cat/1.png` has splits and classes, `root/cat/1.png` classes, `root/1.png` neither. Folders
    called train, val, test (or training, validation, ...) are splits unless they lie beside other folders of
    images: then they are classes. Hidden files and files that are not images are ignored.
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
    if listing.others:
        notes = (*notes, f"{listing.others} files that are not {', '.join(EXTENSIONS)} images were ignored.")
    image_set = ImageSet(
        images=FileSource(listing.files, shape, options.resize),
        labels=np.array(listing.labels, dtype=np.int64),
        class_names=listing.class_names,
        name=root.name if split == "all" else f"{root.name}/{split}",
        ids=tuple(file.relative_to(root).as_posix() for file in listing.files),
        notes=notes,
    )
    return without_bad(image_set) if options.skip_bad else image_set


def _split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split, or {"all": root}."""
    folders = _subfolders(root)
    splits = [folder for folder in folders if canonical_split(folder.name)]
    classes = [folder for folder in folders if not canonical_split(folder.name) and _walk(folder)[0]]
    if not splits or classes:
        return {"all": root}
    found: dict[str, Path] = {}
    for folder in splits:
        key = canonical_split(folder.name) or ""
        if key in found:
            raise UserError(f"{found[key]} and {folder} both hold the {key} split; remove or rename one of them.")
        found[key] = folder
    return found


def _list_split(folder: Path) -> Listing:
    loose, others = _walk(folder, deep=False)
    found = {child: _walk(child) for child in _subfolders(folder)}
    others += sum(count for _, count in found.values())
    if not any(images for images, _ in found.values()):
        if not loose:
            raise UserError(f"There is no image ({', '.join(EXTENSIONS)}) in the folder {folder}.")
        return Listing(tuple(loose), (-1,) * len(loose), (), others)
    if loose:
        raise UserError(
            f"The folder {folder} holds both images (such as {loose[0].name}) and class folders (such as "
            f"{next(iter(found)).name}); move the images into class folders."
        )
    for child, (images, _) in found.items():
        if not images:
            raise UserError(f"The class folder {child} holds no image ({', '.join(EXTENSIONS)}); fill it or remove it.")
    return Listing(
        files=tuple(file for images, _ in found.values() for file in images),
        labels=tuple(label for label, (images, _) in enumerate(found.values()) for _ in images),
        class_names=tuple(child.name for child in found),
        others=others,
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _walk(folder: Path, *, deep: bool = True) -> tuple[list[Path], int]:
    """The images in a folder (and below it) in sorted order, and the number of other files; none hidden."""
    images: list[Path] = []
    others = 0
    for where, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if deep and not name.startswith(".")]
        for name in names:
            if name.lower().endswith(EXTENSIONS) and not name.startswith("."):
                images.append(Path(where, name))
            elif not name.startswith("."):
                others += 1
    return sorted(images, key=Path.as_posix), others


def _raise(error: OSError) -> None:
    raise error
