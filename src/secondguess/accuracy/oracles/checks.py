"""A test kit for oracles: the contract of `Oracle`, checked on synthetic observations.

    from secondguess.accuracy.oracles import check_oracle
    check_oracle(MyOracle())             # raises AssertionError with the reason, or returns the checks that passed

The kit needs no model and no data: it makes observations that hold what the oracle `needs`, with four well separated
classes, of which some images are misclassified with less confidence, while their pixels and the traces of inner layers
still show the true class. The images have the columns `partition` ("low" for classes 0 and 1, "high" for 2 and 3),
`referee_1` and `referee_2` (predictions of other models, usually right).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.base import UNDECIDED, Oracle, Verdicts
from secondguess.contracts.kit import Kit, check_name, check_parameters, refuses, require, run_checks
from secondguess.contracts.parameters import Parametrised
from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.checks import example_observation

__all__ = ["ThreeSets", "check_oracle", "labelled_observation"]

L = TypeVar("L", bound=Parametrised)

CLASSES = 4
FAILING = 0.2


def check_oracle(
    oracle: Oracle | type[Oracle],
    observations: tuple[Observation, Observation, Observation] | None = None,
    *,
    images: int = 200,
    seed: int = 0,
) -> list[str]:
    """Check an oracle against the contract.

    Args:
        oracle: an instance, whose parameters are used, or a class that can be made without arguments.
        observations: of training, validation and operation, with all labels known, some predictions wrong and more than
            seven images each; synthetic if left out.
        images: how many images the synthetic observations are of.
        seed: of the synthetic observations.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    given = oracle() if isinstance(oracle, type) else oracle
    if not isinstance(given, Oracle):
        raise AssertionError(f"{given!r} is not a secondguess Oracle")
    training, validation, operation = observations or (
        labelled_observation(given.needs, images, seed=seed + number) for number in range(3)
    )
    kit = _Kit(given, training, validation, operation)
    return run_checks(kit, CHECKS)


