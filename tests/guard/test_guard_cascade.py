"""Cheap supervisors first: who is asked, what it costs, and that the promise stays."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import UserError
from secondguess.guard.cascade import Cascade, among, fit_cascade
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


def test_an_image_that_was_cleared_is_scored_where_it_must_be_known_completely(fitted) -> None:
    panel, cascade = fitted
    scores = world(np.random.default_rng(5), 300)
    found, statistics, chances = cascade.combine_scores(panel, scores)
    cleared = np.isnan(found).any(axis=1)
    wanted = np.arange(300) % 2 == 0
    assert (cleared & wanted).any() and (cleared & ~wanted).any() and (~cleared & wanted).any()
    asked = []

    def scoring(rows, columns):
        asked.append((rows, columns))
        return among(scores)(rows, columns)

    whole, same, names = cascade.complete(panel, wanted, (found, statistics, chances), scoring)
    assert whole[wanted] == pytest.approx(scores[wanted]) and names[wanted] == pytest.approx(
        panel.combine(scores)[1][wanted]
    )
    assert np.isnan(whole[cleared & ~wanted][:, cascade.expensive]).all(), "nobody has asked for these"
    assert same is statistics, "an alarm is an alarm by what was calibrated"
    ((rows, columns),) = asked
    assert rows.tolist() == np.flatnonzero(cleared & wanted).tolist() and columns is cascade.expensive
    assert np.isnan(found[cleared]).any(), "what was given is not written to"


def test_the_budget_is_for_all_images_of_every_day() -> None:
    """Also for those of which the first panel learns that they are mistakes, and which look suspicious to it."""
    rng = np.random.default_rng(6)
    calm, mistakes = world(rng, 1600), world(rng, 400, 2.5)
    everyday = np.concatenate([calm, mistakes])
    cascade = fit_cascade(calm, {"mistaken": mistakes}, COSTS, 1.0, everyday=everyday, rule="learnt", seed=0)
    new = np.concatenate([world(rng, 1600), world(rng, 400, 2.5)])
    asked = (cascade.first.combine(new[:, cascade.cheap])[0] > cascade.limit).mean()
    assert COSTS[cascade.cheap].sum() + asked * COSTS[cascade.expensive].sum() == pytest.approx(1.0, abs=0.12)


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
