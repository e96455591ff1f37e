"""Combining supervisors: rules, the learnt statistic, and the promise that does not depend on either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secondguess import UserError
from secondguess.guard.combining import RULES, bonferroni, cauchy, harmonic
from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.thresholds import Calibration
from secondguess.metrics import auroc

M = 4
SHARED = np.sqrt(0.6)  # of what the supervisors see alike


def nominal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Scores of four supervisors that depend on each other, one with heavy tails, one on another scale."""
    raw = SHARED * rng.normal(size=(n, 1)) + np.sqrt(1 - SHARED**2) * rng.normal(size=(n, M))
    raw[:, 1] = np.sinh(2 * raw[:, 1])
    raw[:, 2] = 1e-6 * raw[:, 2] - 1
    return raw


def trouble(rng: np.random.Generator, n: int, column: int) -> np.ndarray:
    """Images that one supervisor sees, and nobody else."""
    scores = nominal(rng, n)
    scores[:, column] += (3.0, 40.0, 3e-6, -3.0)[column]
    return scores


@pytest.fixture(scope="module")
def panel() -> Panel:
    rng = np.random.default_rng(0)
    kinds = {"ambiguous": trouble(rng, 400, 0), "invalid": trouble(rng, 300, 2), "adversarial": trouble(rng, 200, 3)}
    return fit_panel(nominal(rng, 500), kinds, seed=1)


@pytest.mark.parametrize("rule", ["bonferroni", "harmonic"])
@pytest.mark.parametrize("dependence", [0.0, 0.9, -1.0])
def test_a_combined_p_value_is_a_p_value_whatever_the_dependence(rule: str, dependence: float) -> None:
    from scipy.stats import norm

    rng = np.random.default_rng(3)
    first = rng.normal(size=(20_000, 1))
    if dependence < 0:  # the second is the first turned round, the third a copy
        z = np.hstack([first, -first, first])
    else:
        z = np.sqrt(dependence) * first + np.sqrt(1 - dependence) * rng.normal(size=(20_000, 3))
    p = RULES[rule](norm.sf(z))
    for rate in (0.01, 0.05, 0.2, 0.5):
        assert (p <= rate).mean() <= rate + 4 * np.sqrt(rate / len(p))


def test_the_rules_are_what_their_formulas_say() -> None:
    p = np.array([[0.01, 0.04, 0.5], [1.0, 1.0, 1.0]])
    assert bonferroni(p).tolist() == [0.03, 1.0]
    assert harmonic(p).tolist() == pytest.approx([np.e * np.log(3) * 3 / (100 + 25 + 2), 1.0])
    assert harmonic(p[:, :1]).tolist() == [0.01, 1.0]
    expected = 0.5 - np.arctan((np.tan(0.49 * np.pi) + np.tan(0.46 * np.pi)) / 3) / np.pi
    assert cauchy(p)[0] == pytest.approx(expected)
    with pytest.raises(UserError, match="above 0 and up to 1"):
        bonferroni(np.array([[0.0, 0.5]]))


@pytest.mark.parametrize("rule", ["learnt", "bonferroni", "harmonic", "cauchy"])
def test_the_promise_holds_for_every_rule(rule: str, panel: Panel) -> None:
    """2,000 calibration sets of 60 images, each with ten new images."""
    rng = np.random.default_rng(4)
    judge = panel if rule == "learnt" else fit_panel(nominal(rng, 300), {}, rule=rule)
    statistics, _ = judge.combine(nominal(rng, 2000 * 70))
    sets = statistics.reshape(2000, 70)
    p = (1 + (sets[:, None, :60] >= sets[:, 60:, None]).sum(axis=2)) / 61
    assert p[0].tolist() == Calibration.of(sets[0, :60]).p_values(sets[0, 60:]).tolist()
    for rate in (0.02, 0.05, 0.2, 0.5):
        share = (p <= rate).mean()
        spread = (p <= rate).mean(axis=1).std() / np.sqrt(len(p))
        assert share <= rate + 4 * spread


def test_a_panel_sees_what_its_best_supervisor_sees(panel: Panel) -> None:
    rng = np.random.default_rng(5)
    calm = nominal(rng, 2000)
    for column in (0, 2, 3):
        stress = trouble(rng, 1000, column)
        best = max(auroc(calm[:, j], stress[:, j]) for j in range(M))
        assert auroc(panel.combine(calm)[0], panel.combine(stress)[0]) >= best - 0.01


def test_a_trouble_nobody_rehearsed_is_heard_of_all_the_same(panel: Panel) -> None:
    rng = np.random.default_rng(6)
    calm, stress = nominal(rng, 2000), nominal(rng, 500)
    stress[:, 1] += 1000  # where no nominal score has ever been
    (calm_statistics, _), (stress_statistics, _) = panel.combine(calm), panel.combine(stress)
    deaf = replace(panel, novelty=False)
    learnt = auroc(deaf.combine(calm)[0], deaf.combine(stress)[0])
    assert auroc(calm_statistics, stress_statistics) > max(0.85, learnt + 0.05)


