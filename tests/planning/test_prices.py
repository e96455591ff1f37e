"""Prices and the sizes that fit: properties that hold for any prices, and cases that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secondguess import Classifier, ImageSet, Needs, Observation
from secondguess.planning import Pace, Price, choose_sizes, paced
from secondguess.planning.pace import EFFICIENCY
from secondguess.supervisors import make, pricing
from secondguess.supervisors.autoencoder import Autoencoder


def total(prices: dict[str, Price], sizes: dict[str, int]) -> float:
    return sum(prices[name].seconds(size) for name, size in sizes.items())


def test_what_fits_stays_full() -> None:
    prices = {"a": Price(1.0, 2.0, full=10, least=2), "b": Price(0.5, full=20)}
    assert choose_sizes(prices, 22.0) == {"a": 10, "b": 20}


def test_a_common_scale_shortens_in_proportion_to_the_span() -> None:
    prices = {"epochs": Price(1.0, full=100, least=1), "images": Price(1.0, full=100, least=25)}
    sizes = choose_sizes(prices, 60.0)
    # 100^s + 25 * 4^s = 60 at s = .5: 10 + 50.
    assert sizes == {"epochs": 10, "images": 50}


def test_essential_pieces_are_shortened_last() -> None:
    prices = {"luxury": Price(1.0, full=100, least=10), "test": Price(1.0, full=50, least=5, essential=True)}
    assert choose_sizes(prices, 80.0) == {"luxury": 30, "test": 50}
    assert choose_sizes(prices, 30.0) == {"luxury": 10, "test": 20}


def test_the_most_expensive_is_left_out_where_the_least_does_not_fit() -> None:
    prices = {"a": Price(fixed=100.0), "b": Price(1.0, full=30, least=10), "c": Price(1.0, full=10, least=5)}
    assert choose_sizes(prices, 40.0) == {"a": 0, "b": 30, "c": 10}
    assert choose_sizes(prices, 4.0) == {"a": 0, "b": 0, "c": 0}


def test_essential_and_required_pieces_are_never_left_out() -> None:
    prices = {"a": Price(fixed=10.0), "test": Price(1.0, full=50, least=20, essential=True)}
    assert choose_sizes(prices, 1.0) == {"a": 0, "test": 20}
    prices["section"] = Price(1.0, full=100, least=10, required=True)
    assert choose_sizes(prices, 1.0) == {"a": 0, "test": 20, "section": 10}
    assert choose_sizes(prices, 110.0) == {"a": 1, "test": 50, "section": 50}, "required ones are shortened as others"


def test_what_the_job_is_about_is_left_out_last() -> None:
    """A small set of images stays while cheaper fits go, but not one that alone takes more than a quarter."""
    fits = {"dear": Price(1.0, full=30, least=20), "cheap": Price(1.0, full=10, least=4)}
    small, large = (Price(1.0, full=40, least=least, core=True) for least in (5, 9))
    assert choose_sizes(fits | {"images": small}, 21.0) == {"dear": 0, "cheap": 6, "images": 15}
    assert choose_sizes(fits | {"images": replace(small, core=False)}, 8.0) == {"dear": 0, "cheap": 8, "images": 0}
    assert choose_sizes({"cheap": fits["cheap"], "images": replace(small, least=1)}, 4.0) == {"cheap": 0, "images": 4}
    assert choose_sizes(fits | {"images": large}, 12.0) == {"dear": 0, "cheap": 10, "images": 0}
    sets = {name: Price(fixed=20.0, core=True) for name in "abc"}
    fits = {name: Price(fixed=0.5) for name in "def"}
    found = choose_sizes({"test": Price(fixed=50.0, essential=True), **sets, **fits}, 100.0)
    assert [name for name, size in found.items() if not size] == ["a"], "nothing goes in vain"


def test_the_cheapest_pieces_stay_whatever_the_others_take() -> None:
    prices = {
        "test": Price(1.0, full=50, least=50, essential=True),
        "autoencoder": Price(10.0, full=30, least=3, unit="epochs"),
        "corrupted": Price(0.01, full=1000, least=100),
        "invalid": Price(0.02, full=1000, least=100),
    }
    assert choose_sizes(prices, 40.0, spare=3.5) == {"test": 50, "autoencoder": 0, "corrupted": 100, "invalid": 100}
    assert choose_sizes(prices, 40.0, spare=1.5) == {"test": 50, "autoencoder": 0, "corrupted": 100, "invalid": 0}
    assert choose_sizes(prices, 400.0, spare=1.5) == choose_sizes(prices, 400.0), "where all fits, nothing changes"


@pytest.mark.parametrize("seed", range(20))
def test_any_prices_fit_and_more_time_never_leaves_out_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prices = {
        str(k): Price(*rng.uniform(0, 2, 2), full=int(rng.integers(1, 300)), least=int(rng.integers(1, 40)))
        for k in range(8)
    }
    before = 9
    for seconds in (3.0, 30.0, 300.0, 3000.0):
        sizes = choose_sizes(prices, seconds)
        assert total(prices, sizes) <= seconds
        assert all(size == 0 or prices[name].least <= size <= prices[name].full for name, size in sizes.items())
        left_out = sum(size == 0 for size in sizes.values())
        assert left_out <= before
        before = left_out


def test_a_price_may_depend_on_the_size_of_other_pieces() -> None:
    price = Price(0.5, 1.0, full=30, least=2, per="train", beside={"test": 0.1})
    assert price.seconds(4, {"train": 10, "test": 50}) == 1 + 0.5 * 4 * 10 + 0.1 * 50
    assert price.slower(2.0).seconds(4, {"train": 10, "test": 50}) == 2 * (1 + 20 + 5)
    assert price.seconds(0) == 0, "what is left out costs nothing"


def test_shortening_one_piece_makes_those_cheaper_that_depend_on_it() -> None:
    prices = {
        "test": Price(0.01, full=1000, least=100, essential=True),
        "comparison": Price(beside={"test": 0.1}, required=True),
        "luxury": Price(beside={"test": 0.1}),
    }
    # 0.21 seconds for each test image in all.
    assert choose_sizes(prices, 210.0) == {"test": 1000, "comparison": 1, "luxury": 1}
    assert choose_sizes(prices, 105.0) == {"test": 500, "comparison": 1, "luxury": 1}, "nothing has to be left out"
    assert choose_sizes({"luxury": prices["luxury"]}, 20.0, others={"test": 150}) == {"luxury": 1}
    assert choose_sizes({"luxury": prices["luxury"]}, 20.0, others={"test": 250}) == {"luxury": 0}


def test_what_is_made_of_a_piece_is_never_larger() -> None:
    prices = {"stress": Price(0.01, full=1000, least=20, within="test")}
    assert choose_sizes(prices, 100.0, others={"test": 300}) == {"stress": 300}
    assert choose_sizes(prices, 1.0, others={"test": 300}) == {"stress": 100}
    assert choose_sizes(prices, 100.0) == {"stress": 1000}


def test_a_line_through_two_timings() -> None:
    price = Price.line([10, 30], [2.0, 3.0], full=100)
    assert (price.each, price.fixed) == (0.05, 1.5)
    assert Price.line([10, 30], [2.0, 1.0]).each == 0, "noise does not make larger work cheaper"


def test_the_least_is_at_most_full() -> None:
    assert Price(1.0, full=3, least=200).size(0) == 3


def test_a_pass_is_shared_by_the_workers_of_an_engine(monkeypatch):
    from torch import nn

    images = ImageSet.from_arrays(np.zeros((40, 4, 4), dtype=np.uint8))
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 0.01)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    for engine, speed in ((None, 1.0), ("local:1", 1.0), ("local:2", 1.0), ("local:8", 4 * EFFICIENCY)):
        pace = Pace(Classifier(network, device="cpu", engine=engine), images)
        assert pace.passing(Needs()) == pytest.approx(0.01 / speed)


def test_a_line_never_rises_steeper_than_from_nothing() -> None:
    price = Price.line([10, 30], [0.0, 3.0])
    assert (price.each, price.fixed) == (0.1, 0.0), "30 units took 3 seconds; that 10 took none is a hiccup"


class Work:
    """Takes so many seconds for an image, and three more at its first call."""

    def __init__(self, each: float) -> None:
        self.each, self.now = each, 0.0
        self.asked: list[int] = []

    def __call__(self, count: int) -> None:
        self.now += self.each * count + 3 * (not self.asked)
        self.asked.append(count)


@pytest.mark.parametrize(("each", "asked"), [(0.8, [2, 2]), (0.1, [2, 2, 10]), (0.001, [2, 2, 64])])
def test_slow_work_is_timed_on_few_images(each: float, asked: list[int]) -> None:
    work = Work(each)
    assert paced(work, 2, 64, lambda: work.now) == pytest.approx(each)
    assert work.asked[:3] == asked
    assert work.now < 3 + 4 * 2


def test_an_epoch_of_a_slow_training_is_timed_on_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    now = [0.0]

    def fit(self: Autoencoder, observation: Observation, labels: object) -> None:
        asked.append(len(observation))
        now[0] += 0.1 * len(observation) * self.epochs

    monkeypatch.setattr(Autoencoder, "_fit", fit)
    train = ImageSet.from_arrays(np.zeros((4000, 1, 8, 8), np.float32), np.arange(4000) % 10, layout="NCHW")
    pace = Pace(Classifier(lambda x: np.full((len(x), 10), 0.1)), train, clock=lambda: now[0])
    (part,) = pricing.parts_of_fits([make("autoencoder")], Needs(images=True), train, pace)
    assert part.price.each == pytest.approx(0.1) and part.price.unit == "epochs"
    assert asked == [pricing.FIRST] * 2


@pytest.mark.parametrize("few", [pricing.FIRST, pricing.TRIED[0]])
def test_a_hiccup_of_a_short_fit_does_not_make_a_training_cheap(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def fit(self: Autoencoder, observation: Observation, labels: object) -> None:
        busy = 3.0 if len(observation) <= few else 1.0  # other work on the machine, as long as this lasts
        now[0] += busy * 0.002 * len(observation) * self.epochs

    monkeypatch.setattr(Autoencoder, "_fit", fit)
    train = ImageSet.from_arrays(np.zeros((8000, 1, 8, 8), np.float32), np.arange(8000) % 10, layout="NCHW")
    pace = Pace(Classifier(lambda x: np.full((len(x), 10), 0.1)), train, clock=lambda: now[0])
    (part,) = pricing.parts_of_fits([make("autoencoder")], Needs(images=True), train, pace)
    assert part.price.each == pytest.approx(0.002)
