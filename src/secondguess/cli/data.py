"""`secondguess data`: what is in a data set, and the same in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import Common, LoadingOptions, print_json, say
from secondguess.errors import UserError

__all__ = ["data"]


@grouped
def data(
    *,
    name: Annotated[
        str | None, typer.Argument(help="An embedded name, a folder, an .npz or Parquet file, or hub:OWNER/NAME.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="The split to describe and export. [default: test]")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the split to this .npz or .parquet file.")] = None,
    loading: LoadingOptions,
    common: Common,
) -> None:
    """Describe a data set, or export it.

    **Examples**

    `secondguess data` lists the embedded data sets.

    `secondguess data photos/ --json`

    `secondguess data mnist5k --export digits.parquet` writes the Hugging Face schema (image, label, p_label, ...).
    """
    from secondguess.images import load, names

    if name is None:
        listed = [load(known).describe() for known in names()]
        print_json({"datasets": listed}) if common.json else _list(listed)
        return
    dataset = load(name, split=split, **loading.arguments())
    card = dataset.describe()
    if export is not None:
        card["exported"] = str(_export(dataset.test, export))
    print_json(card) if common.json else _describe(card, split)


def _export(images: Any, path: Path) -> Path:
    from secondguess.images import save_npz, save_parquet

    writers = {".npz": save_npz, ".parquet": save_parquet}
    if path.suffix not in writers:
        raise UserError(f"{path} ends in {path.suffix!r}; data can be exported to .npz and .parquet.")
    writers[path.suffix](images, path)
    return path


def _list(cards: list[dict[str, Any]]) -> None:
    for card in cards:
        train = f"{card['train']['images']:,} + " if card["train"] else ""
        shape = " x ".join(map(str, card["shape"]))
        say(f"{card['name']:<10} {train + format(card['test']['images'], ','):>14} images of {shape}")


def _describe(card: dict[str, Any], asked: str | None) -> None:
    """Every part; a split that was asked for alone is the test part of what was loaded."""
    say(f"{card['name']}: images of {' x '.join(map(str, card['shape']))}, {len(card['class_names'])} classes")
    for split in ("train", "validation", "test"):
        part = card[split]
        if part is None:
            continue
        unlabelled = f", {part['unlabelled']:,} without a label" if part["unlabelled"] else ""
        title = asked if asked and split == "test" else split
        say(f"  {title:<10} {part['images']:>8,} images{unlabelled}   fingerprint {part['fingerprint']}")
        for note in part["notes"]:
            say(f"             {note}")
        for skipped in part["skipped"]:
            say(f"             left out: {skipped}")
    counts = card["test"]["classes"]
    say("  classes in test: " + ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:20]))
    if "exported" in card:
        say(f"Written: {card['exported']}")
