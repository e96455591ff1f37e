"""`load`: from a name or a path to a data set."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from secondguess.errors import UserError
from secondguess.images.batches import as_source
from secondguess.images.dataset import Dataset, assemble
from secondguess.images.embedded import EMBEDDED
from secondguess.images.encoded import Options
from secondguess.images.fitting import Resizing, conform
from secondguess.images.folders import read_folder
from secondguess.images.hub import read_hub
from secondguess.images.idx import has_idx, read_idx
from secondguess.images.image_set import ImageSet
from secondguess.images.npz import read_npz
from secondguess.images.parquet import has_parquet, read_parquet, read_tables, tables_at
from secondguess.images.remote import Store, is_url, local_path
from secondguess.images.sources import Shape
from secondguess.images.tars import read_tars, tars_at, tars_in

__all__ = ["as_image_set", "check_loading", "load", "load_images", "names"]

LOADING = ("size", "channels", "resize", "skip_bad", "split")  # the options of `load`

KINDS = (
    "a folder of images or of class folders, a .parquet or .tar file or a folder of them, each here or at a URL "
    "(s3://...), a folder of IDX files, an .npz file, or a Hugging Face data set (hub:owner/name)"
)
PREFIX = "embedded:"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def names() -> tuple[str, ...]:
    """The names of the embedded data sets."""
    return tuple(EMBEDDED)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    resize: Resizing = "stretch",
    skip_bad: bool = False,
    split: str | None = None,
) -> Dataset:
    """Load a data set: its test split, and its training split where it has one.

    Args:
        name_or_path: an embedded name (see `names`), a folder of images or of class folders with or without
            split folders, a Parquet file or tar archive or a folder of them, or the URL of one of these
            (`s3://bucket/photos`); a folder of IDX files, an `.npz` file, or a Hugging Face data set
            `hub:owner/name`. Where an embedded name is also a path, write `embedded:photos` or `./photos`.
        size: the side, or (height, width), to bring all images to; by default their own, the most common one
            where they differ.
        channels: 1 for grey, 3 for colour; by default as they are, grey only if all inspected images are
            grey.
        resize: how an image of other proportions is fitted: "stretch", "crop" or "pad".
        skip_bad: leave out image files that cannot be read instead of stopping at the first; they are named
            in `Dataset.skipped`.
        split: the split to test on; by default test, else validation, else the only one.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise UserError(
            f"A {type(name_or_path).__name__} was given where the name or path of a data set is expected; make a set "
            "of arrays with sg.ImageSet.from_arrays(images, labels)."
        )
    options = Options(size, channels, resize, skip_bad)
    name, parts = _read(name_or_path, options)
    parts = {key: _with_options(part, options) for key, part in parts.items()}
    return assemble(name, parts, split)


def load_images(
    name_or_path: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    resize: Resizing = "stretch",
    skip_bad: bool = False,
    split: str | None = None,
) -> ImageSet:
    """Load one set of images, labelled or not: the test split (or the one named by `split`), or the only one.

    The arguments are those of `load`.
    """
    return load(name_or_path, size=size, channels=channels, resize=resize, skip_bad=skip_bad, split=split).test


def check_loading(given: Mapping[str, Any], call: Callable[..., Any]) -> dict[str, Any]:
    """The options of `load` among the keywords of a call, those that are None left out.

    Args:
        given: further keywords, such as `resize="crop"`.
        call: what they were given to; a mistyped name of its own parameters is recognised, too.

    Raises:
        UserError: for a keyword that neither `load` nor the call knows.
    """
    for name in given:
        if name not in LOADING:
            known = [one for one in inspect.signature(call).parameters if one not in ("self", "loading", "options")]
            close = difflib.get_close_matches(name, [*known, *LOADING], n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"images are loaded with {', '.join(LOADING)}."
            raise UserError(f"{call.__qualname__} has no parameter {name!r}; {hint}")
    return {name: value for name, value in given.items() if value is not None}


def as_image_set(images: Any, shape: Shape | None = None, **loading: Any) -> ImageSet:
    """Convert images in any accepted form to one set.

    Args:
        images: an `ImageSet`, which is returned as it is; a data set, whose test images are meant; a path or a name
            that `load` takes; or anything that `as_batch` takes, read a few at a time.
        shape: the (C, H, W) of an image, where it is known and the images are no set and no path.
        **loading: options of `load` for a path or a name.
    """
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, Dataset):
        return images.test
    if isinstance(images, str | os.PathLike):
        return replace(load_images(images, **loading), name=os.fspath(images))
    return ImageSet.from_source(as_source(images, shape))


