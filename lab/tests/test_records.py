"""Every record says how it was made; older ones that do not are named, and the list may only become shorter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "results"
HEAD = ("command", "commit", "hardware", "versions", "settings", "seconds")
LACKING: dict[str, tuple[str, ...]] = {
    "adversarial/mnist5k.json": ("commit", "seconds"),
    "ambiguity/ambiguity-boundary.json": ("commit", "seconds"),
    "ambiguity/ambiguity-orders.json": ("commit", "seconds"),
    "ambiguity/ambiguity-table1.json": ("commit", "seconds"),
    "ambiguity/ambiguity-table2.json": ("commit", "seconds"),
    "ambiguity/baselines.json": ("commit", "seconds"),
    "ambiguity/fashion_mnist.json": ("commit", "settings", "seconds"),
    "ambiguity/mnist.json": ("commit", "settings", "seconds"),
    "ambiguity/sets.json": ("command", "commit", "hardware", "versions", "settings", "seconds"),
    "bench/ambiguess_h200.json": ("commit", "settings", "seconds"),
    "bench/fleet_h200.json": ("commit", "settings", "seconds"),
    "bench/gan_h200.json": ("command", "commit", "hardware", "settings", "seconds"),
    "bench/search.json": ("commit", "settings", "seconds"),
    "bench/surprise.json": ("commit", "settings", "seconds"),
    "guard/fashion_mnist.json": ("command", "commit"),
    "guard/mnist.json": ("command", "commit"),
    "house/rooms.json": ("commit", "hardware", "versions", "settings", "seconds"),
    "hubris/fashion_mnist.json": ("commit", "settings"),
    "hubris/fashion_mnist_grid.json": ("commit", "settings", "seconds"),
    "hubris/fashion_mnist_spaces.json": ("command", "commit", "hardware", "seconds"),
    "hubris/mnist.json": ("commit", "settings"),
    "hubris/mnist_spaces.json": ("command", "commit", "hardware", "seconds"),
    "hubris/pneumoniamnist.json": ("commit", "settings"),
    "hubris/pneumoniamnist_spaces.json": ("command", "commit", "hardware", "seconds"),
    "mixtures/mixtures-accuracy.json": ("commit", "seconds"),
    "mixtures/mixtures-rehearsed.json": ("commit", "seconds"),
    "mixtures/mixtures-shares.json": ("commit", "seconds"),
    "oracles/mnist.json": ("command", "commit", "seconds"),
    "scaling/scaling.json": ("commit", "seconds"),
    "search/account.json": ("command", "commit", "hardware", "settings", "seconds"),
    "search/account_12_epochs.json": ("command", "commit", "hardware", "settings", "seconds"),
    "search/attacks.json": ("command", "commit", "seconds"),
    "search/cats_dogs.json": ("command", "commit"),
    "search/cats_dogs_12_epochs.json": ("command", "commit"),
    "search/fashion_mnist.json": ("command", "commit"),
    "search/mnist.json": ("command", "commit"),
    "supervisors/fashion_mnist.json": ("command", "commit", "seconds"),
    "supervisors/mnist.json": ("command", "commit", "seconds"),
    "surprise/models.json": ("seconds",),
    "surprise/scale.json": ("command", "commit", "settings", "seconds"),
    "surprise/surprise-beyond.json": ("commit", "seconds"),
    "surprise/surprise-figure2.json": ("commit", "seconds"),
    "surprise/surprise-figure3.json": ("seconds",),
    "surprise/surprise-figure4.json": ("seconds",),
    "surprise/surprise-table1.json": ("seconds",),
}
RECORDS = {path.relative_to(RESULTS).as_posix(): path for path in sorted(RESULTS.rglob("*.json"))}


def lacking(path):
    kept = json.loads(path.read_text("utf-8"))
    return tuple(key for key in HEAD if kept.get(key) in (None, ""))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_says_how_it_was_made(name):
    assert lacking(RECORDS[name]) == LACKING.get(name, ()), "what a record does not lack (any more) leaves the list"


def test_no_record_that_is_gone_is_excused():
    assert LACKING.keys() <= RECORDS.keys()
    assert all(LACKING.values())


def test_the_list_only_becomes_shorter():
    assert sum(map(len, LACKING.values())) <= 121, "a new record has all of them: see secondguess_lab.record"


def test_the_votes_of_l_m_and_n_are_those_that_others_counted():
    """From the published predictions; counted independently of this repository's code."""
    kept = json.loads((RESULTS / "oracles" / "votes.json").read_text("utf-8"))["all_images"]
    assert (kept["images"], kept["undecided"]) == (15_000, 2_630)
    counts = ("true_positives", "false_positives", "false_negatives")
    assert [kept["L"][one] for one in counts] == [935, 445, 2259]
    assert [kept["M"][one] for one in counts] == [1699, 258, 2381]
    assert [kept["N"][one] for one in counts] == [1363, 213, 2526]
