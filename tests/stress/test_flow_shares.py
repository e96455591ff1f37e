"""Shares between two classes: against closed forms, other libraries, and images whose share is known."""

import json

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from secondguess.errors import UserError
from secondguess.stress.ambiguous.flow.mixtures import Mixtures, cut_weights, known_mixtures
from secondguess.stress.ambiguous.flow.pool import Pool, pool_of
from secondguess.stress.ambiguous.flow.shares import (
    SCATTER,
    ShareCalibration,
    cost_of,
    log_odds_of,
    priors,
    separations,
)


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


NEAR_AND_FAR = Gaussians([[0, 0, 0], [2, 0, 0], [0, 16, 0], [4, 16, 0]])


def mixed(classes, count, rng, real=0.5):
    """Mixtures (n, d) of draws of two classes; some of them are real."""
    pair = np.stack([rng.choice(len(classes.means), 2, replace=False) for _ in range(count)])
    share = np.where(rng.random(count) < real, rng.integers(0, 2, count), rng.uniform(size=count))
    first, second = (classes.draw(pair[:, place], rng) for place in (0, 1))
    return Mixtures(share[:, None] * first + (1 - share[:, None]) * second, pair, share)


def odds_of(classes, known):
    return classes.log_odds(known.images, known.pair)


def test_separations_are_half_of_the_squared_mahalanobis_distances():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 40_000)
    found = separations(NEAR_AND_FAR.logits(NEAR_AND_FAR.draw(labels, rng)), labels)
    apart = ~np.eye(4, dtype=bool)
    assert found[apart] == pytest.approx(NEAR_AND_FAR.separation()[apart], rel=0.03)
    assert np.array_equal(found, found.T)


def test_log_odds_of_mixtures_have_the_mean_and_the_variance_of_the_closed_form():
    rng = np.random.default_rng(1)
    known = mixed(NEAR_AND_FAR, 60_000, rng, real=0.0)
    apart = NEAR_AND_FAR.separation()[known.pair[:, 0], known.pair[:, 1]]
    left = odds_of(NEAR_AND_FAR, known) - (2 * known.share - 1) * apart
    expected = 2 * apart * (known.share**2 + (1 - known.share) ** 2)
    assert left.mean() == pytest.approx(0, abs=0.1)
    assert np.square(left).mean() == pytest.approx(expected.mean(), rel=0.02)


@pytest.mark.parametrize("distance", [1.0, 3.0, 8.0])
def test_the_unit_is_that_of_the_best_linear_estimate(distance):
    """Of half blends and half real images, whatever the distance of the classes."""
    rng, two = np.random.default_rng(2), Gaussians([[0], [distance]])
    known = mixed(two, 100_000, rng)
    slope = LinearRegression().fit(odds_of(two, known)[:, None], known.share).coef_[0]
    assert slope == pytest.approx(0.5 / (distance**2 / 2 + SCATTER), rel=0.02)


def test_one_scale_fits_near_and_far_classes():
    rng = np.random.default_rng(3)
    known = mixed(NEAR_AND_FAR, 20_000, rng)
    odds, apart = odds_of(NEAR_AND_FAR, known), NEAR_AND_FAR.separation()
    whole = ShareCalibration.fit(odds, known, apart)
    assert 2 < whole.scale < 4
    distance = apart[known.pair[:, 0], known.pair[:, 1]]
    assert set(distance) > {2.0, 8.0, 128.0}
    costs = {}
    for near in (2.0, 8.0, 128.0):
        rows = distance == near
        some = Mixtures(known.images[rows], known.pair[rows], known.share[rows])
        best = ShareCalibration.fit(odds[rows], some, apart)
        costs[near] = whole.cost(odds[rows], some), best.cost(odds[rows], some)
        assert whole.per_nat(some.pair)[0] < 1.1, "a share never follows from less than a judge knows of real images"
        assert 0.6 < best.scale / whole.scale < 1.6
    assert all(common < 1.1 * own + 0.005 for common, own in costs.values())
    one_factor = ShareCalibration.fit(odds, known)
    assert whole.cost(odds, known) < 0.7 * one_factor.cost(odds, known)
    off = [np.abs(expit(one.logits(odds, known.pair)) - known.share).mean() for one in (whole, ShareCalibration())]
    assert off[0] < 0.85 * off[1], "than log-odds as of real images"


