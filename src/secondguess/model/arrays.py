"""Observations from bare arrays in files, for results that come from elsewhere: another framework, another machine.

An `.npz` file holds, for the same n images, any of

    probabilities   (n, K), rows sum to one
    logits          (n, K)
    predictions     (n,) classes, where neither of the two was recorded
    traces          (n, d) or (n, ...) activations of the penultimate layer
    traces_NAME     activations of the layer NAME
    samples         (n, S, K) probabilities of S passes with dropout
    labels          (n,) true classes, -1 where unknown
    class_names     (K,) texts

Any other array (n,) becomes a column, such as what other models predict. Arrays of the training images are in a file of
their own, or in the same file with `train_` before their names; those of validation images with `validation_`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secondguess._text import few
from secondguess.errors import UserError
from secondguess.images.npz import read_arrays
from secondguess.model.needs import PENULTIMATE
from secondguess.model.observation import Observation

__all__ = ["PARTS", "Arrays", "load_observation", "same_classes"]

Arrays = Observation | Mapping[str, Any] | str | os.PathLike[str]

PARTS = ("train", "validation")
WHOLE = ("probabilities", "logits", "predictions", "samples", "labels")
TRACES = "traces"


def load_observation(arrays: Arrays, part: str = "") -> Observation | None:
    """The observation that arrays make; an `Observation` is passed through.

    Args:
        arrays: the path of an `.npz` file, or arrays by the names that such a file gives them.
        part: "train" or "validation" for the arrays with this word before their names; "" for those without.

    Returns:
        The observation, or None where there are no arrays of that part.
    """
    if isinstance(arrays, Observation):
        return None if part else arrays
    where = "The arrays given" if isinstance(arrays, Mapping) else str(arrays)
    known = _of_part(arrays if isinstance(arrays, Mapping) else read_arrays(Path(arrays)), part)
    if not known:
        if part:
            return None
        raise UserError(f"{where} holds no arrays; save some with numpy.savez(path, probabilities=..., traces=...).")
    given: dict[str, Any] = {name: known.pop(name) for name in WHOLE if name in known}
    names = known.pop("class_names", ())
    traces = {_layer(name): known.pop(name) for name in sorted(known) if _is_trace(name)}
    if not {"probabilities", "logits", "predictions"} & given.keys():
        found = few(sorted([*given, *known, *(f"traces of {layer}" for layer in traces)]))
        raise UserError(
            f"{where} holds {found}; one of the arrays probabilities (n, K), logits (n, K) and predictions (n,) is "
            f"needed{f', with {part}_ before its name' if part else ''}."
        )
    return Observation(**given, traces=traces, class_names=[str(name) for name in names], columns=known)


def same_classes(*observations: Observation) -> list[Observation]:
    """The same observations, of which those that hold nothing but predictions know as many classes as the others."""
    classes = max(seen.num_classes for seen in observations)
    return [
        seen if seen.classes_are_known else seen.replace(class_names=[str(k) for k in range(classes)])
        for seen in observations
    ]


def _of_part(arrays: Mapping[str, Any], part: str) -> dict[str, Any]:
    if part:
        return {name.removeprefix(f"{part}_"): array for name, array in arrays.items() if name.startswith(f"{part}_")}
    return {name: array for name, array in arrays.items() if not name.startswith(tuple(f"{one}_" for one in PARTS))}


def _is_trace(name: str) -> bool:
    return name == TRACES or name.startswith(f"{TRACES}_")


def _layer(name: str) -> str:
    return PENULTIMATE if name == TRACES else name.removeprefix(f"{TRACES}_")
