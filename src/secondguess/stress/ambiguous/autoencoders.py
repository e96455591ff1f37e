"""Train many two-class regularised adversarial autoencoders (rAAEs) as one computation.

For a batch of m images x with classes y in {c1, c2}, three steps in this order, each with an Adam of its own:

1. reconstruction   min over E, D   mean (x - D(E(x)))^2
2. discriminator    min over Q      [BCE(Q(z, c), 1) + BCE(Q(E(x), y), 0)] / 2m,   half of z ~ p(z|c1), half ~ p(z|c2)
3. generator        min over E      BCE(Q(E(x), y), 1) / m

with the prior p(z|c1) = N((-3, 0), I), p(z|c2) = N((3, 0), I). The divisions by m and 2m on top of the batch mean are
the authors'; they make the adversarial gradients so small that Adam's epsilon (1e-7, Keras' default) matters, so they
are kept. But the size m of the last batch of an epoch is whatever is left: 7 images of the digits 1 and 7, whose
adversarial gradients are then 143 times those of a full batch, so that Adam's second moments shrink every other step
and the discriminator is left too strong. So all steps are divided by the size of a full batch; `by_own_size` divides
each by its own, as the authors' code does.

Source: Weiss, García Gómez, Tonella, "Generating and detecting true ambiguity" (Empirical Software Engineering, 2023).
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from secondguess.contracts.sealed import metadata, read_tensors, seal_tensors
from secondguess.devices import isolated_rng, seed_rng
from secondguess.files import write_bytes
from secondguess.stress.ambiguous.networks import LATENT, Raae

__all__ = ["CENTRE", "Member", "RaaeFleet"]

CENTRE = 3.0  # the prior of the two classes: unit Gaussians around (-3, 0) and (3, 0)
EPSILON = 1e-7
State = dict[str, Tensor]


@dataclass(frozen=True)
class Member:
    """One autoencoder of a fleet: its two classes and which try it is.

    Attributes:
        pair: (c1, c2) with c1 < c2.
        number: counts the autoencoders of a pair.
        seed: of its initial weights and of the order of its images.
    """

    pair: tuple[int, int]
    number: int
    seed: int


class RaaeFleet:
    """Autoencoders for pairs of classes, stacked: every tensor has a leading axis for the M members.

    Args:
        members: which autoencoders; all share the architecture.
        shape: (C, H, W) of the images.
        codes: width of the one-hot class: 2 (which of the pair), or the number of all classes.
        device: where to compute.
    """

    def __init__(
        self, members: Sequence[Member], shape: tuple[int, int, int], codes: int, device: torch.device
    ) -> None:
        self.members, self.codes, self.device = list(members), codes, device
        models = [Raae(shape, codes, member.seed).eval() for member in members]
        self.template = Raae(shape, codes, 0).to("meta")
        self.parts: dict[str, State] = {}
        for part in ("encoder", "decoder", "discriminator"):
            parameters, _ = stack_module_state([getattr(model, part) for model in models])
            self.parts[part] = {name: value.detach().to(device).requires_grad_() for name, value in parameters.items()}

    def __len__(self) -> int:
        return len(self.members)

    def only(self, index: int) -> RaaeFleet:
        """One of the members, as a fleet of its own that shares its weights."""
        one = copy.copy(self)
        one.members = [self.members[index]]
        one.parts = {
            part: {name: value[index : index + 1] for name, value in state.items()}
            for part, state in self.parts.items()
        }
        return one

    def encode(self, images: Tensor) -> Tensor:
        """Latent points (M, n, 2) of images (M, n, C, H, W), without dropout."""
        return self._apply("encoder", images)

    def decode(self, z: Tensor) -> Tensor:
        """Images (M, n, C, H, W) of latent points (M, n, 2), without dropout."""
        return self._apply("decoder", z)

    def discriminate(self, z: Tensor, which: Tensor) -> Tensor:
        """Logits (M, n) of the latent points (M, n, 2) for the first (0) or second (1) class of the pair, (M, n)."""
        return self._apply("discriminator", torch.cat([z, self._code(which)], dim=-1)).squeeze(-1)

    def class_logits(self, z: Tensor) -> Tensor:
        """The discriminator's logits (M, n, 2) of latent points for both classes."""
        which = torch.zeros(z.shape[:2], dtype=torch.long, device=z.device)
        return torch.stack([self.discriminate(z, which), self.discriminate(z, which + 1)], dim=-1)

    def prior(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` points of the prior for every member, half per class: z (M, count, 2) and which class (M, count)."""
        which = (torch.arange(count, device=self.device) >= count // 2).long().expand(len(self), count)
        z = torch.randn(len(self), count, LATENT, device=self.device)
        z[..., 0] += CENTRE * (2 * which - 1)
        return z, which

    def fit(
        self,
        images: Tensor,
        rows: Sequence[NDArray[np.int64]],
        which: Sequence[NDArray[np.int64]],
        *,
        epochs: int = 80,
        batch_size: int = 1000,
        seed: int = 0,
        by_own_size: bool = False,
        after_epoch: Callable[[int, int], None] | None = None,
    ) -> None:
        """Train all members, which must take the same number of steps per epoch.

        Args:
            images: (n, C, H, W) on the device.
            rows: for each member, the positions of its images.
            which: for each member, 0 or 1 for each of these: first or second class of its pair.
            epochs: 80 in the paper.
            batch_size: 1,000 in the paper; a last, smaller batch is used too.
            seed: of prior points and dropout.
            by_own_size: divide the adversarial losses by the size of each batch rather than of a full one.
            after_epoch: called with (epochs done, epochs).
        """
        optimisers = {
            "reconstruction": torch.optim.Adam(self._leaves("encoder", "decoder"), lr=1e-3, eps=EPSILON),
            "discriminator": torch.optim.Adam(self._leaves("discriminator"), lr=1e-3, eps=EPSILON),
            "generator": torch.optim.Adam(self._leaves("encoder"), lr=1e-3, eps=EPSILON),
        }
        full = torch.tensor([min(len(mine), batch_size) for mine in rows], device=self.device)
        with isolated_rng(self.device), torch.enable_grad():
            for epoch in range(epochs):
                seed_rng(_mix(seed, epoch), self.device)
                for chosen, classes, weights in self._batches(rows, which, batch_size, epoch):
                    divisor = weights.sum(dim=1) if by_own_size else full
                    self._step(images[chosen], classes, weights, divisor, optimisers)
                if after_epoch:
                    after_epoch(epoch + 1, epochs)

    def save(self, path: Path) -> None:
        """Write the weights of all members to one `.safetensors` file, atomically."""
        from safetensors.torch import save

        tensors = {f"{part}/{name}": value.detach().cpu().contiguous() for part, name, value in self._named()}
        write_bytes(path, seal_tensors(save(tensors, metadata={"members": self._signature()})))

    def load(self, path: Path) -> bool:
        """Read weights that `save` has written for just these members; False if there are none."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        if not path.exists():
            return False
        try:
            content = read_tensors(path)
            if metadata(content).get("members") != self._signature():
                return False
            found = load(content)
        except (OSError, ValueError, SafetensorError) as error:
            warnings.warn(f"{path} is damaged ({error}); its networks are trained again.", stacklevel=2)
            return False
        with torch.no_grad():
            for part, name, value in self._named():
                value.copy_(found[f"{part}/{name}"])
        return True

    def _named(self) -> Iterator[tuple[str, str, Tensor]]:
        for part, state in self.parts.items():
            for name, value in state.items():
                yield part, name, value

    def _signature(self) -> str:
        shapes = [[part, name, list(value.shape)] for part, name, value in self._named()]
        return json.dumps([[list(member.pair), member.number, member.seed] for member in self.members] + shapes)

    def _step(
        self,
        x: Tensor,
        y: Tensor,
        weights: Tensor,
        divisor: Tensor,
        optimisers: Mapping[str, torch.optim.Optimizer],
    ) -> None:
        """The three updates for one batch: x (M, m, C, H, W), y and weights (M, m), divisor (M,).

        Weight 0 marks padding; the adversarial losses are divided by the divisor, on top of their mean.
        """
        sizes = weights.sum(dim=1)

        def mean(values: Tensor) -> Tensor:
            return (values * weights).sum(dim=1) / sizes

        reconstructed = self._apply("decoder", self._apply("encoder", x, train=True), train=True)
        loss = mean((x - reconstructed).square().flatten(2).mean(dim=2)).sum()
        _update(optimisers["reconstruction"], loss)

        with torch.no_grad():
            fake = self._apply("encoder", x, train=True)
        real, classes = self.prior(x.shape[1])
        on_real = self._judge(real, classes, 1.0).mean(dim=1)
        on_fake = mean(self._judge(fake, y, 0.0))
        _update(optimisers["discriminator"], ((on_real + on_fake) / (2 * divisor)).sum())

        fooled = mean(self._judge(self._apply("encoder", x, train=True), y, 1.0))
        _update(optimisers["generator"], (fooled / divisor).sum())

    def _judge(self, z: Tensor, which: Tensor, target: float) -> Tensor:
        """Cross-entropy (M, n) of the discriminator's logits with `target`, dropout on."""
        logits = self._apply("discriminator", torch.cat([z, self._code(which)], dim=-1), train=True).squeeze(-1)
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, target), reduction="none")

    def _code(self, which: Tensor) -> Tensor:
        """The one-hot class (M, n, codes): which of the two, or which of all classes."""
        if self.codes == 2:
            return one_hot(which, 2).float()
        pairs = torch.tensor([member.pair for member in self.members], device=which.device)
        return one_hot(pairs.gather(1, which), self.codes).float()

    def _apply(self, part: str, inputs: Tensor, *, train: bool = False) -> Tensor:
        module = getattr(self.template, part).train(train)

        def one(state: State, x: Tensor) -> Tensor:
            output: Tensor = functional_call(module, state, (x,))
            return output

        result: Tensor = vmap(one, randomness="different")(self.parts[part], inputs)
        return result

    def _leaves(self, *parts: str) -> list[Tensor]:
        return [tensor for part in parts for tensor in self.parts[part].values()]

    def _batches(
        self, rows: Sequence[NDArray[np.int64]], which: Sequence[NDArray[np.int64]], size: int, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One epoch: every image of every member once, in its own order; last batches are padded to one width."""
        orders = [
            np.random.default_rng([member.seed, epoch]).permutation(len(mine))
            for member, mine in zip(self.members, rows, strict=True)
        ]
        for start in range(0, max(map(len, rows)), size):
            parts = [order[start : start + size] for order in orders]
            width = max(map(len, parts))
            padded = [np.pad(part, (0, width - len(part)), mode="edge") for part in parts]
            chosen = np.stack([mine[part] for mine, part in zip(rows, padded, strict=True)])
            classes = np.stack([mine[part] for mine, part in zip(which, padded, strict=True)])
            weights = np.stack([np.arange(width) < len(part) for part in parts]).astype(np.float32)
            yield (
                torch.from_numpy(chosen).to(self.device),
                torch.from_numpy(classes).to(self.device),
                torch.from_numpy(weights).to(self.device),
            )


def _update(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimiser.step()


def _mix(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
