"""A stress set as files: images, the same in the Hugging Face schema, a card, and a contact sheet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.contracts.sealed import write_json_sealed
from secondguess.errors import MissingExtra
from secondguess.files import make_folder, write_bytes
from secondguess.images import ImageSet, save_npz, save_parquet

__all__ = ["card_of", "save_stress_set", "sheet_png"]

COLUMNS, ROWS, SIDE, MARGIN = 16, 40, 48, 128
TALL = 24  # rows; more of them stand side by side, with half as many images
MOST_KINDS = 60


def save_stress_set(images: ImageSet, card: dict[str, Any], folder: str | Path, *, by: Sequence[str] = ()) -> Path:
    """Write `images.npz`, `images.parquet` (where pyarrow is installed), `card.json` and `sheet.png` into a folder.

    Args:
        images: the set.
        card: JSON-able description.
        folder: created if need be.
        by: the columns whose values make the rows of the sheet.
    """
    folder = make_folder(folder)
    card = dict(card)
    save_npz(images, folder / "images.npz")
    try:
        save_parquet(images, folder / "images.parquet")
    except MissingExtra as error:
        card["notes"] = [*card.get("notes", []), f"No Parquet file was written. {error}"]
    write_bytes(folder / "sheet.png", sheet_png(images, by))
    write_json_sealed(folder / "card.json", card)
    return folder


def card_of(images: ImageSet, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A card for a set whose maker writes none: what it is, and how many images there are of each sort."""
    counts = {}
    for name, values in images.columns.items():
        if values.dtype.kind in "Ub":
            kinds, numbers = np.unique(values, return_counts=True)
            if len(kinds) <= MOST_KINDS:
                counts[name] = {str(one): int(number) for one, number in zip(kinds, numbers, strict=True)}
    return {"kind": kind, "settings": settings, **images.describe(), "counts": counts}


def sheet_png(images: ImageSet, by: Sequence[str] = ()) -> bytes:
    """A PNG with a row for each combination of values in the columns `by`: up to 16 images of each, with its name.

    More than 24 rows stand in two halves side by side, with up to 8 images of each; after 80 it ends.
    """
    from PIL import Image, ImageDraw

    keys = [_spelt(images, row, by) for row in range(len(images))]
    halves = 1 + (len(set(keys)) > TALL)
    shown, columns = sorted(set(keys))[: halves * ROWS], COLUMNS // halves
    lines, width = -(-len(shown) // halves), MARGIN + columns * SIDE
    sheet = Image.new("RGB", (halves * width, lines * SIDE), "white")
    pen = ImageDraw.Draw(sheet)
    rows_of = {key: [row for row, other in enumerate(keys) if other == key][:columns] for key in shown}
    for place, key in enumerate(shown):
        half, line = divmod(place, lines)
        pen.text((half * width + 4, line * SIDE + 8), "\n".join(part[:20] for part in key), fill="black")
        for column, row in enumerate(rows_of[key]):
            pixels = np.rint(images.images[row] * 255).astype(np.uint8)
            picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels[:3], 0, -1))
            picture = picture.convert("RGB").resize((SIDE - 2, SIDE - 2))
            sheet.paste(picture, (half * width + MARGIN + column * SIDE, line * SIDE))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _spelt(images: ImageSet, row: int, by: Sequence[str]) -> tuple[str, ...]:
    """What a row of the sheet is called: classes by their names, other values as they are."""
    if not by:
        label = int(images.labels[row])
        return (images.class_names[label] if label >= 0 else "unknown",)
    return tuple(
        images.class_names[int(images.columns[name][row])]
        if name.startswith("class_")
        else str(images.columns[name][row])
        for name in by
    )
