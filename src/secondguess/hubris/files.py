"""Predictions and references from files: a CSV with a header, or an `.npz`.

Of two classes one column is enough, `p`, the probability of either of them; of K classes there are K columns `p0` to
`pK-1`. Any other prefix than `p` may be asked for, so that a file can hold a reference beside its predictions. An
`.npz` has the same names, or one array `p` of shape (n, K).
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.archives import load_npz
from secondguess.errors import UserError

__all__ = ["read_predictions"]

Floats = NDArray[np.float64]


def read_predictions(path: str | os.PathLike[str], prefix: str = "p") -> Floats:
    """Return the column `prefix` (n,), or the columns `prefix0`, `prefix1`, ... (n, K).

    Args:
        path: a `.csv` file with a header, or an `.npz` file.
        prefix: what the columns are called.
    """
    path = Path(path)
    if not path.is_file():
        what = f"{path} is a folder" if path.is_dir() else f"There is no file {path}"
        raise UserError(f"{what}; give a .csv or .npz file with predictions.")
    if path.suffix.lower() in (".toml", ".onnx", ".pt2"):
        raise UserError(
            f"{path} is a model, not a file of predictions; give it with --model and --data, or as "
            "overconfidence(model, data)."
        )
    table = _from_npz(path) if path.suffix.lower() == ".npz" else _from_csv(path)
    if prefix in table:
        return table[prefix]
    numbered = [name for name in table if re.fullmatch(re.escape(prefix) + r"\d+", name)]
    wanted = [f"{prefix}{k}" for k in range(len(numbered))]
    if len(wanted) < 2 or set(wanted) != set(numbered):
        found = ", ".join(table) or "none"
        raise UserError(
            f"{path.name} has the columns {found}; a column {prefix!r} is needed, "
            f"or {prefix}0, {prefix}1 and so on, one for each class."
        )
    columns = [table[name] for name in wanted]
    if len({len(column) for column in columns}) != 1 or columns[0].ndim != 1:
        raise UserError(f"The columns {wanted[0]} to {wanted[-1]} of {path.name} are not equally long.")
    return np.stack(columns, axis=1)


def _from_npz(path: Path) -> dict[str, Floats]:
    try:
        arrays = load_npz(path)
    except (ValueError, OSError) as error:
        raise UserError(f"{path.name} cannot be read as an .npz file of numbers ({error}).") from error
    return {name: values.astype(np.float64) for name, values in arrays.items() if values.dtype.kind in "fiub"}


def _from_csv(path: Path) -> dict[str, Floats]:
    """The columns that hold numbers only, by name; a cell that is none among numbers is a mistake and is named."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path.name} cannot be read as a CSV file ({error}).") from error
    if len(lines) < 2:
        raise UserError(f"{path.name} has no rows; give a header such as p and one row for each image.")
    header = [name.strip() for name in lines[0]]
    if all(_number(name) is not None for name in header):
        raise UserError(f"{path.name} begins with numbers; give it a header such as p, or p0,p1 and so on, above them.")
    short = next((number for number, line in enumerate(lines, 1) if len(line) != len(header)), None)
    if short is not None:
        raise UserError(f"Row {short} of {path.name} has not {len(header)} cells as the header has.")
    table = {}
    for place, name in enumerate(header):
        cells = [line[place] for line in lines[1:]]
        numbers = [_number(cell) for cell in cells]
        if all(number is None for number in numbers):
            continue  # names of images, say
        if None in numbers:
            row = numbers.index(None)
            raise UserError(f"Row {row + 2} of {path.name} has {cells[row]!r} in the column {name!r}, not a number.")
        table[name] = np.array(numbers, dtype=np.float64)
    return table


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
