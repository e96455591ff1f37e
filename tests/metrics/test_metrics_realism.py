from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, ortho_group

from secondguess import UserError
from secondguess.metrics import (
    frechet_distance,
    kernel_distance,
    kernel_distance_interval,
    manifolds,
    published_giqa,
    relative_giqa,
)

Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def sets() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    return rng.normal(size=(300, 6)) @ mix, 0.3 + 1.2 * rng.normal(size=(260, 6)) @ mix


def test_frechet_of_lines_is_known(sets: tuple[Floats, Floats]) -> None:
    for column in range(6):
        x, y = (part[:, [column]] for part in sets)
        expected = (x.mean() - y.mean()) ** 2 + (x.std(ddof=1) - y.std(ddof=1)) ** 2
        assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-10)


def test_frechet_against_the_formula_and_its_invariants(sets: tuple[Floats, Floats]) -> None:
    x, y = sets
    a, b = np.cov(x.T), np.cov(y.T)
    root = scipy.linalg.sqrtm(a @ b).real
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(a + b - 2 * root)
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(y, x) == pytest.approx(expected, rel=1e-9)
    turn = ortho_group.rvs(6, random_state=0)
    assert frechet_distance(x @ turn + 5, y @ turn + 5) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(3 * x, 3 * y) == pytest.approx(9 * expected, rel=1e-9)


