from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.search import Search, check_search, make, names, register
from secondguess.search import registry as searches
from secondguess.search.checks import example_pool

VARIANTS = [
    ("adversarial_distance", {"log": False, "degree": 2, "robust": False, "by_class": False}),
    ("bandit", {"variant": "published", "elbow": "published"}),
    ("coverage", {"variant": "bw_published", "sigma": 0.1}),
    ("facility", {"alpha": 0.2}),
    ("adaptive", {"optimism": 0.5, "horizon": 5}),
]


@pytest.mark.parametrize("name", names())
def test_every_search_keeps_the_contract(name):
    assert "check_replay" in check_search(name)


@pytest.mark.parametrize(("name", "params"), VARIANTS)
def test_every_variant_keeps_the_contract(name, params):
    assert "check_correction" in check_search(make(name, **params))


class Forgetful(Search):
    """Asks for the same image again and again, and learns from the wrong place."""

    name = "forgetful"

    def _choose(self, candidates, n):
        return np.flatnonzero(self.pool.eligible)[:n]


class Moody(Search):
    """Asks for something else every time."""

    name = "moody"

    def _choose(self, candidates, n):
        return np.random.default_rng().permutation(candidates)[:n]


class Dwelling(Search):
    """Cannot forget the first answer it was given."""

    name = "dwelling"

    def _choose(self, candidates, n):
        if not hasattr(self, "first"):
            self.first = None
        if len(self.labelled) and self.first is None:
            self.first = bool(self.errors.any())
        return candidates[::-1][:n] if self.first else candidates[:n]


def test_the_kit_finds_what_is_wrong():
    with pytest.raises(AssertionError, match="check_asks failed for Forgetful: it raised ValueError: forgetful"):
        check_search(Forgetful)
    with pytest.raises(AssertionError, match="check_replay failed for Moody: two searches with one seed"):
        check_search(Moody)
    with pytest.raises(AssertionError, match=r"is not a secondguess\.search\.Search"):
        check_search(dict)


def test_names_and_parameters_of_the_registry():
    assert names()[:3] == ["random", "low_confidence", "adversarial_distance"]
    assert make("low-confidence").name == "low_confidence"
    with pytest.raises(UserError, match="There is no search 'adaptiv'; did you mean 'adaptive'"):
        make("adaptiv")
    with pytest.raises(UserError, match="The search 'random' cannot be made"):
        make("random", temperature=2)


def test_a_search_of_ones_own_has_a_name(monkeypatch):
    monkeypatch.setattr(searches.REGISTRY, "known", dict(searches.REGISTRY.known))
    register(Moody)
    assert isinstance(make("moody"), Moody)


def test_what_is_known_of_a_search():
    pool, labels = example_pool(80)
    search = make("random", seed=4).fit(pool)
    asked = search.ask(6)
    search.tell(asked[:4], labels[asked[:4]])
    assert search.labelled.tolist() == asked[:4].tolist()
    assert search.errors.tolist() == (labels != pool.predictions)[asked[:4]].tolist()
    assert search.remaining == pool.size - 6
    assert search.params() == {"seed": 4}
    assert repr(search) == f"RandomSearch({pool.size - 6} of {pool.size} images left, seed=4)"


def test_reasons_name_what_the_page_shows():
    pool, labels = example_pool(120)
    wanted = {
        "adversarial_distance": {"residual"},
        "bandit": {"cluster", "errors in the cluster"},
        "coverage": {"cluster", "predicted error probability"},
        "facility": {"predicted error probability"},
        "adaptive": {"residual in local scales", "predicted error probability", "error rate at this confidence"},
    }
    for name, more in wanted.items():
        search = make(name).fit(pool)
        asked = search.ask(20)
        search.tell(asked, labels[asked])
        known = next(row for row in search.ask(20).tolist() if not pool.distances.failed[row])
        assert {"prediction", "confidence", "distance"} | more <= search.why(known).keys()


@pytest.mark.parametrize(
    ("indices", "labels", "message"),
    [
        ([0.5], [1], "give integers"),
        ([[0]], [1], "give integers"),
        ([-1], [1], r"images 0\.\.79"),
        ([0], [[0.5, 0.5]], r"soft labels as floats \(1, 3\)"),
        ([0], [[-0.5, 0.5, 1.0]], "negative or infinite"),
        ([0], [-1], "skip an image whose label is unknown"),
    ],
)
def test_bad_answers(indices, labels, message):
    search = make("random").fit(example_pool(80)[0])
    with pytest.raises(UserError, match=message):
        search.tell(indices, labels)


def test_a_share_in_a_soft_label_is_no_error():
    pool, _ = example_pool(80)
    search = make("random").fit(pool)
    row = search.ask(1)
    soft = np.full((1, 3), 0.5)
    soft[0, (pool.predictions[row[0]] + 1) % 3] = 0
    search.tell(row, soft)
    assert not search.errors[0]


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("bandit", {"variant": "none"}, "variant of the bandit is 'none'"),
        ("coverage", {"variant": "none"}, "variant of coverage search is 'none'"),
        ("coverage", {"elbow": "knee"}, "chosen by 'elbow' or 'published', not by 'knee'"),
        ("coverage", {"sigma": 0}, "sigma = 0"),
        ("facility", {"alpha": 2}, "weight of surprise is 2"),
        ("adaptive", {"horizon": 0}, "horizon=0"),
    ],
)
def test_bad_parameters(name, params, message):
    with pytest.raises(UserError, match=message):
        make(name, **params).fit(example_pool(80)[0])


def test_only_adversarial_distance_insists_on_distances():
    pool = dataclasses.replace(example_pool(80)[0], distances=None)
    for name in names():
        if name == "adversarial_distance":
            with pytest.raises(UserError, match="This pool knows no distances"):
                make(name).fit(pool)
        else:
            assert len(make(name).fit(pool).ask(3)) == 3


def test_a_search_is_saved_and_loaded_by_its_name(tmp_path):
    pool, labels = example_pool(80)
    search = make("facility:alpha=0.2", seed=3).fit(pool)
    asked = search.ask(10)
    search.tell(asked[:6], labels[asked[:6]])
    search.save(tmp_path / "search.safetensors")
    loaded = Search.load(tmp_path / "search.safetensors")
    assert repr(loaded) == "FacilitySearch[fitted](seed=3, alpha=0.2)"
    with pytest.raises(UserError, match=r"no pool to ask about yet; call resume\(pool\)"):
        loaded.ask(1)
    with pytest.raises(UserError, match="begun on other images or predictions"):
        loaded.resume(example_pool(90)[0])
    assert loaded.resume(pool).labelled.tolist() == asked[:6].tolist()
    assert loaded.ask(5).tolist() == search.ask(5).tolist()


def test_a_search_that_has_not_begun_says_so():
    search = make("random", seed=1)
    assert repr(search) == "RandomSearch[unfitted](seed=1)"
    assert (search.remaining, search.labelled.tolist(), search.errors.tolist()) == (0, [], [])
    with pytest.raises(UserError, match=r"no pool to ask about yet; call fit\(pool\)"):
        search.ask(1)
    with pytest.raises(UserError, match=r"has not begun, so it cannot be resumed; call fit\(pool\)"):
        search.resume(example_pool(80)[0])
