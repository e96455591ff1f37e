"""How the cost of each part grows, and what a second worker buys: the tables of docs/evidence/scaling.md.

    python scaling.py --out results/scaling/scaling.json
    python scaling.py --write-docs

The first measures and takes less than four minutes on two idle cores; whatever else the machine does then is in the
numbers, so the record holds its load before and after. The second reads the record and replaces the tables in the page,
between their markers. Everything is measured with one thread a process, so that a second core is the engine's alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import textwrap
import time
from importlib.metadata import version
from pathlib import Path

from secondguess.environment import versions
from secondguess_lab.record import provenance, write

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "scaling.md"
RECORD = HERE.parents[1] / "results" / "scaling" / "scaling.json"

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MONTHLY = 1_000_000_000
SECONDS_A_MONTH = 30 * 24 * 3600
IN_OPERATION = {  # parts that see every image, and what their other sizes are kept under
    "`Classifier.observe`": "observe",
    "`knn`, scoring": "knn",
    "`vim`, scoring": "vim",
    "`relative_mahalanobis`, scoring": "relative_mahalanobis",
    "guard: panel, from scores": "panel",
    "guard: conformal p-values": "p-values",
    "ICOS, judging": "icos",
    "accuracy estimate, `rules_and_confidence`": "estimate",
    "`hop_skip_jump` distances": "attack",
}
KINDS = {
    "local": "`local:{}`",
    "bare": "no engine, a pool of {} processes",
    "dask": "`dask://`, {} worker{}",
    "dask as it comes": "the same without the setting, {} worker{}",
}


def main():
    """Measure and write the record, or write its tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RECORD, help="the record to write, or to read with --write-docs")
    parser.add_argument("--write-docs", action="store_true", help="put the tables of the record into the page")
    arguments = parser.parse_args()
    if arguments.write_docs:
        record = json.loads(arguments.out.read_text("utf-8"))
        PAGE.write_text(filled(PAGE.read_text("utf-8"), record), "utf-8")
    else:
        write(arguments.out, measured())


def measured():
    """The record."""
    os.environ |= dict.fromkeys(THREADS, "1")  # before anything that reads them is imported
    began, before = time.perf_counter(), os.getloadavg()
    import scaling_workers as workers  # first: what a first task takes is that of a process that has loaded nothing

    speed_up = workers.speed_up()
    between = time.perf_counter()
    import scaling_growth as growth

    rows = growth.growth()
    ended = time.perf_counter()
    return {
        **provenance(
            {
                "threads": 1,
                "turns": {"fewest": growth.FEWEST, "most": growth.MOST, "seconds": growth.ENOUGH},
                "held": growth.HELD,
                "workers": workers.settings(),
            }
        ),
        "hardware": {"processor": _processor(), "cores": len(os.sched_getaffinity(0))},
        "versions": versions() | {name: version(name) for name in ("joblib", "distributed")},
        "load": {"before": before[0], "after": os.getloadavg()[0]},
        "wall_seconds": {"workers": between - began, "growth": ended - between},
        "workers": speed_up,
        "growth": rows,
    }


def _processor():
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
        return re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def filled(page, record):
    """The page with the tables of the record between their markers."""
    tables = {"about": about, "growth": growth_table, "cost": cost_table, "workers": workers_table}
    return between_markers(page, {name: make(record) for name, make in tables.items()})


def between_markers(page, tables):
    """The page with each table, which ends in a line break, between the markers of its name."""
    for name, table in tables.items():
        block = f"<!-- {name} -->\n{table}<!-- /{name} -->\n"
        page, count = re.subn(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", lambda _, b=block: b, page, flags=re.DOTALL)
        if count != 1:
            sys.exit(f"{PAGE} has {count} places for the table {name!r}; there must be one.")
    return page


def about(record):
    """On what, with what, and how idle it was."""
    hardware, load, taken = record["hardware"], record["load"], record["wall_seconds"]
    shown = ", ".join(f"{name} {record['versions'][name]}" for name in ("python", "numpy", "torch", "distributed"))
    text = (
        f"`results/scaling/scaling.json`: {hardware['cores']} cores ({hardware['processor']}), one thread a process; "
        f"{shown}. The load of the machine was {load['before']:.1f} before; all took {sum(taken.values()):.0f} s."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def growth_table(record):
    """What grows, over which range, and how steeply."""
    lines = [
        "| part | what grows | from | to | seconds | exponent | over the last step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["growth"]:
        ends = f"{row['sizes'][0]:,} | {row['sizes'][-1]:,}"
        seconds = f"{number(row['seconds'][0])} → {number(row['seconds'][-1])}"
        exponents = f"{plain(row['exponent'])} | {plain(row['last_exponent'])}"
        lines.append(f"| {row['part']} | {row['varied']} | {ends} | {seconds} | {exponents} |")
    return "\n".join(lines) + "\n"


def cost_table(record):
    """Microseconds an image, and the cores that a billion images a month would keep busy."""
    rows = {row["part"]: row for row in record["growth"] if row["varied"] == "images"}
    lines = [
        "| part | other sizes | microseconds an image | images a second and core | cores for a billion a month |",
        "|---|---|---|---|---|",
    ]
    for part, key in IN_OPERATION.items():
        each = rows[part]["seconds"][-1] / rows[part]["sizes"][-1]
        others = _others(record["settings"]["held"][key])
        cores = each * MONTHLY / SECONDS_A_MONTH
        lines.append(f"| {part} | {others} | {number(1e6 * each)} | {number(1 / each)} | {number(cores)} |")
    return "\n".join(lines) + "\n"


def _others(sizes):
    """The sizes that were not varied, in words."""
    others = {name: value for name, value in sizes.items() if name != "images"}
    return ", ".join(f"{value:,} {name}" if isinstance(value, int) else value for name, value in others.items())


def workers_table(record):
    """Seconds, speed-up and efficiency, and what the engine takes for a task."""
    lines = [
        "| tasks run on | seconds | speed-up | efficiency | s a task | s for the first | overhead, ms a task |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["workers"]["rows"]:
        where = KINDS[row["kind"]].format(row["workers"], "" if row["workers"] == 1 else "s")
        gained = f"{plain(row['speed_up'])} | {100 * row['efficiency']:.0f} %"
        overhead = "" if row["overhead_ms"] is None else number(row["overhead_ms"])
        times = f"{number(row['task_seconds'])} | {number(row['first_seconds'])} | {overhead}"
        lines.append(f"| {where} | {number(row['seconds'])} | {gained} | {times} |")
    return "\n".join(lines) + "\n"


def number(value):
    """Two significant digits, three from 1,000 on; no zero before the point."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    digits = f"{value:.2g}"
    return plain_zero(f"{float(digits):f}".rstrip("0").rstrip(".") if value < 10 else f"{float(digits):.0f}")


def plain(value):
    """Two digits after the point; no zero before it, and no minus before a zero."""
    return plain_zero(f"{value:.2f}".replace("-0.00", "0.00"))


def plain_zero(text):
    """.5 for 0.5, as this page writes it."""
    return re.sub(r"^(-?)0\.", r"\1.", text)


if __name__ == "__main__":
    main()