def test_the_scale_is_that_of_a_logistic_regression_without_an_intercept():
    rng = np.random.default_rng(4)
    known = mixed(NEAR_AND_FAR, 2_000, rng)
    odds, apart = odds_of(NEAR_AND_FAR, known), NEAR_AND_FAR.separation()
    units = odds / (apart[known.pair[:, 0], known.pair[:, 1]] + SCATTER)
    soft = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10).fit(
        np.concatenate([units, units])[:, None],
        np.repeat([1, 0], len(units)),
        sample_weight=np.concatenate([known.share, 1 - known.share]),
    )
    found = ShareCalibration.fit(odds, known, apart)
    assert found.scale == pytest.approx(soft.coef_[0, 0], rel=1e-3)
    assert found.logits(odds, known.pair) == pytest.approx(found.scale * units)
    bare = ShareCalibration.fit(odds, known)
    assert bare.per_nat(known.pair) == pytest.approx(np.full(len(units), bare.scale))


def test_a_cost_is_what_shares_cost_more_than_the_known_ones():
    known = Mixtures(np.zeros((3, 1, 1, 1), np.uint8), np.array([[0, 1]] * 3), np.array([0.25, 1.0, 0.5]))
    logits, share = np.array([0.4, -1.0, 3.0]), known.share
    p = expit(logits)
    expected = [
        -(s * np.log(q) + (1 - s) * np.log(1 - q)) + sum(one * np.log(one) for one in (s, 1 - s) if one)
        for s, q in zip(share, p, strict=True)
    ]
    assert ShareCalibration().cost(logits, known) == pytest.approx(np.mean(expected))
    exact = np.array([np.log(1 / 3), 700.0, 0.0])
    assert ShareCalibration().cost(exact, known) == pytest.approx(0, abs=1e-9)


def test_quality_is_measured_on_other_mixtures_and_says_when_a_judge_knows_nothing():
    rng = np.random.default_rng(5)
    known = mixed(NEAR_AND_FAR, 400, rng)
    odds = odds_of(NEAR_AND_FAR, known)
    good = ShareCalibration.fit(odds, known, NEAR_AND_FAR.separation())
    said = good.quality(odds, known)
    assert said["scale_of_shares"] == good.scale
    assert said["cost_of_shares"] < 0.5 * said["cost_of_even_shares"]
    noise = rng.normal(0, 10, 400)
    nothing = ShareCalibration.fit(noise, known).quality(noise, known)
    assert nothing["cost_of_shares"] > 0.98 * nothing["cost_of_even_shares"]
    with pytest.raises(UserError, match="no numbers"):
        ShareCalibration.fit(np.full(400, np.nan), known)


def test_exchanging_the_classes_exchanges_the_shares():
    rng = np.random.default_rng(6)
    known, prior = mixed(NEAR_AND_FAR, 500, rng), np.array([0.0, 1.0, -2.0, 0.5])
    odds, apart = odds_of(NEAR_AND_FAR, known), NEAR_AND_FAR.separation()
    turned = Mixtures(known.images, known.pair[:, ::-1], 1 - known.share)
    found, other = (ShareCalibration.fit(o, k, apart, prior) for o, k in ((odds, known), (-odds, turned)))
    assert found.scale == pytest.approx(other.scale)
    assert found.logits(odds, known.pair) == pytest.approx(-other.logits(-odds, turned.pair))


def test_how_frequent_a_class_is_does_not_matter_to_shares():
    """A judge that knows frequencies, and one that does not, give the same shares."""
    rng = np.random.default_rng(7)
    labels = rng.choice(4, 30_000, p=[0.9, 0.05, 0.04, 0.01])
    logits, prior = NEAR_AND_FAR.logits(NEAR_AND_FAR.draw(labels, rng)), priors(labels, 4)
    assert np.exp(prior - prior[0]) == pytest.approx(np.bincount(labels) / np.bincount(labels)[0])
    apart = separations(logits, labels)
    assert apart[0, 3] == pytest.approx(NEAR_AND_FAR.separation()[0, 3], rel=0.03)
    known = mixed(NEAR_AND_FAR, 3_000, rng)
    odds = odds_of(NEAR_AND_FAR, known)
    knowing = odds + prior[known.pair[:, 0]] - prior[known.pair[:, 1]]
    with_prior, without = ShareCalibration.fit(knowing, known, apart, prior), ShareCalibration.fit(odds, known, apart)
    assert with_prior.scale == pytest.approx(without.scale, rel=1e-6)
    assert with_prior.logits(knowing, known.pair) == pytest.approx(without.logits(odds, known.pair))


