"""The options of the command line, each defined once: the same word means the same thing in every command.

A command takes groups (`ModelOptions`, `LoadingOptions`, `Common`; see `groups`) and the data options it needs:

    train: Annotated[str, TRAIN]
    validation: Annotated[str | None, VALIDATION] = None
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess._text import visible
from secondguess.cli.wording import in_options
from secondguess.errors import UserError
from secondguess.progress import Progress, for_terminal

if TYPE_CHECKING:
    from secondguess.audits import GateOutcome
    from secondguess.model.classifier import Classifier
    from secondguess.results import Result

__all__ = [
    "AMBIGUOUS",
    "BETWEEN",
    "COUNT",
    "DATA",
    "IMAGES",
    "MAX_IMAGES",
    "MAX_TEST",
    "MAX_TRAIN",
    "OBSERVING",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Common",
    "Debug",
    "Device",
    "InputOptions",
    "Json",
    "LoadingOptions",
    "ModelOptions",
    "OptionalModel",
    "Out",
    "PlanOptions",
    "Quiet",
    "ReadingOptions",
    "Seed",
    "SkipBad",
    "gate_code",
    "listed",
    "numbers",
    "open_classifier",
    "pixels",
    "plain",
    "print_json",
    "progress_for",
    "say",
]


def _model(*names: str, help: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Model", **options)


def _data(*names: str, help: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Data", **options)


# Data. How they are loaded is in `LoadingOptions`.
DATA = _data("--data", help="A data set with splits: a name, a folder or a file.")
TRAIN = _data("--train", help="Labelled images the model was trained on.")
VALIDATION = _data("--validation", help="Images the model was not trained on, to learn and calibrate with.")
TEST = _data("--test", help="Labelled images to test on.")
IMAGES = _data("--images", help="The images to work on, which need no labels: a folder, a file or a name.")
MAX_TRAIN = _data("--max-train", min=1, help="Use at most this number of training images.")
MAX_TEST = _data("--max-test", min=1, help="Use at most this number of test images.")
MAX_IMAGES = _data("--max-images", min=1, help="Use at most this number of the images.")
ENGINE = typer.Option(
    "--engine", help="Where to work: local, local:N processes, dask://host:port, ray, ray://host:port."
)
OBSERVING = _model(
    "--engine", help="Where images are observed: local, local:N processes, dask://host:port, ray, ray://..."
)
COUNT = typer.Option("--count", min=1, help="How many images to make.")
BETWEEN = typer.Option("--between", help="Classes that the ambiguous images lie between, such as 9,8.")

Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
SkipBad = Annotated[bool, _data("--skip-bad", help="Leave unreadable images out and name them.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; nothing is written anywhere else.")]

AMBIGUOUS = typer.Option(
    "--ambiguous",
    help="How ambiguous images are made: auto (what suits), ambiguess, flow, blend, none, or a trained flow's folder.",
    rich_help_panel="Stress",
)

Json = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON object on standard output and nothing else there.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, results only.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

FAST = 2.0  # minutes of --fast
MODEL = "A model.toml, an .onnx or .pt2 file, zoo:NAME, or package.module:make_model."


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How a model is fed and read, where it differs from what its `model.toml` says."""

    weights: Annotated[Path | None, _model("--weights", help="A .safetensors file for a torch module.")] = None
    classes: Annotated[
        str | None, _model("--classes", help="Names of the model's classes in its order, separated by commas.")
    ] = None
    keep: Annotated[
        str | None,
        _model(
            "--keep", help="Restrict the softmax to these classes, or to those `present` in the data. [default: all]"
        ),
    ] = None
    mean: Annotated[
        str | None, _model("--mean", help="Subtracted from pixels in [0, 1]; one number, or one per channel.")
    ] = None
    std: Annotated[
        str | None, _model("--std", help="Divides the difference; 0.00392157 (1/255) for pixels from 0 to 255.")
    ] = None
    output_kind: Annotated[
        str | None, _model("--output-kind", help="What the model returns: auto, logits or probabilities.")
    ] = None
    batch_size: Annotated[int, _model("--batch-size", min=1, help="Images per forward pass, at most.")] = 256
    device: Annotated[str, _model("--device", help="auto, cpu, cuda, cuda:N or mps.")] = "auto"

    def changes(self) -> dict[str, Any]:
        """The options that were given, as `Classifier.open` takes them."""
        given = {
            "weights": self.weights,
            "classes": None if self.classes is None else listed(self.classes),
            "keep": None if self.keep is None else listed(self.keep),
            "mean": None if self.mean is None else numbers(self.mean),
            "std": None if self.std is None else numbers(self.std),
            "output_kind": self.output_kind,
        }
        return {name: value for name, value in given.items() if value is not None} | {
            "batch_size": self.batch_size,
            "device": self.device,
        }


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ReadingOptions):
    """The model, how it is fed and read, and where it runs."""

    model: Annotated[str | None, _model("--model", help=MODEL)]
    engine: Annotated[str, OBSERVING] = "local"

    def changes(self) -> dict[str, Any]:
        """The options that were given, as `Classifier.open` takes them."""
        return super().changes() | {"engine": self.engine}


