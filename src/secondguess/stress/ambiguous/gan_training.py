"""Epochs of adversarial training: order, checkpoints, sample sheets, and a watch for collapse.

The order of the images, the noise and the targets of an epoch depend on (seed, epoch) alone, and epochs are counted on
through both stages. So a run that is taken up again goes on as if nothing had happened, and stage 2 with alpha = 0 is
stage 1 continued.

A generator has collapsed when its images are much more alike than real ones. With d the distance of two images, two
ratios of generated to real images are watched after every epoch,

    spread:   mean of d over all pairs           nearest:   median over the images of d to the nearest other one

the first falls when everything becomes one image, the second when a few images are repeated. Below a quarter the
training stops with `Collapsed`.
"""

from __future__ import annotations

import copy
import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.errors import UserError
from secondguess.files import write_bytes
from secondguess.images import ImageSet
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.estimator import balanced_rows
from secondguess.stress.ambiguous.gan_losses import Target
from secondguess.stress.ambiguous.gan_networks import Gan, GanArchitecture, to_unit
from secondguess.stress.ambiguous.gan_step import Ambiguity, GanRecipe, Step, adam
from secondguess.training._checkpoint import Checkpoint
from secondguess.training._examples import derive_seed
from secondguess.training._run import deterministic

__all__ = [
    "Collapsed",
    "RealImages",
    "Snapshot",
    "Watch",
    "algorithms",
    "diversity",
    "fresh",
    "sample",
    "sample_sheet",
    "samples",
    "train_stage",
]

WATCHED = 256  # images
GRACE = 0.25, 1000  # share of stage 1, and iterations, before which variety is not checked
SHEET = (8, 16)  # rows and columns of a sample sheet
DRAWN = 500  # images at a time
Row = dict[str, float]


class Collapsed(UserError):
    """The generator makes one image, or a few, or nothing at all."""


@dataclass(frozen=True)
class RealImages:
    """The images of some classes on a device.

    Attributes:
        pixels: (n, C, H, W) in [-1, 1].
        rows: positions in `pixels`, each class equally often.
        fingerprint: of the set they come from.
    """

    pixels: Tensor
    rows: Tensor
    fingerprint: str

    @classmethod
    def of(cls, train: ImageSet, classes: tuple[int, ...], seed: int, device: torch.device) -> RealImages:
        """The images of `train` that belong to the classes."""
        rows, _ = balanced_rows(train, classes, seed)
        used, place = np.unique(rows, return_inverse=True)
        pixels = torch.from_numpy(np.ascontiguousarray(train.images[used])).to(device) * 2 - 1
        digest = hashlib.blake2b(f"{train.fingerprint} {classes}".encode(), digest_size=8).hexdigest()
        return cls(pixels, torch.from_numpy(place).to(device), digest)


@dataclass(frozen=True)
class Snapshot:
    """A trained GAN, from which stage 2 can start any number of times.

    Attributes:
        architecture: of both networks.
        shape: (C, H, W).
        weights: of both networks.
        moments: state of the optimiser.
        epoch: epochs trained so far, in both stages.
        history: what was measured in each of them.
    """

    architecture: GanArchitecture
    shape: tuple[int, int, int]
    weights: dict[str, Tensor]
    moments: dict[str, Any]
    epoch: int
    history: list[Row] = field(default_factory=list)

    def revive(self, recipe: GanRecipe, device: torch.device) -> tuple[Gan, torch.optim.Adam]:
        """The networks and their optimiser, on a device."""
        gan = _on(Gan(self.shape, self.architecture), device)
        gan.load_state_dict(self.weights)
        optimiser = adam(gan, recipe, device)
        if self.moments["state"]:
            optimiser.load_state_dict(copy.deepcopy(self.moments))
        return gan, optimiser

    @classmethod
    def of(cls, gan: Gan, optimiser: torch.optim.Optimizer, epoch: int, history: list[Row]) -> Snapshot:
        """The state of a training now."""
        weights = {name: tensor.detach().clone() for name, tensor in gan.state_dict().items()}
        return cls(gan.architecture, gan.shape, weights, copy.deepcopy(optimiser.state_dict()), epoch, list(history))


@dataclass(frozen=True)
class Watch:
    """What happens after an epoch.

    Attributes:
        folder: for checkpoints and sample sheets; None keeps nothing.
        every: epochs between two checkpoints; the last epoch always has one.
        sheets: epochs between two sample sheets; 0 for none.
        collapse: the ratio below which the generator has collapsed; 0 switches the check off.
    """

    folder: Path | None = None
    every: int = 10
    sheets: int = 10
    collapse: float = 0.25