@pytest.mark.parametrize("far", [6.0, 20.0, 1000.0])
def test_bonferroni_hears_a_single_supervisor_whatever_the_others_say(far: float) -> None:
    """The learnt panel may not, as its module says: the network has learnt that such images are nominal."""
    rng = np.random.default_rng(0)
    panel = fit_panel(rng.normal(size=(2000, 6)), {}, rule="bonferroni")
    calibration = Calibration.of(panel.combine(rng.normal(size=(2000, 6)))[0])
    strange = rng.normal(size=(500, 6))
    strange[:, 5] += far
    assert (calibration.p_values(panel.combine(strange)[0]) <= 0.01).mean() > 0.95
    assert (calibration.p_values(panel.combine(rng.normal(size=(5000, 6)))[0]) <= 0.01).mean() < 0.02


def test_kinds_are_told_apart_and_their_probabilities_are_honest(panel: Panel) -> None:
    rng = np.random.default_rng(7)
    assert panel.anomalies == ("ambiguous", "invalid", "adversarial")
    chances = np.concatenate([panel.combine(trouble(rng, 800, column))[1] for column in (0, 2, 3)])
    truth = np.repeat([0, 1, 2], 800)
    assert chances.sum(axis=1) == pytest.approx(np.ones(2400))
    right = chances.argmax(axis=1) == truth
    assert right.mean() > 0.8
    assert chances.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.05)


def test_one_image_is_judged_as_among_many(panel: Panel) -> None:
    scores = nominal(np.random.default_rng(8), 9)
    together = panel.combine(scores)
    alone = [panel.combine(row[None]) for row in scores]
    assert together[0] == pytest.approx(np.concatenate([one[0] for one in alone]), rel=1e-9)
    assert together[1] == pytest.approx(np.concatenate([one[1] for one in alone]), rel=1e-9)


def test_infinite_scores_are_very_suspicious_and_nothing_is_nan(panel: Panel) -> None:
    wild = np.array([[np.inf, np.inf, np.inf, np.inf], [-np.inf] * 4])
    statistics, chances = panel.combine(wild)
    assert np.isfinite(statistics).all()
    assert np.isfinite(chances).all()
    assert panel.p_values(wild)[0].tolist() == [1 / 501] * 4
    constant = fit_panel(np.full((30, 2), np.inf), {"invalid": np.zeros((30, 2))})
    assert np.isfinite(constant.combine(np.zeros((1, 2)))[0]).all()


def test_one_kind_of_trouble_is_enough() -> None:
    rng = np.random.default_rng(9)
    panel = fit_panel(nominal(rng, 300), {"invalid": trouble(rng, 100, 0)}, seed=2)
    statistics, chances = panel.combine(trouble(rng, 300, 0))
    assert chances.tolist() == [[1.0]] * 300
    assert auroc(panel.combine(nominal(rng, 300))[0], statistics) > 0.95


def test_same_seed_same_panel_and_it_survives_its_file(panel: Panel) -> None:
    rng = np.random.default_rng(0)
    kinds = {"ambiguous": trouble(rng, 400, 0), "invalid": trouble(rng, 300, 2), "adversarial": trouble(rng, 200, 3)}
    again = fit_panel(nominal(rng, 500), kinds, seed=1)
    read = Panel.restored(panel.card(), panel.arrays())
    scores = nominal(rng, 20)
    assert again.combine(scores)[0].tolist() == panel.combine(scores)[0].tolist() == read.combine(scores)[0].tolist()


def test_what_a_panel_cannot_learn_from_is_said() -> None:
    with pytest.raises(UserError, match="There is no rule 'fisher'"):
        fit_panel(np.zeros((5, 2)), {}, rule="fisher")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="take rule='bonferroni'"):
        fit_panel(np.zeros((5, 2)), {})
    with pytest.raises(UserError, match="at least two rows"):
        fit_panel(np.zeros((1, 2)), {}, rule="cauchy")


def test_one_image_is_combined_as_many_are(panel: Panel) -> None:
    rng = np.random.default_rng(8)
    scores = np.concatenate([nominal(rng, 200), 30 * nominal(rng, 50), panel.references[[0, -1]], panel.references[:3]])
    scores[3, 1], scores[4, 0] = np.inf, -np.inf
    statistics, chances = panel.combine(scores)
    single = [panel.combine(scores[row : row + 1]) for row in range(len(scores))]
    assert np.concatenate([one[0] for one in single]) == pytest.approx(statistics, rel=1e-9, abs=1e-9)
    assert np.concatenate([one[1] for one in single]) == pytest.approx(chances, rel=1e-9, abs=1e-12)
