"""Data sets of the Hugging Face hub, through the library `datasets`.

The library downloads into its own cache (`HF_HOME`); no code of the data set is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require
from secondguess.images import tabular
from secondguess.images.dataset import canonical_split
from secondguess.images.encoded import HEADERS, EncodedSource, Options, choose_shape, evenly, without_bad
from secondguess.images.fitting import Resizing
from secondguess.images.image_set import ImageSet
from secondguess.images.sources import Shape

__all__ = ["HubSource", "from_datasets", "read_hub"]


class HubSource(EncodedSource):
    """The image column of a `datasets.Dataset`.

    Args:
        dataset: the data set.
        column: the image column.
        name: what to call the data set in an error.
        shape: the (C, H, W) that every image is given.
        resize: how, see `secondguess.images.fitting`.
    """

    def __init__(
        self, dataset: Any, column: str, name: str, shape: Shape = (1, 1, 1), resize: Resizing = "stretch"
    ) -> None:
        super().__init__(shape, resize)
        dataset = dataset.with_format(None).select_columns([column])
        library = require("datasets", "hub")
        if isinstance(dataset.features[column], library.Image):
            dataset = dataset.cast_column(column, library.Image(decode=False))
        self._dataset = dataset
        self._column = column
        self._name = name

    def __len__(self) -> int:
        """The number of images n."""
        return len(self._dataset)

    def cells(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The encoded images at `rows`."""
        cells = self._dataset[rows.tolist()][self._column]
        for row, cell in zip(rows, cells, strict=True):
            yield cell, f"row {row} of {self._name}"


def read_hub(identifier: str, options: Options) -> dict[str, ImageSet]:
    """Fetch a data set (`owner/name`) from the hub, or from the library's cache, and convert its splits."""
    library = require("datasets", "hub")
    try:
        fetched = library.load_dataset(identifier)
    except Exception as error:  # no common base class: missing, gated, offline, broken and unsafe sets all differ
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"The Hugging Face data set {identifier!r} could not be loaded ({reason}); check its name and "
            "the network, or give the path of files on this machine."
        ) from error
    return from_datasets(fetched, identifier, options)


def from_datasets(splits: Mapping[str, Any], name: str, options: Options | None = None) -> dict[str, ImageSet]:
    """Convert the splits of a data set to image sets that read from it.

    Args:
        splits: `datasets.Dataset` objects by split, such as a `datasets.DatasetDict`.
        name: what to call the data set.
        options: how images of many sizes become images of one shape.
    """
    options = options or Options()
    any_split = next(iter(splits.values()))
    features = dict(any_split.features)
    schema = any_split.features.arrow_schema
    column = tabular.image_column(schema, features, name)
    small = tabular.small_columns(schema, column)
    tables = {key: split.select_columns(small).with_format("arrow")[:] for key, split in splits.items()}
    class_names = tabular.names_for(tables.values(), features)
    sources = {key: HubSource(split, column, name, resize=options.resize) for key, split in splits.items()}
    inspected = (cell for source in sources.values() for cell in source.cells(evenly(len(source), HEADERS // 4)))
    shape, notes = choose_shape(inspected, options)
    parts = {}
    for key, source in sources.items():
        source.shape = shape
        part = replace(tabular.image_set(source, tables[key], class_names, f"{name}/{key}"), notes=notes)
        parts[canonical_split(key) or key] = without_bad(part) if options.skip_bad else part
    return parts
