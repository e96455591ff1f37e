"""A `torch.nn.Module` as a model, observed with forward hooks."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import nn

from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.model.backends.base import (
    TORCH_VALUES,
    Array,
    Backend,
    Layer,
    Recorder,
    chosen_output,
    digest,
    first_line,
    foreign_code,
)
from secondguess.model.backends.differentiable import frozen
from secondguess.model.backends.dropout_passes import DropoutPasses, dropouts

__all__ = ["INPUT", "TorchBackend", "leaves", "to_numpy"]

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()  # not in what is pickled
_LOCKING = threading.Lock()
INTERNALS = frozenset(vars(nn.Module()))
LIGHTNING = ("lightning", "pytorch_lightning")
WHOLE = "(model)"  # the name of a module that has no parts
INPUT = "@input"  # after the name of a layer: what it is fed, rather than what it gives


class TorchBackend(Backend):
    """Runs a module in eval mode, without gradients, and leaves its training flags as they were.

    A layer is a leaf module. One that is called several times in a pass (a shared ReLU, say) is listed once for each
    call: `relu`, `relu#2`, `relu#3`.
    """

    kind = "A torch module"

    def __init__(self, module: nn.Module, *, device: str = "auto", output: int | str | None = None) -> None:
        self.output = output
        self.device = pick_device(device)
        self.values = TORCH_VALUES if self.device.type == "cpu" else None
        self.module = module.to(self.device)
        self._passes = DropoutPasses(self.module, self.run, self.device)

    @property
    def gives(self) -> frozenset[str]:
        """Everything; dropout only if the module holds dropout layers."""
        dropout = {"dropout"} if dropouts(self.module) else set()
        return frozenset({"probabilities", "traces", "gradients"} | dropout)

    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Run the module once and record the outputs of `layers`."""
        with torch.inference_mode(), self.evaluating(), self.recording(layers) as recorded:
            output = self.run(torch.from_numpy(images).to(self.device))
        if missing := [name for name in layers if name not in recorded]:
            known = [layer.name for layer in self.layers(images[:1])]
            raise self.without_layers(missing, known)
        return to_numpy(output), {name: to_numpy(recorded[name]) for name in layers}

    def recorder(self, layers: Sequence[str], shape: tuple[int, ...]) -> Recorder:
        """A copy of the module, prepared for few images; see `torch_recorder`."""
        from secondguess.model.backends.torch_recorder import TorchRecorder

        return TorchRecorder(self, layers, shape)

    def layers(self, probe: Array) -> list[Layer]:
        """The leaf modules that give one row per image, in the order in which they are called."""
        found: list[Layer] = []
        two = torch.from_numpy(probe).to(self.device).repeat(2, 1, 1, 1)

        def note(name: str, module: nn.Module, _fed: Any, output: torch.Tensor) -> None:
            if len(output) == len(two):
                weighted = any(True for _ in module.parameters())
                found.append(Layer(name, type(module).__name__, tuple(output.shape[1:]), weighted))

        with torch.inference_mode(), self.evaluating(), self._hooks(note):
            self.run(two)
        return found

    def penultimate(self, probe: Array) -> str:
        """The input of the last layer with weights; functions between the layers have no name of their own."""
        inputs = torch.from_numpy(probe).to(self.device)
        heads: list[tuple[str, bool]] = []

        def note(name: str, module: nn.Module, fed: Any, _output: torch.Tensor) -> None:
            if any(True for _ in module.parameters()):
                heads.append((name, fed is not inputs and isinstance(fed, torch.Tensor)))

        with torch.inference_mode(), self.evaluating(), self._hooks(note):
            self.run(inputs)
        head, has_layer_before = heads[-1] if heads else ("", False)
        if not has_layer_before:
            raise self.without_penultimate()
        return head + INPUT

    def sample(self, images: Array, count: int, seed: int) -> Array:
        """Run `count` passes with the dropout layers on and batch-norm in eval mode; see `dropout_passes`."""
        if not dropouts(self.module):
            raise UserError(
                "Dropout samples were asked for, but the model has no torch.nn.Dropout layer; "
                "use supervisors that need none, or a model with dropout."
            )
        with self.evaluating():
            output = self._passes.sample(torch.from_numpy(images).to(self.device), count, seed)
        return to_numpy(output).reshape(count, len(images), -1).swapaxes(0, 1)

    def differentiable(self, images: torch.Tensor) -> torch.Tensor:
        """Run the module once in eval mode, with gradients for the images alone."""
        with self.evaluating(), frozen(self.module):
            return self.run(images)

    def identity(self) -> str:
        """A digest of the weights, the structure and the source code of the module's classes."""
        parts: list[bytes | str] = [repr(self.module)]
        kinds = {kind for module in self.module.modules() for kind in type(module).__mro__}
        parts += sorted({_source(kind) for kind in kinds if kind.__module__ != "builtins"})
        tensors: dict[str, torch.Tensor] = dict(self.module.named_parameters())
        tensors |= dict(self.module.named_buffers())  # those that no checkpoint holds included
        for path, module in self.module.named_modules():
            machinery = _machinery(module)
            for name, value in sorted(vars(module).items()):
                if name in machinery:
                    continue
                if isinstance(value, torch.Tensor):
                    tensors[f"{path}.{name}"] = value
                elif _is_plain(value):
                    parts.append(f"{path}.{name}={value!r}")
        for name, value in tensors.items():
            array = value.detach().cpu().contiguous()
            parts += [name, str(array.dtype), str(tuple(array.shape)), _bytes(array)]
        return digest(*parts)

    def run(self, inputs: torch.Tensor, module: nn.Module | None = None) -> torch.Tensor:
        """The class scores (n, K) of normalised images on the module's device, in whatever mode the module is.

        Args:
            inputs: (n, C, H, W).
            module: a copy of the module to run in its place.
        """
        shape = tuple(inputs.shape[1:])
        try:
            with foreign_code("The model failed on images of shape", shape, passing=(RuntimeError, ValueError)):
                output = (module or self.module)(inputs)
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"The model cannot take images of shape {shape} (channels, height, width): {first_line(error)}"
            ) from error
        output = chosen_output(output, self.output, "The model")
        if not isinstance(output, torch.Tensor):
            raise UserError(
                f"The model returned {type(output).__name__} where one tensor (n, K) was expected; "
                "wrap it in a module that returns the class scores alone."
            )
        return output

    @contextmanager
    def recording(self, layers: Sequence[str]) -> Iterator[dict[str, torch.Tensor]]:
        """Record the outputs of the named layers in each `run` of the block."""
        recorded: dict[str, torch.Tensor] = {}
        if not layers:
            yield recorded
            return

        def note(name: str, _module: nn.Module, fed: Any, output: torch.Tensor) -> None:
            for label, value in ((name, output), (name + INPUT, fed)):
                if label in layers and isinstance(value, torch.Tensor):
                    # An in-place layer after this one would overwrite the recorded output.
                    recorded[label] = value.clone()

        with self._hooks(note, frozenset(name.removesuffix(INPUT).partition("#")[0] for name in layers)):
            yield recorded

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode, for one thread at a time; afterwards every module has its own flag back.

        Flags and hooks belong to the module, whoever holds it: another thread would record into this one's pass, or end
        its mode.
        """
        with _lock_of(self.module):
            before = [(module, module.training) for module in self.module.modules()]
            self.module.eval()
            try:
                yield
            finally:
                for module, training in before:
                    module.training = training

    @contextmanager
    def _hooks(self, note: Any, only: frozenset[str] | None = None) -> Iterator[None]:
        """Call `note(name, module, fed, output)` for each call of a leaf module (of those in `only`, if given)."""
        calls: dict[str, int] = {}

        def hook_for(name: str) -> Any:
            def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
                if isinstance(output, torch.Tensor) and output.ndim > 1:
                    calls[name] = calls.get(name, 0) + 1
                    label = name if calls[name] == 1 else f"{name}#{calls[name]}"
                    note(label, module, inputs[0] if inputs else None, output)

            return hook

        handles = [
            module.register_forward_hook(hook_for(name))
            for name, module in leaves(self.module).items()
            if only is None or name in only
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def leaves(module: nn.Module) -> dict[str, nn.Module]:
    """The modules without children, by the name under which their outputs are recorded."""
    return {name or WHOLE: one for name, one in module.named_modules() if not any(True for _ in one.children())}


def to_numpy(tensor: torch.Tensor) -> Array:
    """A float32 array in main memory."""
    array: Array = tensor.detach().to("cpu", torch.float32).numpy()
    return array


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _machinery(module: nn.Module) -> frozenset[str]:
    """Attributes that every module has, such as whether it is being trained, and those that a trainer sets."""
    for kind in type(module).__mro__:
        if kind.__name__ == "LightningModule" and kind.__module__.partition(".")[0] in LIGHTNING:
            empty = {name for name in ("_hparams",) if not vars(module).get(name)}  # made when it is first looked at
            return INTERNALS | vars(kind()).keys() | empty
    return INTERNALS


def _is_plain(value: Any) -> bool:
    """Whether the text of a value describes it completely, so that it can be part of a digest."""
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    return isinstance(value, bool | int | float | str | bytes | type(None))


def _source(kind: type) -> str:
    """The code of a module class: its name where it belongs to torch (the version is in the key), else its source."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith("torch."):
        return f"{name} {torch.__version__}"
    try:
        return f"{name} {inspect.getsource(kind)}"
    except (OSError, TypeError):  # typed at a prompt: no file to read
        codes = [value.__code__ for value in vars(kind).values() if inspect.isfunction(value)]
        return name + "".join(f"{code.co_code.hex()} {code.co_names} {_constants(code)}" for code in codes)


def _constants(code: CodeType) -> list[object]:
    """What a function holds besides its instructions; code within code has no text that stays the same."""
    return [_constants(value) if isinstance(value, CodeType) else value for value in code.co_consts]


def _lock_of(module: nn.Module) -> threading.RLock:
    """The lock of a module, one for all backends that run it."""
    with _LOCKING:
        return _LOCKS.setdefault(module, threading.RLock())
