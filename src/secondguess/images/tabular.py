"""What the columns of a table of images mean, for Parquet files and Hugging Face data sets alike.

The image column is the one declared as an image, or the first called image, img or images. `label` holds
integers or names, `p_label` lists of K probabilities, `is_ambiguous` booleans, `text_label` a readable label.
Other columns of plain values are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require
from secondguess.images.image_set import ImageSet
from secondguess.images.labels import infer_class_names
from secondguess.images.sources import ImageSource

__all__ = ["declared_names", "image_column", "image_set", "names_for", "small_columns"]

IMAGE_NAMES = ("image", "img", "images")
LABEL_NAMES = ("label", "labels", "fine_label")
KNOWN = {"p_label", "is_ambiguous", "text_label"}

Features = Mapping[str, Any]


def image_column(schema: Any, features: Features, name: str) -> str:
    """The column of an Arrow schema that holds the images."""
    declared = [key for key, feature in features.items() if _kind(feature) == "Image" and key in schema.names]
    found = next((key for key in (*declared, *IMAGE_NAMES) if key in schema.names), None)
    if found is None:
        raise UserError(
            f"{name} has the columns {', '.join(schema.names)}, but none called {', '.join(IMAGE_NAMES)} "
            "that could hold the images."
        )
    return found


def small_columns(schema: Any, image: str) -> list[str]:
    """The columns that are read at once: plain values and the soft labels, never pixels."""
    types = require("pyarrow", "hub").types
    plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string)
    return [
        field.name
        for field in schema
        if field.name != image and (field.name == "p_label" or any(test(field.type) for test in plain))
    ]


def declared_names(features: Features) -> tuple[str, ...] | None:
    """The class names of the label column in Hugging Face's description of the columns, if it has them."""
    for key in LABEL_NAMES:
        feature = features.get(key)
        if feature is not None and _kind(feature) == "ClassLabel":
            names = feature["names"] if isinstance(feature, Mapping) else feature.names
            return tuple(names) if names else None
    return None


def names_for(tables: Iterable[Any], features: Features) -> tuple[str, ...]:
    """The class names that all splits share: as declared, or from the text labels, or from the labels."""
    tables = list(tables)
    declared = declared_names(features)
    if declared is not None:
        return declared
    labels = [_labels(table) for table in tables]
    soft = [_soft(table) for table in tables]
    return _names_from_text(tables, labels) or infer_class_names([*labels, *soft])


def image_set(
    source: ImageSource,
    table: Any,
    class_names: tuple[str, ...],
    name: str,
    ids: Sequence[str] | None = None,
) -> ImageSet:
    """Make a set of an image source and the Arrow table of its small columns."""
    used = {*KNOWN, _label_name(table)}
    ambiguous = _column(table, "is_ambiguous")
    return ImageSet.from_source(
        source,
        _labels(table),
        class_names=class_names,
        soft_labels=_soft(table),
        name=name,
        is_ambiguous=None if ambiguous is None else [value is True for value in ambiguous],
        ids=ids,
        columns={key: _to_numpy(table.column(key)) for key in table.column_names if key not in used},
    )


def _kind(feature: Any) -> str:
    """The type of a column, from the JSON description in a file or from an object of the library."""
    return str(feature.get("_type")) if isinstance(feature, Mapping) else type(feature).__name__


def _label_name(table: Any) -> str | None:
    return next((key for key in LABEL_NAMES if key in table.column_names), None)


def _labels(table: Any) -> NDArray[Any] | None:
    """The label column: strings with "" for unknown, or integers with -1 for unknown."""
    values = _column(table, _label_name(table))
    if values is None:
        return None
    if any(isinstance(value, str) for value in values):
        return np.array([value or "" for value in values], dtype=str)
    return np.array([-1 if value is None else value for value in values])


def _soft(table: Any) -> NDArray[np.float64] | None:
    values = _column(table, "p_label")
    if values is None or all(value is None for value in values):
        return None
    lengths = {len(value or ()) for value in values}
    if len(lengths) != 1:
        raise UserError("The lists in the column p_label differ in length; each row needs K probabilities.")
    return np.array(values, dtype=np.float64)


def _names_from_text(tables: list[Any], labels: list[NDArray[Any] | None]) -> tuple[str, ...] | None:
    """Class names from `text_label`, if it and the labels 0..K-1 determine each other."""
    pairs: set[tuple[int, str]] = set()
    for table, numbers in zip(tables, labels, strict=True):
        texts = _column(table, "text_label")
        if texts is None or numbers is None or numbers.dtype.kind not in "iu":
            return None
        pairs.update((int(k), str(text)) for k, text in zip(numbers, texts, strict=True) if k >= 0 and text)
    numbers_seen = sorted(k for k, _ in pairs)
    if numbers_seen != list(range(len(pairs))) or len({text for _, text in pairs}) != len(pairs):
        return None
    return tuple(text for _, text in sorted(pairs)) or None


def _column(table: Any, key: str | None) -> list[Any] | None:
    return table.column(key).to_pylist() if key in table.column_names else None


def _to_numpy(column: Any) -> NDArray[Any]:
    """A plain column as an array; strings with "" and floats with NaN where a value is missing."""
    values = column.to_pylist()
    if any(isinstance(value, str) for value in values):
        return np.array([value or "" for value in values], dtype=str)
    return np.array([np.nan if value is None else value for value in values])
