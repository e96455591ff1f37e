"""What is known of a model, written down once: `model.toml`.

    path    = "resnet20.onnx"                # or: import = "my_package.models:resnet20"
    weights = "resnet20.safetensors"         # with import
    classes = ["cat", "dog"]

    [input]
    size     = [32, 32]                      # height, width
    channels = 3
    mean     = [0.485, 0.456, 0.406]         # of pixels in [0, 1]
    std      = [0.229, 0.224, 0.225]
    resize   = "crop"                        # stretch, crop or pad

    [output]
    kind = "logits"                          # auto, logits or probabilities
    use  = "scores"                          # name or number of the output, where there are several
    keep = ["cat", "dog"]                    # the softmax is restricted to these classes, or to those "present"

    [names]
    kitten = "cat"                           # a class of the data, and what the model calls it

    [layers]
    penultimate = "avgpool"                  # what a trace of that name means

Files are named relative to the `model.toml`. An import is searched for in `folder`, by default that of the
`model.toml`, and then in Python's path. Everything but the model itself may be left out.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import write_text
from secondguess.model.description_fields import (
    FIELDS,
    FILES,
    LISTS,
    PRESENT,
    TABLES,
    OutputKind,
    check_names,
    from_tables,
    toml_key,
    toml_value,
    typed,
)

__all__ = ["Description"]


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model and everything needed to feed it images and to read its answer.

    Attributes:
        path: an `.onnx` or `.pt2` file.
        source: `zoo:NAME` or `package.module:make_model`, instead; `import` in the file.
        folder: where the package is searched for first.
        weights: a `.safetensors` file for a torch module.
        name: for reports; by default the name of the file or the import.
        classes: the K names in the model's order.
        size: (height, width) of the images, where the model does not say.
        channels: 1 or 3, where the model does not say.
        mean: subtracted from images in [0, 1], one number or one per channel.
        std: what the difference is divided by.
        resize: how images of other proportions are resized: `stretch`, `crop` or `pad`.
        output_kind: `logits`, `probabilities`, or `auto`.
        output: name or number of the output with the class scores, where there are several.
        keep: the classes that the softmax is restricted to, `"present"` for those of the data; all of them if empty.
        names: classes of data, and what the model calls them, where that differs.
        layers: names of traces and the layers they mean, such as `penultimate`.
    """

    path: Path | None = None
    source: str | None = None
    folder: Path | None = None
    weights: Path | None = None
    name: str | None = None
    classes: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    channels: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: str = "stretch"
    output_kind: OutputKind = "auto"
    output: int | str | None = None
    keep: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, typed(name, getattr(self, name)))
        if self.path is not None and self.source is not None:
            raise UserError("The model has both a path and an import; give one of them.")
        strange = [name for name in self.keep if self.keep != PRESENT and self.classes and name not in self.classes]
        if strange:
            raise UserError(f"The class {strange[0]!r} is to be kept, but the model has no such class; see `classes`.")

    @classmethod
    def of(cls, model: Any, **known: Any) -> Description:
        """The description of a model in any accepted form: a path, `zoo:NAME`, an import, or an object in memory."""
        if not isinstance(model, (str, Path)):
            return cls(**known)
        text = str(model)
        suffix = Path(text).suffix.lower()
        is_import = ":" in text and "/" not in text.partition(":")[0] and suffix not in (".onnx", ".pt2")
        return cls(source=text, **known) if is_import else cls(path=Path(text), **known)

    @classmethod
    def read(cls, path: str | Path) -> Description:
        """Read a `model.toml`; what cannot be understood is a `UserError` that names the file and the key."""
        path = Path(path)
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"There is no file {path}; `secondguess model new` writes one.") from error
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read ({error}).") from error
        except (ValueError, RecursionError) as error:  # the first: also a number with thousands of digits
            raise UserError(f"{path} is not valid TOML: {error}.") from error
        try:
            found = cls(**from_tables(content))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        if found.path is None and found.source is None:
            raise UserError(f'{path} names no model; add path = "m.onnx" or import = "package.module:make_model".')
        here = path.resolve().parent
        placed = {name: here / value for name in FILES if (value := getattr(found, name)) is not None}
        if found.source is not None and not found.source.startswith("zoo:"):
            placed.setdefault("folder", here)
        return replace(found, **placed)

    @property
    def network(self) -> dict[str, Any]:
        """The arguments of a network of the zoo that are known: as many classes, images of that shape."""
        known: dict[str, Any] = {"num_classes": len(self.classes)} if self.classes else {}
        if self.size is not None and self.channels is not None:
            known["input_shape"] = (self.channels, *self.size)
        return known

    def changed(self, **changes: Any) -> Description:
        """The same with other values; an unknown name is a `UserError` that suggests a known one."""
        check_names(changes, [one.name for one in fields(self)], "A model has no")
        if self.source is not None and "path" in changes:
            changes.setdefault("source", None)
        return replace(self, **changes)

    def placed(self) -> Description:
        """The same with absolute paths, and with the folder of the import, so that it can be read from anywhere."""
        found: dict[str, Any] = {name: value.resolve() for name in FILES if (value := getattr(self, name)) is not None}
        if self.source is not None and not self.source.startswith("zoo:"):
            found.setdefault("folder", _home(self.source.partition(":")[0]))
        return replace(self, **found)

    def write(self, path: str | Path) -> Path:
        """Write the description as TOML, with files relative to it where they lie beside or below it."""
        path = Path(path)
        if self.path is None and self.source is None:
            raise UserError(
                "A model that lives in memory cannot be described in a file; save it as .onnx or .pt2, or open it as "
                "package.module:make_model."
            )
        write_text(path, self.placed().to_toml(path.resolve().parent))
        return path

    def to_toml(self, folder: Path | None = None) -> str:
        """The text of a `model.toml`.

        Args:
            folder: where the file will lie; files in it are named relative to it, others by their absolute path.
        """
        plain = Description()
        tables: dict[str, list[str]] = {name: [] for name in ("", *TABLES)}
        for name, (table, key, *_) in FIELDS.items():
            value = getattr(self, name)
            if name in LISTS:
                tables[table] += [f"{toml_key(own)} = {toml_value(theirs)}" for own, theirs in value.items()]
            elif value != getattr(plain, name) and not (name == "folder" and value.resolve() == folder):
                shown = _relative(value, folder) if name in FILES else value
                tables[table].append(f"{key} = {toml_value(shown)}")
        parts = ["\n".join(([f"[{name}]"] if name else []) + lines) for name, lines in tables.items() if lines]
        return "\n\n".join(parts) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, in values that JSON can hold."""
        plain = Description()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value != getattr(plain, name)
        }


def _home(module: str) -> Path | None:
    """The folder in which a module is found; None for one that is installed, or not found."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    found = next(iter(spec.submodule_search_locations or ()), spec.origin)
    home = Path(found).resolve().parent if found else None
    return None if home is None or "site-packages" in home.parts else home


def _relative(path: Path, folder: Path | None) -> str:
    """A path relative to the folder that it lies in, else the absolute one."""
    for one in (path.absolute(), path.resolve()):
        if folder is not None and one.is_relative_to(folder):
            return one.relative_to(folder).as_posix()
    return path.absolute().as_posix()
