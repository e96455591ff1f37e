"""Cheap supervisors first: who is asked, what it costs, and that the promise stays."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import UserError
from secondguess.guard.cascade import Cascade, fit_cascade
from secondguess.guard.panel import fit_panel
from secondguess.guard.thresholds import Threshold

COSTS = np.array([0.01, 1.0, 0.02, 2.0])


def world(rng: np.random.Generator, n: int, shift: float = 0.0) -> np.ndarray:
    common = rng.normal(size=(n, 1)) + shift
    return common + 0.7 * rng.normal(size=(n, 4))


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    calm, kinds = world(rng, 1500), {"invalid": world(rng, 500, 3.0), "ambiguous": world(rng, 500, 2.0)}
    return fit_panel(calm, kinds, seed=0), fit_cascade(calm, kinds, COSTS, 1.0, rule="learnt", seed=0)


def test_the_budget_is_kept_on_nominal_images(fitted) -> None:
    panel, cascade = fitted
    assert cascade.cheap.tolist() == [0, 2]
    assert cascade.expensive.tolist() == [1, 3]
    asked = []
    scores = world(np.random.default_rng(1), 4000)

    def ask(rows, columns):
        asked.append((4000 if rows is None else len(rows)) * COSTS[columns].sum())
        return (scores if rows is None else scores[rows])[:, columns]

    found, statistics, _ = cascade.combine(panel, 4000, ask)
    assert sum(asked) / 4000 == pytest.approx(1.0, abs=0.1)
    skipped = np.isnan(found[:, 1])
    assert (np.isnan(found) == skipped[:, None] * np.isin(np.arange(4), [1, 3])).all()
    assert statistics[skipped].max() < statistics[~skipped].min()
    assert statistics[~skipped] == pytest.approx(panel.combine(scores[~skipped])[0])


def test_the_promise_stays_and_little_is_lost(fitted) -> None:
    panel, cascade = fitted
    rng = np.random.default_rng(2)
    alarms = []
    for _ in range(300):
        calibration = cascade.combine_scores(panel, world(rng, 99))[1]
        alarms.append(Threshold.at(calibration, 0.05).alarms(cascade.combine_scores(panel, world(rng, 50))[1]).mean())
    assert np.mean(alarms) <= 0.05 + 4 * np.std(alarms) / np.sqrt(300)
    stress, calm = world(rng, 2000, 3.0), world(rng, 2000)
    whole = Threshold.at(panel.combine(calm)[0], 0.05).alarms(panel.combine(stress)[0]).mean()
    quick = Threshold.at(cascade.combine_scores(panel, calm)[1], 0.05)
    assert quick.alarms(cascade.combine_scores(panel, stress)[1]).mean() >= whole - 0.05


def test_it_survives_its_file(fitted) -> None:
    panel, cascade = fitted
    read = Cascade.restored(cascade.card(), cascade.arrays())
    scores = world(np.random.default_rng(3), 30)
    assert read.combine_scores(panel, scores)[1].tolist() == cascade.combine_scores(panel, scores)[1].tolist()


def test_budgets_that_need_no_cascade_or_allow_none() -> None:
    calm = world(np.random.default_rng(4), 50)
    assert fit_cascade(calm, {}, COSTS, 4.0, rule="cauchy") is None
    with pytest.raises(UserError, match=r"cheapest supervisor alone takes 0\.01 ms"):
        fit_cascade(calm, {}, COSTS, 0.005, rule="cauchy")
