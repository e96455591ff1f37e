"""What `secondguess generate companion` does with its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess._files import write_bytes
from secondguess.cli.options import listed, numbers
from secondguess.errors import UserError
from secondguess.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from secondguess.images import ImageSet
    from secondguess.stress.ambiguous.ambigan import AmbiGAN

__all__ = ["Choices", "class_numbers", "make_companion"]

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


@dataclass(frozen=True)
class Choices:
    """The options of the command, under their own names.

    None in `tolerance` and `disagreement` rejects nothing; None in `alpha` and `variance`, and "auto" in `combine` and
    `subsets`, is what suits the method.
    """

    data: str
    classes: str
    method: str
    r: str
    combine: str
    alpha: float | None
    variance: float | None
    grid: bool
    preset: str
    epochs: str | None
    filters: int | None
    batch_size: int
    lr: float
    members: int
    estimator_epochs: int | None
    subsets: str
    tolerance: float | None
    disagreement: float | None
    realism: bool
    collapse: float
    resume: bool
    loading: dict[str, Any]
    seed: int
    device: str


def make_companion(choices: Choices, count: int, out: Path, progress: Progress) -> dict[str, Any]:
    """Train, draw `count` images, write them into `out`, and return their card."""
    import torch

    from secondguess.images import load
    from secondguess.stress.ambiguous.gan_selection import choose, pareto_front, search
    from secondguess.stress.ambiguous.gan_training import sample_sheet
    from secondguess.stress.saving import save_stress_set

    dataset = load(choices.data, **choices.loading)
    train = dataset.train or dataset.test
    kept = out / "training"
    if not choices.resume:
        _forget(kept)
    maker = _maker(choices, train, kept)
    if choices.grid:
        features = _features(train, maker.classes or (), choices)
        candidates = search(maker, train, features, seed=choices.seed, progress=progress)
        best = choose(candidates)
        maker.alpha, maker.variance = best.alpha, best.variance
        made = maker.generate(train, count, seed=choices.seed, progress=progress, trained=best.trained)
        front = pareto_front([one.frechet for one in candidates], [one.acd for one in candidates])
        made.card["grid"] = [
            {"alpha": one.alpha, "variance": one.variance, "frechet": one.frechet, "acd": one.acd, "front": bool(on)}
            for one, on in zip(candidates, front, strict=True)
        ]
    else:
        made = maker.generate(train, count, seed=choices.seed, progress=progress)
    images, by = made.images, ("class_1", "class_2")
    if choices.r == "dial":
        images, by = _in_steps(images), ("dial", "class_1")
    save_stress_set(images, made.card, out, by=by)
    write_bytes(out / "samples.png", sample_sheet(torch.from_numpy(images.head(SHOWN).materialise())))
    return made.card


def _features(
    train: ImageSet, classes: tuple[int, ...], choices: Choices
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """What the last layer of a small classifier sees: of the other classes where there are two or more, else of all.

    A classifier of the very classes keeps them apart, and finds whatever lies between them far from all real images.
    """
    from secondguess.hubris import features, train_extractor
    from secondguess.hubris.realism import kept_out
    from secondguess.images import ImageSet

    left_out = kept_out(train, classes)
    extractor = train_extractor(train, leave_out=left_out, seed=choices.seed, device=choices.device)
    return lambda images: features(ImageSet.from_arrays(images, layout="NCHW"), extractor)


def _forget(folder: Path) -> None:
    """Remove what a former run has kept, and nothing else that may lie there."""
    for path in folder.glob("estimator-*.safetensors"):
        path.unlink()
    for pattern in ("stage1-*", "stage2-*"):
        for state in folder.glob(f"{pattern}/state.json"):
            state.unlink()  # without it a checkpoint is none, and its files are overwritten


def _maker(choices: Choices, train: ImageSet, folder: Path) -> AmbiGAN:
    from secondguess._device import pick_device
    from secondguess.stress.ambiguous.ambigan import AmbiGAN, estimator_for
    from secondguess.stress.ambiguous.companion import Rejection
    from secondguess.stress.ambiguous.gan_networks import Architecture
    from secondguess.stress.ambiguous.gan_step import Recipe
    from secondguess.stress.ambiguous.gan_training import Watch

    if choices.preset not in ("auto", *PRESETS):
        raise UserError(f"There is no preset {choices.preset!r}; there is auto, {' and '.join(PRESETS)}.")
    named = "paper" if pick_device(choices.device).type == "cuda" else "small"
    preset = PRESETS[named if choices.preset == "auto" else choices.preset]
    classes = class_numbers(choices.classes, train)
    architecture = Architecture.for_shape(train.shape)
    if filters := choices.filters or preset.filters:
        architecture = replace(architecture, filters=filters)
    if preset.filters:
        architecture = replace(architecture, latent=64)
    return AmbiGAN(
        classes,
        method=choices.method,  # type: ignore[arg-type]
        combine=None if choices.combine == "auto" else choices.combine,  # type: ignore[arg-type]
        alpha=choices.alpha,
        variance=choices.variance,
        r="dial" if choices.r == "dial" else _target(choices.r),
        epochs=_epochs(choices.epochs, preset),
        architecture=architecture,
        recipe=Recipe(batch_size=choices.batch_size, lr=choices.lr),
        estimator=estimator_for(
            choices.method,  # type: ignore[arg-type]
            classes,
            members=choices.members,
            **({} if choices.subsets == "auto" else {"subsets": choices.subsets}),
            epochs=choices.estimator_epochs or preset.estimator_epochs,
            seed=choices.seed,
            device=choices.device,
        ),
        watch=Watch(collapse=choices.collapse),
        rejection=Rejection(choices.tolerance, choices.disagreement, realism=choices.realism),
        device=choices.device,
        folder=folder,
    )


def class_numbers(text: str, images: ImageSet) -> tuple[int, ...]:
    """Classes separated by commas, by name, or by number where no class has that name."""
    places = {name: index for index, name in enumerate(images.class_names)}
    found = []
    for part in listed(text):
        place = places.get(part, int(part) if part.isdecimal() else -1)
        if not 0 <= place < images.num_classes:
            raise UserError(f"There is no class {part!r}; the classes are: {', '.join(images.class_names[:20])}.")
        found.append(place)
    return tuple(found)


def _target(text: str) -> float | list[float]:
    values = numbers(text)
    return values[0] if len(values) == 1 else values


def _epochs(text: str | None, preset: Preset) -> tuple[int, int]:
    if text is None:
        return preset.epochs
    parts = listed(text)
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise UserError(f"--epochs is {text!r}; give the epochs of stage 1 and stage 2, such as 100,50.")
    return int(parts[0]), int(parts[1])


def _in_steps(images: ImageSet) -> ImageSet:
    """The same set with a column that says in words which fifth of the dial an image belongs to."""
    import numpy as np

    step = np.clip((images.columns["target_r"] * STEPS).astype(int), 0, STEPS - 1)
    words = np.array([f"r {low / STEPS:.1f} to {(low + 1) / STEPS:.1f}" for low in range(STEPS)])
    return replace(images, columns={**images.columns, "dial": words[step]})