@dataclass(frozen=True, kw_only=True)
class OptionalModel(ModelOptions):
    """The same for a command that can do without a model, or knows another one."""

    model: Annotated[str | None, _model("--model", help=MODEL)] = None


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Which images a model takes."""

    size: Annotated[
        str | None, _data("--size", help="Height and width, e.g. 32 or 60x73. [default: the model's, or their own]")
    ] = None
    channels: Annotated[
        int | None, _data("--channels", help="1 grey, 3 colour. [default: the model's, or their own]")
    ] = None
    resize: Annotated[
        str | None, _data("--resize", help="How to resize: stretch, crop or pad. [default: the model's, or stretch]")
    ] = None

    def changes(self) -> dict[str, Any]:
        """The options that were given, as `Classifier.open` takes them."""
        given = {"size": pixels(self.size), "channels": self.channels, "resize": self.resize}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(InputOptions):
    """How images are loaded, where it differs from what the model takes."""

    skip_bad: SkipBad = False

    def arguments(self, classifier: Classifier | None = None) -> dict[str, Any]:
        """The arguments of `load`: as the options say, else as the model wants its images."""
        known = classifier.loading if classifier is not None else {}
        return known | self.changes() | {"skip_bad": self.skip_bad}


def _plan(*names: str, help: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Time", **options)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How long a command may take."""

    minutes: Annotated[
        float | None, _plan("--minutes", help="Fit the work into this time. [default: see above]", min=0.1)
    ] = None
    fast: Annotated[bool, _plan("--fast", help="As --minutes 2.")] = False
    full: Annotated[bool, _plan("--full", help="Everything at full size, however long it takes.")] = False
    plan: Annotated[
        Path | None,
        _plan("--plan", help="The sizes of an earlier run, from its audit.json, guard.json or estimate.json."),
    ] = None

    def arguments(self, default: float) -> dict[str, Any]:
        """The arguments `minutes` and `plan` of a verb."""
        if sum((self.minutes is not None, self.fast, self.full)) > 1:
            raise UserError("Of --minutes, --fast and --full only one can be meant; give one of them.")
        minutes = FAST if self.fast else None if self.full else self.minutes or default
        return {"minutes": minutes, "plan": self.plan}


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes."""

    quiet: Quiet = False
    json: Json = False
    debug: Debug = False

    @property
    def progress(self) -> Progress:
        """Progress on standard error, unless the user wants quiet or JSON."""
        return for_terminal(quiet=self.quiet or self.json)

    def show(self, result: Result) -> None:
        """Print a result: one JSON object, or its summary."""
        print_json(result.to_dict()) if self.json else say(result.summary())


def open_classifier(options: ModelOptions, loading: LoadingOptions | None = None) -> Classifier:
    """The model that the options describe; they override a `model.toml`."""
    from secondguess.model.classifier import Classifier

    if options.model is None:
        raise UserError(f"No model was given; say which with --model. {MODEL}")
    return Classifier.open(options.model, **options.changes(), **(loading.changes() if loading else {}))


def gate_code(gates: Sequence[GateOutcome]) -> int:
    """The exit code: 0 all hold, 1 one does not, 2 one asks for a number that does not exist."""
    outcomes = {gate.outcome for gate in gates}
    return 1 if "failed" in outcomes else 2 if "error" in outcomes else 0


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


def plain(name: str) -> str:
    """A name as it is registered: `hop-skip-jump` and `hop_skip_jump` are the same."""
    return name.strip().replace("-", "_")


def print_json(value: Any) -> None:
    """The one object of `--json`."""
    sys.stdout.write(json_format.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(visible(in_options(text)) + "\n")


def progress_for(*, quiet: bool) -> Progress:
    """Progress on standard error, unless the user wants quiet."""
    return for_terminal(quiet=quiet)
