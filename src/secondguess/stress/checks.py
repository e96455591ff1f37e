"""A test kit for anybody's stress set: the contract of `StressSet`, checked on synthetic images.

    from secondguess.stress import check_stress_set
    check_stress_set(MyStressSet())      # raises AssertionError with the reason, or returns the checks that passed

The kit needs no data: it makes coloured images of three classes. Attacks get a classifier that uses the mean grey
level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.kit import Kit, require, run_checks
from secondguess.stress.base import Kind, StressSet

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["check_stress_set"]

CLASSES = 3


def check_stress_set(stress_set: StressSet | type[StressSet], *, images: int = 24, seed: int = 0) -> list[str]:
    """Check a stress set against the contract.

    Args:
        stress_set: an instance, whose parameters are used, or a class that can be made without arguments.
        images: how many synthetic images it is made of.
        seed: of the synthetic images.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    given = stress_set() if isinstance(stress_set, type) else stress_set
    if not isinstance(given, StressSet):
        raise AssertionError(f"{given!r} is not a secondguess.StressSet")
    nominal, train = _images(images, seed), _images(4 * images, seed + 1)
    return run_checks(_Kit(given, nominal, train, _by_brightness()), CHECKS)


@dataclass
class _Kit(Kit[StressSet]):
    nominal: ImageSet
    train: ImageSet
    classifier: Classifier

    def fresh(self) -> StressSet:
        return self.given.clone()

    def made(self, seed: int = 0) -> ImageSet:
        return self.fresh().make(self.nominal, train=self.train, classifier=self.classifier, seed=seed)


def check_declaration(kit: _Kit) -> None:
    """It says what kind it is and by which name it is known, and its parameters are stored."""
    kind, name = getattr(kit.given, "kind", None), getattr(kit.given, "name", None)
    require(kind in get_args(Kind), f"its kind is {kind!r}, not one of {', '.join(get_args(Kind))}")
    require(isinstance(name, str) and bool(name), f"its name is {name!r}")
    try:
        params = kit.given.params()
    except AttributeError as error:
        raise AssertionError(f"{error}: store every parameter of __init__ under its own name") from error
    require(kit.fresh().params() == params, f"clone() has {kit.fresh().params()}, the original {params}")


def check_images(kit: _Kit) -> None:
    """The images have the shape and the classes of the nominal ones, and values in [0, 1]."""
    made = kit.made()
    require(len(made) > 0, "no image was made")
    require(made.shape == kit.nominal.shape, f"images of shape {made.shape} were made of {kit.nominal.shape}")
    require(made.class_names == kit.nominal.class_names, f"the classes became {made.class_names}")
    pixels = made.materialise()
    require(bool(np.isfinite(pixels).all()), "some pixels are not finite")
    require(bool(((pixels >= 0) & (pixels <= 1)).all()), "some pixels lie outside [0, 1]")


def check_labels(kit: _Kit) -> None:
    """Labels are classes or -1; those of invalid images are -1, and ambiguous ones have soft labels."""
    made = kit.made()
    require(bool(((made.labels >= -1) & (made.labels < CLASSES)).all()), "some labels are neither a class nor -1")
    if kit.given.kind == "invalid":
        require(bool((made.labels == -1).all()), "no class is right on invalid images, so their label is -1")
    if kit.given.kind == "ambiguous":
        require(made.soft_labels is not None, "ambiguous images have soft labels")


def check_columns(kit: _Kit) -> None:
    """There is a value of each column for every image, and the column named in `groups` is among them."""
    made = kit.made()
    for name, values in made.columns.items():
        require(len(values) == len(made), f"the column {name!r} has {len(values)} values for {len(made)} images")
    groups = kit.given.groups
    require(not groups or groups in made.columns, f"`groups` names the column {groups!r}, which is not there")


def check_repetition(kit: _Kit) -> None:
    """The same seed makes the same images."""
    first, again = kit.made(3), kit.made(3)
    same = np.array_equal(first.materialise(), again.materialise()) and np.array_equal(first.labels, again.labels)
    require(same, "one seed made different images: draw with given.seed only")


def check_saving(kit: _Kit) -> None:
    """What is saved and loaded makes the same images."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stress_set.safetensors"
        kit.given.save(path)
        loaded = type(kit.given).load(path)
    again = loaded.make(kit.nominal, train=kit.train, classifier=kit.classifier)
    require(np.array_equal(kit.made().materialise(), again.materialise()), "the loaded one makes other images")


def check_nominal(kit: _Kit) -> None:
    """The nominal images stay as they are."""
    before = kit.nominal.materialise().copy()
    kit.made()
    require(np.array_equal(kit.nominal.materialise(), before), "the nominal images were changed")


CHECKS: tuple[Callable[[_Kit], None], ...] = (
    check_declaration,
    check_images,
    check_labels,
    check_columns,
    check_repetition,
    check_nominal,
    check_saving,
)


def _images(count: int, seed: int) -> ImageSet:
    """Images of three classes, the darker the lower the class."""
    from secondguess.images import ImageSet

    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = rng.uniform(0, 0.3, (count, 3, 16, 16)) + 0.3 * labels[:, None, None, None]
    made = ImageSet.from_arrays(
        np.rint(255 * pixels).astype(np.uint8), labels, class_names=["dark", "grey", "bright"], layout="NCHW"
    )
    return replace(made, name="example")


def _by_brightness() -> Classifier:
    from secondguess.model.classifier import Classifier

    def probabilities(images: NDArray[np.float32]) -> NDArray[np.float64]:
        level = images.mean(axis=(1, 2, 3), dtype=np.float64)[:, None]
        weights = np.exp(-40 * (level - np.array([0.15, 0.45, 0.75])) ** 2)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    return Classifier(probabilities, class_names=("dark", "grey", "bright"))
