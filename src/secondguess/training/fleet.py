"""Train many models of one architecture, each with its own initialisation, its own order and its own data.

Ensembles, ambiguity estimators and re-training studies need dozens of small models. One after another they
leave a GPU idle; stacked into one computation (see `secondguess.training._stacked`) they cost little more
than one.

What member i is depends on (seed, i) alone: the seed given to `make_model` for it and the order of its
batches. So the loop and the stack give the same members up to rounding, unless the architecture has dropout,
whose masks differ.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from secondguess.contracts.sealed import read_json, read_tensors, seal_tensors, write_json_sealed
from secondguess.devices import isolated_rng, pick_device
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes
from secondguess.progress import Progress, shown
from secondguess.training._examples import (
    Examples,
    Images,
    check_schedule,
    derive_seed,
    epoch_batches,
)
from secondguess.training._optimiser import Decay, Optimisation, OptimiserName
from secondguess.training._run import Run, deterministic, laid_out
from secondguess.training._stacked import Stack, normalises

__all__ = ["Fleet", "train_fleet"]

Mode = Literal["auto", "stacked", "loop"]

STACK_LIMIT = 64  # members in one computation, so that their activations fit into a GPU's memory
DENSE_LIMIT = 50_000  # parameters up to which a stack of dense nets beats the loop on a processor
_WEIGHTS, _ABOUT = "fleet.safetensors", "fleet.json"


class Fleet(Sequence[nn.Module]):
    """Trained models of one architecture: `fleet[i]` is a module in evaluation mode on the processor.

    Args:
        members: the models.
        losses: training loss of every member after every epoch, (epochs, members).
    """

    def __init__(self, members: Sequence[nn.Module], losses: NDArray[np.float64]) -> None:
        if not members:
            raise UserError("A fleet needs at least one member.")
        self._members = [member.eval() for member in members]
        self.losses = losses

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, index: int) -> nn.Module: ...
    @overload
    def __getitem__(self, index: slice) -> list[nn.Module]: ...
    def __getitem__(self, index: int | slice) -> nn.Module | list[nn.Module]:
        return self._members[index]

    def predict(
        self,
        images: Images,
        *,
        batch_size: int = 256,
        device: str | torch.device = "auto",
        mode: Mode = "auto",
    ) -> NDArray[np.float32]:
        """The logits of every member for the same images.

        Args:
            images: n images, float32 (n, C, H, W) in [0, 1].
            batch_size: images at a time.
            device: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` or `"mps"`.
            mode: `"stacked"` or `"loop"`; `"auto"` stacks on a CUDA device only.

        Returns:
            float32 (members, n, K).
        """
        where = pick_device(device)
        examples = Examples(images, np.zeros(len(images), np.int64), where)
        stacked = mode == "stacked" or (mode == "auto" and where.type == "cuda")
        with torch.no_grad(), deterministic():
            compute = Stack(self._members, where).logits if stacked else _each_alone(self._members, where)
            batches = np.split(np.arange(len(examples)), range(batch_size, len(examples), batch_size))
            parts = [compute(examples.images_at(batch)).cpu().numpy() for batch in batches]
        return np.concatenate(parts, axis=1)

    def save(self, folder: str | Path) -> None:
        """Write all weights and the losses into `folder`."""
        folder = make_folder(folder)
        states = [member.state_dict() for member in self._members]
        stacked = {name: torch.stack([state[name].cpu() for state in states]) for name in states[0]}
        content = save({name: tensor.contiguous() for name, tensor in stacked.items()})
        write_bytes(folder / _WEIGHTS, seal_tensors(content))
        write_json_sealed(folder / _ABOUT, {"members": len(self), "losses": self.losses.tolist()})

    @classmethod
    def load(cls, folder: str | Path, make_model: Callable[[int], nn.Module]) -> Fleet:
        """Read a fleet written by `save`; `make_model` builds the architecture, its weights are replaced."""
        folder = Path(folder)
        try:
            about = read_json(folder / _ABOUT)
            stacked = load(read_tensors(folder / _WEIGHTS))
            members = [make_model(number) for number in range(int(about["members"]))]
            for number, member in enumerate(members):
                member.load_state_dict({name: tensor[number] for name, tensor in stacked.items()})
            return cls(members, np.asarray(about["losses"], dtype=np.float64))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(f"{folder} holds no fleet that can be read ({type(error).__name__}: {error}).") from error
        except (RuntimeError, IndexError) as error:
            raise UserError(
                f"The fleet in {folder} is of another architecture than make_model builds; pass the function it was "
                "trained with."
            ) from error


def train_fleet(
    make_model: Callable[[int], nn.Module],
    count: int,
    images: Images,
    labels: NDArray[Any],
    *,
    subsets: Sequence[NDArray[Any]] | None = None,
    epochs: int = 15,
    batch_size: int = 128,
    lr: float = 1e-3,
    optimiser: OptimiserName = "adam",
    eps: float = 1e-7,
    momentum: float = 0.0,
    nesterov: bool = False,
    rho: float | None = None,
    weight_decay: float = 0.0,
    decay: Decay = "all",
    halve_every: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    mode: Mode = "auto",
    replay: bool = True,
    progress: Progress | None = None,
) -> Fleet:
    """Train `count` models of one architecture.

    Args:
        make_model: builds a member with fresh weights from a seed, for example
            `lambda seed: zoo.make("simple_cnn", seed=seed)`; all members must have the same layers.
        count: number of members.
        images: n images; `images[index]` gives float32 (m, C, H, W) in [0, 1].
        labels: int (n,), or soft (n, K).
        subsets: for every member the indices of the images it may see; all of them without it. Every member
            makes the steps of its own subset only: members that differ in the number of steps per epoch
            (with batch normalisation, in the size of the subset) are trained in separate stacks.
        epochs: passes of every member over its images.
        batch_size: images per step of a member; a single image left over at the end joins the batch before it.
        lr: learning rate; this and what follows up to `halve_every` are explained in `train`.
        optimiser: `"adam"`, `"sgd"`, `"adadelta"` or `"rmsprop"`.
        eps: the term in the denominator of the adaptive optimisers.
        momentum: of `"sgd"` and `"rmsprop"`.
        nesterov: whether the momentum of `"sgd"` is Nesterov's.
        rho: memory of `"adadelta"` and `"rmsprop"`.
        weight_decay: added to the gradient, times the weight.
        decay: `"all"`, `"kernels"` or `"convolutions"`.
        halve_every: halve the learning rate each time this number of epochs has passed.
        seed: the same seed gives the same fleet on the same device; torch's global random state is left
            alone.
        device: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` or `"mps"`.
        mode: `"stacked"` trains the members as one computation, `"loop"` one after another. `"auto"` stacks
            on a CUDA device; elsewhere only models of at most 50,000 parameters without convolutions, because
            a stack of anything larger is slower than the loop there. A member that cannot be stacked with any other
            trains alone.
        replay: on a CUDA device, record a step once and replay it, so that the processor need not launch every kernel.
            False for layers that choose something in Python anew on every step, such as the order of blocks by Python's
            random numbers, or read numbers back from the device; torch's own layers do neither.
        progress: where to report the epochs of all members; by default a bar in a notebook.

    Returns:
        The members in order, on the processor.

    Raises:
        UserError: for data that cannot be trained on, or a member whose loss is no longer finite.
    """
    optimisation = Optimisation(optimiser, lr, eps, momentum, nesterov, rho, weight_decay, decay, halve_every)
    check_schedule(epochs, batch_size, seed)
    if count < 1:
        raise UserError(f"A fleet of {count} was asked for; it needs at least one member.")
    where = pick_device(device)
    replay = replay and where.type == "cuda"
    whole = Examples(images, labels, where)
    parts = _parts(len(whole), subsets, count)
    seeds = [derive_seed(seed, member) % 2**32 for member in range(count)]
    losses = np.empty((epochs, count))
    done = 0

    def record(group: list[int], epoch: int, values: NDArray[np.float64]) -> None:
        nonlocal done
        for member, value in zip(group, values, strict=True):
            if not np.isfinite(value):
                raise whole.subset(parts[member]).diverged(epoch + 1, lr, who=f"member {member}")
        losses[epoch, group] = values
        done += len(group)
        advance(done, count * epochs)

    task = shown(progress).task(f"Training {count} models", count * epochs)
    with task as advance, isolated_rng(where), deterministic():
        models = [make_model(member_seed) for member_seed in seeds]
        _check_alike(models)
        whole.check_against(models[0].to(where))
        whole.check_learnable()
        for member, part in enumerate(parts):
            whole.subset(part).check_learnable(f"The labels of subset {member}")
        for group in _groups(models[0], parts, batch_size, _is_stacked(mode, where, models[0])):
            if len(group) > 1:
                stack = Stack([models[m].cpu() for m in group], where)
                pieces, orders = [parts[m] for m in group], [seeds[m] for m in group]
                report = partial(record, group)
                stack.fit(whole, pieces, orders, optimisation, batch_size, epochs, report, replay=replay)
                stack.write_back()
                continue
            (member,) = group
            with laid_out(models[member], where):
                alone = whole.subset(parts[member])
                run = Run(models[member], alone, None, optimisation, batch_size, seeds[member], None, replay=replay)
                for epoch in range(epochs):
                    record(group, epoch, np.array([run.epoch()["loss"]]))
    return Fleet([model.cpu() for model in models], losses)


def _parts(available: int, subsets: Sequence[NDArray[Any]] | None, count: int) -> list[NDArray[np.int64]]:
    """The indices of every member's images."""
    if subsets is None:
        return [np.arange(available)] * count
    if len(subsets) != count:
        raise UserError(f"There are {len(subsets)} subsets for {count} members; give one for every member.")
    parts = [np.asarray(subset) for subset in subsets]
    for member, part in enumerate(parts):
        if part.ndim != 1 or len(part) == 0 or not np.issubdtype(part.dtype, np.integer):
            raise UserError(f"Subset {member} must be a list of at least one whole-number index.")
        if part.min() < 0 or part.max() >= available:
            raise UserError(f"Subset {member} points outside the {available} images; use indices 0 to {available - 1}.")
    return [part.astype(np.int64) for part in parts]


