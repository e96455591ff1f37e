"""Which device to compute on, networks compiled for it, and random numbers that leave the caller's own untouched."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from secondguess.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

__all__ = ["compile_network", "isolated_rng", "pick_device", "seed_rng"]


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device of a name, after checking that it is available.

    Args:
        device: `"auto"` takes the first CUDA device, else Apple's `mps`, else the processor; `"cpu"`,
            `"cuda"`, `"cuda:1"` and `"mps"` require that device.

    Raises:
        UserError: if the name means nothing or the device is not on this machine.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", 0)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"{device!r} is not a device; use 'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'.") from error
    if picked.type == "cpu":
        return torch.device("cpu")
    if picked.type == "cuda":
        index = picked.index or 0
        present = torch.cuda.device_count()
        if index >= present:
            raise UserError(
                f"Device {device} was asked for, but {present or 'no'} CUDA device(s) can be used here; "
                "use device='auto' or device='cpu'."
            )
        return torch.device("cuda", index)
    if picked.type == "mps":
        if not torch.backends.mps.is_available():
            raise UserError(
                "Device mps was asked for, but it is not available here; use device='auto' or device='cpu'."
            )
        return torch.device("mps")
    raise UserError(f"Device {device} is not supported; use 'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'.")


@contextmanager
def isolated_rng(device: str | torch.device = "cpu") -> Iterator[None]:
    """Give torch's global random states of the processor and of `device` back unchanged at the end of the block."""
    import torch

    device = torch.device(device)
    cpu_state = torch.get_rng_state()
    cuda_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    mps_state = torch.mps.get_rng_state() if device.type == "mps" else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state(cuda_state, device)
        if mps_state is not None:
            torch.mps.set_rng_state(mps_state)


def seed_rng(seed: int, device: str | torch.device = "cpu") -> None:
    """Seed torch's global generators of the processor and of `device`, and no other device's."""
    import torch

    device = torch.device(device)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def compile_network(network: nn.Module) -> Callable[..., Tensor]:
    """The network compiled for a GPU, anew for each size of its inputs; where PyTorch cannot do that, as it is.

    Triton calls a C compiler, which a slim image of a container has not. Networks then run more slowly, to the same
    results but for rounding, and a warning says so.
    """
    import torch

    if lacking := _lacking_to_compile():
        warnings.warn(f"Networks run uncompiled, which takes longer: PyTorch finds no {lacking}.", stacklevel=2)
        return network
    made: Callable[..., Tensor] = torch.compile(network, dynamic=False)
    return made


def _lacking_to_compile() -> str:
    """What compiling for a GPU needs and is not here, in words."""
    if importlib.util.find_spec("triton") is None:
        return "Triton"
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return "" if found else "C compiler (install gcc, or say where one is with CC)"
