"""Writing image sets to files that `load` and other people's tools can read."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from secondguess.errors import UserError, require
from secondguess.files import atomic_path
from secondguess.images.image_set import ImageSet

__all__ = ["save_npz", "save_parquet"]

BLOCK = 500  # images held in memory, and in one row group, at a time
FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # Arrow's names, Hugging Face's
RESERVED = {"image", "label", "p_label", "is_ambiguous", "class_names", "id", "text_label"}


def save_npz(image_set: ImageSet, path: str | os.PathLike[str]) -> None:
    """Write a set as an uncompressed `.npz`, which can be memory-mapped again.

    The keys are image (n, H, W) or (n, H, W, 3), label, class_names, and, where the set has them, p_label,
    is_ambiguous, id and its columns. Images are stored as uint8 where that loses nothing, as float32
    otherwise.
    """
    _check(image_set, path, ".npz")
    arrays: dict[str, NDArray[Any] | None] = {
        "label": image_set.labels,
        "p_label": image_set.soft_labels,
        "is_ambiguous": image_set.is_ambiguous,
        "class_names": np.array(image_set.class_names, dtype=str),
        "id": None if image_set.ids is None else np.array(image_set.ids, dtype=str),
        **image_set.columns,
    }
    exact = all(np.array_equal(_to_bytes(block) / np.float32(255), block) for block in _blocks(image_set))
    dtype = np.dtype(np.uint8 if exact else np.float32)
    channels, height, width = image_set.shape
    shape = (len(image_set), height, width) + ((channels,) if channels > 1 else ())
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        with _member(archive, "image") as file:
            descr = npy.dtype_to_descr(dtype)
            npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            for block in _blocks(image_set):
                file.write(_to_bytes(block).tobytes() if exact else block.tobytes())
        for key, array in arrays.items():
            if array is not None:
                with _member(archive, key) as file:
                    npy.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def save_parquet(image_set: ImageSet, path: str | os.PathLike[str]) -> None:
    """Write a set as Parquet in the schema of Hugging Face, so that `datasets` decodes its images.

    The columns are image (PNG, so pixels are rounded to 8 bits), label, text_label, and, where the set has
    them, p_label, is_ambiguous and its columns.
    """
    _check(image_set, path, ".parquet")
    arrow = require("pyarrow", "hub")
    parquet = require("pyarrow.parquet", "hub")
    schema = _schema(arrow, image_set)
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        start = 0
        for block in _blocks(image_set):
            rows = slice(start, start + len(block))
            columns = {
                "image": [
                    {"bytes": _png(image), "path": image_set.ids[row] if image_set.ids else None}
                    for row, image in enumerate(_to_bytes(block), start)
                ],
                "label": image_set.labels[rows],
                "text_label": [text_label(image_set, row) for row in range(start, start + len(block))],
                **{key: values[rows] for key, values in image_set.columns.items()},
            }
            if image_set.soft_labels is not None:
                columns["p_label"] = image_set.soft_labels[rows].tolist()
            if image_set.is_ambiguous is not None:
                columns["is_ambiguous"] = image_set.is_ambiguous[rows]
            writer.write_table(arrow.table(columns, schema=schema))
            start = rows.stop


def text_label(image_set: ImageSet, row: int) -> str:
    """A readable label: the name of the class, "p(4)=0.6, p(9)=0.4" if it is soft, "" if unknown."""
    names = image_set.class_names
    if image_set.soft_labels is not None and image_set.soft_labels[row].max() < 1:
        soft = image_set.soft_labels[row]
        order = [k for k in np.argsort(-soft, kind="stable") if soft[k] > 0]
        return ", ".join(f"p({names[k]})={soft[k]:.4g}" for k in order)
    label = image_set.labels[row]
    return names[label] if label >= 0 else ""


def _schema(arrow: Any, image_set: ImageSet) -> Any:
    """The Arrow schema with Hugging Face's description of the columns in its metadata."""
    fields = {
        "image": arrow.struct({"bytes": arrow.binary(), "path": arrow.string()}),
        "label": arrow.int64(),
        "text_label": arrow.string(),
    }
    names = list(image_set.class_names)
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": names, "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"},
        "text_label": {"dtype": "string", "_type": "Value"},
    }
    if image_set.soft_labels is not None:
        fields["p_label"] = arrow.list_(arrow.float64())
        features["p_label"] = {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "Sequence"}
    if image_set.is_ambiguous is not None:
        fields["is_ambiguous"] = arrow.bool_()
        features["is_ambiguous"] = {"dtype": "bool", "_type": "Value"}
    for key, values in image_set.columns.items():
        fields[key] = arrow.array(values[:1]).type
        arrow_name = str(fields[key])
        features[key] = {"dtype": FLOATS.get(arrow_name, arrow_name), "_type": "Value"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return arrow.schema(fields, metadata=metadata)


def _check(image_set: ImageSet, path: str | os.PathLike[str], suffix: str) -> None:
    if Path(path).suffix.lower() != suffix:
        raise UserError(f"The file {path} should end in {suffix}, so that it can be loaded again.")
    if image_set.shape[0] not in (1, 3):
        raise UserError(f"Images with {image_set.shape[0]} channels cannot be saved; use grey (1) or colour (3).")
    objects = [key for key, values in image_set.columns.items() if np.asarray(values).dtype.hasobject]
    if objects:
        raise UserError(f"The column {objects[0]!r} holds Python objects; make it numbers or strings to save it.")
    taken = sorted(RESERVED & image_set.columns.keys())
    if taken:
        raise UserError(f"A column called {taken[0]!r} cannot be saved, since that name has a meaning; rename it.")


def _blocks(image_set: ImageSet) -> Iterator[NDArray[np.float32]]:
    """Images (m, H, W) or (m, H, W, C), a few at a time."""
    for images, _ in image_set.batches(BLOCK):
        yield images[:, 0] if images.shape[1] == 1 else np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def _to_bytes(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.rint(images * 255).astype(np.uint8)


def _png(image: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _member(archive: zipfile.ZipFile, key: str) -> Any:
    # The fixed date makes equal sets equal files; zip64 lets a member grow beyond 4 GiB.
    return archive.open(zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0)), "w", force_zip64=True)
