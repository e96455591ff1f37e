"""How long the commands take on the reference classifiers of photographs: several runs of the benchmark as one record.

    python photo_times.py RUN.json ... --out results/photos/times.json

Each RUN is what `secondguess bench photos MODELS... --data DATA --json` has printed: models and commands can so be
measured one at a time, while a machine is idle. A later run of the same command replaces an earlier one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from secondguess_lab.record import provenance, say, write

NAMED = 2  # parts of a path: where a model lies depends on the machine
KEPT = ("name", "size", "full", "unit", "planned_seconds", "seconds")


def main() -> None:
    """Join the runs and print a line for each row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/photos/times.json"))
    options = parser.parse_args()
    runs = [json.loads(path.read_text("utf-8")) for path in options.runs]
    newest = {(row["data"], row["model"], row["command"]): row for run in runs for row in measured(run)}
    rows = list(newest.values())
    head = provenance({"runs": len(runs)})
    write(options.out, head | {"rows": rows, "runs": [about(run) for run in runs]})
    for row in rows:
        what = f"{row['data']:<24}{row['model']:<24}{row['command']:<10}"
        say(f"{what}{row['planned']}  {row['seconds']}  {row['ratio']}")


def measured(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a run, each with what it was measured on and without the words of its plan."""
    for row in run["rows"]:
        plan = row.pop("plan")
        parts = [] if plan is None else [{key: part[key] for key in KEPT} for part in plan["parts"]]
        data = PurePath(run["settings"]["data"]).stem
        given = run["settings"].get("minutes")
        yield {"data": data, "images": run["images"], **row, "minutes": given, "commit": run["commit"], "parts": parts}


def about(run: dict[str, Any]) -> dict[str, Any]:
    """The head of a run, without the folders of the machine."""
    settings = dict(run["settings"], data=PurePath(run["settings"]["data"]).name)
    settings["models"] = ["/".join(PurePath(model).parts[-NAMED:]) for model in settings["models"]]
    head = {key: run[key] for key in ("command", "commit", "hardware", "versions", "seconds")}
    return head | {"settings": {key: value for key, value in settings.items() if key != "out"}}


if __name__ == "__main__":
    main()
