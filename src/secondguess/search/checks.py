"""A test kit for searches: the contract of `Search`, checked on a synthetic pool.

    from secondguess.search import check_search
    check_search(MySearch())             # raises AssertionError with the reason, or returns the checks that passed

The kit needs no model and no data: it makes a pool of three classes with distances, one score and a corner of feature
space in which the classifier is confidently wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.kit import Kit, check_name, check_parameters, refuses, require, run_checks
from secondguess.model.observation import Observation
from secondguess.search.base import Ints, Search
from secondguess.search.distance import Distances
from secondguess.search.pool import Pool

__all__ = ["check_search", "example_pool"]

CLASSES = 3


def check_search(search: Search | type[Search] | str, *, images: int = 150, seed: int = 0) -> list[str]:
    """Check a search against the contract.

    Args:
        search: an instance, whose parameters are used, a class to be made without any, or a registered name.
        images: of the synthetic pool, at least 60.
        seed: of the synthetic pool.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    if isinstance(search, str):
        from secondguess.search.registry import make

        search = make(search)
    given = search() if isinstance(search, type) else search
    if not isinstance(given, Search):
        raise AssertionError(f"{search!r} is not a secondguess.search.Search")
    pool, labels = example_pool(images, seed=seed)
    return run_checks(_Kit(given, pool, labels), CHECKS)


def example_pool(images: int, *, seed: int = 0) -> tuple[Pool, Ints]:
    """A synthetic pool and the labels (n,) of its images; about a third may not be asked about."""
    from secondguess.images import ImageSet

    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2.0, (images, CLASSES))
    weights = np.exp(logits)
    seen = Observation(weights / weights.sum(axis=1, keepdims=True))
    features = rng.normal(0, 1, (images, 4))
    chance = np.where(features[:, 0] > 1, 0.7, 1 - seen.confidences)
    wrong = rng.random(images) < chance
    mae = np.exp(3 * (seen.confidences - 1) - wrong + rng.normal(0, 0.3, images)) / 50
    failed = rng.random(images) < 0.03
    pool = Pool(
        observation=seen,
        images=ImageSet.from_arrays(rng.integers(0, 256, (images, 1, 4, 4), dtype=np.uint8), layout="NCHW"),
        features=features,
        eligible=seen.confidences > 0.65,
        distances=Distances(
            mae=np.where(failed, np.inf, mae),
            l2=np.where(failed, np.inf, 4 * mae),
            linf=np.where(failed, np.inf, 2 * mae),
            queries=np.full(images, 100),
            failed=failed,
            counterexamples=np.zeros((images, 1, 4, 4), dtype=np.float32),
            counterexample_predictions=(seen.predictions + 1) % CLASSES,
        ),
        scores={"example": chance + rng.normal(0, 0.2, images)},
    )
    return pool, np.where(wrong, (seen.predictions + 1) % CLASSES, seen.predictions)


@dataclass
class _Kit(Kit[Search]):
    pool: Pool
    labels: Ints

    def fresh(self, seed: int = 0) -> Search:
        return self.given.clone(seed=seed).fit(self.pool)

    def order(self, search: Search, count: int, batch: int = 1) -> list[int]:
        asked: list[int] = []
        for _ in range(count):
            indices = search.ask(batch)
            search.tell(indices, self.labels[indices])
            asked += indices.tolist()
        return asked


def check_asks(kit: _Kit) -> None:
    """`ask` gives int64 positions that may be asked about, none twice, fewer at the end and then none."""
    search, asked = kit.fresh(), []
    while len(indices := search.ask(7)):
        require(indices.dtype == np.int64 and indices.ndim == 1, f"ask() returned {indices.dtype} {indices.shape}")
        asked += indices.tolist()
        search.tell(indices, kit.labels[indices])
    require(sorted(asked) == kit.pool.rows.tolist(), "not every image that may be asked about was asked about once")
    require(search.remaining == 0, "nothing is left, but `remaining` is not 0")


def check_replay(kit: _Kit) -> None:
    """The same calls with the same seed lead to the same images."""
    first, second = kit.fresh(3), kit.fresh(3)
    require(kit.order(first, 20) == kit.order(second, 20), "two searches with one seed asked for different images")
    fresh = kit.fresh(3)
    require(kit.order(fresh, 4, 5) == kit.order(kit.fresh(3), 4, 5), "batches were not asked for in the same way twice")


def check_correction(kit: _Kit) -> None:
    """An answer given again replaces the first, as if it had been given from the beginning."""
    corrected, straight = kit.fresh(), kit.fresh()
    for search in (corrected, straight):
        indices = search.ask(12)
        wrong_labels = (kit.labels[indices] + 1) % CLASSES
        search.tell(indices, wrong_labels if search is corrected else kit.labels[indices])
    corrected.tell(corrected.labelled, kit.labels[corrected.labelled])
    require(kit.order(corrected, 8) == kit.order(straight, 8), "a correction left traces of the first answer")


