"""Write docs/evidence/supervisors.md: what was measured of supervisors, beside what was published."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence" / "supervisors.md"
COLUMNS = ("ambiguous", "adversarial", "corrupted", "invalid")
PHOTOS = {
    "mistakes": "mistakes",
    "corrupted": "corrupted",
    "corrupted.mistakes": "mistakes among corrupted",
    "adversarial": "adversarial",
    "invalid": "invalid",
}
FOUR = {"mistakes": "mistakes", "ambiguous": "ambiguous", **PHOTOS}
VARIANTS = (  # of surprise adequacy, by the beginning of their names in the record
    "dsa, uniform",
    "dsa, stratified",
    "dsa, unsurprising_first",
    "dsa, epsilon_free",
    "lsa, uniform",
    "lsa, bandwidth",
)
# Table 2 of Weiss, Garcia Gomez and Tonella (2023): MNIST, then Fashion-MNIST; means over four architectures. None: not
# published.
PAPER = {
    "max_softmax": (0.96, 0.79, 0.78, 0.79, 0.91, 0.61, 0.71, 0.73),
    "pcs": (0.96, 0.79, 0.78, 0.79, 0.91, 0.61, 0.70, 0.72),
    "entropy": (0.97, 0.79, 0.78, 0.79, 0.92, 0.61, 0.72, 0.74),
    "deep_gini": (0.96, 0.79, 0.78, 0.79, 0.92, 0.61, 0.71, 0.73),
    "mc_dropout_vr": (0.79, 0.69, 0.65, 0.72, 0.76, 0.62, 0.66, 0.72),
    "mc_dropout_ms": (0.96, 0.79, 0.80, 0.80, 0.91, 0.61, 0.73, 0.77),
    "mc_dropout_mi": (0.87, 0.78, 0.81, 0.83, 0.73, 0.61, 0.78, 0.86),
    "mc_dropout_pe": (0.96, 0.79, 0.80, 0.80, 0.91, 0.61, 0.74, 0.79),
    "ensemble_ms": (0.97, None, 0.84, 0.85, 0.90, None, 0.75, 0.64),
    "ensemble_mi": (0.84, None, 0.84, 0.88, 0.57, None, 0.76, 0.70),
    "ensemble_pe": (0.97, None, 0.83, 0.84, 0.89, None, 0.77, 0.66),
    "dissector": (0.95, 0.79, 0.76, 0.79, 0.88, 0.68, 0.72, 0.75),
    "dsa": (0.48, 0.93, 0.87, 0.98, 0.31, 0.85, 0.85, 0.90),
    "lsa": (0.17, 0.78, 0.73, 0.77, 0.16, 0.75, 0.74, 0.86),
    "mdsa": (0.31, 0.94, 0.87, 0.98, 0.32, 0.86, 0.83, 0.95),
    "autoencoder": (0.62, 0.95, 0.84, 1.00, 0.53, 0.80, 0.77, 0.49),
}


def page() -> str:
    """The whole page: the text with its tables filled in."""
    text = PAGE.with_suffix(".intro.txt").read_text(encoding="utf-8")
    for marker, table in (
        ("measured", measured),
        ("photos", photos),
        ("four", four),
        ("surprise", surprise),
        ("speed", speed),
    ):
        text = text.replace(f"<!-- {marker} -->\n", "".join(table()))
    return text


def measured() -> list[str]:
    """Our table beside the paper's, one for each data set."""
    lines = []
    for offset, name, title in ((0, "mnist", "MNIST"), (4, "fashion_mnist", "Fashion-MNIST")):
        record = json.loads((ROOT / "results" / "supervisors" / f"{name}.json").read_text(encoding="utf-8"))
        lines += [
            f"| {title}, AUROC | " + " | ".join(COLUMNS) + " | runs |\n",
            "|---" * (len(COLUMNS) + 2) + "|\n",
        ]
        for supervisor, row in record["table"].items():
            published = PAPER.get(supervisor, (None,) * 8)[offset : offset + 4]
            cells = [_cell(row[column], value) for column, value in zip(COLUMNS, published, strict=True)]
            lines.append(f"| `{supervisor}` | " + " | ".join(cells) + f" | {row['runs']} |\n")
        lines.append("\n")
    return lines


