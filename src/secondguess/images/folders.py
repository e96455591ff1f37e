"""Folders of image files, here or at a URL: class folders, split folders of class folders, or images without labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.dataset import canonical_split
from secondguess.images.decode import EXTENSIONS
from secondguess.images.encoded import FileSource, Options, choose_shape, evenly, without_bad
from secondguess.images.image_set import ImageSet
from secondguess.images.listing import Found, find_files, subfolders
from secondguess.images.remote import Store, below

__all__ = ["read_folder"]


@dataclass(frozen=True)
class Listing:
    """The image files of one split in a fixed order with their labels, and a sentence for each kind left out."""

    names: tuple[str, ...]  # relative to the folder of the data set
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    notes: tuple[str, ...]
    known: NDArray[np.uint64] | None  # of files at a URL, numbers that change with their content


def read_folder(root: Path | Store, options: Options) -> dict[str, ImageSet]:
    """Find the splits below a folder, here or in an object store, or one part "all" where there are none.

    `root/train/cat/1.png` has splits and classes, `root/cat/1.png` classes, `root/1.png` neither. Folders
    called train, val, test (or training, validation, ...) are splits unless they lie beside other folders of
    images: then they are classes. Hidden files and files that are not images are ignored. Links are followed, and an
    image that several paths lead to counts once in its split.
    """
    listings = {split: _list_split(root, inside) for split, inside in _split_folders(root).items()}
    place = root.url if isinstance(root, Store) else root
    sources = {
        split: FileSource(one.names, (1, 1, 1), options.resize, root=place, known=one.known)
        for split, one in listings.items()
    }
    inspected = (cell for source in sources.values() for cell in source.heads(evenly(len(source))))
    shape, notes = choose_shape(inspected, options)
    parts = {}
    for split, source in sources.items():
        source.shape = shape
        name = place if isinstance(place, str) else place.name
        parts[split] = _image_set(name if split == "all" else str(below(name, split)), listings[split], source, notes)
    return {split: without_bad(part) if options.skip_bad else part for split, part in parts.items()}


def _image_set(name: str, listing: Listing, source: FileSource, notes: tuple[str, ...]) -> ImageSet:
    return ImageSet(
        images=source,
        labels=listing.labels,
        class_names=listing.class_names,
        name=name,
        ids=listing.names,
        notes=(*notes, *listing.notes),
    )


def _split_folders(root: Path | Store) -> dict[str, str]:
    """The name of the folder of each split, or {"all": ""}."""
    folders = subfolders(root)
    splits = [folder for folder in folders if canonical_split(folder)]
    if not splits or (len(splits) < len(folders) and _has_classes(root)):
        return {"all": ""}
    found: dict[str, str] = {}
    for folder in splits:
        key = canonical_split(folder) or ""
        if key in found:
            both = f"{root / found[key]} and {root / folder}"
            raise UserError(f"{both} both hold the {key} split; remove or rename one of them.")
        found[key] = folder
    return found


def _has_classes(root: Path | Store) -> bool:
    """Whether images lie in folders that are not called like splits."""
    return any(folder and not canonical_split(folder) for folder in find_files(root).images)


def _list_split(root: Path | Store, inside: str) -> Listing:
    folder = root / inside if inside else root
    folders, found = subfolders(folder), find_files(folder)
    repeated, notes = set(found.repeated), _notes(found)
    # A folder that has come since then is not looked at.
    classes = {name: found.images.get(name, []) for name in folders if name not in repeated}
    loose = found.images.get("", [])
    if not any(classes.values()):
        if not loose:
            raise UserError(" ".join([f"There is no image ({', '.join(EXTENSIONS)}) in the folder {folder}.", *notes]))
        return _listing(found, inside, {"": loose}, notes)
    if loose:
        raise UserError(
            f"The folder {folder} holds both images (such as {loose[0]}) and class folders (such as "
            f"{next(iter(classes))}); move the images into class folders."
        )
    for name, images in classes.items():
        if not images:
            raise UserError(
                f"The class folder {folder / name} holds no image ({', '.join(EXTENSIONS)}); fill it or remove it."
            )
    return _listing(found, inside, classes, notes)


def _listing(found: Found, inside: str, classes: dict[str, list[str]], notes: tuple[str, ...]) -> Listing:
    """The images of the classes one after the other; those of "" have no label."""
    counts = [len(images) for images in classes.values()]
    names = [name for images in classes.values() for name in images]
    known = np.array([found.stamps[name] for name in names], dtype=np.uint64) if found.stamps else None
    labelled = "" not in classes
    return Listing(
        names=tuple(f"{inside}/{name}" for name in names) if inside else tuple(names),
        labels=np.repeat(np.arange(len(counts)) if labelled else [-1], counts).astype(np.int64),
        class_names=tuple(classes) if labelled else (),
        notes=notes,
        known=known,
    )


def _notes(found: Found) -> tuple[str, ...]:
    """One sentence for each kind of thing that was left out."""
    notes = []
    if found.others:
        notes.append(f"{found.others} files that are not {', '.join(EXTENSIONS)} images were ignored.")
    if found.repeated:
        first = found.repeated[0]
        notes.append(f"{len(found.repeated)} links to what is counted already were left out (such as {first}).")
    if found.odd:
        first = found.odd[0]
        notes.append(f"{len(found.odd)} things named like images that are no files were left out (such as {first}).")
    return tuple(notes)
