"""What the commands of `secondguess guard` share: the guard to fit, the one in a folder, how images are resized."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import MODEL, OptionalModel, listed, plain
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard
    from secondguess.images.fitting import Resizing

__all__ = ["Folder", "GuardModel", "GuardOptions", "Resize", "open_guard", "resizing"]

Folder = Annotated[Path, typer.Argument(metavar="GUARD", help="The folder of a guard.", show_default=False)]
Resize = Annotated[
    str | None,
    typer.Option(
        "--resize",
        help="How to resize: stretch, crop or pad. [default: as when the guard was fitted]",
        rich_help_panel="Data",
    ),
]


def _guard(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Guard", **more)


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """The settings of a guard to fit; `make` makes it."""

    false_alarms: Annotated[
        float, _guard("--false-alarms", help="The share of nominal images that may raise an alarm.")
    ] = 0.01
    risk: Annotated[
        float | None,
        _guard("--risk", help="The share of accepted predictions that may be wrong, in place of --false-alarms."),
    ] = None
    confidence: Annotated[float, _guard("--confidence", help="With which --risk is promised.")] = 0.95
    protect: Annotated[
        str, _guard("--protect", help="What an alarm is for: errors of the model, novelty of the image, or both.")
    ] = "both"
    supervisors: Annotated[
        str,
        _guard(
            "--supervisors",
            help="recommended, or names separated by commas, with parameters after colons: dsa:subsampling=0.3.",
        ),
    ] = "recommended"
    rule: Annotated[
        str,
        _guard("--rule", help="learnt (from generated stress images), or without these: bonferroni, harmonic, cauchy."),
    ] = "learnt"
    per_class: Annotated[bool, _guard("--per-class", help="Keep the share within every predicted class.")] = False
    latency: Annotated[
        float | None,
        _guard("--latency", help="Milliseconds per image that supervisors may take. [default: all are used]"),
    ] = None
    action: Annotated[
        list[str] | None,
        _guard(
            "--action",
            metavar="KIND=ACTION",
            help="What to do about a kind of anomaly, such as adversarial=ask; may be given several times.",
        ),
    ] = None
    min_probability: Annotated[
        float, _guard("--min-probability", help="The probability from which one kind of anomaly is named alone.")
    ] = 0.7

    def make(self) -> Guard:
        """The guard, not yet fitted."""
        from secondguess.guard import Guard

        return Guard(
            self.supervisors if self.supervisors == "recommended" else listed(self.supervisors),
            false_alarms=self.false_alarms,
            per_class=self.per_class,
            rule=plain(self.rule),  # type: ignore[arg-type]
            actions=_actions(self.action or []),  # type: ignore[arg-type]
            min_probability=self.min_probability,
            latency_ms=self.latency,
            protect=plain(self.protect),  # type: ignore[arg-type]
            risk=self.risk,
            confidence=self.confidence,
        )


def _actions(given: list[str]) -> dict[str, str]:
    """Actions by the kind of anomaly, of words KIND=ACTION."""
    for word in given:
        if not all(word.partition("=")[::2]):
            raise UserError(f"--action {word!r} is no KIND=ACTION; give one such as adversarial=ask.")
    return {kind: action for kind, _, action in (word.partition("=") for word in given)}


@dataclass(frozen=True, kw_only=True)
class GuardModel(OptionalModel):
    """The model of a guard: that in its folder, unless another one is named."""

    model: Annotated[
        str | None,
        typer.Option("--model", help=f"{MODEL} [default: the one in the guard's folder]", rich_help_panel="Model"),
    ] = None


def open_guard(folder: Path, model: GuardModel) -> Guard:
    """The guard in a folder, for the model there or for the one that is named."""
    from secondguess.guard import Guard

    return Guard.load(folder, model.model, **model.changes())


def resizing(guard: Guard, given: str | None) -> Resizing:
    """How images for a guard are resized: as asked for, else as those that it was fitted on."""
    from secondguess.images.fitting import check_resize

    return check_resize(given or guard.resized_by)
