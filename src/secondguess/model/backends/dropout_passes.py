"""Passes of a torch module with its dropout layers on, for one batch of images.

The masks of pass s are seeded by (seed, s, which dropout call) alone, so pass s is the same however many passes are
requested. The layers before the first dropout return the same in every pass. Where the module allows, they are
therefore run once: the first dropout layer that is reached turns its b rows into one copy of them for every pass, each
under a mask of its own, and only the rest of the module works on all of them. Where something goes around a dropout
layer (a residual connection, a reshape to a fixed batch size), the module is run once for every pass instead. Which of
the two it is, is found out once for each shape of images: with nothing dropped, every copy must give what the plain
pass gives.

Memory: the copies are made for as many passes at a time as keep the widest output after the first dropout below
64 MiB, or for one pass, if that alone is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from secondguess.devices import isolated_rng, seed_rng
from secondguess.errors import UserError

__all__ = ["DropoutPasses", "dropouts"]

Run = Callable[[torch.Tensor], torch.Tensor]
WIDEST_BYTES = 64 << 20
PROBES, COPIES = 2, 2


def dropouts(module: nn.Module) -> list[_DropoutNd]:
    """The dropout layers inside a module."""
    return [part for part in module.modules() if isinstance(part, _DropoutNd)]


class DropoutPasses:
    """Passes with dropout over a module that is in eval mode.

    Args:
        module: the module, with dropout layers inside.
        run: calls it on a tensor (b, C, H, W) and returns its raw output (b, K).
        device: where it runs.
    """

    def __init__(self, module: nn.Module, run: Run, device: torch.device) -> None:
        self.module, self.run, self.device = module, run, device
        self._widest: dict[tuple[int, ...], int | None] = {}

    def sample(self, images: torch.Tensor, count: int, seed: int) -> torch.Tensor:
        """Raw outputs (count, b, K) of `count` passes over images (b, C, H, W); the global random state is kept."""
        with torch.inference_mode(), isolated_rng(self.device):
            widest = self._widest_after(images)
            if widest is None:
                return torch.stack([self._alone(images, number, seed) for number in range(count)])
            step = max(1, WIDEST_BYTES // (widest * len(images)))
            groups = [range(start, min(start + step, count)) for start in range(0, count, step)]
            return torch.cat([self._together(images, group, seed) for group in groups])

    def _alone(self, images: torch.Tensor, number: int, seed: int) -> torch.Tensor:
        """Pass `number`, through the whole module."""

        def drop(layer: _DropoutNd, fed: torch.Tensor, call: int) -> torch.Tensor:
            return self._dropped(layer, fed, _mixed(seed, call, number))

        with _hooked(self.module, drop):
            return self.run(images)

    def _together(self, images: torch.Tensor, numbers: range, seed: int) -> torch.Tensor:
        """The passes `numbers` at once, (passes, b, K), the rows multiplied at the first dropout."""
        rows = len(images)

        def drop(layer: _DropoutNd, fed: torch.Tensor, call: int) -> torch.Tensor:
            own = zip(_by_pass(fed, rows, len(numbers)), numbers, strict=True)
            return torch.cat([self._dropped(layer, one, _mixed(seed, call, number)) for one, number in own])

        with _hooked(self.module, drop):
            output = self.run(images)
        return output.reshape(len(numbers), rows, *output.shape[1:])

    def _dropped(self, layer: _DropoutNd, fed: torch.Tensor, seed: int) -> torch.Tensor:
        """The output of the layer with dropout on."""
        seed_rng(seed, self.device)
        if type(layer) is nn.Dropout and layer.p < 1 and fed.device.type == "cpu" and fed.dtype == torch.float32:
            # The same distribution, but torch draws Bernoulli numbers slowly on a processor.
            return torch.rand(fed.shape).ge_(layer.p).mul_(fed).mul_(1 / (1 - layer.p))
        layer.training = True
        try:
            return layer.forward(fed.clone() if layer.inplace else fed)
        finally:
            layer.training = False

    def _widest_after(self, images: torch.Tensor) -> int | None:
        """Bytes per row of the widest output after the first dropout; None if rows cannot be multiplied there."""
        shape = tuple(images.shape[1:])
        if shape not in self._widest:
            noise = np.random.default_rng(0).random((PROBES, *shape), dtype=np.float32)
            probe = torch.cat([images[:PROBES], torch.from_numpy(noise).to(images)])
            plain = self._plain(probe)
            if _close(plain, plain.roll(1, 0)):  # exchanged rows would go unnoticed: try again next time
                return None
            self._widest[shape] = self._multiplied(probe, plain)
        return self._widest[shape]

    def _plain(self, probe: torch.Tensor) -> torch.Tensor:
        """The output (p, K) for the probe images with nothing dropped; an error if no dropout layer is reached."""
        reached: list[int] = []

        def note(_layer: _DropoutNd, fed: torch.Tensor, call: int) -> torch.Tensor:
            reached.append(call)
            return fed

        with _hooked(self.module, note):
            plain = self.run(probe)
        if not reached:
            raise UserError(
                "The model has dropout layers, but a forward pass goes through none of them, so all its samples would "
                "be the same; use supervisors that need no dropout."
            )
        return plain

    def _multiplied(self, probe: torch.Tensor, plain: torch.Tensor) -> int | None:
        """Multiply the rows of the probe with nothing dropped: None if that does not give `plain` again and again."""
        rows, sizes = COPIES * len(probe), [1]

        def note(output: object) -> None:
            if isinstance(output, torch.Tensor) and output.ndim and len(output) == rows:
                sizes.append(output[0].numel() * output.element_size())

        def multiply(_layer: _DropoutNd, fed: torch.Tensor, _call: int) -> torch.Tensor:
            copies = torch.cat(_by_pass(fed, len(probe), COPIES))
            note(copies)
            return copies

        handles = [
            part.register_forward_hook(lambda _module, _inputs, output: note(output)) for part in self.module.modules()
        ]
        try:
            with _hooked(self.module, multiply):
                copies = self.run(probe)
        except (UserError, RuntimeError, ValueError, IndexError, AssertionError):
            return None
        finally:
            for handle in handles:
                handle.remove()
        return max(sizes) if _close(copies, torch.cat([plain] * COPIES)) else None


def _by_pass(fed: torch.Tensor, rows: int, passes: int) -> list[torch.Tensor]:
    """The input of a dropout layer for each pass: shared by all before rows were multiplied, its own part after."""
    if len(fed) == rows:
        return [fed] * passes
    if len(fed) != rows * passes:
        raise ValueError(f"a dropout layer is fed {len(fed)} rows for {rows} images in {passes} passes")
    return list(torch.split(fed, rows))


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal up to the rounding of a matrix product in another order."""
    if found.shape != expected.shape:
        return False
    return torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def _mixed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def _hooked(module: nn.Module, drop: Callable[[_DropoutNd, torch.Tensor, int], torch.Tensor]) -> Iterator[None]:
    """Let `drop(layer, input, number of the call)` say what dropout layers return; the layers are in eval mode."""
    calls = 0

    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        assert isinstance(layer, _DropoutNd)
        result = drop(layer, inputs[0] if inputs else output, calls - 1)
        if layer.inplace and result.shape == output.shape:
            return output.copy_(result)  # code that relies on the layer writing into its input finds it written
        return result

    handles = [layer.register_forward_hook(hook) for layer in dropouts(module)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