def train_stage(
    start: Snapshot,
    data: RealImages,
    recipe: GanRecipe,
    epochs: int,
    *,
    target: Target,
    ambiguity: Ambiguity | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> Snapshot:
    """Train for `epochs` epochs more.

    Args:
        start: where to begin.
        data: real images.
        recipe: how to train.
        epochs: how many.
        target: the probabilities that the judges should give; unused in stage 1.
        ambiguity: what stage 2 adds; None for stage 1.
        seed: of order, noise and targets.
        watch: what to keep and when to stop.
        progress: where to report.

    Raises:
        Collapsed: with a sentence that says how.
    """
    watch = watch or Watch()
    device = data.pixels.device
    if len(data.rows) < recipe.batch_size:
        raise UserError(
            f"There are {len(data.rows)} images of the classes for batches of {recipe.batch_size}; lower batch_size."
        )
    stage = 1 if ambiguity is None else 2
    gan, optimiser = start.revive(recipe, device)
    checkpoint = None
    history: list[Row] = []
    if watch.folder is not None:
        settings = _settings(start, data, recipe, target, ambiguity, seed)
        checkpoint = Checkpoint(watch.folder, settings)
        history = checkpoint.load(gan, optimiser).history
        if len(history) > epochs:
            raise UserError(
                f"The checkpoint in {watch.folder} is at epoch {len(history)} of the {epochs} asked for; ask for more "
                "epochs, or name another folder."
            )
    step = Step(gan, optimiser, data.pixels, recipe, ambiguity, target.classes)
    with (progress or Silent()).task(f"Training the GAN, stage {stage}", epochs) as advance, algorithms(recipe):
        while len(history) < epochs:
            number = start.epoch + len(history)
            gan.train()
            row = _epoch(step, data, target, seed, number)
            watched = sample(gan, WATCHED, target, seed=derive_seed(seed, 7), on_device=True)
            row |= diversity(watched, data.pixels)
            history.append(row)
            done = len(history)
            patient = stage == 1 and done < epochs and _is_early(done, epochs, len(data.rows) // recipe.batch_size)
            _check(row, number + 1, 0.0 if patient else watch.collapse)
            if watch.folder is not None and watch.sheets and (done % watch.sheets == 0 or done == epochs):
                write_bytes(watch.folder / f"samples-{number + 1:04d}.png", sample_sheet(watched))
            if checkpoint is not None and (done % watch.every == 0 or done == epochs):
                checkpoint.save(history, gan, optimiser, None, None)
            advance(done, epochs)
    return Snapshot.of(gan, optimiser, start.epoch + epochs, [*start.history, *history])


@torch.no_grad()
def sample(gan: Gan, count: int, target: Target, *, seed: int, on_device: bool = False) -> Tensor:
    """Draw `count` images (n, C, H, W) in [0, 1] in evaluation mode; image i depends on (seed, i) and its target."""
    images = [part for part, _ in samples(gan, count, target, seed=seed)]
    together = torch.cat(images)
    return together if on_device else together.cpu()


@torch.no_grad()
def samples(gan: Gan, count: int, target: Target, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (m, C, H, W) in [0, 1] and their targets (m, K), at most 500 at a time, on the device of the GAN."""
    device = gan.generator.projection.device
    was_training = gan.training
    gan.eval()
    # Noise is drawn on the processor: a graph may be recorded for the device's own generator.
    generator = torch.Generator().manual_seed(seed)
    try:
        for start in range(0, count, DRAWN):
            noise = torch.randn(DRAWN, gan.architecture.latent, generator=generator)[: count - start].to(device)
            wanted = target.draw((DRAWN,), generator)[: count - start].to(device)
            dial = wanted[:, : gan.architecture.targets] if gan.architecture.dial else None
            yield to_unit(gan.generator(noise, dial)), wanted
    finally:  # also when the caller stops early
        gan.train(was_training)


@torch.no_grad()
def diversity(images: Tensor, real: Tensor) -> Row:
    """Variety of images (n, C, H, W) in [0, 1], relative to that of as many real ones in [-1, 1]."""
    count = min(len(images), len(real))
    spread_ours, nearest_ours = _distances(images[:count])
    rows = torch.linspace(0, len(real) - 1, count, device=real.device).long()
    spread_real, nearest_real = _distances(to_unit(real[rows]))
    return {
        "spread": float(spread_ours / spread_real.clamp_min(1e-12)),
        "nearest": float(nearest_ours / nearest_real.clamp_min(1e-12)),
    }


def sample_sheet(images: Tensor) -> bytes:
    """A PNG of the first images, 8 rows of 16."""
    from PIL import Image

    rows, columns = SHEET
    pixels = np.rint(images[: rows * columns].cpu().numpy() * 255).astype(np.uint8)
    count, channels, height, width = pixels.shape
    sheet: NDArray[np.uint8] = np.full((rows * (height + 1), columns * (width + 1), channels), 255, np.uint8)
    for index in range(count):
        top, left = index // columns * (height + 1), index % columns * (width + 1)
        sheet[top : top + height, left : left + width] = np.moveaxis(pixels[index], 0, -1)
    buffer = io.BytesIO()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def fresh(shape: tuple[int, int, int], architecture: GanArchitecture, recipe: GanRecipe, seed: int) -> Snapshot:
    """A GAN that has learnt nothing yet."""
    gan = Gan(shape, architecture, seed=seed)
    optimiser = adam(gan, recipe, torch.device("cpu"))
    return Snapshot.of(gan, optimiser, 0, [])


def _epoch(step: Step, data: RealImages, target: Target, seed: int, number: int) -> Row:
    """One pass over the images; an incomplete last batch is left out."""
    device, size = data.pixels.device, step.recipe.batch_size
    generator = torch.Generator(device).manual_seed(derive_seed(seed, number, 0))
    count = len(data.rows) // size
    order = data.rows[torch.randperm(len(data.rows), generator=generator, device=device)]
    latent = step.gan.architecture.latent
    noise = torch.randn(count, 2, size, latent, generator=generator, device=device)
    targets = target.draw((count, 2, size), torch.Generator(device).manual_seed(derive_seed(seed, number, 1)))
    for index in range(count):
        step(order[index * size : (index + 1) * size], noise[index], targets[index])
    return step.averages(count)


def _is_early(done: int, epochs: int, iterations: int) -> bool:
    share, least = GRACE
    return done < share * epochs or done * iterations < least


def _check(row: Row, epoch: int, least: float) -> None:
    if not np.isfinite(list(row.values())).all():
        raise Collapsed(f"The GAN diverged in epoch {epoch}: its loss is no number; lower the learning rate.")
    worst = min(("spread", "nearest"), key=lambda name: row[name])
    if row[worst] < least:
        raise Collapsed(
            f"The generator collapsed in epoch {epoch}: its images are {row[worst]:.2f} times as different ({worst}) "
            "as real ones; take another seed, a lower learning rate or a smaller alpha."
        )


def _distances(images: Tensor) -> tuple[Tensor, Tensor]:
    flat = images.flatten(1).double()
    table = torch.cdist(flat, flat)
    count = len(flat)
    spread = table.sum() / max(1, count * (count - 1))
    infinite = torch.diag(torch.full((count,), torch.inf, dtype=table.dtype, device=table.device))
    return spread, (table + infinite).min(dim=1).values.median()


def _settings(
    start: Snapshot, data: RealImages, recipe: GanRecipe, target: Target, ambiguity: Ambiguity | None, seed: int
) -> dict[str, Any]:
    """Everything that determines the weights after an epoch, as JSON."""
    settings: dict[str, Any] = {
        "architecture": asdict(start.architecture),
        "recipe": asdict(recipe),
        "data": data.fingerprint,
        "seed": seed,
        "start": [start.epoch, _digest_of(start.weights)],
    }
    if ambiguity is not None:
        wanted = None if target.probabilities is None else list(target.probabilities)
        settings["ambiguity"] = [ambiguity.loss, ambiguity.combine, ambiguity.alpha, ambiguity.variance, wanted]
        settings["judge"] = _digest_of(ambiguity.judge.state_dict())
    return settings


def _digest_of(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in state.values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _on(gan: Gan, device: torch.device) -> Gan:
    """The GAN on the device, in the memory layout that its convolutions prefer."""
    gan = gan.to(device)
    if device.type == "cuda":
        gan.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return gan


@contextmanager
def algorithms(recipe: GanRecipe) -> Iterator[None]:
    """Repeatable algorithms, or the fastest that a trial finds."""
    if recipe.repeatable:
        with deterministic():
            yield
        return
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
