"""A test kit for estimators: the contract of `Estimator`, checked on synthetic observations.

    from secondguess.accuracy import check_estimator
    check_estimator(MyEstimator())       # raises AssertionError with the reason, or returns the checks that passed

The kit needs no model and no data: its observations have four classes, of which a fifth of the images is misclassified,
with less confidence; they are those on which oracles are checked (`secondguess.accuracy.oracles.checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from secondguess.accuracy.base import Estimate, Estimator
from secondguess.accuracy.oracles.checks import ThreeSets, labelled_observation
from secondguess.contracts.kit import check_name, check_parameters, refuses, require, run_checks
from secondguess.model.observation import Observation
from secondguess.supervisors.checks import degenerate_observations

__all__ = ["check_estimator"]

CLOSE = 1e-9


def check_estimator(estimator: Estimator | type[Estimator], *, images: int = 200, seed: int = 0) -> list[str]:
    """Check an estimator against the contract.

    Args:
        estimator: an instance, whose parameters are used, or a class that can be made without arguments.
        images: how many images the synthetic observations are of.
        seed: of the synthetic observations.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    given = estimator() if isinstance(estimator, type) else estimator
    if not isinstance(given, Estimator):
        raise AssertionError(f"{given!r} is not a secondguess.accuracy.Estimator")
    training, validation, operation = (
        labelled_observation(given.needs, images, seed=seed + number) for number in range(3)
    )
    return run_checks(_Kit(given.clone(resamples=10), training, validation, operation), CHECKS)


class _Kit(ThreeSets[Estimator]):
    @cached_property
    def found(self) -> Estimate:
        return self.fitted.estimate(self.operation)

    def fresh(self) -> Estimator:
        return self.given.clone().fit(self.validation, self.training)


def check_estimate(kit: _Kit) -> None:
    """An estimate is a share with an interval around it, and names its method and its number of images."""
    found = kit.found
    require(0 <= found.low <= found.value <= found.high <= 1, f"not a share within its interval: {found}")
    require(found.method == kit.given.name, f"the estimate is by {found.method!r}, the estimator {kit.given.name!r}")
    require(found.n == len(kit.operation), f"the estimate is said to rest on {found.n} images")
    require(found.level == kit.given.level, f"its level is {found.level}, not {kit.given.level}")


def check_labels(kit: _Kit) -> None:
    """Labels of operation that happen to be known are ignored."""
    images = kit.operation.require_images("The check")
    blind = kit.operation.replace(images=replace(images, labels=np.full(len(images), -1)))
    require(kit.fitted.estimate(blind) == kit.found, "without the labels of operation the estimate differs")


def check_repetition(kit: _Kit) -> None:
    """Estimating twice and fitting twice give the same estimate."""
    require(kit.fitted.estimate(kit.operation) == kit.found, "estimating twice gave different estimates")
    again = kit.fresh().estimate(kit.operation)
    require(again == kit.found, "fitting twice gave different estimates: draw with `seed` only")


def check_order(kit: _Kit) -> None:
    """The order of the images does not matter to the value."""
    order = np.random.default_rng(0).permutation(len(kit.operation))
    shuffled = kit.fitted.estimate(kit.operation.take(order)).value
    require(abs(shuffled - kit.found.value) < CLOSE, f"shuffled, the images give {shuffled}, not {kit.found.value}")


def check_refit(kit: _Kit) -> None:
    """A second fit forgets the first."""
    used = kit.given.clone().fit(kit.operation, kit.training)
    used.fit(kit.validation, kit.training)
    require(used.estimate(kit.operation) == kit.found, "state of an earlier fit was kept")


def check_saving(kit: _Kit) -> None:
    """A saved estimator can be loaded and gives the same estimate."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "estimator.safetensors"
        kit.fitted.save(path)
        loaded = type(kit.given).load(path)
    require(loaded.estimate(kit.operation) == kit.found, "the loaded one gives another estimate")


def check_degenerate(kit: _Kit) -> None:
    """A softmax that says nothing has an estimate, too: by one that knew better, and by one that was fitted on it."""
    for name, seen in degenerate_observations(kit.validation).items():
        for judge in (kit.fitted, kit.given.clone().fit(seen, kit.training)):
            found = judge.estimate(seen)
            require(0 <= found.low <= found.value <= found.high <= 1, f"where probabilities are {name}: {found}")


def check_refusals(kit: _Kit) -> None:
    """Bad input is a `UserError`, not a wrong answer."""
    refuses(lambda: kit.given.clone().estimate(kit.operation), "estimating before fitting")
    images = kit.validation.require_images("The check")
    unknown = kit.validation.replace(images=replace(images, labels=np.full(len(images), -1)))
    refuses(lambda: kit.given.clone().fit(unknown, kit.training), "fitting without labels")
    some = kit.operation.probabilities[:, :-1]
    fewer = Observation(some / some.sum(axis=1, keepdims=True))
    refuses(lambda: kit.fitted.estimate(fewer), "an observation with fewer classes")


CHECKS: tuple[Callable[[_Kit], None], ...] = (
    check_name,
    check_parameters,
    check_estimate,
    check_labels,
    check_repetition,
    check_order,
    check_refit,
    check_saving,
    check_degenerate,
    check_refusals,
)
