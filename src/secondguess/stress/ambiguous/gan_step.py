"""One iteration of adversarial training, on the device from beginning to end.

Discriminator, then generator, each with noise of its own (Goodfellow et al. 2014, non-saturating):

    D:  mean softplus(-D(x)) + mean softplus(D(G(z)))           G:  mean softplus(-D(G(z)))

In stage 2 the generator's loss has a second part, A = `ambiguity_loss`, in one of three ways:

* `"sum"`, the paper's equation: one step on  L_G + alpha A;
* `"alternate"`, the authors' code: a step on A alone with the gradient clipped to norm alpha, then one on L_G clipped
  to norm 1, from the same noise. Alpha is then no weight but a threshold, and G takes two steps for one of D;
* `"guarded"`, ours: one step on both gradients at the images, that of A without the part that would make them fainter,
  and no longer than alpha times that of L_G (`gan_losses.py`).

The gradient of G is clipped to norm 1 in stage 1 too, that of D never. Adam with betas (0, 0.999). With alpha = 0
`"sum"` and `"guarded"` are stage 1, `"alternate"` is not: Adam's second moments decay on a gradient of zero.

Departure: real and generated images pass through D in one batch. D has no batch normalisation, so that this differs
from two passes only in the number of power iterations.

One Adam holds the parameters of both networks: it skips those without a gradient, so that it is two optimisers with one
state to save. On CUDA an iteration is recorded as a graph after three ordinary ones and then replayed, since at the
paper's batch size of 32 a processor cannot issue the kernels as fast as the device runs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.devices import compile_network
from secondguess.stress.ambiguous.gan_losses import Combine, LossName, ambiguity_loss, confusion, guarded
from secondguess.stress.ambiguous.gan_networks import Gan, to_unit

__all__ = ["Ambiguity", "GanRecipe", "Step", "adam"]

WARM = 3
MEASURED = ("discriminator", "generator", "ambiguity", "acd", "disagreement")


@dataclass(frozen=True)
class GanRecipe:
    """How both stages are trained.

    Attributes:
        batch_size: 32 in the paper.
        lr: of both networks; 2e-4 in the paper, 1e-3 for its X-ray images.
        clip: largest norm of the generator's gradient.
        precision: `"auto"` computes in bfloat16 on CUDA, with weights, losses and judges in float32; or `"float32"`.
        graphs: record an iteration as a CUDA graph.
        compiled: let PyTorch compile networks and judge on CUDA, which takes half a minute before the first epoch.
        repeatable: only algorithms that give the same result every time.
    """

    batch_size: int = 32
    lr: float = 2e-4
    clip: float = 1.0
    precision: Literal["auto", "float32"] = "auto"
    graphs: bool = True
    compiled: bool = False
    repeatable: bool = True


@dataclass(frozen=True)
class Ambiguity:
    """What stage 2 adds.

    Attributes:
        judge: images (n, C, H, W) in [0, 1] -> probabilities (M, n, K), frozen and differentiable.
        loss: which one.
        combine: with the generator's own.
        alpha: weight, or threshold of the gradient's norm, which is that of realism if guarded.
        variance: v.
    """

    judge: nn.Module
    loss: LossName = "agreement"
    combine: Combine = "sum"
    alpha: float = 1.0
    variance: float = 0.1


def adam(gan: Gan, recipe: GanRecipe, device: torch.device) -> torch.optim.Adam:
    """The optimiser of both networks."""
    on_cuda = device.type == "cuda"
    return torch.optim.Adam(
        gan.parameters(),
        lr=recipe.lr,
        betas=(0.0, 0.999),
        fused=on_cuda or None,
        capturable=on_cuda and recipe.graphs,
    )


class Step:
    """An iteration that can be repeated.

    Args:
        gan: the networks, on the device; the optimiser's state must be in place.
        optimiser: see `adam`.
        images: real images (n, C, H, W) in [-1, 1], on the device.
        recipe: how to train.
        ambiguity: what stage 2 adds; None for stage 1.
        classes: K, the length of a target.
    """

    def __init__(
        self,
        gan: Gan,
        optimiser: torch.optim.Adam,
        images: Tensor,
        recipe: GanRecipe,
        ambiguity: Ambiguity | None,
        classes: int,
    ) -> None:
        self.gan, self.optimiser, self.images, self.recipe, self.ambiguity = gan, optimiser, images, recipe, ambiguity
        device, size = images.device, recipe.batch_size
        self.rows = torch.zeros(size, dtype=torch.long, device=device)
        self.noise = torch.zeros(2, size, gan.architecture.latent, device=device)
        self.targets = torch.zeros(2, size, classes, device=device)
        self.sums = torch.zeros(len(MEASURED), device=device)
        self._bfloat = device.type == "cuda" and recipe.precision == "auto"
        ready: Callable[[nn.Module], Callable[..., Tensor]]
        ready = compile_network if device.type == "cuda" and recipe.compiled else lambda network: network
        self._generator, self._discriminator = ready(gan.generator), ready(gan.discriminator)
        self._judge = None if ambiguity is None else ready(ambiguity.judge)
        self._own = {
            part: [weight for weight in network.parameters() if weight.requires_grad]
            for part, network in (("generator", gan.generator), ("discriminator", gan.discriminator))
        }
        self._graph: torch.cuda.CUDAGraph | None = None
        self._done = 0

    def __call__(self, rows: Tensor, noise: Tensor, targets: Tensor) -> None:
        """Train on the real images at `rows` (B,), with noise (2, B, latent) and targets (2, B, K) for D and G."""
        self.rows.copy_(rows)
        self.noise.copy_(noise)
        self.targets.copy_(targets)
        on_cuda = self.images.device.type == "cuda"
        if on_cuda and self._done < WARM:
            _beside(self._iterate)
        elif on_cuda and self.recipe.graphs:
            self._replay()
        else:
            self._iterate()
        self._done += 1

    def _replay(self) -> None:
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._iterate()
        self._graph.replay()

    def averages(self, iterations: int) -> dict[str, float]:
        """Means of what was measured since the last call; the only number that leaves the device."""
        values = (self.sums / iterations).tolist()
        self.sums.zero_()
        return dict(zip(MEASURED, values, strict=True))

    def _iterate(self) -> None:
        real = self.images.index_select(0, self.rows)
        d_loss = self._train_discriminator(real, self.noise[0], self._dial(0))
        noise, dial, target = self.noise[1], self._dial(1), self.targets[1]
        combine = self.ambiguity.combine if self.ambiguity is not None else None
        alpha = self.ambiguity.alpha if self.ambiguity is not None else 0.0
        judged = None
        if combine == "alternate":
            loss, judged = self._ambiguity(self._generate(noise, dial), target)
            self._update("generator", loss, alpha * self.recipe.clip)
        made = self._generate(noise, dial)
        fake = made.detach().requires_grad_() if combine == "guarded" else made
        with _frozen(self._own["discriminator"]):
            total = g_loss = functional.softplus(-self._judge_real(fake)).mean()
        if combine == "sum":
            loss, judged = self._ambiguity(fake, target)
            total = g_loss + alpha * loss
        elif combine == "guarded":
            loss, judged = self._ambiguity(fake, target)
            realism, doubt = (torch.autograd.grad(one, fake)[0] for one in (g_loss, loss))
            total = (made * guarded(realism, doubt, fake.detach(), alpha)).sum()  # has this gradient at the images
        self._update("generator", total, self.recipe.clip)
        self._measure(d_loss, g_loss, judged, target)

    def _train_discriminator(self, real: Tensor, noise: Tensor, dial: Tensor | None) -> Tensor:
        with torch.no_grad():
            fake = self._generate(noise, dial)
        logits = self._judge_real(torch.cat([real, fake]))
        loss = functional.softplus(-logits[: len(real)]).mean() + functional.softplus(logits[len(real) :]).mean()
        self._update("discriminator", loss, None)
        return loss

    def _generate(self, noise: Tensor, dial: Tensor | None) -> Tensor:
        with self._precision():
            images: Tensor = self._generator(noise, dial)
        return images.float()

    def _judge_real(self, images: Tensor) -> Tensor:
        with self._precision():
            logits: Tensor = self._discriminator(images)
        return logits.float()

    def _ambiguity(self, images: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        assert self.ambiguity is not None and self._judge is not None
        members: Tensor = self._judge(to_unit(images))
        return ambiguity_loss(self.ambiguity.loss, members, target, self.ambiguity.variance), members.detach()

    def _dial(self, which: int) -> Tensor | None:
        """The targets as inputs of the generator; None in stage 1, which does not use them."""
        inputs = self.gan.architecture.targets
        return self.targets[which, :, :inputs] if self.gan.architecture.dial and self.ambiguity is not None else None

    def _update(self, part: str, loss: Tensor, clip: float | None) -> None:
        own = self._own[part]
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss, inputs=own)
        if clip is not None:
            nn.utils.clip_grad_norm_(own, clip)
        self.optimiser.step()

    def _measure(self, d_loss: Tensor, g_loss: Tensor, members: Tensor | None, target: Tensor) -> None:
        zero = torch.zeros((), device=self.sums.device)
        parts: Iterable[Tensor] = (zero, zero, zero)
        if members is not None and self.ambiguity is not None:
            loss = ambiguity_loss(self.ambiguity.loss, members, target, self.ambiguity.variance)
            spread = members.var(dim=0, correction=0).sum(dim=-1).mean() / 2
            parts = (loss, confusion(members, target).mean(), spread)
        self.sums += torch.stack([d_loss.detach(), g_loss.detach(), *parts])

    def _precision(self) -> torch.autocast:
        # No cache of cast weights: they change between the steps of one iteration.
        return torch.autocast(self.images.device.type, torch.bfloat16, enabled=self._bfloat, cache_enabled=False)


@contextmanager
def _frozen(weights: Sequence[Tensor]) -> Iterator[None]:
    """Without gradients of the weights, which compiled code would compute whether anybody wants them or not."""
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _beside(work: Callable[[], None]) -> None:
    """Run the first iterations, in which everything is compiled, on a stream of their own: graphs require it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*capturable=True")  # that Adam is not being recorded yet
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")  # which would round otherwise
        work()
    torch.cuda.current_stream().wait_stream(side)
