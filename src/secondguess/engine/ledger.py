"""The ledger: one entry per finished task, on disk as soon as it is known, and found by the task's key.

`<key>.json` holds the task's card, the result and how it came about; `<key>.npz` the result's arrays, if it has any, or
`<key>.parquet` where the arrays are columns of a table, a row for each image, and pyarrow is at hand.
The arrays are written first, and each file appears by one rename: an entry is there in full or not at all, whatever
happens to the process or to the disk. It is valid only if the card in it equals the task's and the digests of the
entry and of its arrays are right. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.contracts.archives import load_npz
from secondguess.contracts.sealed import file_digest, read_json, write_json_sealed
from secondguess.engine.tables import are_columns, read_table, write_table
from secondguess.engine.task import Outcome, Task
from secondguess.environment import versions
from secondguess.files import atomic_path

__all__ = ["Entry", "Ledger"]

NPZ, PARQUET = "npz", "parquet"  # of arrays: what their files are called


@dataclass(frozen=True)
class Entry:
    """A finished task.

    Attributes:
        result: what the function returned, lists for tuples and NumPy arrays where it gave some.
        seconds: how long it took.
        hardware: on what.
        versions: of the software that ran the study then.
        finished: when, in UTC.
    """

    result: dict[str, Any]
    seconds: float
    hardware: str
    versions: dict[str, str]
    finished: str

    @classmethod
    def of(cls, outcome: Outcome, result: dict[str, Any]) -> Entry:
        """The entry of a task that has just ended."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(result, outcome.seconds, outcome.hardware, versions(), now)


class Ledger:
    """Results by task, in the folder `path` and nowhere else.

    Args:
        path: of the folder.
        tables: whether arrays with as many rows as each other go to Parquet files, which other programs can read too.
    """

    def __init__(self, path: str | Path, *, tables: bool = False) -> None:
        self.path, self._tables = Path(path), tables and find_spec("pyarrow") is not None

    def get(self, task: Task) -> Entry | None:
        """The entry of a task, or None where there is no sound one."""
        path = self.path / f"{task.key}.json"
        if not path.exists():
            return None
        try:
            kept = read_json(path)
            if kept["task"] != task.card:
                raise ValueError("it belongs to another task")
            result = kept["result"] | self._arrays(task, kept["arrays"], kept.get("kind", NPZ))
            return Entry(result, float(kept["seconds"]), kept["hardware"], kept["versions"], kept["finished"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.warn(f"The entry {path} is damaged and will be made again: {error}", stacklevel=2)
            return None

    def put(self, task: Task, outcome: Outcome) -> Entry:
        """Keep what a task gave, and return it as `get` will."""
        arrays = {key: value for key, value in outcome.result.items() if _is_array(value)}
        plain = {key: _plain(value, key) for key, value in outcome.result.items() if key not in arrays}
        digest, kind = None, PARQUET if self._tables and are_columns(arrays) else NPZ
        if arrays:
            with atomic_path(self.path / f"{task.key}.{kind}") as temporary:
                if kind == PARQUET:
                    write_table(temporary, arrays)
                else:
                    _write_npz(temporary, arrays)
                digest = file_digest(temporary)
        entry = Entry.of(outcome, plain | arrays)
        card = vars(entry) | {"task": task.card, "result": plain, "arrays": digest, "kind": kind}
        write_json_sealed(self.path / f"{task.key}.json", card)
        return entry

    def forget(self, tasks: Iterable[Task]) -> None:
        """Remove the entries of tasks, and the folder with the last of them."""
        for task in tasks:
            for suffix in ("json", NPZ, PARQUET):
                (self.path / f"{task.key}.{suffix}").unlink(missing_ok=True)
        with suppress(OSError):  # others have entries there, or there never was one
            self.path.rmdir()

    def _arrays(self, task: Task, digest: str | None, kind: str) -> dict[str, Any]:
        if digest is None:
            return {}
        path = self.path / f"{task.key}.{kind}"
        if file_digest(path) != digest:
            raise ValueError("its arrays have changed")
        if kind == PARQUET and find_spec("pyarrow") is None:
            raise ValueError("its arrays are a Parquet file, and pyarrow is not installed")
        return read_table(path) if kind == PARQUET else load_npz(path)


def _write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """As `np.savez` does, whose own arguments no array may be called like; compressing takes longer than it saves."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.dtype.hasobject


def _plain(value: Any, where: str) -> Any:
    """A result as JSON can hold it; NaN and infinity are refused, since JSON has neither."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise TypeError(f"a task returned {value!r} as {where}; return finite numbers, texts, None, or lists of them")
