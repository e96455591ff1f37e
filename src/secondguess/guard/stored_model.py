"""The model of a guard, in its folder: `model.toml`, so that the folder is all that a service needs.

    model.toml                  the description of the model, with the classes and the image size of the guard
    model-DIGEST.onnx, .pt2     a copy of the model's file
    model-DIGEST/               copies of an ONNX file and of the files that hold its weights, under their names
    weights-DIGEST.safetensors  a copy of the weights of a torch module

Models of up to 512 MiB are copied, so that the folder can be moved to another place or machine. Larger ones stay where
they are and are named by their absolute path. The code of a torch
module is not copied: `folder` in `model.toml` says where it is imported from. A model that lives in memory only cannot
be described, and the guard asks for it when it is loaded.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import atomic_path, make_folder
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
    originals: dict[str, tuple[Path, ...]] = {}
    if known.path is not None:
        originals["path"] = getattr(classifier.backend, "files", (known.path,))
    if known.weights is not None:
        originals["weights"] = (known.weights,)
    for field, files in originals.items():
        if sum(file.stat().st_size for file in files) <= COPIED:
            copies[field] = _copied(files, folder, "model" if field == "path" else field)
    kept = {path.relative_to(folder).parts[0] for path in copies.values()}
    described = {"classes": known.classes, "size": shape[1:], "channels": shape[0], "name": classifier.name}
    described["output_kind"] = classifier.output_kind  # by now many images have decided it, later perhaps a single one
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


def _copied(files: Sequence[Path], folder: Path, prefix: str) -> Path:
    """A copy of the first file under the name of its content; none is made where it exists already.

    A file that names others keeps its name, in a folder under the name of the content of all.
    """
    first, *others = files
    state = hashlib.blake2b(digest_size=8)
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                state.update(chunk)
    target = folder / f"{prefix}-{state.hexdigest()}{'' if others else first.suffix}"
    if not others:
        return _copy(first, target)
    for path in others:
        _copy(path, target / path.relative_to(first.parent))  # ONNX Runtime opens no weights outside this folder
    return _copy(first, target / first.name)


def _copy(original: Path, target: Path) -> Path:
    if not target.is_file():
        make_folder(target.parent)
        with atomic_path(target) as temporary:
            shutil.copyfile(original, temporary)
    return target
