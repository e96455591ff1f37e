"""The model of a guard, in its folder: `model.toml`, so that the folder is all that a service needs.

    model.toml                  the description of the model, with the classes and the image size of the guard
    model-DIGEST.onnx, .pt2     a copy of the model's file
    weights-DIGEST.safetensors  a copy of the weights of a torch module

Files of up to 512 MiB are copied, so that the folder can be moved to another place or machine. Larger ones, and ONNX
files whose weights lie in further files, stay where they are and are named by their absolute path. The code of a torch
module is not copied: `folder` in `model.toml` says where it is imported from. A model that lives in memory only cannot
be described, and the guard asks for it when it is loaded.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import atomic_path
from secondguess.model.classifier import Classifier

__all__ = ["MODEL", "store_model", "stored_model"]

MODEL = "model.toml"
COPIED = 512 << 20
CHUNK = 1 << 20


def store_model(classifier: Classifier, shape: tuple[int, int, int], folder: Path) -> set[str]:
    """Write the description of a guard's model into its folder; returns the names of the files that belong to it."""
    known = classifier.description
    if known.path is None and known.source is None:
        (folder / MODEL).unlink(missing_ok=True)
        return set()
    copies: dict[str, Any] = {}
    for field, prefix in (("path", "model"), ("weights", "weights")):
        original = getattr(known, field)
        if original is not None and _is_small(original, classifier):
            copies[field] = _copied(original, folder, prefix)
    kept = {path.name for path in copies.values()}
    described = {"classes": classifier.class_names, "size": shape[1:], "channels": shape[0], "name": classifier.name}
    known.changed(**described, **copies).write(folder / MODEL)
    return kept


def stored_model(folder: str | Path) -> Path:
    """The `model.toml` in the folder of a guard."""
    path = Path(folder) / MODEL
    if not path.is_file():
        raise UserError(
            f"The guard in {folder} was fitted on a model that cannot be opened from a file; say which it is with "
            "--model, or Guard.load(folder, model)."
        )
    return path


def _is_small(path: Path, classifier: Classifier) -> bool:
    """Whether the model is one file of moderate size."""
    files = getattr(classifier.backend, "files", (path,)) if path == classifier.description.path else (path,)
    return len(files) == 1 and path.stat().st_size <= COPIED


def _copied(original: Path, folder: Path, prefix: str) -> Path:
    """A copy under the name of its content; none is made where it exists already."""
    state = hashlib.blake2b(digest_size=8)
    with original.open("rb") as file:
        while chunk := file.read(CHUNK):
            state.update(chunk)
    target = folder / f"{prefix}-{state.hexdigest()}{original.suffix}"
    if not target.is_file():
        with atomic_path(target) as temporary:
            shutil.copyfile(original, temporary)
    return target