def check_unasked(kit: _Kit) -> None:
    """Answers on images that were never asked about are taken in, and skipped images are not asked about."""
    search = kit.fresh()
    labelled, skipped, outside = kit.pool.rows[:5], kit.pool.rows[5:10], np.flatnonzero(~kit.pool.eligible)[:2]
    search.tell(labelled, kit.labels[labelled])
    search.tell(outside, kit.labels[outside])
    search.skip(skipped)
    seen: NDArray[np.int64] = search.ask(len(kit.pool))
    require(
        not np.isin(seen, np.concatenate([labelled, skipped])).any(), "an image with a label or a skip was asked about"
    )
    require(len(seen) == kit.pool.size - 10, f"{len(seen)} images were left, not {kit.pool.size - 10}")


def check_soft_labels(kit: _Kit) -> None:
    """One-hot soft labels count as their classes, and a row of zeros as an error."""
    hard, soft = kit.fresh(), kit.fresh()
    for search in (hard, soft):
        indices = search.ask(12)
        search.tell(indices, kit.labels[indices] if search is hard else np.eye(CLASSES)[kit.labels[indices]])
    require(kit.order(hard, 8) == kit.order(soft, 8), "one-hot labels led elsewhere than the classes they stand for")
    last = soft.ask(1)
    soft.tell(last, np.zeros((1, CLASSES)))
    require(bool(soft.errors[-1]), "a row of zeros, none of the classes, was not taken for an error")


def check_reasons(kit: _Kit) -> None:
    """`why` gives finite numbers and texts, before and after answers, for every image."""
    search = kit.fresh()
    for index in (*search.ask(3).tolist(), *np.flatnonzero(~kit.pool.eligible)[:1].tolist()):
        reasons = search.why(index)
        require("confidence" in reasons, "the reasons must name the confidence")
        try:
            json.dumps(reasons, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"the reasons {reasons} cannot be shown: {error}") from None


def check_refusals(kit: _Kit) -> None:
    """Bad input is a `UserError`, not a wrong answer."""
    search = kit.fresh()
    refuses(lambda: search.ask(0), "asking for no image")
    refuses(lambda: search.tell([len(kit.pool)], [0]), "a position outside the pool")
    refuses(lambda: search.tell([0], [CLASSES]), "a label that is no class")
    refuses(lambda: search.tell([0], [-1]), "an unknown label")
    refuses(lambda: search.tell([0, 1], [0]), "fewer labels than images")


def check_beginning(kit: _Kit) -> None:
    """Without a pool nothing is asked, and `fit` begins anew."""
    refuses(lambda: kit.given.clone().ask(1), "asking before there is a pool")
    search = kit.fresh()
    first = kit.order(search, 10)
    again = kit.order(search.fit(kit.pool), 10)
    require(again == first, f"after fit(pool) {again} were asked about, and {first} the first time")


def check_saving(kit: _Kit) -> None:
    """A search that is saved, loaded and resumed on its pool continues as if it had never stopped."""
    search = kit.fresh(3)
    kit.order(search, 5, 2)
    search.skip(search.ask(2))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "search.safetensors"
        search.save(path)
        loaded = type(search).load(path)
    refuses(lambda: loaded.ask(1), "asking before the pool is there again")
    others = kit.pool.only(kit.pool.rows[1:])
    refuses(lambda: loaded.resume(others), "resuming on another pool")
    loaded.resume(kit.pool)
    require(loaded.params() == search.params(), f"{loaded.params()} were loaded, {search.params()} saved")
    same = np.array_equal(loaded.labelled, search.labelled) and np.array_equal(loaded.errors, search.errors)
    require(same and loaded.remaining == search.remaining, "the loaded search has other answers than the saved one")
    require(kit.order(loaded, 8) == kit.order(search, 8), "the loaded search asked about other images")


def check_edges(kit: _Kit) -> None:
    """A pool of one image or of three is searched to its end, and one of none is refused."""
    refuses(lambda: kit.given.clone().fit(kit.pool.only(kit.pool.rows[:0])), "a pool without eligible images")
    for rows in (kit.pool.rows[:1], kit.pool.rows[:3]):
        search = kit.given.clone().fit(kit.pool.only(rows))
        asked = kit.order(search, len(rows))
        require(sorted(asked) == rows.tolist(), f"of a pool of {len(rows)} images {asked} were asked about")
        require(len(search.ask(1)) == 0, "an exhausted pool was asked about again")


CHECKS: tuple[Callable[[_Kit], None], ...] = (
    check_name,
    check_parameters,
    check_asks,
    check_replay,
    check_beginning,
    check_saving,
    check_correction,
    check_unasked,
    check_soft_labels,
    check_reasons,
    check_refusals,
    check_edges,
)
