"""Parquet files in the schema of Hugging Face, read with pyarrow.

Small columns are read at once; the images stay in the file, and the row groups that a batch needs are read
on demand. A few row groups are kept, encoded, so that neighbouring batches do not read them again.
Nothing is written to any cache on disk.
"""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require
from secondguess.images import tabular
from secondguess.images.dataset import files_by_split
from secondguess.images.encoded import HEADERS, Options, StoredSource, choose_shape, without_bad
from secondguess.images.fitting import Resizing
from secondguess.images.image_set import ImageSet
from secondguess.images.remote import Place, Store, open_place, settled
from secondguess.images.sources import Shape

__all__ = ["ParquetSource", "has_parquet", "read_parquet", "read_tables"]

CACHE_BYTES = 256 * 2**20


class ParquetSource(StoredSource):
    """The image column of one or several Parquet files.

    Args:
        files: the files, in order.
        column: the image column.
        shape: the (C, H, W) that every image is given.
        resize: how, see `secondguess.images.fitting`.
    """

    def __init__(
        self, files: Sequence[Place], column: str, shape: Shape = (1, 1, 1), resize: Resizing = "stretch"
    ) -> None:
        super().__init__(shape, resize)
        self._column = column
        self._groups: list[tuple[Place, int]] = []
        sizes = []
        for file in files:
            metadata = open_parquet(file).metadata
            self._groups += [(file, group) for group in range(metadata.num_row_groups)]
            sizes += [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._rows: NDArray[np.int64] | None = None  # of the files, where not all are meant
        self._cache: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        """The number of images n."""
        return int(self._starts[-1]) if self._rows is None else len(self._rows)

    @property
    def files(self) -> tuple[Place, ...]:
        """The files that hold the images."""
        groups = np.searchsorted(self._starts, self._rows_of(np.arange(len(self))), side="right") - 1
        return tuple(dict.fromkeys(self._groups[group][0] for group in np.unique(groups)))

    def cells(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The encoded images at `rows`; each row group is read at most once for one call."""
        rows = self._rows_of(rows)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        found: dict[int, tuple[Any, str]] = {}
        for group in np.unique(groups).tolist():
            column = self._read_group(group)
            file = self._groups[group][0]
            for place in np.flatnonzero(groups == group).tolist():
                row = int(rows[place])
                within = row - int(self._starts[group])
                found[place] = (column[within].as_py(), f"row {row} of {file}")
        for place in range(len(rows)):
            yield found.pop(place)

    def part(self, rows: NDArray[np.int64]) -> ParquetSource:
        """The rows (m,) of the same files, by their absolute paths; nothing of their content."""
        some = copy.copy(self)
        some._rows = self._rows_of(rows)
        some._groups = [(settled(file), group) for file, group in self._groups]
        some._cache = OrderedDict()
        return some

    def _rows_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the files that positions in this source mean."""
        return rows if self._rows is None else self._rows[rows]

    def first_rows(self) -> NDArray[np.int64]:
        """Rows that can be inspected cheaply: those of the first row group."""
        return np.arange(min(int(self._starts[1]) if len(self._starts) > 1 else 0, HEADERS), dtype=np.int64)

    def _read_group(self, group: int) -> Any:
        column = self._cache.pop(group, None)
        if column is None:
            file, number = self._groups[group]
            column = _guarded(file, lambda: open_parquet(file).read_row_group(number, columns=[self._column]))
            column = column.column(0)
        self._cache[group] = column
        while len(self._cache) > 1 and sum(kept.nbytes for kept in self._cache.values()) > CACHE_BYTES:
            self._cache.popitem(last=False)
        return column


def has_parquet(folder: Path) -> bool:
    """Whether a folder, or its subfolder `data`, holds Parquet files."""
    return bool(_files(folder))


def tables_at(store: Store) -> list[str]:
    """The URLs of the Parquet files in an object store, or in its folder `data`."""
    has_data = any(entry.is_folder and entry.name == "data" for entry in store.top)
    return store.files(".parquet") or ((store / "data").files(".parquet") if has_data else [])


def read_parquet(path: Path, options: Options) -> dict[str, ImageSet]:
    """The splits in a Parquet file or in a folder of them, identified by their names (`train-00000-of-00002`)."""
    if path.is_file():
        return {key: replace(part, name=path.stem) for key, part in read_tables([path], path.stem, options).items()}
    return read_tables(_files(path), path.name, options)


def read_tables(files: Sequence[Place], name: str, options: Options) -> dict[str, ImageSet]:
    """The splits in Parquet files, identified by their names.

    Args:
        files: paths or URLs, in order.
        name: what to call the data set.
        options: how images become images of one shape.
    """
    groups = files_by_split(files, name)
    first = next(iter(groups.values()))[0]
    schema = open_parquet(first).schema_arrow
    features = _features(schema)
    column = tabular.image_column(schema, features, str(first))
    tables = {key: _small_table(files, tabular.small_columns(schema, column)) for key, files in groups.items()}
    class_names = tabular.names_for(tables.values(), features)
    sources = {key: ParquetSource(files, column, resize=options.resize) for key, files in groups.items()}
    inspected = (cell for source in sources.values() for cell in source.cells(source.first_rows()))
    shape, notes = choose_shape(inspected, options)
    parts = {}
    for key, source in sources.items():
        source.shape = shape
        called = name if key == "all" else f"{name}/{key}"
        ids = _ids(groups[key], schema.field(column))
        part = replace(tabular.image_set(source, tables[key], class_names, called, ids), notes=notes)
        parts[key] = without_bad(part) if options.skip_bad else part
    return parts


def open_parquet(path: Place) -> Any:
    """Open a Parquet file; raise a `UserError` if it is none."""
    parquet = require("pyarrow.parquet", "hub")
    return _guarded(path, lambda: parquet.ParquetFile(path if isinstance(path, Path) else open_place(path)))


def _guarded(path: Place, action: Any) -> Any:
    """Run something that reads `path`, and turn what pyarrow raises into one sentence."""
    arrow = require("pyarrow", "hub")
    try:
        return action()
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is not a complete Parquet file ({reason}); write or fetch it again.") from error


def _files(folder: Path) -> list[Path]:
    def within(place: Path) -> list[Path]:  # a pipe could keep us waiting for ever
        return sorted(file for file in place.glob("*.parquet") if file.is_file())

    return within(folder) or within(folder / "data")


def _features(schema: Any) -> Mapping[str, Any]:
    """Hugging Face's description of the columns, from the metadata of the file."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def _small_table(files: Sequence[Place], columns: list[str]) -> Any:
    arrow = require("pyarrow", "hub")
    tables = [_guarded(file, lambda file=file: open_parquet(file).read(columns=columns)) for file in files]
    try:
        return arrow.concat_tables([table.replace_schema_metadata(None) for table in tables])
    except arrow.ArrowException as error:
        raise UserError(f"The columns of {files[0]} and the files beside it differ; write them alike.") from error


def _ids(files: Sequence[Place], field: Any) -> list[str] | None:
    """The file names that Hugging Face stores beside the bytes of an image, where every image has one."""
    types = require("pyarrow", "hub").types
    if not types.is_struct(field.type) or field.type.get_field_index("path") < 0:
        return None
    table = _small_table(files, [f"{field.name}.path"])
    paths = [cell["path"] for cell in table.column(0).to_pylist()]
    return paths if all(paths) else None
