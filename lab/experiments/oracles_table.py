"""Print the table of errors in docs/evidence/accuracy.md from the measured numbers: python oracles_table.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

COLUMNS = {
    "no shift": "no shift",
    "labels 2/7 swapped": "labels swapped 2/7",
    "labels 5/6 swapped": "5/6",
    "labels 6/8 swapped": "6/8",
    "10% corrupted": "corrupted 10%",
    "half corrupted": "half",
    "all corrupted": "all",
    "10% ambiguous": "ambiguous 10%",
    "half ambiguous": "half",
    "all ambiguous": "all",
    "class frequencies": "class frequencies",
}
ROWS = {
    "validation_accuracy": "`validation_accuracy`",
    "average_confidence": "`average_confidence`",
    "difference_of_confidences": "`difference_of_confidences`",
    "thresholded_confidence": "`thresholded_confidence`",
    "thresholded_entropy": "`thresholded_entropy`",
    "nuclear_norm": "`nuclear_norm`",
    "label_shift_em": "`label_shift_em`",
    "label_shift_bbse": "`label_shift_bbse`",
    "ensemble_agreement": "`ensemble_agreement`",
    "cross_reference": "`cross_reference`",
    "cross_reference_corrected": "`cross_reference_corrected`",
    "selfchecker": "`selfchecker`",
    "icos_fine": "ICOS, fine",
    "icos_fine_corrected": "ICOS, fine, corrected",
    "icos_equal": "ICOS, equal",
    "rules_and_confidence": "`rules_and_confidence`, fine",
    "rules_and_confidence_equal": "`rules_and_confidence`, equal",
}


def table(errors: dict[str, dict[str, float]]) -> str:
    """Mean absolute errors in points as a Markdown table; in each column what reads as the smallest is bold."""
    cells = {row: [points(errors[row][column]) for column in COLUMNS] for row in ROWS}
    best = [min((cells[row][k] for row in ROWS), key=float) for k in range(len(COLUMNS))]
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row, title in ROWS.items():
        shown = (f"**{cell}**" if cell == best[k] else cell for k, cell in enumerate(cells[row]))
        lines.append(f"| {title} | {' | '.join(shown)} |")
    return "\n".join(lines)


def points(error: float) -> str:
    """Hundredths of accuracy: two decimals below one point, else one."""
    percent = 100 * error
    return f"{percent:.2f}".removeprefix("0") if round(percent, 2) < 1 else f"{percent:.1f}"


if __name__ == "__main__":
    measured = json.loads((Path(__file__).parents[2] / "results/oracles/mnist.json").read_text(encoding="utf-8"))
    sys.stdout.write(table(measured["errors"]) + "\n")
