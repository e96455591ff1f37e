"""What is finished of a guard that is still being fitted, so that an interrupted fit goes on from there.

    unfinished/plan.json                 the sizes, so that the pieces fit together
    unfinished/observations/             what the classifier answered; see `secondguess.model.cache`
    unfinished/supervisor-KEY.safetensors
    unfinished/images-KEY.npz, .json     a stress set, and the digest of its file

A piece is named by a digest of everything it depends on, and read only if its own digest is right. The folder is
removed when the guard is fitted.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess import __version__
from secondguess.contracts.sealed import digest_of, file_digest, read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.files import make_folder
from secondguess.images import ImageSet, load_images
from secondguess.images.save import save_npz
from secondguess.model.cache import Cache
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["Unfinished"]

FOLDER, PLAN = "unfinished", "plan.json"


class Unfinished:
    """The finished pieces of one fit.

    Args:
        folder: of the guard; None keeps nothing.
        depends: what all pieces depend on, as JSON can hold it; None where the model cannot be recognised again, and
            nothing is kept.
    """

    def __init__(self, folder: Path | None, depends: Any) -> None:
        self.key = digest_of(json.dumps([__version__, depends], sort_keys=True).encode())
        self.folder = None if folder is None or depends is None else folder / FOLDER

    @property
    def plan(self) -> Path | None:
        """The file of the plan."""
        return None if self.folder is None else make_folder(self.folder) / PLAN

    def observing(self, classifier: Classifier) -> Classifier:
        """The classifier, with a cache of its answers if it has none; the user's own stays as it is."""
        if self.folder is None or classifier.cache is not None:
            return classifier
        cached = copy.copy(classifier)
        cached.cache = Cache(self.folder / "observations")
        return cached

    def supervisor(self, one: Supervisor, label: str, fit: Callable[[], Supervisor]) -> Supervisor:
        """A fitted supervisor: the one that is kept, or the one that `fit` returns."""
        path = self._path("supervisor", [label, repr(one)], ".safetensors")
        if path is None:
            return fit()
        try:
            return Supervisor.load(path)
        except (UserError, OSError):  # none is kept, or it is damaged
            fitted = fit()
        try:
            fitted.save(path)
        except UserError:  # one of another package, which cannot be saved
            path.unlink(missing_ok=True)
        return fitted

    def images(self, name: str, settings: Any, make: Callable[[], ImageSet]) -> ImageSet:
        """A stress set: the one that is kept, or the one that `make` returns."""
        path = self._path("images", [name, settings], ".npz")
        if path is None:
            return make()
        card = path.with_suffix(".json")
        try:
            about = read_json(card)
            if about["digest_of_images"] == file_digest(path):
                return replace(load_images(path), name=about["name"], notes=tuple(about["notes"]))
        except (OSError, ValueError, KeyError, UserError):  # none is kept, or it is damaged
            pass
        made = make()
        save_npz(made, path)
        about = {"digest_of_images": file_digest(path), "name": made.name, "notes": list(made.notes)}
        write_json_sealed(card, about)
        return made

    def remove(self) -> None:
        """Forget everything."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str, settings: Any, suffix: str) -> Path | None:
        if self.folder is None:
            return None
        key = digest_of(json.dumps([self.key, settings], sort_keys=True, default=repr).encode())
        return make_folder(self.folder) / f"{kind}-{key}{suffix}"
