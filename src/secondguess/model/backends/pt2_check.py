"""Inspection of a `.pt2` archive before PyTorch opens it, because opening one can run code.

`torch.export.load` unpickles sample inputs and custom objects, resolves operator names by attribute look-up from the
`torch` module (from where `torch.os.system` can be reached), hands symbolic shapes to `sympy.sympify` (which evaluates
them), imports modules named in tree specifications, writes names into Python source that it then executes, and loads
compiled libraries. An ordinary exported classifier needs none of that: its weights are raw bytes, its operators are
`torch.ops.aten.*`, its shapes are simple arithmetic and its names are plain words. Everything else is refused here.
Pickles that remain (the sample inputs) are opened by PyTorch in its weights-only mode, which `opening_safely` forces.
PyTorch is then given a fresh archive made of the members that were checked, because its own reader may find other bytes
in a malicious file than Python's does.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secondguess.contracts.archives import check_archive
from secondguess.errors import UserError

__all__ = ["checked_archive", "opening_safely"]

# The first folder of every member is the archive's own name; what follows is matched here.
MEMBERS = re.compile(
    r"models/\w+\.json|data/weights/(weight_\d+|\w+_config\.json)|data/constants/(tensor_\d+|\w+_config\.json)"
    r"|data/sample_inputs/\w+\.pt|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment|extra/[\w.]*"
)
OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed)\.(?!(save|from_file)\b)\w+(\.\w+)?"  # those touch files
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"  # a graph inside, checked like the one around
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|torch\.sym_\w+|math\.(ceil|floor|trunc)"
)
EXPRESSION = re.compile(  # what sympy.srepr writes for the size of an axis
    r"(Symbol\('\w+'(, \w+=(True|False))*\)|\b[a-z]+\d+\b|\b\d+\b|[\s()+\-*/,<>=]"
    r"|\b(Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|IntTrueDiv|ModularIndexing|Integer|Rational"
    r"|Eq|Ne|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan)\b)*"
)
NAME = re.compile(r"[\w.+\- ]*")
RULES = {
    "target": (OPERATOR, "its graph calls"),
    "expr_str": (EXPRESSION, "a shape in it is the expression"),
    "path_name": (re.compile(r"(weight|tensor)_\d+"), "some of its weights are the object"),
}
# Text that is never evaluated: notes about nodes, arguments that are strings, and guards, which are not asked for.
FREE_TEXT = ("metadata", "as_string", "as_strings", "guards_code")
TREES = (None, "builtins.tuple", "builtins.list", "builtins.dict")
TREE_CONTEXT = re.compile(r'null|\[("\w+"(, )?)*\]')


def checked_archive(path: Path) -> io.BytesIO:
    """Return a copy of the archive at `path`; raise a `UserError` if it is not an ordinary exported program."""
    copy = io.BytesIO()
    names: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as checked:
            check_archive(path, archive)
            for info in archive.infolist():
                member = info.filename.partition("/")[2]
                if not MEMBERS.fullmatch(member):
                    raise _refusal(path, f"it holds {info.filename[:60]!r}")
                if info.filename in names:
                    raise _refusal(path, f"it holds {info.filename[:60]!r} twice")
                names.add(info.filename)
                data = archive.read(info)
                if member.startswith(("models/", "data/")) and member.endswith(".json"):
                    _check_description(path, data)
                checked.writestr(zipfile.ZipInfo(info.filename), data)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{path} is not a readable torch.export archive ({error}); write it again with torch.export.save."
        ) from error
    if not any("/models/" in name for name in names):
        raise UserError(f"{path} holds no exported program; write it with torch.export.save(program, path).")
    copy.seek(0)
    return copy


def _check_description(path: Path, data: bytes) -> None:
    """Check every key and every string of a JSON document that PyTorch will act upon."""
    for key, value in _entries(path, data):
        if not NAME.fullmatch(key):
            raise _refusal(path, f"it uses the name {key[:60]!r}")
        if key == "use_pickle" and value:
            raise _refusal(path, "some of its weights are pickled")
        if key in ("as_custom_obj", "as_operator"):
            raise _refusal(path, "it refers to custom objects")
        if key in ("in_spec", "out_spec"):
            _check_tree(path, str(value))
        elif isinstance(value, str):
            rule, what = RULES.get(key, (NAME, "it uses the name"))
            if not rule.fullmatch(value):
                raise _refusal(path, f"{what} {value[:60]!r}")


def _check_tree(path: Path, text: str) -> None:
    """Check how inputs or outputs are nested; only tuples, lists and dictionaries are rebuilt without imports."""
    for key, value in _entries(path, text):
        ordinary = value in TREES if key == "type" else value is None or TREE_CONTEXT.fullmatch(str(value))
        if key in ("type", "context") and not ordinary:
            raise _refusal(path, f"its inputs or outputs are nested in {str(value)[:60]!r}")


def _entries(path: Path, data: bytes | str) -> Iterator[tuple[str, Any]]:
    """Every (key, value) of a JSON document at any depth; each element of a list comes under the list's key."""
    try:
        stack: list[tuple[str, Any]] = [("", json.loads(data))]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: its description is not JSON ({error}).") from error
    while stack:
        key, value = stack.pop()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
        # A weight may be called "metadata" too; what hangs below it is not text alone.
        if key in FREE_TEXT and all(isinstance(item, str) for item in inner):
            continue
        yield key, value
        if isinstance(value, dict):
            stack.extend(value.items())
        elif isinstance(value, list):
            stack.extend((key, item) for item in value)


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
