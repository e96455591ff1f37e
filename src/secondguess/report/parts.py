"""The parts that a section of a page can be put together from: text, tables, charts and galleries of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.report.figures import to_svg
from secondguess.report.pictures import data_uri

__all__ = ["Chart", "Gallery", "Part", "Table", "Text"]

DEFAULT_COLOURS = {"#000000": "ink", "#1f77b4": "accent", "#ff7f0e": "bad"}  # matplotlib's, by their role in the page


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Table:
    """A table whose first column is a heading.

    Attributes:
        header: the headings of the columns.
        rows: as many cells each: text, numbers, or intervals.
        caption: what the table shows; may be empty.
        folded: whether it is shown only when its caption is clicked.
    """

    kind: ClassVar[str] = "table"
    header: list[str]
    rows: list[list[Any]]
    caption: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise UserError(
                f"A row of the table {self.caption!r} does not have {len(self.header)} cells as its header."
            )


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption."""

    kind: ClassVar[str] = "chart"
    svg: Markup
    caption: str

    @classmethod
    def of(cls, figure: Any, caption: str) -> Self:
        """From a matplotlib figure, whose default colours become those of the page, or from SVG that is `Markup`."""
        if isinstance(figure, Markup):
            return cls(figure, caption)
        svg = str(to_svg(figure, caption))
        for colour, role in DEFAULT_COLOURS.items():
            svg = svg.replace(colour, f"var(--{role})")
        return cls(Markup(svg), caption)


@dataclass(frozen=True)
class Gallery:
    """Images with a line below each.

    Attributes:
        cards: (the image as a data URI, its line).
        title: the heading of the gallery, if it needs one.
    """

    kind: ClassVar[str] = "gallery"
    cards: list[tuple[str, str]]
    title: str = ""

    @classmethod
    def of(cls, images: ArrayLike, captions: Sequence[str], title: str = "") -> Self:
        """From images (n, C, H, W) in [0, 1]."""
        pixels = np.asarray(images, dtype=np.float32)
        if pixels.ndim != 4 or len(pixels) != len(captions):
            raise UserError(
                f"A gallery of images of shape {pixels.shape} has {len(captions)} captions; give images (n, C, H, W) "
                "and one caption for each."
            )
        return cls([(data_uri(image), caption) for image, caption in zip(pixels, captions, strict=True)], title)


Part = Text | Table | Chart | Gallery
