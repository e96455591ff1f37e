"""What the commands of `secondguess guard` share: the model, and how images are loaded for it.

A guard notes how the images that it was fitted on were resized, and those that come later are resized alike: stretched
where they were cropped before, nominal images would look unusual.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard
    from secondguess.images.fitting import Fit
    from secondguess.model.classifier import Classifier

__all__ = ["RESIZED_BY", "Folder", "Model", "OwnFit", "note_resizing", "open_guard", "resizing"]

RESIZED_BY = "resized_by"  # in the record of a guard that was fitted by command

Model = Annotated[
    str,
    typer.Option(
        "--model", help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="GUARD", help="The folder of a guard.", show_default=False)]
OwnFit = Annotated[
    str | None,
    typer.Option(
        "--fit",
        help="How to resize: stretch, crop or pad. [default: as when the guard was fitted]",
        rich_help_panel="Data",
    ),
]


def open_guard(folder: Path, classifier: Classifier) -> Guard:
    """The guard in a folder, if it is the classifier's."""
    from secondguess.guard import Guard

    return Guard.load(folder, classifier)


def note_resizing(guard: Guard, fit: str) -> None:
    """Let a fitted guard remember how its images were resized."""
    guard.record[RESIZED_BY] = fit


def resizing(guard: Guard, given: str | None) -> Fit:
    """How images for a guard are resized: as asked for, else as it remembers; stretched if it remembers nothing."""
    from secondguess.images.fitting import check_fit

    return check_fit(given or guard.record.get(RESIZED_BY, "stretch"))
