from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from secondguess.accuracy import (
    ConfidenceSequence,
    Design,
    FewLabels,
    deepest,
    importance,
    plan_labels,
    simple_random,
    stratified,
)
from secondguess.accuracy.oracles import Verdicts
from secondguess.errors import UserError

DESIGNS = [simple_random, stratified, importance, deepest]
N = 1000
EXPECTED = np.random.default_rng(0).beta(0.15, 2.2, N)


def labelled(design: Design, wrong: np.ndarray, n: int, seed: int, level: float = 0.95) -> FewLabels:
    labelling = FewLabels(design, np.zeros(len(wrong), dtype=np.int64), seed=seed, level=level)
    images = labelling.ask(n)
    labelling.tell(images, wrong[images].astype(np.int64))
    return labelling


@pytest.mark.parametrize("make", DESIGNS)
def test_estimates_are_unbiased_and_intervals_hold_at_all_times(make) -> None:
    """The expectations are off by a factor of two; a miss is a bound that excludes the truth after ANY label."""
    design, misses, offs = make(np.minimum(2 * EXPECTED, 1.0)), 0, []
    for seed in range(60):
        wrong = np.random.default_rng(1000 + seed).random(N) < EXPECTED
        labelling, truth = labelled(design, wrong, 150, seed, level=0.8), 1 - wrong.mean()
        found = labelling.estimate()  # bounds only ever narrow, so the last one has missed if any has
        misses += not found.low <= truth <= found.high
        offs.append(1 - np.mean(labelling._values) - truth)
    assert misses <= 20  # of 60 with a probability of at most 0.2 each; 20 or more come up once in 100
    assert abs(np.mean(offs)) < 3.5 * np.std(offs) / np.sqrt(60)


def test_knowing_where_to_look_narrows_the_interval() -> None:
    widths = Counter()
    for seed in range(8):
        wrong = np.random.default_rng(seed).random(N) < EXPECTED
        for make in DESIGNS:
            found = labelled(make(EXPECTED), wrong, 200, seed).estimate()
            widths[make.__name__] += found.high - found.low
    assert widths["importance"] < 0.75 * widths["simple_random"]
    assert widths["stratified"] < 0.75 * widths["simple_random"]


def test_deepest_finds_more_errors() -> None:
    wrong = np.random.default_rng(1).random(N) < EXPECTED
    found = {make.__name__: labelled(make(EXPECTED), wrong, 80, 0).estimate().details for make in DESIGNS}
    assert found["deepest"]["errors_found"] > 3 * found["simple_random"]["errors_found"]


@pytest.mark.parametrize("make", DESIGNS)
def test_all_labels_are_the_truth(make) -> None:
    wrong = np.random.default_rng(2).random(300) < EXPECTED[:300]
    labelling = labelled(make(EXPECTED[:300]), wrong, 300, 0)
    found = labelling.estimate()
    assert labelling.labelled == 300 and len(labelling.ask(5)) == 0
    assert found.low <= 1 - wrong.mean() <= found.high
    assert found.high - found.low < 0.003


def test_chances_are_the_frequencies_with_which_images_come() -> None:
    design = Design("test", np.zeros(4), np.array([5.0, 3.0, 0.0, 2.0]), 0.7, np.zeros(4))
    counts, chances = Counter(), {}
    for seed in range(4000):
        labelling = FewLabels(design, np.zeros(4, dtype=np.int64), seed=seed)
        pair = tuple(labelling.ask(2).tolist())
        counts[pair] += 1
        chances[pair] = np.prod([chance for _, chance in labelling._pending])
    assert sum(chances.values()) == pytest.approx(1.0)
    for pair, chance in chances.items():
        assert counts[pair] / 4000 == pytest.approx(chance, abs=4 * np.sqrt(chance / 4000))
    assert chances[0, 2] == pytest.approx((0.7 * 0.5 + 0.3 / 4) * (0.3 / 3))


def test_simple_random_is_the_sample_mean_of_what_is_left() -> None:
    wrong = np.array([1, 0, 0, 1, 0], dtype=bool)
    labelling = labelled(simple_random(np.full(5, 0.2)), wrong, 3, 0)
    order = FewLabels(simple_random(np.full(5, 0.2)), np.zeros(5, dtype=np.int64), seed=0).ask(3)
    y = wrong[order].astype(float)
    assert labelling._values == pytest.approx([y[0], (y[0] + 4 * y[1]) / 5, (y[0] + y[1] + 3 * y[2]) / 5])


@pytest.mark.parametrize("mean", [0.02, 0.5, 0.97])
def test_a_sequence_holds_at_all_times(mean) -> None:
    misses = 0
    for seed in range(60):
        sequence = ConfidenceSequence(0.8)
        for value in np.random.default_rng(seed).random(150) < mean:
            sequence.update(float(value), 0.0, 1.0)
        misses += not sequence.low <= mean <= sequence.high
        assert sequence.high - sequence.low < 0.35
    assert misses <= 20