def photos() -> list[str]:
    """What supervisors see on photographs, one table for each model of the record."""
    record = json.loads((ROOT / "results" / "supervisors" / "photos.json").read_text(encoding="utf-8"))
    lines = []
    for name, model in record["models"].items():
        lines += [f"| {name}, AUROC | " + " | ".join(PHOTOS.values()) + " | µs |\n", "|---" * (len(PHOTOS) + 2) + "|\n"]
        for supervisor, row in model["table"].items():
            cells = [f"{row['auroc'][column]:.3f}" for column in PHOTOS]
            lines.append(f"| `{supervisor}` | " + " | ".join(cells) + f" | {row['score_microseconds']:.1f} |\n")
        lines.append("\n")
    return lines


def four() -> list[str]:
    """What supervisors see on photographs with four networks: the mean, and in brackets the smallest and largest."""
    record = json.loads((ROOT / "results" / "photos" / "panel.json").read_text(encoding="utf-8"))
    models = [model for name, model in record["models"].items() if not name.startswith("mnist")]
    lines = ["| AUROC, four networks | " + " | ".join(FOUR.values()) + " |\n", "|---" * (len(FOUR) + 1) + "|\n"]
    anew = json.loads((ROOT / "results" / "photos" / "single.json").read_text(encoding="utf-8"))["models"].values()
    later = [name for name in next(iter(anew))["single"] if name not in models[0]["single"]]
    for supervisor in (*models[0]["single"], *later):
        of = anew if supervisor in later else models
        seen = [[model["single"][supervisor][column] for model in of] for column in FOUR]
        cells = [f"{mean(values):.2f} ({min(values):.2f}, {max(values):.2f})" for values in seen]
        lines.append(f"| `{supervisor}`{'*' if supervisor in later else ''} | " + " | ".join(cells) + " |\n")
    return [*lines, "\n"]


def _cell(ours: dict[str, float], published: float | None) -> str:
    return f"{ours['mean']:.3f}" + ("" if published is None else f" ({published:.2f})")


def surprise() -> list[str]:
    """Table 1 of the surprise paper, and what sampling and bandwidth change, on the models that have both."""
    auroc = json.loads((ROOT / "results" / "surprise" / "models.json").read_text(encoding="utf-8"))["auroc"]
    lines = ["| AUROC | models | FGSM (paper) | MNIST-C (paper) |\n", "|---|---|---|---|\n"]
    for method, published in (("dsa", (0.971, 0.835)), ("lsa", (0.924, 0.779))):
        row = auroc[method]
        cells = [
            f"{mean(row[key]):.3f} ± {stdev(row[key]):.3f} ({value})"
            for key, value in zip(("fgsm", "mnist_c"), published, strict=True)
        ]
        lines.append(f"| {method} | {row['models']} | {cells[0]} | {cells[1]} |\n")
    lines += ["\n| change against all traces, Scott's bandwidth | models | FGSM | MNIST-C |\n", "|---|---|---|---|\n"]
    for variants in VARIANTS:
        for method in sorted(one for one in auroc if one.startswith(f"{variants} ") and not one.endswith(" scott")):
            row, whole = auroc[method], auroc[method.partition(", ")[0]]
            cells = [f"{_change(row[key], whole[key]):+.4f}" for key in ("fgsm", "mnist_c")]
            lines.append(f"| {method} | {row['models']} | {cells[0]} | {cells[1]} |\n")
    return [*lines, "\n"]


def _change(part: list[float | None], whole: list[float]) -> float:
    """The mean difference over the models that have both."""
    return mean(mine - all_ for mine, all_ in zip(part, whole, strict=True) if mine is not None)


def speed() -> list[str]:
    """What `secondguess bench surprise --json` printed."""
    record = json.loads((ROOT / "results" / "bench" / "surprise.json").read_text(encoding="utf-8"))
    names = ("work", "dimension", "traces", "queries", "seconds", "floor_ratio", "peer_ratio", "peak_mib")
    lines = ["| " + " | ".join(names) + " |\n", "|---" * len(names) + "|\n"]
    lines += ["| " + " | ".join(_number(row[name]) for name in names) + " |\n" for row in record["rows"]]
    lines += ["\nHow the time of `dsa` grows when one size changes (`varied`):\n\n"]
    names = ("varied", "traces", "dimension", "queries", "seconds")
    lines += ["| " + " | ".join(names) + " |\n", "|---" * len(names) + "|\n"]
    lines += ["| " + " | ".join(_number(row[name]) for name in names) + " |\n" for row in record["growth"]]
    return [*lines, f"\nMeasured on: {record['hardware']}.\n\n"]


def _number(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")
