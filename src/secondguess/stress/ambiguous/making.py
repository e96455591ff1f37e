"""`make_companion`: from a data set to a folder with its companion set, trained, drawn, measured and saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.files import write_bytes
from secondguess.images import Dataset, ImageSet, load, load_images
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.ambigan import AmbiGAN, estimator_for
from secondguess.stress.ambiguous.companion import Rejection
from secondguess.stress.ambiguous.feature_vectors import features, train_extractor
from secondguess.stress.ambiguous.gan_networks import GanArchitecture
from secondguess.stress.ambiguous.gan_selection import choose, pareto_front, search
from secondguess.stress.ambiguous.gan_step import GanRecipe
from secondguess.stress.ambiguous.gan_training import Watch, sample_sheet
from secondguess.stress.ambiguous.realism_reference import LEAST, RealismReference, kept_out
from secondguess.stress.classes import class_numbers
from secondguess.stress.saving import save_stress_set

__all__ = ["CompanionSettings", "make_companion"]

SHOWN = 128  # images on the sheet of samples
STEPS = 5  # rows of the sheet of a dial


@dataclass(frozen=True)
class Preset:
    """Sizes of a training.

    Attributes:
        filters: of the GAN; None for the paper's.
        epochs: of both stages.
        estimator_epochs: of the estimator.
    """

    filters: int | None
    epochs: tuple[int, int]
    estimator_epochs: int


PRESETS = {"paper": Preset(None, (100, 50), 200), "small": Preset(24, (30, 15), 60)}


@dataclass(frozen=True, kw_only=True)
class CompanionSettings:
    """How a companion set is made; None and "auto" stand for what suits the method, or the preset.

    Attributes:
        between: the classes that the images lie between, by name or number.
        method: agreement, ambigan, gasten or gasten2.
        r: target probability of the first class, or of each class; or "dial" for all of them.
        combine: how the losses of the GAN and of the estimator are combined: guarded, sum or alternate.
        alpha: how much ambiguity counts.
        variance: of the Gaussian likelihood.
        grid: whether to try the paper's alphas and variances and to choose one of each.
        preset: paper, small, or auto: paper on a GPU, small elsewhere.
        epochs: of stage 1 and stage 2.
        filters: of the GAN.
        batch_size: images for each step of the GAN.
        lr: learning rate of the GAN.
        members: networks of the estimator.
        estimator_epochs: of the estimator.
        subsets: what its members see: disjoint or batch.
        tolerance: images farther than this from the target are rejected; None rejects none of them.
        disagreement: images with more mutual information, in nats, are rejected; None rejects none of them.
        realism: whether images are rejected that do not look real.
        collapse: training begins anew if images vary less than this share of real ones.
        resume: whether to go on where an interrupted run in the folder stopped.
    """

    between: str | Sequence[str | int] = (9, 8)
    method: str = "agreement"
    r: float | Sequence[float] | Literal["dial"] = 0.5
    combine: str = "auto"
    alpha: float | None = None
    variance: float | None = None
    grid: bool = False
    preset: str = "auto"
    epochs: tuple[int, int] | None = None
    filters: int | None = None
    batch_size: int = 32
    lr: float = 2e-4
    members: int = 50
    estimator_epochs: int | None = None
    subsets: str = "auto"
    tolerance: float | None = 0.1
    disagreement: float | None = 0.2
    realism: bool = True
    collapse: float = 0.25
    resume: bool = True


def make_companion(
    data: str | os.PathLike[str] | Dataset,
    folder: str | Path,
    settings: CompanionSettings | None = None,
    *,
    count: int = 5000,
    measure: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    **loading: Any,
) -> dict[str, Any]:
    """Train a GAN, draw ambiguous images and write them into a folder.

    The estimator, checkpoints of the GAN and sample sheets are kept in the folder too, so that an interrupted run goes
    on where it stopped.

    Args:
        data: a data set, or what `load` takes; its training images are learnt from, all of them where there is only one
            split.
        folder: for `images.npz`, `card.json`, `sheet.png` and `samples.png`, and for what is kept of the training.
        settings: how the set is made; `AmbiGAN` of the digits 9 and 8 that asks for agreement by default.
        count: how many images to draw.
        measure: whether to measure how real the images are, against real ones of their classes.
        seed: of everything random.
        device: where to compute.
        progress: where to report.
        **loading: options of `load`, such as `size`.

    Returns:
        The card of the set, as in `card.json`.
    """
    settings, folder, progress = settings or CompanionSettings(), Path(folder), progress or Silent()
    dataset = data if isinstance(data, Dataset) else load(data, **loading)
    train = dataset.train or dataset.test
    real = _reference(dataset, settings, count, seed) if measure else None  # may raise, so before the long work
    if not settings.resume:
        _forget(folder / "training")
    maker = _generator(settings, train, folder / "training", seed, device)
    options: dict[str, Any] = {"seed": seed, "progress": progress}
    if settings.grid:
        candidates = search(maker, train, _features(train, maker.classes or (), seed, device), **options)
        best = choose(candidates)
        maker.alpha, maker.variance = best.alpha, best.variance
        made = maker.generate(train, count, **options, trained=best.trained)
        front = pareto_front([one.frechet for one in candidates], [one.acd for one in candidates])
        made.card["grid"] = [
            {"alpha": one.alpha, "variance": one.variance, "frechet": one.frechet, "acd": one.acd, "front": bool(on)}
            for one, on in zip(candidates, front, strict=True)
        ]
    else:
        made = maker.generate(train, count, **options)
    _save(made.images, made.card, folder, dial=settings.r == "dial")
    return made.card if real is None else _with_realism(folder, real, seed, device, progress)


def _save(images: ImageSet, card: dict[str, Any], folder: Path, *, dial: bool) -> None:
    import torch

    by: tuple[str, ...] = ("class_1", "class_2")
    if dial:
        images, by = _in_steps(images), ("dial", "class_1")
    save_stress_set(images, card, folder, by=by)
    write_bytes(folder / "samples.png", sample_sheet(torch.from_numpy(images.head(SHOWN).materialise())))


def _reference(dataset: Dataset, settings: CompanionSettings, count: int, seed: int) -> RealismReference:
    """The real images that the companion images are measured against."""
    if count < LEAST:
        raise UserError(
            f"Realism cannot be measured of {count} images; at least {LEAST} are needed, give a larger count."
        )
    return RealismReference.of(dataset, class_numbers(settings.between, dataset.train or dataset.test), seed=seed)


def _with_realism(folder: Path, real: RealismReference, seed: int, device: str, progress: Progress) -> dict[str, Any]:
    """Measure the images as they were saved, write that into their card, and return it."""
    images, path = load_images(folder / "images.npz"), folder / "card.json"
    measured = real.measure(images, seed=seed, device=device, progress=progress)
    card: dict[str, Any] = read_json(path) | {"realism": measured}
    write_json_sealed(path, card)
    return card


def _features(
    train: ImageSet, classes: tuple[int, ...], seed: int, device: str
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """What the last layer of a small classifier sees: of the other classes where there are two or more, else of all.

    A classifier of the very classes keeps them apart, and finds whatever lies between them far from all real images.
    """
    extractor = train_extractor(train, leave_out=kept_out(train, classes), seed=seed, device=device)
    return lambda images: features(ImageSet.from_arrays(images, layout="NCHW"), extractor)


def _forget(folder: Path) -> None:
    """Remove what a former run has kept, and nothing else that may lie there."""
    for path in folder.glob("estimator-*.safetensors"):
        path.unlink()
    for pattern in ("stage1-*", "stage2-*"):
        for state in folder.glob(f"{pattern}/state.json"):
            state.unlink()  # without it a checkpoint is none, and its files are overwritten


def _generator(settings: CompanionSettings, train: ImageSet, folder: Path, seed: int, device: str) -> AmbiGAN:
    if settings.preset not in ("auto", *PRESETS):
        raise UserError(f"There is no preset {settings.preset!r}; there is auto, {' and '.join(PRESETS)}.")
    suiting = "paper" if pick_device(device).type == "cuda" else "small"
    preset = PRESETS[suiting if settings.preset == "auto" else settings.preset]
    classes = class_numbers(settings.between, train)
    architecture = GanArchitecture.for_shape(train.shape)
    if filters := settings.filters or preset.filters:
        architecture = replace(architecture, filters=filters)
    if preset.filters:
        architecture = replace(architecture, latent=64)
    return AmbiGAN(
        classes,
        method=settings.method,  # type: ignore[arg-type]
        combine=None if settings.combine == "auto" else settings.combine,  # type: ignore[arg-type]
        alpha=settings.alpha,
        variance=settings.variance,
        r=settings.r,
        epochs=settings.epochs or preset.epochs,
        architecture=architecture,
        recipe=GanRecipe(batch_size=settings.batch_size, lr=settings.lr),
        estimator=estimator_for(
            settings.method,  # type: ignore[arg-type]
            classes,
            members=settings.members,
            **({} if settings.subsets == "auto" else {"subsets": settings.subsets}),
            epochs=settings.estimator_epochs or preset.estimator_epochs,
            seed=seed,
            device=device,
        ),
        watch=Watch(collapse=settings.collapse),
        rejection=Rejection(settings.tolerance, settings.disagreement, realism=settings.realism),
        device=device,
        folder=folder,
    )


def _in_steps(images: ImageSet) -> ImageSet:
    """The same set with a column that says in words which fifth of the dial an image belongs to."""
    step = np.clip((images.columns["target_r"] * STEPS).astype(int), 0, STEPS - 1)
    words = np.array([f"r {low / STEPS:.1f} to {(low + 1) / STEPS:.1f}" for low in range(STEPS)])
    return replace(images, columns={**images.columns, "dial": words[step]})
