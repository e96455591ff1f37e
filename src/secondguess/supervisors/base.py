"""The contract of a supervisor: a number for every prediction, larger = more suspicious, everywhere.

A supervisor implements `_score` (and `_fit`, if it learns from nominal data); the public `fit` and `score` are final
and own the checks. Parameters live in `__init__` and are stored untouched under their own names; what `fit` learns ends
in an underscore. That is all `save` and `load` need: one safetensors file, never a pickle.
"""

from __future__ import annotations

import copy
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from secondguess._files import write_bytes
from secondguess.errors import UserError
from secondguess.observation import Needs, Observation, Trace

__all__ = ["Supervisor"]

FORMAT = "1"


class Supervisor(ABC):
    """Scores how suspicious each prediction is.

    Attributes:
        name: by which it is known in the registry, in reports and in gates; lower case with underscores.
        family: the heading under which it is listed; the name of its module where it says nothing.
        expensive: whether it takes so long that an audit leaves it out unless asked for.
        requires_fit: whether `fit` must be called before `score`.
    """

    name: ClassVar[str]
    family: ClassVar[str] = ""
    requires_fit: ClassVar[bool] = True
    expensive: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        """What must have been observed; probabilities alone unless a supervisor says otherwise."""
        return Needs()

    @final
    def fit(self, observation: Observation, labels: NDArray[np.int64] | None = None) -> Self:
        """Learn from an observation of nominal (training) images.

        Args:
            observation: of n images; must hold what `needs` says.
            labels: (n,) true labels, for the few supervisors that use them; -1 = unknown.
        """
        self._check(observation)
        if labels is not None and len(labels) != len(observation):
            raise UserError(
                f"{len(observation)} images were observed, but {len(labels)} labels were given to fit {self.name!r}."
            )
        for name in self._state_names():
            delattr(self, name)
        self._fit(observation, labels)
        self.fitted_classes_ = observation.num_classes
        return self

    @final
    def score(self, observation: Observation) -> NDArray[np.float64]:
        """The suspicion of each prediction, (n,) float64; larger = more suspicious, never NaN."""
        if self.requires_fit and not self.is_fitted:
            raise UserError(f"The supervisor {self.name!r} must see nominal data first; call fit(observation).")
        self._check(observation)
        known = getattr(self, "fitted_classes_", None)
        if self.requires_fit and known is not None and known != observation.num_classes:
            raise UserError(
                f"The supervisor {self.name!r} was fitted on {known} classes, but this observation has "
                f"{observation.num_classes}."
            )
        scores = np.asarray(self._score(observation), dtype=np.float64)
        if scores.shape != (len(observation),):
            raise ValueError(f"{self.name}: _score returned shape {scores.shape} for {len(observation)} images")
        if np.isnan(scores).any():
            raise ValueError(f"{self.name}: _score returned NaN for {int(np.isnan(scores).sum())} images")
        return scores

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:  # noqa: B027
        """Learn; store what was learnt in attributes that end in an underscore. Nothing to do by default."""

    @abstractmethod
    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        """The scores (n,) of an observation that is known to hold what `needs` says."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "fitted_classes_")

    def params(self) -> dict[str, Any]:
        """The parameters of `__init__` with their values."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def clone(self, **changes: Any) -> Self:
        """An unfitted copy, with some parameters changed."""
        return type(self)(**copy.deepcopy(self.params() | changes))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        fitted = "" if not self.requires_fit else "[fitted]" if self.is_fitted else "[unfitted]"
        return f"{type(self).__name__}{fitted}({shown})"

    def state(self) -> dict[str, Any]:
        """What `fit` has learnt: arrays, dictionaries of arrays, and values that JSON can hold."""
        return {name: getattr(self, name) for name in self._state_names()}

    def save(self, path: str | Path) -> None:
        """Write parameters and learnt state to one `.safetensors` file, atomically."""
        from safetensors import SafetensorError
        from safetensors.numpy import save

        state = self.state()
        arrays = {name: np.asarray(value, order="C") for name, value in _arrays(state).items()}
        rest = {name: value for name, value in state.items() if not _holds_arrays(value)}
        card = {
            "secondguess": FORMAT,
            "supervisor": self.name,
            "params": json.dumps(self.params(), default=_to_json),
            "state": json.dumps(rest, default=_to_json),
        }
        try:
            content = save(arrays, metadata=card)
        except SafetensorError as error:
            raise UserError(f"What the supervisor {self.name!r} has learnt cannot be saved: {error}.") from error
        write_bytes(path, content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` has written; called on `Supervisor` itself, the class is found by its registered name."""
        tensors, card = _read(Path(path))
        kind = cls
        if inspect.isabstract(cls):
            from secondguess.supervisors.registry import get

            kind = get(card["supervisor"])  # type: ignore[assignment]
        if card["supervisor"] != kind.name:
            raise UserError(f"{path} holds the supervisor {card['supervisor']!r}, not {kind.name!r}.")
        try:
            made = kind(**json.loads(card["params"], object_hook=_from_json))
            state = _nested(tensors) | json.loads(card["state"], object_hook=_from_json)
        except (TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged, or was saved by another version of {kind.name!r}: {error}.") from error
        for name, value in state.items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(made, name, value)
        return made

    def _check(self, observation: Observation) -> None:
        needs = self.needs
        if len(observation) == 0:
            raise UserError(f"The supervisor {self.name!r} was given an empty observation; it has no images.")
        for trace in sorted(needs.traces):
            observation.trace(trace)
        have = 0 if observation.samples is None else observation.samples.shape[1]
        lacking = {
            "logits": needs.logits and observation.logits is None,
            f"{needs.samples} dropout samples": needs.samples > have,
            "the images": needs.images and observation.images is None,
        }
        if missing := [what for what, lacks in lacking.items() if lacks]:
            raise UserError(
                f"The supervisor {self.name!r} needs {' and '.join(missing)}, which this observation does not hold; "
                "observe with classifier.observe(images, supervisor.needs)."
            )

    def _state_names(self) -> list[str]:
        return sorted(name for name in vars(self) if name.endswith("_") and not name.startswith("_"))


def _parameters(kind: type[Supervisor]) -> list[str]:
    """The names of the parameters of `__init__`, `self` apart."""
    return list(inspect.signature(kind).parameters)


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            card = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise UserError(f"There is no supervisor at {path}.") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a saved supervisor ({error}).") from error
    if card.get("secondguess") != FORMAT or not {"supervisor", "params", "state"} <= card.keys():
        raise UserError(
            f"{path} is not a supervisor that this version can read "
            f"(format {card.get('secondguess')!r}, not {FORMAT!r})."
        )
    return tensors, card


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


def _to_json(value: Any) -> Any:
    if isinstance(value, Trace):
        return {"trace": asdict(value)}
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value).__name__
    hint = " (a dataclass)" if is_dataclass(value) else ""
    raise UserError(
        f"A value of type {kind}{hint} cannot be saved; parameters are numbers, texts, lists and traces, and what is "
        "learnt may be arrays and dictionaries of arrays too."
    )


def _from_json(value: dict[str, Any]) -> Any:
    return Trace(**value["trace"]) if value.keys() == {"trace"} else value
