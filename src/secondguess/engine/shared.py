"""What tasks have in common on its way to workers, each of which is brought it once.

A call that leaves this process only names what it shares. Its engine brings that to the workers in its own way: a file
that processes of this machine map into their memory, Dask's scattered data, Ray's store. A worker keeps what it was
brought last, so that fitted supervisors or a model are there for every task that names them.

Values are pickled by cloudpickle: classes and functions of a script or a notebook, which no worker can import, go along
with what is made of them.
"""

from __future__ import annotations

import inspect
import mmap
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secondguess.contracts.learner import Learner
from secondguess.contracts.sealed import digest_of
from secondguess.engine.task import Call, Shared, code_version
from secondguess.errors import UserError

__all__ = [
    "Parcel",
    "apart",
    "fingerprint_of",
    "kept_here",
    "map_file",
    "named_by",
    "pickled",
    "together",
    "travels",
    "write_file",
]

MOST_KEPT = 4  # values in a process: a model and supervisors, of two passes
LENGTH, ALIGNED = 8, 64  # bytes of a length in a file, and to whose multiples its parts begin


@dataclass(frozen=True)
class Named:
    """In a call, the place of something shared."""

    fingerprint: str


@dataclass(frozen=True, eq=False)
class Parcel:
    """A value that a cluster carries: pickled as plain bytes, so that its arrays can be written to at the other end."""

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (pickled(self.value),)


def _unpacked(content: bytes) -> Parcel:
    return Parcel(pickle.loads(content))  # noqa: S301 - sent by the process that runs the command


def pickled(value: Any, **how: Any) -> bytes:
    """A value as bytes that `pickle.loads` reads."""
    import cloudpickle  # when something is sent, which few commands do

    return bytes(cloudpickle.dumps(value, **how))


def travels(value: Any) -> bool:
    """Whether something can be sent to a worker; what holds an open file or a lock, say, cannot."""
    try:
        pickled(value, protocol=5, buffer_callback=lambda buffer: None)  # its arrays are not copied for that
    except Exception:  # whatever a class raises that cannot be pickled
        return False
    return True


def fingerprint_of(learner: Learner) -> str:
    """The digest of a learner's code, its parameters and what it has learnt: of all that its answers depend on."""
    kind = type(learner)
    card = learner.name, kind.__qualname__, _code_of(kind), learner.params(), learner.state()
    return digest_of(pickled(card))


def _code_of(kind: type) -> str:
    """The version of the code of a class; of one that was typed in, its text, or else what it was compiled to."""
    try:
        return code_version(kind.__module__)
    except UserError:
        try:
            return inspect.getsource(kind)
        except (OSError, TypeError):
            return digest_of(pickled(kind))


def apart(calls: Sequence[Call]) -> tuple[list[Call], dict[str, Any]]:
    """Calls that only name what they share, and the values by their fingerprints."""
    values: dict[str, Any] = {}
    found = []
    for call in calls:
        shared = {name: given for name, given in call.params.items() if isinstance(given, Shared)}
        values |= {given.fingerprint: given.value for given in shared.values()}
        named = {name: Named(given.fingerprint) for name, given in shared.items()}
        found.append(replace(call, params=call.params | named))
    return found, values


def named_by(call: Call) -> list[str]:
    """The fingerprints of what a call shares."""
    return [given.fingerprint for given in call.params.values() if isinstance(given, Named)]


def together(call: Call, value_of: Callable[[str], Any]) -> Call:
    """The call with what it shares, which `value_of` finds by its fingerprint."""
    brought = {
        name: Shared(value_of(given.fingerprint), given.fingerprint)
        for name, given in call.params.items()
        if isinstance(given, Named)
    }
    return replace(call, params=call.params | brought)


_kept: dict[str, Any] = {}  # what this process was brought last, by fingerprint


def kept_here(fingerprint: str, fetch: Callable[[], Any]) -> Any:
    """A value as this process keeps it, fetched where it does not yet."""
    if fingerprint not in _kept:
        while len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[fingerprint] = fetch()
    return _kept[fingerprint]


def write_file(path: Path, value: Any) -> None:
    """Write a value so that `map_file` finds its arrays in the file and need not copy them.

    The length of what comes first, that is all but the arrays, pickled; then the arrays.
    """
    buffers: list[pickle.PickleBuffer] = []
    frame = pickled(value, protocol=5, buffer_callback=buffers.append)
    arrays = [one.raw() for one in buffers]
    first = pickle.dumps(([len(one) for one in arrays], frame))
    try:
        with path.open("wb") as file:
            file.write(len(first).to_bytes(LENGTH, "little"))
            for part in (memoryview(first), *arrays):
                file.write(bytes(-file.tell() % ALIGNED))
                file.write(part)
    except OSError as error:
        raise UserError(
            f"What workers share could not be written to {path.parent}: {error.strerror or error}; name another folder "
            "with the environment variable TMPDIR."
        ) from error


def map_file(path: Path) -> Any:
    """What `write_file` wrote; memory that a process writes to becomes its own."""
    with path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    end = ALIGNED + int.from_bytes(content[:LENGTH], "little")
    lengths, frame = pickle.loads(content[ALIGNED:end])  # noqa: S301 - from the process that runs the command
    arrays = []
    for length in lengths:
        start = end + -end % ALIGNED
        end = start + length
        arrays.append(content[start:end])
    return pickle.loads(frame, buffers=arrays)  # noqa: S301 - as above