def _check_alike(models: list[nn.Module]) -> None:
    shapes = [[(name, tensor.shape) for name, tensor in model.state_dict().items()] for model in models]
    if any(other != shapes[0] for other in shapes):
        raise UserError("make_model gives models of different layers; a fleet needs the same ones for every seed.")


def _groups(model: nn.Module, parts: list[NDArray[np.int64]], batch_size: int, stacked: bool) -> Iterator[list[int]]:
    """Members that are trained in one computation: they take equally many steps."""
    if not stacked:
        yield from ([member] for member in range(len(parts)))
        return
    by_steps: dict[int, list[int]] = defaultdict(list)
    for member, part in enumerate(parts):
        steps = len(part) if normalises(model) else len(epoch_batches(0, 0, len(part), batch_size))
        by_steps[steps].append(member)
    for members in by_steps.values():
        for start in range(0, len(members), STACK_LIMIT):
            yield members[start : start + STACK_LIMIT]


def _is_stacked(mode: Mode, device: torch.device, model: nn.Module) -> bool:
    """Whether to stack; on a processor only small dense networks train faster stacked."""
    if mode not in ("auto", "stacked", "loop"):
        raise UserError(f"mode is {mode!r}; use 'auto', 'stacked' or 'loop'.")
    if mode != "auto" or device.type == "cuda":
        return mode != "loop"
    convolves = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    return not convolves and sum(p.numel() for p in model.parameters()) <= DENSE_LIMIT


def _each_alone(members: list[nn.Module], device: torch.device) -> Callable[[Tensor], Tensor]:
    copies = [copy.deepcopy(member).to(device) for member in members]
    return lambda images: torch.stack([member(images) for member in copies])
