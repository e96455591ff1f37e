"""Count the rooms of two commits and write the table of docs/architecture.md.

    python docs/make_architecture.py --count BEFORE AFTER

counts the lines of two commits and writes the record; without words the record's table is written into the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs/architecture.md", ROOT / "results/house/rooms.json"
MARKERS = "<!-- rooms -->", "<!-- /rooms -->"

# What a newcomer finds in a room, and which rooms it was before. From bottom to top: a room imports those above it.
ROOMS = {
    "*.py": (("*.py",), "errors, results, progress, versions, SQL, atomic files, devices: what everybody needs"),
    "contracts/": ((), "one registry, parameters and saving, the runner of the test kits"),
    "engine/": (("engine",), "grids of tasks in process, in processes, on Dask, on Ray; the ledger"),
    "metrics/": (("metrics",), "pure functions on arrays: a float, or with `_interval` an `Interval`"),
    "images/": (("data",), "what people have becomes images: files, folders, arrays, Parquet, the hub"),
    "report/": (("report",), "HTML page, charts, pictures, JUnit; knows nothing of classifiers"),
    "zoo/": (("zoo",), "the architectures of the papers, by name"),
    "training/": (("training",), "train one model, train a fleet at once, temperature scaling"),
    "model/": (("backends",), "`Classifier`, `Session`, `Observation`, `model.toml`, backends, the cache"),
    "planning/": ((), "what long work costs here and how large it may be: prices, a plan, the pace of a classifier"),
    "stress/": (("stress",), "ambiguous, corrupted, adversarial and invalid images"),
    "supervisors/": (("supervisors",), "one file per score, which reads like its paper; everything about that score"),
    "guard/": (("guard",), "calibrate, combine, decide, save, export"),
    "hubris/": (("hubris",), "overconfidence: companion sets, controls, response curves"),
    "accuracy/": (("accuracy", "oracles"), "estimators without labels and with a few; oracles and rules beneath"),
    "search/": (("search",), "pools, strategies, distances, explanations"),
    "audits/": (("audit",), "sections, gates, the result"),
    "comparison/": ((), "two audits or two models on the same images: pairing, measures, flips, the page"),
    "welcome/": ((), "the first minute: the greeting, `doctor`, the finished report of `demo`"),
    "integrations/": ((), "beside transformers, Lightning, MLflow, W&B and FiftyOne; each file needs its library"),
    "web/": ((), "what every local page needs: access by token, the server"),
    "service/": ((), "the guard behind a port, its records"),
    "labelling/": ((), "the labelling page, over its store; `find_errors`"),
    "watch/": (("app",), "the watch page (before: `app/`, all four rooms)"),
    "cli/": (("cli",), "parses, calls, prints"),
    "lab/": (("studies", "bench"), "second package: studies, published tables, benchmarks, rivals"),
}


def counted(commit: str) -> dict[str, int]:
    """Lines of Python by folder of the package, modules outside folders together, the laboratory as one."""
    names = _git("ls-tree", "-r", "--name-only", commit).split()
    lines: Counter[str] = Counter()
    for name in names:
        parts = Path(name).parts
        if name.endswith(".py") and parts[:2] == ("src", "secondguess"):
            lines[parts[2] if len(parts) > 3 else "*.py"] += _git("show", f"{commit}:{name}").count("\n")
        elif name.endswith(".py") and parts[:2] == ("lab", "src"):
            lines["lab"] += _git("show", f"{commit}:{name}").count("\n")
    return dict(sorted(lines.items()))


def table(record: dict) -> str:
    """The rooms with their sizes before and after."""
    before, after = record["before"]["lines"], record["after"]["lines"]
    rows = ["| room | what a newcomer finds there | lines before | lines now |", "|---|---|---:|---:|"]
    for room, (old, what) in ROOMS.items():
        was = f"{sum(before[name] for name in old):,}" if old else ""
        now = after.get(room.removesuffix("/"))  # None: the room is newer than the record
        rows.append(f"| `{room}` | {what} | {was} | {'' if now is None else f'{now:,}'} |")
    rows.append(f"| all | | {sum(before.values()):,} | {sum(after.values()):,} |")
    return "\n".join(rows)


def filled(page: str, record: dict) -> str:
    """The page with the table between its markers."""
    start, end = MARKERS
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise SystemExit(f"{PAGE} needs exactly one place for the table of rooms.")
    return pattern.sub(lambda _: f"{start}\n{table(record)}\n{end}", page)


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def main(words: list[str]) -> None:
    """Count, or write."""
    if words[:1] == ["--count"]:
        sides = {
            side: {"commit": _git("rev-parse", "--short=12", commit).strip(), "lines": counted(commit)}
            for side, commit in zip(("before", "after"), words[1:], strict=True)
        }
        record = {"command": f"python docs/make_architecture.py {' '.join(words)}", **sides}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
