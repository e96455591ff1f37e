"""A torch module that is run many times on few images, with the same layers recorded each time.

The recorder runs a copy of the module with weights of its own, so that neither its hooks nor its eval mode are seen
from outside and later steps of a training do not change half of it; on the processor the copy keeps its convolutions in
channels-last order, in which torch runs a few images faster. A module that cannot be copied is run itself.

Where torch can trace it, what runs is the frozen trace, which does without the Python code of the module and of the
hooks and joins batch norms with convolutions. A trace follows one path through the code; where the path may depend on
the images, torch says so, and the module itself is run. So it is where the trace gives other numbers on images that it
was not made with.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from secondguess.errors import UserError
from secondguess.model.backends.base import Array, Recorder
from secondguess.model.backends.torch_module import INPUT, leaves, to_numpy

if TYPE_CHECKING:
    from secondguess.model.backends.torch_module import TorchBackend

__all__ = ["TorchRecorder"]

Run = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
TOLERANCE = 1e-5  # of what a trace gives


class TorchRecorder(Recorder):
    """Runs a module in eval mode; each thread keeps its own recordings.

    Args:
        backend: whose module is run.
        layers: as `TorchBackend.forward` names them.
        shape: (C, H, W) of the images.
    """

    _backend: TorchBackend

    def __init__(self, backend: TorchBackend, layers: Sequence[str], shape: tuple[int, ...]) -> None:
        super().__init__(backend, layers, shape)
        self._backend, self._whole = backend, _Recording(backend, self._layers)
        self._device = backend.device
        self._run: Run = _traced(self._whole, shape, self._device) or self._whole

    def __call__(self, images: Array) -> tuple[Array, dict[str, Array]]:
        """The raw output, and what each layer gave, of (n, C, H, W) images."""
        shared = self._whole.module is self._backend.module
        with torch.inference_mode(), self._backend.evaluating() if shared else nullcontext():
            inputs = torch.from_numpy(images)
            inputs = inputs if self._device.type == "cpu" else inputs.to(self._device)
            try:
                output, *recorded = self._run(inputs)
            except RuntimeError:
                if self._run is self._whole:
                    raise
                output, *recorded = self._whole(inputs)  # which raises the proper error
        return _array(output), dict(zip(self._layers, map(_array, recorded), strict=True))

    def close(self) -> None:
        """Take the hooks away."""
        self._whole.close()


class _Recording(nn.Module):
    """From images to the raw output and what the layers gave, by hooks."""

    def __init__(self, backend: TorchBackend, layers: Sequence[str]) -> None:
        super().__init__()
        self._backend, self._layers = backend, tuple(layers)
        self.module = _copy(backend.module, backend.device).eval()
        self._seen = threading.local()
        parts = leaves(self.module)
        names = {layer: layer.removesuffix(INPUT).partition("#")[0] for layer in layers}
        if unknown := [layer for layer, name in names.items() if name not in parts]:
            raise backend.without_layers(unknown, list(parts))
        self._hooks = [
            parts[name].register_forward_hook(
                self._hook(name, frozenset(layer for layer, own in names.items() if own == name))
            )
            for name in dict.fromkeys(names.values())
        ]

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The raw output, and the layers in their order."""
        recorded: dict[str, torch.Tensor] = {}
        self._seen.recorded, self._seen.calls = recorded, {}
        output = self._backend.run(images, self.module)
        self._seen.recorded = None
        if len(recorded) < len(self._layers):
            missing = [layer for layer in self._layers if layer not in recorded]
            known = [one.name for one in self._backend.layers(to_numpy(images[:1]))]
            raise self._backend.without_layers(missing, known)
        return output, *(recorded[layer] for layer in self._layers)

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
    try:
        copied = copy.deepcopy(module)
        return copied.to(memory_format=torch.channels_last) if convolves else copied  # type: ignore[call-overload]
    except Exception:  # a module may hold anything, locks and generators included
        return module


def _traced(recording: _Recording, shape: tuple[int, ...], device: torch.device) -> Run | None:
    """A trace that computes the same without Python, or None where there is none that is known to."""
    if recording.module is recording._backend.module:
        return None  # a shared module may change
    noise = np.random.default_rng(0)
    probes = [torch.from_numpy(noise.random((n, *shape), dtype=np.float32)).to(device) for n in (2, 1, 3)]
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated, but nothing else starts as quickly
            warnings.simplefilter("error", torch.jit.TracerWarning)  # type: ignore[attr-defined]
            traced = torch.jit.trace(recording, probes[0], check_trace=False)  # type: ignore[no-untyped-call]
            run: Run = torch.jit.freeze(traced.eval()).forward
            for probe in probes:
                for ours, theirs in zip(run(probe), recording(probe), strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
    except UserError:
        raise
    except Exception:  # the code of a model may raise anything while it is traced
        return None
    return run


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.numpy() if tensor.dtype is torch.float32 and tensor.device.type == "cpu" else to_numpy(tensor)
    return array
