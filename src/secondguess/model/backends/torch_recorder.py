"""A torch module that is run many times on few images, with the same layers recorded each time.

The recorder runs a copy of the module, so that neither its hooks nor its eval mode are seen from outside, and on the
processor the copy keeps its convolutions in channels-last order, in which torch runs a few images faster. The copy
shares every parameter that does not change its order. A module that cannot be copied is run itself.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from secondguess.model.backends.base import Array, Recorder
from secondguess.model.backends.torch_module import INPUT, leaves, to_numpy

if TYPE_CHECKING:
    from secondguess.model.backends.torch_module import TorchBackend

__all__ = ["TorchRecorder"]


class TorchRecorder(Recorder):
    """Runs a module in eval mode; each thread keeps what it recorded to itself.

    Args:
        backend: whose module is run.
        layers: as `TorchBackend.forward` names them.
    """

    _backend: TorchBackend

    def __init__(self, backend: TorchBackend, layers: Sequence[str]) -> None:
        super().__init__(backend, layers)
        self._module = _copy(backend.module, backend.device).eval()
        self._device = backend.device
        self._seen = threading.local()
        parts = leaves(self._module)
        names = {layer: layer.removesuffix(INPUT).partition("#")[0] for layer in self._layers}
        if unknown := [layer for layer, name in names.items() if name not in parts]:
            raise backend.without_layers(unknown, list(parts))
        self._hooks = [
            parts[name].register_forward_hook(
                self._hook(name, frozenset(layer for layer, own in names.items() if own == name))
            )
            for name in dict.fromkeys(names.values())
        ]

    def __call__(self, images: Array) -> tuple[Array, dict[str, Array]]:
        """The raw output, and what each layer gave, of (n, C, H, W) images."""
        if self._module.training:  # somebody trains a module that could not be copied
            self._module.eval()
        recorded: dict[str, torch.Tensor] = {}
        self._seen.recorded, self._seen.calls = recorded, {}
        with torch.inference_mode():
            output = self._backend.run(torch.from_numpy(images).to(self._device), self._module)
        self._seen.recorded = None
        if len(recorded) < len(self._layers):
            missing = [layer for layer in self._layers if layer not in recorded]
            raise self._backend.without_layers(missing, [one.name for one in self._backend.layers(images[:1])])
        return to_numpy(output), {layer: to_numpy(recorded[layer]) for layer in self._layers}

    def close(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _hook(self, name: str, wanted: frozenset[str]) -> Any:
        """Records the calls of one module that are wanted, of which there may be several in a pass."""

        def hook(_module: nn.Module, fed: tuple[Any, ...], output: Any) -> None:
            recorded = getattr(self._seen, "recorded", None)
            if recorded is None or not isinstance(output, torch.Tensor) or output.ndim < 2:
                return
            calls = self._seen.calls
            count = calls[name] = calls.get(name, 0) + 1
            label = name if count == 1 else f"{name}#{count}"
            # An in-place layer after this one would overwrite what was seen.
            if label in wanted:
                recorded[label] = output.clone()
            if label + INPUT in wanted and fed and isinstance(fed[0], torch.Tensor):
                recorded[label + INPUT] = fed[0].clone()

        return hook


def _copy(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy for the recorder alone, or the module itself where that cannot be."""
    convolves = device.type == "cpu" and any(one.ndim == 4 for one in module.parameters())
    shared = {id(one): one for one in (*module.parameters(), *module.buffers()) if not (convolves and one.ndim == 4)}
    try:
        copied = copy.deepcopy(module, shared)
        return copied.to(memory_format=torch.channels_last) if convolves else copied  # type: ignore[call-overload]
    except Exception:  # a module holds whatever its author gave it, locks and generators included
        return module