def _with_options(part: ImageSet, options: Options) -> ImageSet:
    channels, height, width = part.shape
    height, width = options.sides or (height, width)
    return conform(part, (options.channels or channels, height, width), resize=options.resize)


def _read(name_or_path: str | os.PathLike[str], options: Options) -> tuple[str, dict[str, ImageSet]]:
    """Resolve a name or path and read it; return the name of the data set and its parts."""
    text = os.fspath(name_or_path)
    path = Path(text)
    embedded = text.removeprefix(PREFIX)
    if embedded in EMBEDDED and isinstance(name_or_path, str):
        if embedded == text and path.exists():  # neither may win: a script must not depend on where it is started
            raise UserError(
                f"{text!r} is an embedded data set and there is a {'folder' if path.is_dir() else 'file'} of that "
                f"name; write ./{text} for what lies at that path, or {PREFIX}{text} for the embedded set."
            )
        return embedded, EMBEDDED[embedded]()
    if text.startswith("hub:"):
        return text, read_hub(text.removeprefix("hub:"), options)
    if is_url(text):
        return text, _read_url(text, options)
    if path.exists():
        return path.resolve().name, _read_path(path.resolve(), options)
    if HUB_ID.fullmatch(text) and not path.suffix and not path.parent.exists():
        # A mistyped path must not cause a network request.
        hint = _meant(_alike(path))
        raise UserError(f"There is no file or folder {text!r}{hint}; for a Hugging Face data set write hub:{text}.")
    raise UserError(_unknown(text))


def _read_path(path: Path, options: Options) -> dict[str, ImageSet]:
    try:
        if path.is_dir():
            if has_idx(path):
                return read_idx(path)
            if tars := tars_in(path):
                return read_tars(tars, path.name, options)
            return read_parquet(path, options) if has_parquet(path) else read_folder(path, options)
        if not path.is_file():  # a pipe or a device could keep us waiting for ever
            raise UserError(f"{path} is neither a file nor a folder; give {KINDS}.")
        if path.suffix.lower() == ".npz":
            return read_npz(path)
        if path.suffix.lower() == ".parquet":
            return read_parquet(path, options)
        if path.suffix.lower() == ".tar":
            return read_tars([path], path.stem, options)
    except PermissionError as error:
        raise UserError(f"{error.filename or path} may not be read; change its permissions.") from error
    if path.suffix.lower() in (".toml", ".onnx", ".pt2"):
        raise UserError(f"{path.name} is a model, but images are expected here; give {KINDS}.")
    raise UserError(f"The file {path.name} is of no known kind; give {KINDS}.")


def _read_url(url: str, options: Options) -> dict[str, ImageSet]:
    """What lies in an object store: tar archives, Parquet files, or image files; which, as in a folder here."""
    if path := local_path(url):
        if not path.exists():
            raise UserError(f"There is nothing at {url}; give the URL of a file, or of a folder of them.")
        return _read_path(path.resolve(), options)
    if url.lower().endswith(".tar"):
        return read_tars([url], url, options)
    if url.lower().endswith(".parquet"):
        return read_tables([url], url, options)
    store = Store(url)
    if not store.top:
        raise UserError(f"There is no folder with anything in it at {url}; give {KINDS}.")
    if tars := tars_at(store):
        return read_tars(tars, url, options)
    if tables := tables_at(store):
        return read_tables(tables, url, options)
    return read_folder(store, options)


def _unknown(text: str) -> str:
    beside, embedded = _alike(Path(text)), difflib.get_close_matches(text, EMBEDDED, n=1)
    hint = _meant(embedded or beside if Path(text).name == text else beside or embedded)
    return f"There is no data set {text!r}{hint}: give one of {', '.join(EMBEDDED)}, or {KINDS}."


def _meant(close: list[str]) -> str:
    return f" (did you mean {close[0]!r}?)" if close else ""


def _alike(path: Path) -> list[str]:
    """What lies where a path leads, as far as it exists, under a name like that of its first part that does not."""
    missing = next((part for part in (*reversed(path.parents), path) if not part.exists()), path)
    try:
        beside = [one.name for one in missing.parent.iterdir()]
    except OSError:  # a file, or not ours to read
        return []
    return [str(missing.parent / name) for name in difflib.get_close_matches(missing.name, beside, n=1)]