def test_a_sequence_is_the_betting_it_claims_to_be() -> None:
    from secondguess.accuracy.sequences import BOLDNESS, POINTS, STAKES

    values = np.random.default_rng(0).random(40) < 0.3
    sequence = ConfidenceSequence(0.9)
    alive = np.ones(POINTS, dtype=bool)
    grid = np.linspace(0, 1, POINTS)
    capital = {(sign, stake): np.ones(POINTS) for sign in (1, -1) for stake in STAKES}
    for value in values:
        sequence.update(float(value), 0.0, 1.0)
        for (sign, stake), money in capital.items():
            room = grid if sign > 0 else 1 - grid
            bet = np.minimum(stake, np.divide(BOLDNESS, room, out=np.full(POINTS, np.inf), where=room > 0))
            money *= 1 + sign * bet * (value - grid)
        alive &= np.mean(list(capital.values()), axis=0) < 10
    left = grid[alive]
    assert sequence.low == pytest.approx(max(0, left[0] - 1 / (POINTS - 1)))
    assert sequence.high == pytest.approx(min(1, left[-1] + 1 / (POINTS - 1)))


@pytest.mark.parametrize("make", DESIGNS)
def test_a_plan_is_what_labelling_does(make) -> None:
    design = make(EXPECTED)
    found = plan_labels(design, target_halfwidth=0.05, seed=3)
    assert found.halfwidth <= 0.05 and found.design == design.name
    assert found.labels == len(found.images) == len(np.unique(found.images)) <= N
    assert found.accuracy == pytest.approx(1 - EXPECTED.mean())
    labelling = FewLabels(design, np.zeros(N, dtype=np.int64), seed=3)
    assert labelling.ask(found.labels).tolist() == found.images.tolist()
    assert plan_labels(design, target_halfwidth=0.1, seed=3).labels < found.labels
    wrong = np.random.default_rng(5).random(N) < EXPECTED
    reached = labelled(design, wrong, found.labels, 3).estimate()
    assert (reached.high - reached.low) / 2 < 0.08


def test_strata_are_verdicts_and_levels_of_suspicion() -> None:
    verdicts = Verdicts.make(np.repeat([0, 1, -1], [800, 150, 50]))
    design = stratified(EXPECTED, verdicts, bins=2)
    assert np.bincount(design.strata).tolist() == [25, 25, 400, 400, 75, 75]
    assert EXPECTED[design.strata == 2].max() <= EXPECTED[design.strata == 3].min()


def test_batches_do_not_change_the_draws() -> None:
    one, other = (FewLabels(importance(EXPECTED), np.zeros(N, dtype=np.int64), seed=1) for _ in range(2))
    wrong = (np.random.default_rng(3).random(N) < EXPECTED).astype(np.int64)
    for size in (7, 13, 20):
        images = one.ask(size)
        assert one.ask(size).tolist() == images.tolist()  # asked again, the same until they are told
        one.tell(images, wrong[images])
    images = other.ask(40)
    other.tell(images, wrong[images])
    assert one.estimate() == other.estimate()


def test_bad_input() -> None:
    predictions = np.zeros(N, dtype=np.int64)
    labelling = FewLabels(simple_random(EXPECTED), predictions)
    assert (labelling.estimate().low, labelling.estimate().high) == (0.0, 1.0)
    images = labelling.ask(3)
    with pytest.raises(UserError, match="Labels of 2 images were given, but not of those that ask"):
        labelling.tell(images[1:], predictions[:2])
    with pytest.raises(UserError, match="every image that was asked for needs its label"):
        labelling.tell(images, np.array([0, -1, 0]))
    with pytest.raises(UserError, match="ask for at least 1"):
        labelling.ask(0)
    with pytest.raises(UserError, match="for 1000 images, but 5 predictions"):
        FewLabels(simple_random(EXPECTED), predictions[:5])
    with pytest.raises(UserError, match="target half-width is 0"):
        plan_labels(simple_random(EXPECTED), target_halfwidth=0)
    with pytest.raises(UserError, match="between 0 and 1 are needed"):
        simple_random(EXPECTED + 1)
    with pytest.raises(UserError, match=r"must be in \[0, 1\)"):
        importance(EXPECTED, share=1.0)
    with pytest.raises(UserError, match="3 verdicts were given for 1000"):
        stratified(EXPECTED, Verdicts.make(np.zeros(3)))
    with pytest.raises(UserError, match="0 bins"):
        stratified(EXPECTED, bins=0)
    with pytest.raises(UserError, match="finite and not negative"):
        Design("test", EXPECTED, -EXPECTED, 0.5, EXPECTED)
    with pytest.raises(UserError, match=r"confidence level is 1.0"):
        ConfidenceSequence(1.0)
