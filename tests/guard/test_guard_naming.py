"""How kinds of anomaly are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.guard.naming import LOOKS, Examined, Naming, fit_naming, learn_names, looks_of
from secondguess.guard.protect import Answers
from secondguess.images import ImageSet


def kinds(rng, n, shift=0.0):
    """Scores and looks of two kinds; the second is too large or too small in the last look."""
    scores = rng.normal(size=(2, n, 3)) + 3
    looks = rng.normal(size=(2, n, len(LOOKS)))
    looks[1, :, -1] += np.where(rng.random(n) < 0.5, -4, 4) + shift
    sorts = np.resize(["a", "b", "c"], n)
    return {
        "adversarial": Examined(scores[0], looks[0], sorts),
        "out-of-distribution": Examined(scores[1], looks[1], sorts),
    }


def test_kinds_are_told_apart_on_either_side_of_the_usual():
    rng = np.random.default_rng(3)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(LOOKS))))
    naming = fit_naming(nominal, kinds(rng, 150))
    assert naming is not None and fit_naming(nominal, {"invalid": nominal}) is None
    for place, one in enumerate(kinds(rng, 100).values()):
        chances = naming.chances_of(one.values)
        assert chances.sum(axis=1) == pytest.approx(1)
        assert (chances.argmax(axis=1) == place).mean() > 0.9
    read = Naming.restored(naming.card(), naming.arrays())
    assert read.chances_of(one.values).tolist() == chances.tolist()
    images = ImageSet.from_arrays(rng.random((100, 3, 8, 8), dtype=np.float32), layout="NCHW").images
    looked = Examined(one.scores, looks_of(images))
    assert read.chances(one.scores, images[:]).tolist() == read.chances_of(looked.values).tolist()


def test_the_temperature_is_what_sorts_that_were_not_met_teach():
    """A sort that looks like the other kind, once it is left out, makes the naming less sure."""
    rng = np.random.default_rng(4)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(LOOKS))))
    plain = kinds(rng, 150)
    strange = dict(plain)
    one = plain["out-of-distribution"]
    looks = one.looks.copy()
    looks[one.sorts == "a", -1] = rng.normal(size=int((one.sorts == "a").sum()))
    looks[one.sorts == "a", 0] += 6
    strange["out-of-distribution"] = Examined(one.scores, looks, one.sorts)
    first, second = fit_naming(nominal, plain), fit_naming(nominal, strange)
    assert first is not None and second is not None and second.temperature > 1.5 * first.temperature


def test_names_are_learnt_of_the_kinds_that_the_panel_knows():
    rng = np.random.default_rng(5)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(LOOKS))))
    wrong = np.arange(200) < 40
    answers, made = Answers(~wrong, wrong), kinds(rng, 60)
    stress = {"adversarial": made["adversarial"], "corrupted": made["out-of-distribution"]}
    naming = learn_names(("adversarial", "mistaken"), nominal, answers, stress)
    assert naming is not None and naming.anomalies == ("adversarial", "mistaken")
    assert learn_names(("suspicious",), nominal, answers, stress) is None
    assert learn_names(("adversarial", "mistaken"), nominal, answers, {}) is None
