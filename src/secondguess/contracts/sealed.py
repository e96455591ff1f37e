"""Files that show whether they still hold what was written.

A digest goes into the file and is checked before the content is used: under `digest` in a JSON object, in the metadata
of a safetensors file. Files of other kinds are listed in such an object with their `file_digest`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secondguess.files import write_json

__all__ = [
    "Damaged",
    "digest_of",
    "file_digest",
    "metadata",
    "read_json",
    "read_tensors",
    "seal_tensors",
    "write_json_sealed",
]

SEAL = "digest"
METADATA = "__metadata__"
UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)  # the last: too deeply nested
LENGTH = 8  # bytes that hold the length of a safetensors header, and what the header is aligned to


class Damaged(ValueError):
    """A file does not hold what was written."""


def file_digest(path: Path) -> str:
    """The digest of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _new).hexdigest()


def digest_of(content: bytes) -> str:
    """What `file_digest` gives for a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def write_json_sealed(path: Path, content: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write a JSON object with its digest, atomically."""
    plain = json.loads(json.dumps(content))  # as it will be read: tuples are lists, and keys are strings
    write_json(path, plain | {SEAL: _json_seal(plain)}, indent=indent)


def read_json(path: Path, *, sealed: bool = True) -> dict[str, Any]:
    """Read a JSON object that `write_json_sealed` wrote.

    Args:
        path: of the file.
        sealed: whether the object must have a digest; False also takes one without it, from an earlier version.

    Raises:
        Damaged: it does not hold what was written.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        seal = content.pop(SEAL, None)
    except UNREADABLE as error:
        raise Damaged(f"{path.name} is not a complete JSON object ({error})") from error
    if (sealed or seal is not None) and seal != _json_seal(content):
        raise Damaged(f"{path.name} does not hold what was written")
    return dict(content)


def seal_tensors(content: bytes) -> bytes:
    """The content of a safetensors file with its digest among the metadata."""
    header, data = _split(content)
    about = header.get(METADATA, {}) | {SEAL: _tensor_seal(header, data)}
    header[METADATA] = dict(sorted(about.items()))  # safetensors has another order each time: equal things, equal files
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % LENGTH)
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, data])


def read_tensors(path: Path, *, sealed: bool = True) -> bytes:
    """Read a safetensors file that holds its digest; the arguments and errors are those of `read_json`."""
    content = path.read_bytes()
    try:
        header, data = _split(content)
        seal = header.get(METADATA, {}).pop(SEAL, None)
    except UNREADABLE as error:
        raise Damaged(f"{path.name} is not a complete safetensors file ({error})") from error
    if (sealed or seal is not None) and seal != _tensor_seal(header, data):
        raise Damaged(f"{path.name} does not hold what was written")
    return content


def metadata(content: bytes) -> dict[str, str]:
    """The metadata in the content of a safetensors file."""
    return dict(_split(content)[0].get(METADATA, {}))


def _new() -> Any:
    return hashlib.blake2b(digest_size=16)


def _json_seal(content: Any) -> str:
    return digest_of(json.dumps(content, sort_keys=True).encode())


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header of a safetensors file, and the bytes of its tensors."""
    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    return json.loads(content[LENGTH:end]), memoryview(content)[end:]


def _tensor_seal(header: Mapping[str, Any], data: memoryview) -> str:
    """The digest of a header without its seal, and of the tensors."""
    metadata = {key: value for key, value in header.get(METADATA, {}).items() if key != SEAL}
    described = {key: value for key, value in header.items() if key != METADATA}
    state = _new()
    state.update(json.dumps([metadata, described], sort_keys=True).encode())
    state.update(data)
    return str(state.hexdigest())
