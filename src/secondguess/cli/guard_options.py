"""What the commands of `secondguess guard` share: the model, and how images are loaded for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.guard.guard import Guard

__all__ = ["Folder", "Model", "open_guard"]

Model = Annotated[
    str,
    typer.Option(
        "--model", help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="GUARD", help="The folder of a guard.", show_default=False)]


def open_guard(folder: Path, classifier: Classifier) -> Guard:
    """The guard in a folder, if it is the classifier's."""
    from secondguess.guard import Guard

    return Guard.load(folder, classifier)
