"""The options of `secondguess generate companion`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import BETWEEN, listed, numbers, plain
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.stress.ambiguous import CompanionSettings

__all__ = ["CompanionOptions"]

NAMES = ("method", "combine", "preset", "subsets")
ESTIMATOR, GAN, REJECTION = "Ambiguity estimator", "GAN", "Rejection"


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass(frozen=True, kw_only=True)
class CompanionOptions:
    """How a companion set is made."""

    between: Annotated[str, BETWEEN] = "9,8"
    method: Annotated[str, typer.Option(help="agreement, ambigan, gasten or gasten2.")] = "agreement"
    r: Annotated[
        str, typer.Option("--r", help="Target probability of the first of the classes --between, or dial.")
    ] = "0.5"
    preset: Annotated[str, typer.Option(help="paper, small, or auto: paper on a GPU, small elsewhere.")] = "auto"
    resume: Annotated[bool, typer.Option(help="Go on where an interrupted run in this folder stopped.")] = True
    combine: Annotated[
        str,
        _option("--combine", panel=GAN, help="guarded (ours), sum (the paper), alternate (its authors' code) or auto."),
    ] = "auto"
    alpha: Annotated[
        float | None,
        _option("--alpha", panel=GAN, help="How much ambiguity counts; see docs/companion.md. [default: the method's]"),
    ] = None
    variance: Annotated[
        float | None,
        _option("--variance", panel=GAN, help="Of the Gaussian likelihood. [default: the method's]"),
    ] = None
    grid: Annotated[bool, _option("--grid", panel=GAN, help="Try the paper's alphas and variances, choose one.")] = (
        False
    )
    epochs: Annotated[
        str | None, _option("--epochs", panel=GAN, help="Of stage 1 and stage 2, e.g. 100,50. [default: preset]")
    ] = None
    filters: Annotated[int | None, _option("--filters", panel=GAN, min=1, help="[default: preset]")] = None
    batch_size: Annotated[int, _option("--batch-size", panel=GAN, min=2, help="Images per step of the GAN.")] = 32
    lr: Annotated[float, _option("--lr", panel=GAN, help="Learning rate of the GAN.")] = 2e-4
    collapse: Annotated[
        float, _option("--collapse", panel=GAN, help="Begin anew if images vary less than this share of real ones.")
    ] = 0.25
    members: Annotated[int, _option("--members", panel=ESTIMATOR, min=1, help="Number of networks.")] = 50
    estimator_epochs: Annotated[
        int | None, _option("--estimator-epochs", panel=ESTIMATOR, min=1, help="[default: preset]")
    ] = None
    subsets: Annotated[
        str, _option("--subsets", panel=ESTIMATOR, help="What its members see: disjoint, batch, or auto.")
    ] = "auto"
    tolerance: Annotated[
        float, _option("--tolerance", panel=REJECTION, help="Reject images farther than this from the target.")
    ] = 0.1
    disagreement: Annotated[
        float, _option("--disagreement", panel=REJECTION, help="Reject above this mutual information, in nats.")
    ] = 0.2
    realism: Annotated[
        bool,
        _option("--realism/--no-realism", panel=REJECTION, help="Reject images that fit neither class."),
    ] = True
    reject: Annotated[bool, _option("--reject/--no-reject", panel=REJECTION, help="Reject images at all.")] = True

    def settings(self) -> CompanionSettings:
        """The options under the names and in the types of `CompanionSettings`."""
        from secondguess.stress.ambiguous import CompanionSettings

        given = asdict(self) | {name: plain(getattr(self, name)) for name in NAMES}
        given |= {"r": _target(self.r), "epochs": _epochs(self.epochs)}
        if not given.pop("reject"):
            given |= {"tolerance": None, "disagreement": None, "realism": False}
        return CompanionSettings(**given)


def _target(text: str) -> float | list[float] | str:
    values = [] if text == "dial" else numbers(text)
    return text if text == "dial" else values[0] if len(values) == 1 else values


def _epochs(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = listed(text)
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise UserError(f"--epochs is {text!r}; give the epochs of stage 1 and stage 2, such as 100,50.")
    return int(parts[0]), int(parts[1])