def test_few_images_of_a_pair_are_drawn_to_the_mean_of_all():
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    logits = np.zeros((42, 4))
    logits[np.arange(42), labels] = 10.0
    logits[40:, 2] = 200.0  # two images, far from all others
    found = separations(logits, labels)
    far, usual = (10 + 200) / 2, (10 + 2 * (10 + 200) / 2) / 3
    weight = 2 / (1 / 20 + 1 / 2)
    assert found[0, 2] == pytest.approx((weight * far + 5 * usual) / (weight + 5))
    assert found[0, 1] == pytest.approx((20 * 10 + 5 * usual) / 25)
    assert found[1, 3] == found[3, 0] == pytest.approx(usual), "of a class without images nothing else is known"
    backwards = separations(-logits, labels)
    assert (backwards >= 0).all(), "a judge that is always wrong"


def test_calibrations_survive_json():
    pair, odds = np.array([[0, 1], [2, 3]]), np.array([1.0, -2.0])
    for one in (ShareCalibration(2.5), ShareCalibration(1.9, NEAR_AND_FAR.separation(), np.arange(4.0))):
        again = ShareCalibration.from_dict(json.loads(json.dumps(one.to_dict())))
        assert np.array_equal(again.logits(odds, pair), one.logits(odds, pair))


def test_log_odds_of_what_is_next_to_impossible_are_far_but_finite():
    found = log_odds_of(np.array([[1.0, 1e-200, 0.0], [0.5, 0.25, 0.25]]), np.array([[0, 1], [0, 2]]))
    assert found == pytest.approx([np.log(1e200), np.log(2)])
    assert np.isfinite(log_odds_of(np.array([[1.0, 0.0]]), np.array([[0, 1]]))).all()


def test_known_mixtures_are_what_they_say():
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 2, 3], 4)
    images = np.broadcast_to((labels * 80)[:, None, None, None], (12, 1, 16, 20)).astype(np.uint8)
    found = known_mixtures(images[order := rng.permutation(12)], labels[order], 60, seed=0)
    assert len(found.images) == 120
    assert (found.pair[:, 0] != found.pair[:, 1]).all()
    assert set(found.pair.ravel()) == {0, 2, 3}
    expected = 80 * (found.share * found.pair[:, 0] + (1 - found.share) * found.pair[:, 1])
    assert found.images.mean(axis=(1, 2, 3)) == pytest.approx(expected, abs=0.51)
    flat = np.ptp(found.images, axis=(1, 2, 3)) == 0
    assert found.images[flat, 0, 0, 0] == pytest.approx(expected[flat], abs=0.51)
    real = np.isin(found.share, [0, 1])
    assert real.sum() == 60
    assert real[::2].sum() == 30, "in both halves"
    assert flat[real].all()
    blended, cut = flat & ~real, ~flat
    assert blended.sum() == cut.sum() == 30
    assert blended[::2].sum() == cut[::2].sum() == 15
    extremes = [{int(one.min()), int(one.max())} for one in found.images[cut][np.abs(found.share[cut] - 0.5) < 0.3]]
    both = [set((80 * one).tolist()) for one in found.pair[cut][np.abs(found.share[cut] - 0.5) < 0.3]]
    assert extremes == both, "each side of a cut is one of the images"
    assert 0 < found.share[~real].min() < 0.1 < 0.9 < found.share[~real].max() < 1
    again = known_mixtures(images[order], labels[order], 60, seed=0)
    assert np.array_equal(again.images, found.images)
    assert not np.array_equal(known_mixtures(images[order], labels[order], 60, seed=1).pair, found.pair)


@pytest.mark.parametrize("shape", [(28, 28), (9, 30)])
def test_a_cut_has_its_share_of_an_image_and_one_edge(shape):
    share = np.linspace(0.02, 0.98, 25)
    weight = cut_weights(share, shape, np.random.default_rng(0))
    assert weight.shape == (25, 1, *shape)
    assert weight.mean(axis=(1, 2, 3)) == pytest.approx(share, abs=1e-6)
    middle = weight[12, 0]
    assert ((middle > 0.02) & (middle < 0.98)).mean() < 0.5, "most pixels are of one image"
    rows = np.sign(np.diff(middle, axis=1))
    assert np.isin(rows[np.abs(rows) > 0], [rows.flat[np.abs(rows).argmax()]]).all(), "it falls in one direction"