def labelled_observation(needs: Needs, images: int, *, seed: int = 0) -> Observation:
    """A synthetic observation of four classes that holds what `needs` says; a fifth of the predictions are wrong."""
    rng = np.random.default_rng(seed)
    seen = example_observation(replace(needs, logits=True, images=True), images, seed=seed)
    labels = np.arange(images, dtype=np.int64) % CLASSES
    fails = rng.random(images) < FAILING
    rows = np.arange(images)
    shown = np.where(fails, (rows + 1 + rng.integers(0, CLASSES - 1, images)) % images, rows)
    if seen.logits is None or seen.pixels is None:
        raise AssertionError("the example observation lacks logits or images")
    logits = (seen.logits[shown] * np.where(fails, 0.4, 1.0)[:, None]).astype(np.float32)
    exp = np.exp(logits.astype(np.float64))
    observation = seen.replace(
        probabilities=exp / exp.sum(axis=1, keepdims=True),
        logits=logits if needs.logits else None,
        samples=None if seen.samples is None else seen.samples[shown],
    )
    referees = [np.where(rng.random(images) < FAILING, rng.integers(0, CLASSES, images), labels) for _ in range(2)]
    columns = {
        "partition": np.where(labels < CLASSES // 2, "low", "high"),
        "referee_1": referees[0],
        "referee_2": referees[1],
    }
    ids = tuple(f"{k:04d}.png" for k in rows)
    classes = tuple(str(k) for k in range(CLASSES))
    given = ImageSet(seen.pixels, labels, classes, f"example {seed}", ids=ids, columns=columns)
    return observation.replace(images=given)


@dataclass
class ThreeSets(Kit[L]):
    """A learner with the observations it is fitted on and applied to."""

    training: Observation
    validation: Observation
    operation: Observation


class _Kit(ThreeSets[Oracle]):
    @cached_property
    def verdicts(self) -> Verdicts:
        return self.fitted.judge(self.operation)

    def fresh(self) -> Oracle:
        return self.given.clone().fit(self.training, self.validation)


def check_verdicts(kit: _Kit) -> None:
    """Verdicts have the right types; every prediction judged wrong has a reason."""
    found, n = kit.verdicts, len(kit.operation)
    types = (found.wrong.dtype.name, found.advice.dtype.name)
    require(types == ("int8", "int64"), f"verdicts are {types}, not int8 and int64: use Verdicts.make")
    require(
        all(part.shape == (n,) for part in (found.wrong, found.reasons, found.advice)),
        f"not one verdict for {n} images",
    )
    require(bool(np.isin(found.wrong, (-1, 0, 1)).all()), f"verdicts are {np.unique(found.wrong)}, not -1, 0 and 1")
    require(all(isinstance(reason, str) for reason in found.reasons), "a reason is not a text")
    require(all(found.reasons[found.judged_wrong]), "a prediction was judged wrong without a reason")
    advice = found.advice
    classes = len(kit.operation.class_names)
    require(bool(((advice >= -1) & (advice < classes)).all()), "an advice is neither a class nor -1")


def check_use(kit: _Kit) -> None:
    """Wrong predictions are judged wrong more often than right ones."""
    decided = kit.verdicts.wrong != UNDECIDED
    right = kit.operation.correct
    require(bool((decided & right).any() and (decided & ~right).any()), "hardly anything was decided")
    caught = kit.verdicts.judged_wrong[decided & ~right].mean()
    accused = kit.verdicts.judged_wrong[decided & right].mean()
    require(
        bool(caught > accused),
        f"{caught:.0%} of the wrong and {accused:.0%} of the right predictions were judged wrong: is it upside down?",
    )


def check_labels_unseen(kit: _Kit) -> None:
    """The labels of the images in operation play no part."""
    blind = kit.fitted.judge(_without_labels(kit.operation))
    require(_same(kit.verdicts, blind), "without the labels of the operational images the verdicts differ")


def check_determinism(kit: _Kit) -> None:
    """The same observation gives the same verdicts, from one fit and from two."""
    require(_same(kit.verdicts, kit.fitted.judge(kit.operation)), "judging twice gave different verdicts")
    again = kit.fresh().judge(kit.operation)
    require(_same(kit.verdicts, again), "fitting twice gave different verdicts: take a seed parameter")


def check_batch_size(kit: _Kit) -> None:
    """A verdict depends on its own image alone, not on which others are judged beside it."""
    for size in (1, 7):
        rows = slice(0, size)
        part = kit.fitted.judge(kit.operation.take(rows))
        require(_same(kit.verdicts.take(rows), part), f"{size} images on their own get other verdicts than among all")


def check_permutation(kit: _Kit) -> None:
    """Shuffled images get shuffled verdicts."""
    order = np.random.default_rng(0).permutation(len(kit.operation))
    shuffled = kit.fitted.judge(kit.operation.take(order))
    require(_same(kit.verdicts.take(order), shuffled), "shuffling the images changed their verdicts")


def check_refit(kit: _Kit) -> None:
    """A second fit forgets the first."""
    used = kit.given.clone()
    used.fit(kit.validation, kit.training)
    require(used.fit(kit.training, kit.validation) is used, "fit() must return the oracle itself")
    require(_same(kit.verdicts, used.judge(kit.operation)), "state of an earlier fit was kept")


def check_save_and_load(kit: _Kit) -> None:
    """What is saved and loaded judges the same; what cannot be saved says so with a `UserError`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "oracle.safetensors"
        try:
            kit.fitted.save(path)
        except UserError:
            return
        loaded = type(kit.fitted).load(path)
    require(_plain(loaded.params()) == _plain(kit.fitted.params()), "a parameter changed on the way")
    require(_same(kit.verdicts, loaded.judge(kit.operation)), "the loaded one judges differently")


def check_bad_input(kit: _Kit) -> None:
    """Missing parts, unknown labels, other classes and too early calls are `UserError`s, not crashes."""
    oracle, needs = kit.fitted, kit.given.needs
    bare = _without_labels(kit.training)
    refuses(lambda: kit.given.clone().fit(bare, kit.validation), "training without labels")
    images, labels = kit.operation.require_images("The kit"), np.zeros(len(kit.operation), dtype=np.int64)
    two = kit.operation.replace(
        probabilities=np.eye(2)[labels],
        logits=None if kit.operation.logits is None else kit.operation.logits[:, :2],
        samples=None if kit.operation.samples is None else kit.operation.samples[:, :, :2],
        images=replace(images, class_names=("a", "b"), labels=labels, soft_labels=None),
        class_names=("a", "b"),
    )
    refuses(lambda: oracle.judge(two), "an observation of two other classes")
    if needs.logits or needs.traces or needs.samples:
        poor = kit.operation.replace(logits=None, traces={}, samples=None)
        refuses(lambda: oracle.judge(poor), "an observation without what it needs")
    if oracle.requires_fit:
        refuses(lambda: kit.given.clone().judge(kit.operation), "judging before fitting")


def _without_labels(seen: Observation) -> Observation:
    unknown = np.full(len(seen), -1, dtype=np.int64)
    return seen.replace(images=replace(seen.require_images("The kit"), labels=unknown, soft_labels=None))


CHECKS: tuple[Callable[[_Kit], None], ...] = (
    check_name,
    check_parameters,
    check_verdicts,
    check_use,
    check_labels_unseen,
    check_determinism,
    check_batch_size,
    check_permutation,
    check_refit,
    check_save_and_load,
    check_bad_input,
)


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with lists for tuples, which JSON does not know."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in params.items()}


def _same(first: Verdicts, second: Verdicts) -> bool:
    pairs: list[tuple[NDArray[np.generic], NDArray[np.generic]]] = [
        (first.wrong, second.wrong),
        (first.reasons, second.reasons),
        (first.advice, second.advice),
    ]
    return all(np.array_equal(one, other) for one, other in pairs)
