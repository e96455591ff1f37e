"""The stress set made of corruptions: who gets which, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from secondguess import ImageSet, UserError
from secondguess.stress import Corrupted, corrupt, corrupted
from secondguess.stress.corruptions import COLOUR, FASHION_MNIST_C, MNIST_C
from secondguess_lab.bench import corruptions as bench


def nominal(n: int, shape: tuple[int, int, int] = (1, 8, 8)) -> ImageSet:
    rng = np.random.default_rng(0)
    return ImageSet.from_arrays(
        rng.integers(0, 256, (n, *shape), dtype=np.uint8),
        np.arange(n) % 3,
        class_names=["a", "b", "c"],
        soft_labels=np.eye(3)[np.arange(n) % 3] * 0.7 + 0.1,
        is_ambiguous=np.arange(n) % 2 == 0,
        layout="NCHW",
        name="toys",
        ids=[str(i) for i in range(n)],
    )


@pytest.mark.parametrize(("channels", "names"), [(1, MNIST_C), (3, COLOUR)])
def test_by_default_fifteen_corruptions_share_the_images_equally(channels: int, names: tuple[str, ...]) -> None:
    given = nominal(47, (channels, 8, 8))
    made = Corrupted().make(given)
    kinds, counts = np.unique(made.columns["corruption"], return_counts=True)
    assert set(kinds) == set(names)
    assert set(counts) == {3, 4}
    assert made.ids == given.ids
    assert made.name == "toys, corrupted"


def test_the_mnist_c_mix_gives_the_kth_block_the_kth_corruption() -> None:
    given = nominal(10_000, (1, 4, 4))
    made = Corrupted(mix="mnist_c").make(given, seed=3)
    assert made.name == "toys, corrupted_mnist_c"
    came_from = np.array([int(key) for key in made.ids or ()])
    assert sorted(came_from) == list(range(10_000))
    old_order = made.columns["corruption"][np.argsort(came_from)]
    counts = [int((old_order == name).sum()) for name in MNIST_C]
    assert counts == [667] * 14 + [662]
    np.testing.assert_array_equal(old_order, np.repeat(MNIST_C, counts))
    assert (np.diff(came_from) == 1).mean() < 0.01
    np.testing.assert_array_equal(made.labels, came_from % 3)
    assert made.soft_labels is not None and made.is_ambiguous is not None
    np.testing.assert_array_equal(made.soft_labels.argmax(axis=1), came_from % 3)
    np.testing.assert_array_equal(made.is_ambiguous, came_from % 2 == 0)


def test_the_fashion_mnist_c_mix_draws_for_each_image_and_keeps_the_order() -> None:
    given = nominal(3000, (1, 4, 4))
    made = Corrupted(mix="fashion_mnist_c").make(given, seed=1)
    assert made.ids == given.ids
    counts = [int((made.columns["corruption"] == name).sum()) for name in FASHION_MNIST_C]
    assert sum(counts) == 3000
    assert len(set(counts)) > 5  # drawn, not dealt
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("mix", ["mnist_c", "fashion_mnist_c"])
@pytest.mark.parametrize("n", [1, 2, 14, 16, 31])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 9)])
def test_mixes_of_any_size_hold_each_image_once(mix: str, n: int, shape: tuple[int, int, int]) -> None:
    given = nominal(n, shape)
    made = Corrupted(mix=mix).make(given, seed=2)  # type: ignore[arg-type]
    assert sorted(made.ids or ()) == sorted(given.ids or ())
    assert made.shape == shape


def test_each_image_of_a_mix_is_what_its_corruption_makes_of_it() -> None:
    given = nominal(60)
    for mix in ("mnist_c", "fashion_mnist_c"):
        made = Corrupted(mix=mix, severity=2).make(given, seed=5)  # type: ignore[arg-type]
        came_from = np.array([int(key) for key in made.ids or ()])
        for name in set(made.columns["corruption"]):
            seen = np.flatnonzero(made.columns["corruption"] == name)
            seen = seen[np.argsort(came_from[seen])]
            wanted = corrupt(given.images[came_from[seen]], name, severity=2, seed=5)
            np.testing.assert_array_equal(made.images[seen], wanted)


@pytest.mark.parametrize("options", [{}, {"mix": "mnist_c"}, {"mix": "fashion_mnist_c"}, {"corruptions": ["fog"]}])
def test_same_seed_same_set_whatever_the_block(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    given = nominal(90)
    first = Corrupted(**options).make(given, seed=3)
    assert first.fingerprint != Corrupted(**options).make(given, seed=4).fingerprint
    monkeypatch.setattr(corrupted, "BLOCK", 4)
    assert Corrupted(**options).make(given, seed=3).fingerprint == first.fingerprint
    monkeypatch.setattr(corrupted, "BLOCK_VALUES", 1)
    assert Corrupted(**options).make(given, seed=3).fingerprint == first.fingerprint


def test_large_images_are_worked_on_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watched(images, name, **options):  # type: ignore[no-untyped-def]
        sizes.append(len(images))
        return corrupt(images, name, **options)

    monkeypatch.setattr(corrupted, "corrupt", watched)
    monkeypatch.setattr(corrupted, "BLOCK_VALUES", 3 * 20 * 20 * 2)
    Corrupted(["contrast"]).make(nominal(5, (3, 20, 20)))
    assert sizes == [2, 2, 1]


def test_corrupted_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UserError, match="There is no mix 'cifar_c'; there is mnist_c, fashion_mnist_c"):
        Corrupted(mix="cifar_c")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Corruptions and a mix were given"):
        Corrupted(["fog"], mix="mnist_c")
    with pytest.raises(UserError, match="from 1 to 5, not 0"):
        Corrupted(severity=0)
    with pytest.raises(UserError, match="ask for 'turn_right'"):
        Corrupted(["flip_left_right"])
    with pytest.raises(UserError, match="At least one corruption"):
        Corrupted([])


def test_the_benchmark_times_every_corruption_and_both_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MIX_IMAGES", 30)
    result = bench.run(images=20, repeats=1)
    rows = {row["work"]: row for row in result["rows"]}
    assert set(MNIST_C) | set(FASHION_MNIST_C) | set(COLOUR) | {"mix mnist_c", "mix fashion_mnist_c"} < set(rows)
    assert result["rows"][0]["work"] == "identity"
    assert rows["identity"]["ratio"] == 1
    for row in rows.values():
        assert row["seconds"] > 0
        assert row["per_1000"] == pytest.approx(1000 * row["seconds"] / row["images"])
