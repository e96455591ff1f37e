"""How long the commands take on the reference classifiers of photographs: several runs of the benchmark as one record.

    python photo_times.py RUN.json ... --out results/photos/times.json
    python photo_times.py                                               # only writes the table of the page again

Each RUN is what `secondguess bench photos MODELS... --data DATA --json` has printed: models and commands can so be
measured one at a time, while a machine is idle. A later run of the same command replaces an earlier one. A record that
was written before may stand among the runs: its rows are taken over with the commit they were measured at. The table
of docs/evidence/scaling.md is written between its markers.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from scaling import between_markers

from secondguess_lab.record import provenance, say, write

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "results" / "photos" / "times.json", ROOT / "docs" / "evidence" / "scaling.md"
FACTOR = 1.5
MODELS = {
    "resnet20/model.toml": "ResNet-20, torch",
    "resnet20/onnx.toml": "ResNet-20, ONNX",
    "resnet20/pt2.toml": "ResNet-20, .pt2",
    "vgg/model.toml": "VGG, torch",
    "vgg/onnx.toml": "VGG, ONNX",
    "cats_dogs_cnn/model.toml": "the papers' network, torch",
    "cats_dogs_cnn/onnx.toml": "the papers' network, ONNX",
    "resnet18/model.toml": "ResNet-18 of 1,000 classes, torch",
    "resnet18/onnx.toml": "ResNet-18 of 1,000 classes, ONNX",
    "embedded": "SimpleCNN, trained on the way",
}
DATA = {
    "cifar10_10k2k": "CIFAR-10, {train:,} / {test:,} of 32 pixels",
    "cats_dogs": "cats and dogs, {train:,} / {test:,} of 64 pixels",
    "large": "photographs, {train:,} / {test:,} JPEG files of 224 pixels",
    "embedded": "5,000 embedded digits",
}
COMMANDS = {
    "audit": "`audit`",
    "guard": "`guard fit`",
    "estimate": "`estimate`",
    "label": "`label`, until it asks",
    "embedded": "`audit`",
}
NAMED = 2  # parts of a path: where a model lies depends on the machine
KEPT = ("name", "size", "full", "unit", "planned_seconds", "seconds")


def main() -> None:
    """Join the runs, print a line for each row, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    if options.runs:
        record(options)
    PAGE.write_text(filled(PAGE.read_text("utf-8"), json.loads(options.out.read_text("utf-8"))), "utf-8")


def record(options: argparse.Namespace) -> None:
    """Join the runs."""
    runs = [json.loads(path.read_text("utf-8")) for path in options.runs]
    newest = {(row["data"], row["model"], row["command"]): row for run in runs for row in measured(run)}
    rows, heads = list(newest.values()), [head for run in runs for head in about(run)]
    write(options.out, provenance({"runs": len(heads)}) | {"rows": rows, "runs": heads})
    for row in rows:
        what = f"{row['data']:<24}{row['model']:<24}{row['command']:<10}"
        say(f"{what}{row['planned']}  {row['seconds']}  {row['ratio']}")


def filled(page: str, found: dict[str, Any]) -> str:
    """The page with the table of the record, and what it comes to, between their markers."""
    return str(between_markers(page, {"times": table(found["rows"]), "times-in-words": in_words(found["rows"])}))


def table(rows: list[dict[str, Any]]) -> str:
    """All rows, by data and model."""
    lines = [
        "| model | images | command | allowed | planned | took | took / planned | longest silence | left out |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    before = None
    for row in sorted(rows, key=_place):
        head = (MODELS[row["model"]], DATA[row["data"]].format(**row["images"]))
        shown = ("", "") if head == before else head
        before = head
        cells = [*shown, COMMANDS[row["command"]], f"{row['allowed']:.0f}", _seconds(row["planned"])]
        cells += [_seconds(row["seconds"]), _ratio(row["ratio"]), f"{row['silent']['seconds']:.1f}", _left_out(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(line.replace("|  |", "| |").replace("|  |", "| |") for line in lines) + "\n"


def in_words(rows: list[dict[str, Any]]) -> str:
    """How many plans held, which command took longer than allowed, and how long nothing was heard."""
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    near = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    late = [row for row in rows if row["seconds"] > row["allowed"]]
    worst = max((row["seconds"] / row["allowed"] for row in late), default=0.0)
    quiet = max(row["silent"]["seconds"] for row in rows)
    sentences = [
        f"{near} of {len(ratios)} plans were within a factor of {FACTOR} of what it took, from "
        f"{_ratio(min(ratios))} to {_ratio(max(ratios))}.",
        f"{len(rows) - len(late)} of {len(rows)} commands were done in the time allowed"
        + (f"; the others took up to {worst:.2f} times that." if late else "."),
        f"The longest silence was {quiet:.1f} seconds.",
    ]
    return textwrap.fill(" ".join(sentences), 120, break_on_hyphens=False) + "\n"


def _place(row: dict[str, Any]) -> tuple[int, ...]:
    """Where a row stands."""
    known = ((DATA, "data"), (MODELS, "model"), (COMMANDS, "command"))
    return tuple(list(names).index(row[key]) for names, key in known)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".removeprefix("0")


def _left_out(row: dict[str, Any]) -> str:
    """Parts for which there was no time, and sections that were not done."""
    parts = [name.partition(".")[2] or name for name in row.get("left_out", ())]
    return ", ".join(dict.fromkeys(f"`{name}`" for name in (*parts, *row["missing"])))


def measured(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a run, each with what it was measured on and without the words of its plan."""
    if "runs" in run:  # a record
        yield from run["rows"]
        return
    for row in run["rows"]:
        plan = row.pop("plan")
        parts = [] if plan is None else [{key: part[key] for key in KEPT} for part in plan["parts"]]
        data = "embedded" if row["command"] == "embedded" else PurePath(run["settings"]["data"]).stem
        given = run["settings"].get("minutes")
        yield {"data": data, "images": run["images"], **row, "minutes": given, "commit": run["commit"], "parts": parts}


def about(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The head of a run, without the folders of the machine; all of them, of a record."""
    if "runs" in run:
        return list(run["runs"])
    settings = dict(run["settings"], data=PurePath(run["settings"]["data"] or "").name)
    settings["models"] = ["/".join(PurePath(model).parts[-NAMED:]) for model in settings["models"]]
    head = {key: run[key] for key in ("command", "commit", "hardware", "versions", "seconds")}
    return [head | {"settings": {key: value for key, value in settings.items() if key != "out"}}]


if __name__ == "__main__":
    main()
