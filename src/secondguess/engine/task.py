"""A task: a function that can be imported, its parameters, a seed, and the key under which its result is kept.

The key is a digest of everything that the result depends on:

    key = BLAKE2b(function name, parameters, seed, code version)

Data count by their fingerprint and not by the place where they lie (`TaskData`), as does what is sent along (`Sent`).
The code version is a digest of the sources of the package that holds the function, and the version of secondguess: when
a task is edited, its old results are no longer found. Changes elsewhere in secondguess are seen only through its
version.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from secondguess import __version__
from secondguess.errors import UserError

__all__ = [
    "Call",
    "Failure",
    "Outcome",
    "Sent",
    "Shared",
    "Task",
    "TaskData",
    "TaskFailed",
    "WorkerLost",
    "code_version",
    "perform",
    "resources_for",
]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # a disk, a quota, the largest file that a process may write


class TaskFailed(RuntimeError):
    """A task raised; the text ends with the traceback of the worker."""


class WorkerLost(UserError):
    """The process that worked on a task ended, and ended again when the task was tried again."""


@dataclass(frozen=True)
class TaskData:
    """Data that a task reads.

    Attributes:
        place: a name or path as `secondguess.images.load` takes it, the same on every worker.
        fingerprint: the digest of what lies there.
    """

    place: str
    fingerprint: str


@dataclass(frozen=True)
class Sent:
    """Something that goes to the worker with the task, pickled, and counts in the task's key by its fingerprint.

    Attributes:
        value: what the function is given; a view on a source of images is pickled as the images in it.
        fingerprint: the digest of its content.
    """

    value: Any = field(repr=False)
    fingerprint: str


@dataclass(frozen=True)
class Shared(Sent):
    """As `Sent`, for what many tasks have in common: it goes to each worker once, and not with every task.

    The fingerprint must say all that the value depends on: a worker takes what it was brought before under the same.
    """


@dataclass(frozen=True, eq=False)
class Task:
    """One call `function(**params, seed=seed)`.

    Attributes:
        function: a pure function at the top level of a module; it returns a dictionary of what JSON can hold, and of
            NumPy arrays at its first level.
        params: what JSON can hold, `TaskData` for data, and `Sent` or `Shared` for what else the worker is to have.
        seed: given to the function.
        resources: what a worker must declare to be given the task, such as {"GPU": 1}; no part of the key.
    """

    function: Callable[..., Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """The function as `module:name`, by which a worker finds it."""
        module, name = self.function.__module__, self.function.__qualname__
        if module == "__main__" or not name.isidentifier():
            raise UserError(f"The task {module}:{name} cannot be imported by a worker; put the function into a module.")
        return f"{module}:{name}"

    @cached_property
    def card(self) -> dict[str, Any]:
        """Everything the result depends on, as JSON can hold it."""
        return {
            "function": self.name,
            "params": _canonical(self.params, self.name),
            "seed": self.seed,
            "code": code_version(self.function.__module__),
        }

    @cached_property
    def key(self) -> str:
        """The digest of the card, 32 hexadecimal digits."""
        text = json.dumps(self.card, sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def call(self) -> Call:
        """What is sent to a worker."""
        return Call(self.name, dict(self.params), self.seed, self.card["code"], dict(self.resources))


@dataclass(frozen=True)
class Call:
    """A task on its way to a worker: the function by name, so that the worker imports its own copy."""

    name: str
    params: dict[str, Any]
    seed: int
    code: str
    resources: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """What a task returned, how long that took, and on what."""

    result: dict[str, Any]
    seconds: float
    hardware: str


@dataclass(frozen=True)
class Failure:
    """What a task raised, as text: an exception itself may not survive pickling."""

    message: str
    traceback: str
    usable: bool  # whether it is a sentence for the user

    def error(self, task: Task) -> Exception:
        """What to raise here."""
        if self.usable:
            return UserError(self.message)
        return TaskFailed(f"{task.name} failed with {dict(task.params)}, seed {task.seed}.\n{self.traceback}")


def perform(call: Call, prepare: Callable[[Call], Call] | None = None) -> Outcome | Failure:
    """Perform the call in this process; an exception is returned as a `Failure`.

    Args:
        call: what to do.
        prepare: completes the call where it names what it shares.
    """
    try:
        module, _, name = call.name.partition(":")
        function = getattr(importlib.import_module(module), name)
        if code_version(module) != call.code:
            raise UserError(
                f"The worker on {platform.node()} has another version of {module} than this process; install the same "
                "code there and restart its workers."
            )
        call = call if prepare is None else prepare(call)
        began = time.perf_counter()
        result = dict(function(**call.params, seed=call.seed))
        return Outcome(result, time.perf_counter() - began, _hardware())
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            return Failure(_no_room(error), traceback.format_exc(), usable=True)
        return Failure(str(error), traceback.format_exc(), isinstance(error, UserError))


def resources_for(*devices: str) -> dict[str, float]:
    """What a worker must declare to compute on these devices: a GPU where one was asked for, else nothing.

    `auto` asks for none: a worker then takes what it has.
    """
    return {"GPU": 1} if any(device.startswith("cuda") for device in devices) else {}


@lru_cache
def code_version(module: str) -> str:
    """Digest of the sources of the package that a module is in (of the module alone, if it is in none).

    It is remembered, so a worker that has run tasks before its files were edited still reports the code that it runs.
    """
    path = Path(getattr(importlib.import_module(module), "__file__", None) or "")
    if not path.is_file():
        raise UserError(f"The module {module} has no source file, so its results could not be keyed to its code.")
    inside = (path.parent / "__init__.py").is_file()
    digest = hashlib.blake2b(__version__.encode(), digest_size=8)
    for source in sorted(path.parent.rglob("*.py")) if inside else [path]:
        digest.update(f"\n{source.relative_to(path.parent).as_posix()}\n".encode())
        digest.update(source.read_bytes())
    return f"{__version__}+{digest.hexdigest()}"


def _canonical(value: Any, name: str) -> Any:
    """Parameters as they count in the key: data by fingerprint, NumPy's numbers as plain ones."""
    if isinstance(value, TaskData | Sent):
        return {"fingerprint": value.fingerprint}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _canonical(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item, name) for item in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise UserError(
        f"The task {name} has {value!r} among its parameters; give numbers, texts, lists or dictionaries of them, a "
        "TaskData or a Sent."
    )


def _no_room(error: OSError) -> str:
    where = f" to {error.filename}" if error.filename else ""
    return (
        f"The worker on {platform.node()} cannot write{where}: {os.strerror(error.errno or 0)}; make room there, and "
        "run it again."
    )


def _hardware() -> str:
    """The GPU, where a task can have used one, else the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()}, {os.cpu_count()} cores"