def test_frechet_of_a_set_with_itself_is_zero_even_with_few_images(sets: tuple[Floats, Floats]) -> None:
    wide = np.random.default_rng(1).normal(size=(20, 100))
    for x in (*sets, wide):
        assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9)
        assert frechet_distance(x, x + 1) == pytest.approx(x.shape[1], rel=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_frechet_and_kernel_distance_against_torchmetrics(sets: tuple[Floats, Floats]) -> None:
    torch = pytest.importorskip("torch")
    fid = pytest.importorskip("torchmetrics.image.fid")
    kid = pytest.importorskip("torchmetrics.image.kid")

    class Flat(torch.nn.Module):
        num_features = 6

        def forward(self, images):
            return images.flatten(1)

    x, y = (torch.tensor(part, dtype=torch.float32).reshape(-1, 1, 2, 3) for part in sets)
    frechet = fid.FrechetInceptionDistance(feature=Flat(), input_img_size=(1, 2, 3))
    kernel = kid.KernelInceptionDistance(feature=Flat(), subsets=1, subset_size=len(sets[1]))
    for metric in (frechet, kernel):
        metric.update(x[: len(sets[1])], real=True)
        metric.update(y, real=False)
    same_size = sets[0][: len(sets[1])]
    assert frechet_distance(same_size, sets[1]) == pytest.approx(float(frechet.compute()), rel=1e-3)
    assert kernel_distance_interval(same_size, sets[1]).value == pytest.approx(float(kernel.compute()[0]), rel=1e-3)


def test_kernel_distance_by_brute_force(sets: tuple[Floats, Floats]) -> None:
    x, y = sets[0][:40], sets[1][:30]

    def estimate(x: Floats, y: Floats) -> float:
        k = lambda a, b: (a @ b.T / a.shape[1] + 1) ** 3  # noqa: E731
        n, m = len(x), len(y)
        a, b = k(x, x), k(y, y)
        within = (a.sum() - np.trace(a)) / (n * (n - 1)) + (b.sum() - np.trace(b)) / (m * (m - 1))
        return float(within - 2 * k(x, y).mean())

    found = kernel_distance_interval(x, y)
    assert kernel_distance(x, y) == found.value
    assert found.value == pytest.approx(estimate(x, y), rel=1e-10)
    left = np.array([estimate(np.delete(x, i, 0), y) for i in range(40)])
    right = np.array([estimate(x, np.delete(y, i, 0)) for i in range(30)])
    error = np.sqrt(39 / 40 * np.square(left - left.mean()).sum() + 29 / 30 * np.square(right - right.mean()).sum())
    assert found.high - found.value == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.n == 70


def test_kernel_distance_covers_zero_for_equal_distributions() -> None:
    rng = np.random.default_rng(2)
    found = [kernel_distance_interval(rng.normal(size=(60, 4)), rng.normal(size=(50, 4))) for _ in range(80)]
    values = np.array([one.value for one in found])
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(80), "unbiased"
    assert np.mean([one.low <= 0 <= one.high for one in found]) >= 0.85
    assert kernel_distance_interval(rng.normal(size=(60, 4)), rng.normal(size=(50, 4)) + 1).low > 0


def brute_manifolds(x: Floats, y: Floats, k: int) -> tuple[float, float, float, float]:
    own, other, cross = cdist(x, x), cdist(y, y), cdist(x, y)
    radius = np.array([sorted(np.delete(own[i], i))[k - 1] for i in range(len(x))])
    radius_y = np.array([sorted(np.delete(other[i], i))[k - 1] for i in range(len(y))])
    precision = np.mean([any(cross[i, j] <= radius[i] for i in range(len(x))) for j in range(len(y))])
    recall = np.mean([any(cross[i, j] <= radius_y[j] for j in range(len(y))) for i in range(len(x))])
    density = sum(cross[i, j] <= radius[i] for i in range(len(x)) for j in range(len(y))) / (k * len(y))
    coverage = np.mean([cross[i].min() <= radius[i] for i in range(len(x))])
    return precision, recall, density, coverage


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("block", [7, 1024])
def test_manifolds_by_brute_force(
    sets: tuple[Floats, Floats], k: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secondguess.metrics.realism.BLOCK", block)
    x, y = sets[0][:60], sets[1][:45]
    found = manifolds(x, y, neighbours=k)
    measured = (found.precision, found.recall, found.density, found.coverage)
    assert measured == pytest.approx(brute_manifolds(x, y, k), abs=1e-12)
    assert k > 1 or (0 < found.precision < 1 and 0 < found.recall < 1)


def test_manifolds_of_equal_far_and_collapsed_sets(sets: tuple[Floats, Floats]) -> None:
    x = sets[0]
    same = manifolds(x, x)
    assert (same.precision, same.recall, same.coverage) == (1, 1, 1)
    far = manifolds(x, x + 1000)
    assert (far.precision, far.recall, far.density, far.coverage) == (0, 0, 0, 0)
    collapsed = manifolds(x, np.repeat(x[:1], 50, axis=0))
    assert collapsed.precision == 1 and collapsed.coverage < 0.1 and collapsed.recall < 0.05


@pytest.fixture(scope="module")
def toy() -> dict[str, Floats]:
    """16 features, as in the warning about the published scores."""
    rng = np.random.default_rng(3)
    real, held_out, good = (rng.normal(size=(1500, 16)) for _ in range(3))
    garbage = np.concatenate([good, np.full((1, 16), 100.0)])
    collapsed = 0.1 * rng.normal(size=(1500, 16))
    return {
        "real": real,
        "held_out": held_out,
        "good": good,
        "worse": 1.5 * rng.normal(size=(1500, 16)),
        "garbage": garbage,
        "collapsed": collapsed,
    }


def test_the_published_giqa_is_misled(toy: dict[str, Floats]) -> None:
    quality = {name: published_giqa(toy["real"], toy[name]) for name in ("good", "worse", "garbage")}
    assert quality["good"] == pytest.approx(0.66, abs=0.1)
    assert quality["worse"] > quality["good"] - 0.05, "worse images do not score worse"
    assert quality["garbage"] == pytest.approx(0.999, abs=1e-3)


def test_the_relative_giqa_is_not(toy: dict[str, Floats]) -> None:
    found = {
        name: relative_giqa(toy["real"], toy[name], toy["held_out"], resamples=50)
        for name in ("good", "worse", "collapsed")
    }
    assert abs(found["good"].quality.value) < 0.5 and abs(found["good"].diversity.value) < 0.5
    assert found["worse"].quality.high < found["good"].quality.low - 5
    assert found["collapsed"].diversity.high < found["good"].diversity.low - 100
    assert found["collapsed"].quality.value > 5, "more typical than real images are"


def test_a_single_image_repeated_is_no_reason_to_warn(toy: dict[str, Floats]) -> None:
    one = np.repeat(toy["good"][:1], 100, axis=0)
    found = relative_giqa(toy["real"], one, toy["held_out"], resamples=10)
    assert found.diversity.high < -1000
    assert published_giqa(toy["real"], one) == 0


def test_the_relative_giqa_of_gaussians_is_known() -> None:
    rng = np.random.default_rng(4)
    real, generated, held_out = rng.normal(size=(4000, 2)), 1.5 * rng.normal(size=(4000, 2)), rng.normal(size=(4000, 2))
    found = relative_giqa(real, generated, held_out, components=1, resamples=50)
    model = multivariate_normal(real.mean(0), np.cov(real.T, ddof=0))
    expected = model.logpdf(generated).mean() - model.logpdf(held_out).mean()
    assert found.quality.value == pytest.approx(expected, abs=1e-4)
    assert found.quality.value == pytest.approx(-(1.5**2 - 1), abs=0.15)
    assert found.quality.low < found.quality.value < found.quality.high


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: frechet_distance(x[0], x), r"shape \(n, d\)"),
        (lambda x: frechet_distance(x, x[:, :2]), "6 dimensions, the generated 2"),
        (lambda x: frechet_distance(x[:1], x), "1 real features; at least 2"),
        (lambda x: kernel_distance_interval(x, np.full_like(x, np.nan)), "generated features hold NaN"),
        (lambda x: kernel_distance_interval(x, x, level=2), "confidence level"),
        (lambda x: manifolds(x[:5], x), "at least 6"),
        (lambda x: manifolds(x, x, neighbours=0), "neighbours is 0"),
        (lambda x: published_giqa(x[:3], x), "at least 7"),
        (lambda x: published_giqa(x, x, components=0), "mixture of 0 Gaussians cannot be fitted"),
    ],
)
def test_mistakes_are_explained(sets: tuple[Floats, Floats], call, words: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(UserError, match=words):
        call(sets[0])