def test_weights_of_a_pool_are_those_of_a_logistic_regression():
    rng = np.random.default_rng(8)
    share = np.where(rng.random(3_000) < 0.5, rng.integers(0, 2, 3_000), rng.uniform(size=3_000))
    truth = np.log((share + 0.1) / (1.1 - share))
    judged, theirs = (truth + rng.normal(0, spread, len(share)) for spread in (0.5, 1.5))
    soft = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10).fit(
        np.tile(np.stack([judged, theirs], axis=1), (2, 1)),
        np.repeat([1, 0], len(share)),
        sample_weight=np.concatenate([share, 1 - share]),
    )
    found = Pool.fit(judged, theirs, share)
    assert [found.judge, found.committee] == pytest.approx(soft.coef_[0], rel=1e-3)
    assert found.judge > 3 * found.committee, "the better one counts for more"
    costs = [cost_of(one.logits(judged, theirs), share) for one in (found, Pool(), Pool(1.0, 0.0))]
    assert costs[0] < min(costs[1:])
    assert found.logits(found.opposite(theirs), theirs) == pytest.approx(np.zeros(len(share)))
    turned = Pool.fit(-judged, -theirs, 1 - share)
    assert [turned.judge, turned.committee] == pytest.approx([found.judge, found.committee], rel=1e-3)


def test_nobody_in_a_pool_is_left_out_or_turned_around():
    rng = np.random.default_rng(9)
    share = rng.uniform(size=500)
    judged = 3 * (share - 0.5)
    for useless in (rng.normal(size=500), -judged):
        found = Pool.fit(judged, useless, share)
        assert found.committee == pytest.approx(0.05, abs=0.05)
        assert found.committee > 0


class Scattering:
    """A judge of flat images, whose log-odds are those of their shares but for a factor and some noise."""

    def __init__(self, factor, noise):
        self.shares, self.noise, self.factor = ShareCalibration(1 / factor), noise, factor

    def odds(self, images, pair):
        low, high = 40 + 80 * pair[:, 1], 40 + 80 * pair[:, 0]
        share = (images.astype(float).mean(axis=(1, 2, 3)) - low) / (high - low)
        truth = np.log((np.clip(share, 0, 1) + 0.1) / (1.1 - np.clip(share, 0, 1)))
        return self.factor * (truth + np.random.default_rng(1).normal(0, self.noise, len(truth)))

    def weigh(self, images, pair, progress=None):
        return self.odds(images, pair)

    def judge(self, images):
        """Probabilities of three classes; the pair is that of the known mixtures."""
        pixels = np.rint(images.images[:] * 255)
        odds, found = self.odds(pixels, self.pair), np.full((len(pixels), 3), 1e-9)
        np.put_along_axis(found, self.pair, expit(np.stack([odds, -odds], axis=1)), axis=1)
        return found


@pytest.mark.parametrize(("judge", "committee"), [(0.3, 2.0), (2.0, 0.3)])
def test_the_better_judge_counts_for_more(judge, committee, monkeypatch):
    labels = np.repeat([0, 1, 2], 20)
    images = np.broadcast_to((40 + 80 * labels)[:, None, None, None], (60, 1, 16, 16)).astype(np.uint8)
    first, second = Scattering(3.0, judge), Scattering(0.5, committee)
    known = known_mixtures(images, labels, 200, 5, blends=False)
    cut = np.ptp(known.images, axis=(1, 2, 3)) > 0
    assert np.array_equal(cut, (known.share > 0) & (known.share < 1)), "no blends"
    second.pair = known.pair
    found = pool_of(first, second, images, labels, seed=4)
    better, worse = (found.judge, found.committee)[:: 1 if judge < committee else -1]
    assert better > 4 * worse
    assert 0.8 < better < 1.9, "of logits as they are calibrated"
    assert found.cost < 0.7 * found.cost_alike


def test_a_pool_is_kept_with_what_it_is_of(tmp_path):
    about, pool = {"judge": "a", "committee": "b"}, Pool(0.61, 0.42, 0.1, 0.2)
    assert Pool.load(tmp_path, about) is None
    pool.save(tmp_path, about)
    assert Pool.load(tmp_path, about) == pool
    assert Pool.load(tmp_path, about | {"judge": "c"}) is None
    file = tmp_path / "pool.json"
    file.write_text(file.read_text().replace("0.61", "0.99"))
    with pytest.warns(UserWarning, match="fitted again"):
        assert Pool.load(tmp_path, about) is None
