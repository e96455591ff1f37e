"""What ambiguity costs: stage 2 of a GAN against stage 1, and an estimator as one network against a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from secondguess.progress import Progress, Silent

__all__ = ["lines", "run"]

SHAPE = (1, 28, 28)


def run(
    *,
    members: int = 50,
    filters: int = 512,
    latent: int = 256,
    batch_size: int = 32,
    iterations: int = 100,
    steps: int = 10,
    graphs: bool = True,
    repeatable: bool = True,
    compiled: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time iterations of both stages, and steps of the estimator as one network and member by member.

    Args:
        members: of the estimator.
        filters: of the GAN; 512 in the paper.
        latent: of the GAN; 256 in the paper.
        batch_size: of the GAN; 32 in the paper.
        iterations: of each stage that are timed.
        steps: of each way to ask the estimator that are timed.
        graphs: record iterations as CUDA graphs.
        repeatable: only algorithms that give the same result every time.
        compiled: let PyTorch compile the networks on a GPU.
        device: where to compute.
        progress: where to report.

    Returns:
        `{"stages": [{"work", "seconds", "ratio"}, ...], "estimator": [{"work", "fleet", "loop", "speed_up"}, ...]}`;
        seconds are those of one iteration or step, `ratio` is to stage 1.
    """
    import torch

    from secondguess.devices import pick_device
    from secondguess.stress.ambiguous.estimator_members import FoldedMembers, MemberNetworks
    from secondguess.stress.ambiguous.gan_networks import GanArchitecture
    from secondguess.stress.ambiguous.gan_step import Ambiguity, GanRecipe
    from secondguess.zoo.small import ambiguity_members

    target = pick_device(device)
    networks = MemberNetworks(ambiguity_members(32, members), SHAPE, 1, range(members)).to(target)
    judge = FoldedMembers(networks, dense=target.type == "cuda").to(target)
    recipe = GanRecipe(batch_size=batch_size, graphs=graphs, repeatable=repeatable, compiled=compiled)
    architecture = GanArchitecture(latent, filters, 2)
    works = {
        "stage 1": None,
        "stage 2, sum": Ambiguity(judge, combine="sum"),
        "stage 2, alternate": Ambiguity(judge, combine="alternate"),
        "stage 2, guarded": Ambiguity(judge, combine="guarded"),
    }
    stages: list[dict[str, Any]] = []
    with (progress or Silent()).task("Timing", len(works) + 2) as advance:
        for done, (work, ambiguity) in enumerate(works.items()):
            seconds = _iteration_seconds(architecture, recipe, ambiguity, iterations, target)
            stages.append(
                {"work": work, "seconds": seconds, "ratio": seconds / stages[0]["seconds"] if stages else 1.0}
            )
            advance(done + 1, len(works) + 2)
        estimator = [
            _compare("training step", *_training_steps(networks, target), steps, target),
            _compare("judging a batch, with gradient", *_judging(networks, judge, batch_size, target), steps, target),
        ]
    return {
        "members": members,
        "filters": filters,
        "batch_size": batch_size,
        "compiled": compiled,
        "device": torch.cuda.get_device_name(target) if target.type == "cuda" else str(target),
        "stages": stages,
        "estimator": estimator,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    about = f"{result['members']} members, {result['filters']} filters, batch {result['batch_size']}"
    yield f"{about}, {result['device']}"
    for row in result["stages"]:
        yield f"  {row['work']:<32} {1e3 * row['seconds']:8.2f} ms per iteration  {row['ratio']:5.2f} x stage 1"
    for row in result["estimator"]:
        yield f"  {row['work']:<32} {1e3 * row['fleet']:8.2f} ms per step       {row['speed_up']:5.1f} x the loop"


def _iteration_seconds(architecture: Any, recipe: Any, ambiguity: Any, iterations: int, device: Any) -> float:
    import torch

    from secondguess.stress.ambiguous.gan_step import Step
    from secondguess.stress.ambiguous.gan_training import algorithms, fresh

    gan, optimiser = fresh(SHAPE, architecture, recipe, seed=0).revive(recipe, device)
    images = torch.rand(4 * recipe.batch_size, *SHAPE, device=device) * 2 - 1
    step = Step(gan.train(), optimiser, images, recipe, ambiguity, classes=2)
    rows = torch.randperm(len(images), device=device)[: recipe.batch_size]
    noise = torch.randn(2, recipe.batch_size, architecture.latent, device=device)
    targets = torch.full((2, recipe.batch_size, 2), 0.5, device=device)
    with algorithms(recipe):
        return _seconds(lambda: step(rows, noise, targets), iterations, device, warm=6)


def _training_steps(networks: Any, device: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """One step of all members on 16 images each: as one network, and one after another."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    members = len(networks.channels)
    images = torch.rand(members, 16, *SHAPE, device=device)
    truth = (torch.arange(16, device=device) % 2).float()
    singles = [networks.member(index).train().to(device) for index in range(members)]
    together = torch.optim.Adam(networks.parameters(), lr=1e-3, foreach=True)
    alone = [torch.optim.Adam(single.parameters(), lr=1e-3) for single in singles]
    networks.train()

    def fleet() -> None:
        logits = networks(images)[..., 0]
        losses = binary_cross_entropy_with_logits(logits, truth.expand_as(logits), reduction="none")
        together.zero_grad()
        torch.autograd.backward(losses.mean(dim=1).sum())
        together.step()

    def loop() -> None:
        for single, optimiser, own in zip(singles, alone, images, strict=True):
            optimiser.zero_grad()
            torch.autograd.backward(binary_cross_entropy_with_logits(single(own)[:, 0], truth))
            optimiser.step()

    return fleet, loop


def _judging(networks: Any, judge: Any, batch_size: int, device: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """The mean probability of a batch and its gradient with respect to the images, both ways."""
    import torch

    singles = [networks.member(index).eval().to(device) for index in range(len(networks.channels))]
    images = torch.rand(batch_size, *SHAPE, device=device, requires_grad=True)

    def fleet() -> None:
        torch.autograd.grad(judge(images)[..., 0].mean(), images)

    def loop() -> None:
        mean = torch.stack([torch.sigmoid(single(images * 2 - 1)) for single in singles]).mean()
        torch.autograd.grad(mean, images)

    return fleet, loop


def _compare(work: str, fleet: Callable[[], None], loop: Callable[[], None], steps: int, device: Any) -> dict[str, Any]:
    fast, slow = (_seconds(one, steps, device, warm=2) for one in (fleet, loop))
    return {"work": work, "fleet": fast, "loop": slow, "speed_up": slow / fast}


def _seconds(work: Callable[[], None], times: int, device: Any, warm: int) -> float:
    """Seconds of one call, once the first ones have been made."""
    import torch

    for _ in range(warm):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(times):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / times
