"""One file for a fitted learner: arrays as safetensors, the rest as JSON, nothing that runs when read.

The metadata of the file is a card of four texts: the format under `secondguess`, the name under the noun of what is
saved (`supervisor`, `oracle`), and `params` and `state` in JSON. Learnt state may be arrays and dictionaries of arrays,
which become tensors, and values that JSON can hold. Parameters may also be objects that are declared `Writable`:
they are written under a key of their own, as `{"trace": {"layer": "fc", "reduce": "mean"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import metadata, read_tensors, seal_tensors
from secondguess.errors import UserError
from secondguess.files import write_bytes

__all__ = ["DAMAGE", "Saved", "Writable", "read", "write"]

FORMAT = "1"
DAMAGE = (TypeError, ValueError, LookupError, AttributeError)  # what content of the wrong kind runs into


@dataclass(frozen=True)
class Writable:
    """A class whose objects JSON can hold in another form.

    Attributes:
        kind: the class.
        write: turns an object into what JSON can hold.
        read: the opposite.
    """

    kind: type
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Saved:
    """What a file holds, as far as it can be understood without the class it was saved by.

    Attributes:
        name: of the saved object.
        card: the metadata of the file.
        tensors: the learnt arrays; those in a dictionary under `name/key`.
    """

    name: str
    card: Mapping[str, str]
    tensors: Mapping[str, NDArray[Any]]

    def params(self, writable: Mapping[str, Writable]) -> dict[str, Any]:
        """The parameters; an error of any of the types in `DAMAGE` if they are damaged."""
        return self._parsed("params", writable)

    def state(self, writable: Mapping[str, Writable]) -> dict[str, Any]:
        """What was learnt; an error of any of the types in `DAMAGE` if it is damaged."""
        return _nested(self.tensors) | self._parsed("state", writable)

    def _parsed(self, part: str, writable: Mapping[str, Writable]) -> dict[str, Any]:
        def restored(value: dict[str, Any]) -> Any:
            for key, one in writable.items():
                # A parameter may be called like a key: what is inside it has been restored already.
                if value.keys() == {key} and not isinstance(value[key], one.kind):
                    return one.read(value[key])
            return value

        return json.loads(self.card[part], object_hook=restored)


def write(
    path: str | Path,
    noun: str,
    name: str,
    params: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    writable: Mapping[str, Writable],
    refuse: Callable[[Any], str],
) -> None:
    """Write one file, atomically.

    Args:
        path: of the file.
        noun: what is saved, such as "supervisor"; the key of the name on the card.
        name: of the saved object.
        params: the parameters it can be made of again.
        state: what it has learnt.
        writable: the classes whose objects can be written, by the key under which they are.
        refuse: says in one sentence that a value cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        for key, one in writable.items():
            if isinstance(value, one.kind):
                return {key: one.write(value)}
        raise UserError(refuse(value))

    arrays = {key: np.asarray(value, order="C") for key, value in _arrays(state).items()}
    rest = {key: value for key, value in state.items() if not _holds_arrays(value)}
    card = {
        "secondguess": FORMAT,
        noun: name,
        "params": json.dumps(dict(params), default=plain),
        "state": json.dumps(rest, default=plain),
    }
    try:
        content = save(arrays, metadata=card)
    except SafetensorError as error:
        raise UserError(f"What the {noun} {name!r} has learnt cannot be saved: {error}.") from error
    write_bytes(path, seal_tensors(content))


def read(path: str | Path, noun: str) -> Saved:
    """Read a file that must hold a `noun`; neither its parameters nor its state have been checked yet."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = read_tensors(Path(path), sealed=False)  # earlier versions wrote no digest
        card, tensors = metadata(content), dict(sorted(load(content).items()))
    except FileNotFoundError as error:
        raise UserError(f"There is no {noun} at {path}.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is not a saved {noun}, or it is damaged ({error}).") from error
    if card.get("secondguess") != FORMAT or not {noun, "params", "state"} <= card.keys():
        article = "an" if noun[0] in "aeiou" else "a"
        raise UserError(
            f"{path} is not {article} {noun} that this version can read "
            f"(format {card.get('secondguess')!r}, not {FORMAT!r})."
        )
    return Saved(card[noun], card, tensors)


def _holds_arrays(value: Any) -> bool:
    """Whether a learnt value goes into the file as arrays: an array, or a dictionary of nothing but arrays."""
    parts = list(value.values()) if isinstance(value, dict) and value else [value]
    return all(isinstance(part, np.ndarray) for part in parts)


def _arrays(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """All arrays of a learnt state; those in a dictionary under `name/key`."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in state.items():
        if _holds_arrays(value):
            parts = {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
            found |= parts
    return found


def _nested(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The opposite of `_arrays`."""
    state: dict[str, Any] = {}
    for name, tensor in tensors.items():
        outer, slash, key = name.partition("/")
        if not slash:
            state[name] = tensor
        elif isinstance(group := state.setdefault(outer, {}), dict):
            group[key] = tensor
        else:
            raise ValueError(f"{outer!r} is both an array and a group of arrays")
    return state
