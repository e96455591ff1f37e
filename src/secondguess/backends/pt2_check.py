"""A look into a `.pt2` archive before PyTorch opens it, because opening one can run code.

`torch.export.load` unpickles sample inputs and custom objects, resolves operator names by attribute look-up from the
`torch` module (from where `torch.os.system` can be reached), hands symbolic shapes to `sympy.sympify` (which evaluates
them) and loads compiled libraries. An ordinary exported classifier needs none of that: its weights are raw bytes, its
operators are `torch.ops.aten.*`, its shapes are simple arithmetic. Whatever is not ordinary in that sense is refused
here. Pickles that remain (the sample inputs) are opened by PyTorch in its weights-only mode, which `opening_safely`
forces.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secondguess.errors import UserError

__all__ = ["check_archive", "opening_safely"]

# The first folder of every member is the archive's own name; what follows is matched here.
MEMBERS = re.compile(
    r"(models/\w+\.json|data/weights/[\w.]+|data/constants/(tensor_\d+|\w+_config\.json)|data/sample_inputs/\w+\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|\.format_version"
    r"|\.storage_alignment|extra/[\w.]*)"
)
OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed)\.\w+(\.\w+)?"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|torch\.sym_\w+|math\.(ceil|floor|trunc)"
)
EXPRESSION = re.compile(r"(\b[su]\d+\b|\b(Max|Min|Mod|FloorDiv|CeilDiv|Eq|Ne|Integer|Symbol)\b|\d+|[\s()+\-*/,<>=])*")
NAME = re.compile(r"[\w.]*")


def check_archive(path: Path) -> None:
    """Raise a `UserError` unless the archive at `path` holds an ordinary exported program and nothing else."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.partition("/")[2] for name in archive.namelist()]
            if strange := [name for name in members if not MEMBERS.fullmatch(name)]:
                raise _refusal(path, f"it holds {strange[0]!r}")
            graphs = [archive.read(name) for name in archive.namelist() if "/models/" in name]
            configs = [archive.read(name) for name in archive.namelist() if name.endswith("_config.json")]
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(
            f"{path} is not a readable torch.export archive ({error}); write it again with torch.export.save."
        ) from error
    if not graphs:
        raise UserError(f"{path} holds no exported program; write it with torch.export.save(program, path).")
    for config in configs:
        for key, value in _entries(path, config):
            if key == "use_pickle" and value:
                raise _refusal(path, "some of its weights are pickled")
    for graph in graphs:
        for key, value in _entries(path, graph):
            _check_entry(path, key, value)


def _check_entry(path: Path, key: str, value: Any) -> None:
    if key == "target" and isinstance(value, str) and not OPERATOR.fullmatch(value):
        raise _refusal(path, f"its graph calls {value!r}")
    if key == "expr_str" and not EXPRESSION.fullmatch(str(value)):
        raise _refusal(path, f"a shape in it is the expression {str(value)[:60]!r}")
    if key in ("name", "graph_name", "class_fqn") and isinstance(value, str) and not NAME.fullmatch(value):
        raise _refusal(path, f"it uses the name {value[:60]!r}")
    if key in ("as_custom_obj", "as_operator"):
        raise _refusal(path, "it refers to custom objects")


def _entries(path: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    """Every (key, value) of a JSON document, at any depth."""
    try:
        stack = [json.loads(data)]
    except ValueError as error:
        raise UserError(f"{path} is damaged: its description is not JSON ({error}).") from error
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from value.items()
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


@contextmanager
def opening_safely() -> Iterator[None]:
    """Force every `torch.load` inside the block into weights-only mode, whatever its caller asks for."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _refusal(path: Path, what: str) -> UserError:
    return UserError(
        f"{path} was not opened, because {what}, and loading that could run code; "
        "export a plain eval-mode module with torch.export, or convert the model to ONNX."
    )
