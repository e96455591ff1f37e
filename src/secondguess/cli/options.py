"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.errors import UserError
from secondguess.progress import Progress, for_terminal

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = [
    "BatchSize",
    "Channels",
    "Debug",
    "Device",
    "Fit",
    "Json",
    "Mean",
    "Out",
    "Output",
    "Quiet",
    "Seed",
    "Size",
    "SkipBad",
    "Std",
    "Weights",
    "listed",
    "loading_for",
    "numbers",
    "open_classifier",
    "pixels",
    "print_json",
    "progress_for",
    "say",
    "training_images",
]

Json = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON object on standard output and nothing else there.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, results only.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; nothing is written anywhere else.")]

Weights = Annotated[
    Path | None, typer.Option("--weights", help="A .safetensors file for a torch module.", rich_help_panel="Model")
]
Mean = Annotated[
    str,
    typer.Option(
        "--mean", help="Subtracted from pixels in [0, 1]; one number or one a channel.", rich_help_panel="Model"
    ),
]
Std = Annotated[
    str,
    typer.Option(
        "--std", help="Divides what is left; 1/255 as 0.00392157 for pixels from 0 to 255.", rich_help_panel="Model"
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", help="What the model returns: auto, logits or probabilities.", rich_help_panel="Model"),
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Images a forward pass.", rich_help_panel="Model")]
Size = Annotated[
    str | None,
    typer.Option("--size", help="Height and width, e.g. 32 or 60x73. [default: the model's]", rich_help_panel="Data"),
]
Channels = Annotated[
    int | None, typer.Option("--channels", help="1 grey, 3 colour. [default: the model's]", rich_help_panel="Data")
]
Fit = Annotated[str, typer.Option("--fit", help="How to resize: stretch, crop or pad.", rich_help_panel="Data")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave unreadable images out and name them.", rich_help_panel="Data")
]


def pixels(text: str | None) -> tuple[int, int] | None:
    """What `--size` says: `32` or `60x73` (height x width)."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 2:
        raise UserError(f"--size is {text!r}; give one number, or height x width such as 60x73.")
    return int(parts[0]), int(parts[-1])


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in listed(text)]
    except ValueError:
        raise UserError(f"{text!r} is not a number or a list of numbers separated by commas.") from None


def listed(text: str) -> list[str]:
    """What is separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def open_classifier(
    model: str, weights: Path | None, mean: str, std: str, output: str, batch_size: int, device: str
) -> Classifier:
    """The model that the options describe."""
    from secondguess.model.classifier import Classifier

    options: dict[str, Any] = {"output": output, "batch_size": batch_size, "device": device}
    return Classifier(model, weights=weights, mean=numbers(mean), std=numbers(std), **options)


def loading_for(
    shape: tuple[int, int, int] | None, size: str | None, channels: int | None, fit: str, *, skip_bad: bool
) -> dict[str, Any]:
    """How images are loaded: as the options say, else in the shape (C, H, W) that the model takes, where it tells."""
    sides = pixels(size) or (shape and shape[1:])
    return {"fit": fit, "skip_bad": skip_bad, "size": sides, "channels": channels or (shape and shape[0])}


def training_images(train: str, loading: dict[str, Any]) -> ImageSet:
    """The training split of `--train`, or all of it if it has but one."""
    from secondguess.images import load

    loaded = load(train, **loading)
    return replace(loaded.train or loaded.test, name=train)


def print_json(value: Any) -> None:
    """The one object of `--json`."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(text + "\n")


def progress_for(*, quiet: bool) -> Progress:
    """Progress on standard error, unless the user wants quiet."""
    return for_terminal(quiet=quiet)
