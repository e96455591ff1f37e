"""Which generator of ambiguous images suits the data: `auto`, `ambiguess`, `flow`, `blend` or `none`.

| images                                    | `auto` takes                                                         |
|-------------------------------------------|----------------------------------------------------------------------|
| grey, 8 to 64 pixels per side             | AmbiGuess: its small autoencoders are made for these                 |
| others up to 64 pixels and 100 classes,   | the flow, which learns what photographs look like; blends where its  |
| with a GPU or a trained generator at hand | training does not fit into the time allowed                          |
| all others                                | blends, and says so: two pictures laid over each other are a poor    |
|                                           | stand-in                                                             |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from secondguess.contracts.registry import snake_case
from secondguess.errors import UserError
from secondguess.stress.registry import make

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.stress.ambiguous.base import AmbiguousGenerator
    from secondguess.stress.base import StressSet

__all__ = ["AMBIGUOUS", "BLENDS", "Chosen", "cheaper_generator", "choose_generator", "suited_generator"]

AMBIGUOUS = ("auto", "ambiguess", "flow", "blend", "none")
SMALLEST, LARGEST = 8, 64  # pixels per side, of AmbiGuess and of the flow
MOST_CLASSES = 100  # of the flow
BLENDS = "Ambiguous images are plain blends of two images, which teach little about true ambiguity"
NAMES = {"ambiguess": "ambiguous", "flow": "ambiguous_flow", "blend": "ambiguous_blend"}

Chosen = tuple["StressSet | None", str]


def choose_generator(which: str, train: ImageSet | None, *, device: str = "auto", folder: Path | None = None) -> Chosen:
    """A generator of ambiguous images, or None, and the sentence that says why it is not a better one ("" if it is).

    Args:
        which: one of `AMBIGUOUS`, or the folder of a trained flow.
        train: the images that ambiguous ones are made of.
        device: where the generator computes.
        folder: where a trained generator may lie.
    """
    if _trained_in(Path(which)):
        return make(NAMES["flow"], generator=which), ""
    which = snake_case(which)
    if which not in AMBIGUOUS:
        raise UserError(
            f"Ambiguous images are made by {', '.join(AMBIGUOUS)}, or by the generator in a folder, not by {which!r}."
        )
    if which == "none":
        return None, ""
    if which != "auto":
        return make(NAMES[which]), ""
    suited, note = suited_generator(train, device=device, folder=folder)
    return make(NAMES[suited]), note


def suited_generator(train: ImageSet | None, *, device: str = "auto", folder: Path | None = None) -> tuple[str, str]:
    """What `auto` means for these images: the short name of a generator, and why it is not a better one."""
    if train is None or _small_grey(train.shape):
        return "ambiguess", ""
    if unfit := _too_much(train):
        return "blend", f"{BLENDS}: the generator of photographs {unfit}."
    if _can_flow(device, folder):
        return "flow", ""
    return "blend", f"{BLENDS}: a generator of photographs needs a GPU, or one that has been trained before."


def cheaper_generator(generator: StressSet | None) -> AmbiguousGenerator | None:
    """What takes the place of a generator for which there is no time: blends, for the flow; None for all others."""
    from secondguess.stress.ambiguous.blend import PixelBlend

    return PixelBlend() if generator is not None and generator.name == NAMES["flow"] else None


def _small_grey(shape: tuple[int, int, int]) -> bool:
    channels, *sides = shape
    return channels == 1 and min(sides) >= SMALLEST and max(sides) <= LARGEST


def _too_much(train: ImageSet) -> str:
    """Why the flow is not made for these images; "" if it is."""
    if not SMALLEST <= min(train.shape[1:]) <= max(train.shape[1:]) <= LARGEST:
        return f"is made for {SMALLEST} to {LARGEST} pixels per side"
    return "" if train.num_classes <= MOST_CLASSES else f"is made for at most {MOST_CLASSES} classes"


def _can_flow(device: str, folder: Path | None) -> bool:
    """Whether the flow can be trained here, or need not be."""
    from secondguess.devices import pick_device
    from secondguess.stress.ambiguous.flow.model import Flow

    return pick_device(device).type == "cuda" or Flow.at_hand(folder)


def _trained_in(folder: Path) -> bool:
    """Whether a flow of any version lies in the folder; one that cannot be used says so when it is read."""
    return (folder / "flow.json").is_file()
