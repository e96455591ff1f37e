"""The state of an unfinished training in a folder, so that it can be taken up again.

    weights-00003.safetensors     the model after epoch 3
    optimiser-00003.safetensors   the optimiser's moments
    best-00002.safetensors        the model after its best epoch, where that is kept
    state.json                    epoch, history, the settings of the run, and the digests of the files above

`state.json` is written last and names the epoch, so a process that is killed at any moment leaves a complete older or
newer state. A damaged state is not used: the training starts afresh, with a warning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from secondguess.contracts.sealed import Damaged, digest_of, read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes

__all__ = ["Checkpoint", "SavedState", "copy_state"]

_STATE = "state.json"
_TENSORS = re.compile(r"(weights|optimiser|best)-\d{5}\.safetensors")

Row = dict[str, float]


@dataclass
class SavedState:
    """The content of a checkpoint besides the weights and moments, which are loaded in place."""

    history: list[Row]
    best: dict[str, Tensor] | None


class Checkpoint:
    """A folder that holds the newest state of one training run.

    Args:
        folder: created when needed.
        settings: everything that determines the result, as JSON; a state with other settings is not taken up.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = make_folder(folder)
        self.settings = dict(settings)
        self._digests: dict[str, str] = {}

    def load(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> SavedState:
        """Put the saved weights and moments in place; a folder without a sound state gives an empty history."""
        if not (self.folder / _STATE).exists():
            return SavedState([], None)
        try:
            state = read_json(self.folder / _STATE)
            self._compare(state["settings"])
            self._digests = dict(state["files"])
            epoch, best_epoch = int(state["epoch"]), state["best_epoch"]
            weights, moments = self._read("weights", epoch), self._read("optimiser", epoch)
            best = None if best_epoch is None else self._read("best", int(best_epoch))
            history = list(state["history"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            self._digests = {}
            warnings.warn(
                f"The checkpoint in {self.folder} is damaged ({error}); the training starts afresh.", stacklevel=3
            )
            return SavedState([], None)
        model.load_state_dict(weights)
        _load_moments(optimiser, moments)
        return SavedState(history, best)

    def save(
        self,
        history: list[Row],
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        best_epoch: int | None,
        best: dict[str, Tensor] | None,
    ) -> None:
        """Write the state after the last epoch of `history`, then remove the one before."""
        epoch = len(history)
        self._write("weights", epoch, copy_state(model))
        self._write("optimiser", epoch, _moments(optimiser))
        wanted = {_name("weights", epoch), _name("optimiser", epoch), _STATE}
        if best is not None and best_epoch is not None:
            wanted.add(_name("best", best_epoch))
            if best_epoch == epoch or _name("best", best_epoch) not in self._digests:
                self._write("best", best_epoch, best)
        self._digests = {name: digest for name, digest in self._digests.items() if name in wanted}
        state = {
            "epoch": epoch,
            "best_epoch": best_epoch,
            "settings": self.settings,
            "files": self._digests,
            "history": history,
        }
        write_json_sealed(self.folder / _STATE, state)
        for path in self.folder.iterdir():
            if path.name not in wanted and _TENSORS.fullmatch(path.name):
                path.unlink()

    def _compare(self, saved: Mapping[str, Any]) -> None:
        changed = [key for key in self.settings if saved.get(key) != self.settings[key]]
        if changed:
            detail = ", ".join(f"{key} {saved.get(key)!r} there, {self.settings[key]!r} now" for key in changed)
            raise UserError(
                f"The checkpoint in {self.folder} belongs to another training ({detail}); name another folder, or pass "
                "resume=False to start afresh there."
            )

    def _write(self, kind: str, epoch: int, tensors: dict[str, Tensor]) -> None:
        content = save(tensors)
        write_bytes(self.folder / _name(kind, epoch), content)
        self._digests[_name(kind, epoch)] = digest_of(content)

    def _read(self, kind: str, epoch: int) -> dict[str, Tensor]:
        name = _name(kind, epoch)
        content = (self.folder / name).read_bytes()
        if digest_of(content) != self._digests[name]:
            raise Damaged(f"{name} does not hold what was written")
        return dict(load(content))


def copy_state(model: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers of `model` as contiguous copies on the processor, which is what safetensors needs."""
    return {
        name: tensor.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)
        for name, tensor in model.state_dict().items()
    }


def _name(kind: str, epoch: int) -> str:
    return f"{kind}-{epoch:05d}.safetensors"


def _moments(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{number}.{key}": value.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)
        for number, entries in optimiser.state_dict()["state"].items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def _load_moments(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        parameter = parameters[int(number)]
        # The memory layout of the parameter: another one could round differently than the uninterrupted run.
        laid_out = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
        state.setdefault(int(number), {})[key] = laid_out.detach()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
