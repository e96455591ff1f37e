"""A first `model.toml` for a model, from its file and from one pass over noise."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import make_folder, write_text
from secondguess.model.classifier import Classifier
from secondguess.model.description import Description
from secondguess.model.noise import answers_to_noise
from secondguess.model.outputs import detect
from secondguess.results import Result

__all__ = ["NewDescription", "describe_model"]

MODEL = "model.toml"


@dataclass(frozen=True)
class NewDescription(Result):
    """A description that was written for a model.

    Attributes:
        description: what is known of the model.
        notes: what was found out and what is missing, one sentence each.
        file: where it is; None until it is saved.
    """

    description: Description
    notes: tuple[str, ...]
    file: Path | None = None

    def summary(self) -> str:
        """Where the file is, the notes, and the next step."""
        lines = [f"  {note}" for note in self.notes]
        if self.file is None:
            return "\n".join(lines)
        next_step = f"secondguess model check {shlex.quote(str(self.file))} --data DATA"
        return "\n".join([f"Written: {self.file}", *lines, f"Try it on labelled images: {next_step}"])

    def to_dict(self) -> dict[str, Any]:
        """The description and the notes."""
        return {
            "file": None if self.file is None else str(self.file),
            "description": self.description.to_dict(),
            "notes": list(self.notes),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `model.toml`; one that is there already is not replaced."""
        self.written(folder)
        return Path(folder)

    def written(self, folder: str | Path) -> NewDescription:
        """Write `model.toml`, with the notes as comments, and say where it is."""
        if Path(folder).suffix == ".toml":
            raise UserError(f"The file {folder} was given where a folder is expected, in which model.toml is written.")
        path = make_folder(folder) / MODEL
        if path.exists():
            raise UserError(f"{path} is there already; remove it, or name another folder.")
        comments = "".join(f"# {note}\n" for note in self.notes)
        description = self.description.placed()
        write_text(path, comments + description.to_toml(path.resolve().parent))
        return NewDescription(description, self.notes, path)


def describe_model(model: Any, **changes: Any) -> NewDescription:
    """Describe a model.

    Args:
        model: an `.onnx` or `.pt2` file, `zoo:NAME` or `package.module:make_model`.
        changes: what is known of it, by the names of a `Description`'s fields; `device` as for `Classifier.open`.
    """
    if not isinstance(model, (str, Path)):
        raise UserError("A model that lives in memory cannot be described in a file; save it as .onnx or .pt2 first.")
    classifier = Classifier.open(model, **changes)
    known = classifier.description
    shape, notes = classifier.input_shape, []
    if shape is None:
        notes.append("The model does not say which images it takes; add size and channels under [input].")
    else:
        known = known.changed(size=shape[1:], channels=shape[0])
        kind, classes = _seen(classifier, shape)
        known = known.changed(output_kind=kind) if known.output_kind == "auto" else known
        notes.append(f"It gives {classes} classes" + (f": {kind}." if kind != "auto" else "."))
        if known.classes and len(known.classes) != classes:
            raise UserError(f"{classifier.name} gives {classes} classes, but {len(known.classes)} names were given.")
    if len(outputs := classifier.backend.outputs) > 1:
        used = getattr(classifier.backend, "output", outputs[0])
        notes.append(f"It has {len(outputs)} outputs ({', '.join(outputs)}); {used} is used.")
        known = known.changed(output=used)
    if not known.classes:
        notes.append("Its class names are not known: add classes = [...], in its order.")
    if known.mean == (0.0,) and known.std == (1.0,):
        notes.append("It is fed pixels from 0 to 1; add mean and std under [input] if it was trained on others.")
    return NewDescription(known, tuple(notes))


def _seen(classifier: Classifier, shape: tuple[int, int, int]) -> tuple[Any, int]:
    """The kind of output on noise (logits, probabilities, or "auto" where only real images can decide), and K."""
    raw = answers_to_noise(classifier, shape)
    try:
        kind = detect(raw)
    except UserError:
        return "auto", max(raw.shape[1], 2)
    return kind, max(raw.shape[1], 2)
