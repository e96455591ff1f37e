from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.probes import Probes
from secondguess.search.attacks.starts import Starts


def splitmix(state: int) -> int:
    """The published generator, in whole numbers of any length."""
    mask = (1 << 64) - 1
    z = state & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def test_noise_is_splitmix_of_key_and_counter() -> None:
    golden, seed, row, counter = 0x9E3779B97F4A7C15, 7, 5, 100
    key = splitmix(splitmix(seed * golden) + (row + 1) * golden)
    expected = [((splitmix(key + (counter + place) * golden) & 0xFFFFFF) + 0.5) / 2**24 for place in (1, 2, 3)]
    drawn = Noise(seed).uniform(torch.tensor([row]), torch.tensor([counter]), (3,))
    np.testing.assert_allclose(drawn[0].numpy(), expected, rtol=1e-6)


def test_noise_has_its_distribution_and_streams_are_strangers() -> None:
    from scipy.stats import kstest

    rows, counters = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    normal = Noise(0).normal(rows, counters, (5001,)).numpy()
    uniform = Noise(0).uniform(rows, counters, (50, 50)).numpy()
    assert kstest(normal.ravel(), "norm").pvalue > 0.01
    assert kstest(uniform.ravel(), "uniform").pvalue > 0.01
    assert np.abs(np.corrcoef(normal) - np.eye(4)).max() < 0.06
    assert abs(np.corrcoef(normal[0, :-1], normal[0, 1:])[0, 1]) < 0.06


def test_a_stream_goes_on_where_its_counter_says() -> None:
    rows = torch.tensor([3, 9])
    whole = Noise(1).uniform(rows, torch.tensor([0, 10]), (20,))
    later = Noise(1).uniform(rows.flip(0), torch.tensor([15, 5]), (15,))
    np.testing.assert_array_equal(later.flip(0).numpy(), whole[:, 5:].numpy())


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 20)])
def test_the_probes_of_a_grid_are_a_basis_used_once(shape: tuple[int, int, int]) -> None:
    probes = Probes(shape, (4, 8), 10, seed=0)
    channels, height, width = shape
    coarse = [probes.of(number, torch.device("cpu")) for number in range(probes.rounds[0])]
    together = torch.cat(coarse).flatten(1).double().numpy()
    assert len(together) == channels * 4 * 4
    assert max(map(len, coarse)) <= probes.most()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert np.linalg.matrix_rank(together) == len(together)
    fine = torch.cat([probes.of(probes.rounds[0] + number, torch.device("cpu")) for number in range(probes.rounds[1])])
    assert fine.shape == (channels * min(8, height) * min(8, width), *shape)
    if shape == (1, 8, 8):  # the grid is the image: orthonormal as it is
        rows = fine.flatten(1).double().numpy()
        np.testing.assert_allclose(rows @ rows.T, np.eye(64), atol=1e-5)
    again = probes.of(sum(probes.rounds), torch.device("cpu"))
    assert not torch.equal(again, fine[: len(again)])


def test_the_nearest_start_is_the_brute_force_one() -> None:
    rng = np.random.default_rng(0)
    pool = rng.random((700, 1, 4, 4), dtype=np.float32)
    classes = rng.integers(0, 3, 700)
    images, own = pool[:40], classes[:40]
    distance = np.linalg.norm(images.reshape(40, 1, -1) - pool.reshape(1, 700, -1), axis=2)
    distance[own[:, None] == classes] = np.inf
    starts = Starts(torch.from_numpy(pool), torch.from_numpy(classes))
    found = starts.nearest(torch.from_numpy(images), torch.from_numpy(own))
    np.testing.assert_array_equal(found.numpy(), distance.argmin(axis=1))
    lonely = Starts(torch.from_numpy(pool), torch.zeros(700, dtype=torch.int64))
    assert (lonely.nearest(torch.from_numpy(images), torch.zeros(40, dtype=torch.int64)) == -1).all()


def test_a_large_pool_gives_starts_of_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    from secondguess.images import ImageSet
    from secondguess.search.attacks import starts

    monkeypatch.setattr(starts, "MOST", 10)
    classes = np.array([0] * 95 + [1] * 5)
    source = ImageSet.from_arrays(np.random.default_rng(0).random((100, 1, 4, 4), dtype=np.float32)).images
    chosen = Starts.choose(source, classes, seed=0)
    np.testing.assert_array_equal(np.bincount(chosen.classes.numpy()), [5, 5])
