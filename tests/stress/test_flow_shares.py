"""Shares between two classes: against closed forms, other libraries, and images whose share is known."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.shares import ShareCalibration, log_odds_of, separations


class Gaussians:
    """Classes with means of their own and one covariance, the identity: all log-odds have a closed form."""

    def __init__(self, means):
        self.means = np.array(means, dtype=float)

    def draw(self, labels, rng):
        return self.means[labels] + rng.normal(size=(len(labels), self.means.shape[1]))

    def logits(self, x):
        return x @ self.means.T - np.square(self.means).sum(axis=1) / 2

    def log_odds(self, x, pair):
        both = np.take_along_axis(self.logits(x), pair, axis=1)
        return both[:, 0] - both[:, 1]

    def separation(self):
        return np.square(self.means[:, None] - self.means[None]).sum(axis=2) / 2


NEAR_AND_FAR = Gaussians([[0, 0, 0], [4, 0, 0], [0, 16, 0], [3, 16, 0]])


def mixed(classes, count, rng, real=0.5):
    """Mixtures (n, d) of draws of two classes, their classes and the share of the first; some of them are real."""
    pair = np.stack([rng.choice(len(classes.means), 2, replace=False) for _ in range(count)])
    share = np.where(rng.random(count) < real, rng.integers(0, 2, count), rng.uniform(size=count))
    first, second = (classes.draw(pair[:, place], rng) for place in (0, 1))
    return share[:, None] * first + (1 - share[:, None]) * second, pair, share


def test_separations_are_half_of_the_squared_mahalanobis_distances():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 40_000)
    found = separations(NEAR_AND_FAR.logits(NEAR_AND_FAR.draw(labels, rng)), labels)
    apart = ~np.eye(4, dtype=bool)
    assert found[apart] == pytest.approx(NEAR_AND_FAR.separation()[apart], rel=0.02)
    assert np.array_equal(found, found.T)


def test_log_odds_of_mixtures_grow_in_units_of_the_separation_as_their_share_does():
    rng = np.random.default_rng(1)
    x, pair, share = mixed(NEAR_AND_FAR, 60_000, rng, real=0.0)
    units = NEAR_AND_FAR.log_odds(x, pair) / NEAR_AND_FAR.separation()[pair[:, 0], pair[:, 1]]
    slope, offset = np.polyfit(2 * share - 1, units, 1)
    assert slope == pytest.approx(1, abs=0.01)
    assert offset == pytest.approx(0, abs=0.01)


def test_one_scale_fits_near_and_far_classes():
    rng = np.random.default_rng(2)
    x, pair, share = mixed(NEAR_AND_FAR, 20_000, rng)
    odds, apart = NEAR_AND_FAR.log_odds(x, pair), NEAR_AND_FAR.separation()
    whole = ShareCalibration.fit(odds, pair, share, apart)
    assert 2 < whole.scale < 4, "the tangent of the expected share has 2, but real images are never misjudged here"
    far = apart[pair[:, 0], pair[:, 1]] > 100
    scales = [ShareCalibration.fit(odds[rows], pair[rows], share[rows], apart).scale for rows in (far, ~far)]
    bare = [ShareCalibration.fit(odds[rows], pair[rows], share[rows]).scale for rows in (far, ~far)]
    assert max(scales) / min(scales) < 1.6
    assert max(bare) / min(bare) > 10, "without separations near and far classes want other scales"
    off = [np.abs(expit(one.per_nat(pair) * odds) - share).mean() for one in (whole, ShareCalibration())]
    assert off[0] < 0.75 * off[1], "than log-odds as of real images"


def test_the_scale_is_that_of_a_logistic_regression_without_an_intercept():
    rng = np.random.default_rng(3)
    x, pair, share = mixed(NEAR_AND_FAR, 2_000, rng)
    odds, apart = NEAR_AND_FAR.log_odds(x, pair), NEAR_AND_FAR.separation()
    units = odds / apart[pair[:, 0], pair[:, 1]]
    soft = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10).fit(
        np.concatenate([units, units])[:, None],
        np.repeat([1, 0], len(units)),
        sample_weight=np.concatenate([share, 1 - share]),
    )
    assert ShareCalibration.fit(odds, pair, share, apart).scale == pytest.approx(soft.coef_[0, 0], rel=1e-3)
    bare = ShareCalibration.fit(odds, pair, share)
    assert bare.per_nat(pair) == pytest.approx(np.full(len(pair), bare.scale))


def test_exchanging_the_classes_exchanges_the_shares():
    rng = np.random.default_rng(4)
    x, pair, share = mixed(NEAR_AND_FAR, 500, rng)
    odds, apart = NEAR_AND_FAR.log_odds(x, pair), NEAR_AND_FAR.separation()
    found, other = (
        ShareCalibration.fit(sign * odds, places, target, apart)
        for sign, places, target in ((1, pair, share), (-1, pair[:, ::-1], 1 - share))
    )
    assert found.scale == pytest.approx(other.scale)
    assert found.per_nat(pair) == pytest.approx(found.per_nat(pair[:, ::-1]))


def test_few_images_of_a_pair_are_drawn_to_the_others_and_overlapping_classes_kept_apart():
    logits = np.zeros((42, 3))
    logits[np.arange(42), np.array([0] * 20 + [1] * 20 + [2] * 2)] = 10
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    logits[40:, 2] = 200  # two images, far from all others
    found = separations(logits, labels)
    assert found[0, 1] < found[0, 2] < (20 * 10 + 2 * 200) / 22
    assert (separations(np.zeros((10, 2)), np.arange(10) % 2) == 2.0).all()
    alone = separations(np.array([[5.0, 0.0, -3.0], [4.0, 0.0, -3.0]]), np.array([0, 0]))
    assert alone[1, 2] > 2, "of classes without images the mean of the others is known"


def test_calibrations_survive_json():
    for one in (ShareCalibration(2.5), ShareCalibration(1.9, NEAR_AND_FAR.separation() + np.eye(4))):
        again = ShareCalibration.from_dict(one.to_dict())
        pair = np.array([[0, 1], [2, 3]])
        assert np.array_equal(again.per_nat(pair), one.per_nat(pair))


def test_log_odds_of_what_is_next_to_impossible_are_far_but_finite():
    found = log_odds_of(np.array([[1.0, 1e-200, 0.0], [0.5, 0.25, 0.25]]), np.array([[0, 1], [0, 2]]))
    assert found == pytest.approx([np.log(1e200), np.log(2)])
    assert np.isfinite(log_odds_of(np.array([[1.0, 0.0]]), np.array([[0, 1]]))).all()


def test_known_mixtures_are_what_they_say():
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 2, 3], 4)
    images = np.broadcast_to((labels * 80)[:, None, None, None], (12, 1, 2, 2)).astype(np.uint8)
    found = known_mixtures(images[order := rng.permutation(12)], labels[order], 60, seed=0)
    assert len(found.images) == 120
    assert (found.pair[:, 0] != found.pair[:, 1]).all()
    assert set(found.pair.ravel()) == {0, 2, 3}
    expected = 80 * (found.share * found.pair[:, 0] + (1 - found.share) * found.pair[:, 1])
    assert found.images[:, 0, 0, 0] == pytest.approx(expected, abs=0.51)
    assert np.isin(found.share[60:], [0, 1]).all()
    assert 0 < found.share[:60].min() < 0.1 < 0.9 < found.share[:60].max() < 1
    again = known_mixtures(images[order], labels[order], 60, seed=0)
    assert np.array_equal(again.images, found.images)
    assert not np.array_equal(known_mixtures(images[order], labels[order], 60, seed=1).pair, found.pair)
