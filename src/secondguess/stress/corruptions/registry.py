"""What a corruption is, the table of all of them, and the one function that applies them.

A corruption is a function `name(images, rng, *level)` of images v (n, C, H, W) in [0, 1], doubles, a generator, and the
parameters of one severity. `corrupt` does everything else: as in the published sets, the result is clipped,
scaled to 0..255 and truncated to whole grey levels.

To add one, decorate it with its five levels, the severity that is used by default, and its source. It may draw from the
generator in ONE call only, whose first axis is the images: then a set can be corrupted block by block with the same
result. Blocks can also be made at once, on several machines, where that call is `rng.random` of a shape that depends on
that of the images alone: the numbers of a block then begin at a place that is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.registry import snake_case, unknown
from secondguess.errors import UserError

__all__ = [
    "CORRUPTIONS",
    "Corruption",
    "Floats",
    "Work",
    "check_severity",
    "corrupt",
    "corruption",
    "drawn",
    "find",
    "noise",
]

Floats = NDArray[np.float32]
Work = NDArray[np.float64]
Level = tuple[float, ...]

# Float32 keeps a grey level to 1e-5; anything farther from a whole level is meant to be between two of them.
GREY_SLACK = 1e-3

# Fashion-MNIST-C calls its quarter turns flips; a request for one of these names is answered with what it was.
MISNOMERS = {"flip_left_right": "turn_right", "flip_top_bottom": "turn_left"}


@dataclass(frozen=True)
class Corruption:
    """One way to degrade an image.

    Attributes:
        apply: (images, generator, *level) -> images.
        levels: the parameters at severities 1 to 5, or None where there are no severities.
        default: the severity that the published data sets use, or None where there are no severities.
        source: who defined it.
    """

    apply: Callable[..., Work]
    levels: tuple[Level, ...] | None
    default: int | None
    source: str

    def level(self, severity: int | None) -> Level:
        """The parameters at a severity, or at the default one."""
        if self.levels is None or self.default is None:
            return ()
        return self.levels[(self.default if severity is None else int(severity)) - 1]


CORRUPTIONS: dict[str, Corruption] = {}


def corruption(
    *levels: float | Level, default: int | None = None, source: str = "MNIST-C"
) -> Callable[[Callable[..., Work]], Callable[..., Work]]:
    """Enter a function into `CORRUPTIONS` under its own name.

    Args:
        levels: the parameter at severities 1 to 5, a tuple where there are several; nothing for a corruption without
            severities.
        default: the severity of the published data set.
        source: who defined it.
    """
    if len(levels) not in (0, 5) or (default is None) != (not levels):
        raise ValueError("A corruption has five levels and a default severity, or neither.")

    def enter(function: Callable[..., Work]) -> Callable[..., Work]:
        five = tuple(level if isinstance(level, tuple) else (level,) for level in levels)
        CORRUPTIONS[function.__name__] = Corruption(function, five or None, default, source)
        return function

    return enter


def corrupt(images: Floats, name: str, *, severity: int | None = None, seed: int | np.random.Generator = 0) -> Floats:
    """Corrupt images (n, C, H, W) in [0, 1].

    Args:
        images: floats, at least one image.
        name: one of `CORRUPTIONS`.
        severity: 1 (mild) to 5; the published default if left out. Corruptions without severities, such as `inverse`,
            ignore it.
        seed: same seed, same noise. To corrupt a large set block by block, as if it were done at once, hand the same
            `noise(name, seed)` to every call.

    Returns:
        float32 images of the same shape whose values are whole multiples of 1/255.
    """
    chosen = find(name)
    check_severity(severity)
    rng = seed if isinstance(seed, np.random.Generator) else noise(name, seed)
    spoilt = chosen.apply(_exact(images), rng, *chosen.level(severity))
    # 1e-9 absorbs rounding: 0.2 * 255 is a hair below 51, and truncation would turn that into 50.
    levels = np.floor(spoilt.clip(0, 1) * 255 + 1e-9)
    return (levels / 255).astype(np.float32)


def noise(name: str, seed: int, skip: int = 0) -> np.random.Generator:
    """The random numbers of a corruption but for the first `skip`; with one seed, every corruption has its own."""
    return np.random.Generator(np.random.PCG64([seed, *name.encode("ascii")]).advance(skip))


def drawn(name: str, shape: tuple[int, ...], severity: int | None = None) -> int | None:
    """How many uniform numbers an image (C, H, W) takes; None where nobody knows before they are drawn.

    Normal and Poisson numbers take as many as it takes until one is accepted.
    """
    counter = _Counter(np.random.PCG64(0))
    pixels = np.random.default_rng(1).uniform(0.2, 0.8, (1, *shape))
    chosen = find(name)
    chosen.apply(pixels, counter, *chosen.level(severity))
    expected = np.random.PCG64(0).advance(counter.count)
    return counter.count if counter.bit_generator.state == expected.state else None


class _Counter(np.random.Generator):
    """Counts the uniform numbers; whatever else is drawn shows in the state."""

    count = 0

    def random(self, size: Any = None, *given: Any, **named: Any) -> Any:
        self.count += prod(np.atleast_1d(1 if size is None else size).tolist())
        return super().random(size, *given, **named)


def find(name: str) -> Corruption:
    """The corruption of that name."""
    name = snake_case(name)
    if name in MISNOMERS:
        raise UserError(
            f"What Fashion-MNIST-C calls {name!r} is a quarter turn: ask for {MISNOMERS[name]!r}, or for 'flip_sides' "
            "or 'flip_up_down' to mirror."
        )
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, CORRUPTIONS)
    return CORRUPTIONS[name]


def check_severity(severity: int | None) -> None:
    """Raise a `UserError` unless this is a severity."""
    if severity is not None and severity not in range(1, 6):
        raise UserError(f"The severity of a corruption is a whole number from 1 to 5, not {severity!r}.")


def _exact(images: Floats) -> Work:
    """The images as doubles, with whole grey levels as exact as doubles can hold them."""
    if images.ndim != 4 or images.size == 0 or images.dtype.kind != "f":
        raise UserError(
            f"Images of shape {images.shape} and type {images.dtype} cannot be corrupted; "
            "give at least one, as floats (n, C, H, W)."
        )
    levels = images.astype(np.float64) * 255
    if not (levels.min() >= -GREY_SLACK and levels.max() <= 255 + GREY_SLACK):
        raise UserError(
            f"Images with values from {images.min()} to {images.max()} cannot be corrupted; scale them to 0..1."
        )
    whole = np.rint(levels)
    return np.where(np.abs(levels - whole) < GREY_SLACK, whole, levels) / 255
