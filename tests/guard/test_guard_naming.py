"""How kinds of anomaly are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.guard import naming
from secondguess.guard.naming import LOOKS, Examined, Naming, fit_naming, learn_names, looks_of
from secondguess.guard.panel import fit_panel
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
    fitted = fit_naming(nominal, kinds(rng, 150))
    assert fitted is not None and fit_naming(nominal, {"invalid": nominal}) is None
    for place, one in enumerate(kinds(rng, 100).values()):
        chances = fitted.chances(one.values)
        assert chances.sum(axis=1) == pytest.approx(1)
        assert (chances.argmax(axis=1) == place).mean() > 0.9
    read = Naming.restored(fitted.card(), fitted.arrays())
    assert read.chances(one.values).tolist() == chances.tolist()
    images = ImageSet.from_arrays(rng.random((100, 3, 8, 8), dtype=np.float32), layout="NCHW").images
    some = np.array([1, 98, 3])
    np.testing.assert_array_equal(looks_of(images, some), looks_of(images[:])[some])


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
    panel = fit_panel(nominal.scores, {"adversarial": made["adversarial"].scores, "mistaken": nominal.scores[wrong]})
    learnt = learn_names(panel, 0.05, nominal, answers, stress)
    assert learnt is not None and learnt.anomalies == ("adversarial", "mistaken")
    assert learn_names(panel, 0.05, nominal, answers, {}) is None
    plain = fit_panel(nominal.scores, {}, rule="bonferroni")
    assert learn_names(plain, 0.05, nominal, answers, stress) is None


def test_a_name_that_was_often_wrong_of_what_was_not_met_is_less_sure():
    """One sort of corruption looks exactly like the attacks, so that "adversarial" is wrong of it, however probable."""
    rng = np.random.default_rng(6)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(LOOKS))))
    honest = kinds(rng, 150)
    one, other = honest["out-of-distribution"], honest["adversarial"]
    looks = np.where((one.sorts == "a")[:, None], other.looks, one.looks)
    confused = honest | {"out-of-distribution": Examined(one.scores, looks, one.sorts)}
    sure, unsure = fit_naming(nominal, honest), fit_naming(nominal, confused)
    assert sure is not None and unsure is not None
    said = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert (sure.sureness(said) > 0.75).all()
    assert unsure.sureness(said)[0] < 0.75 < unsure.sureness(said)[1]


def test_the_record_is_how_often_a_name_was_right_of_images_with_an_alarm():
    """Against a count by hand: of what is left out, images without an alarm say nothing."""
    chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
    record = naming._record(chances, np.array([0, 0, 1, 1, 1]), np.array([1.0, 1, 1, 1, 0]))
    assert record[0][[60, 90]].tolist() == [0, 1]
    assert (record[1] == 1).all()
    examined = Examined(np.zeros((5, 1)), np.zeros((5, 0)), np.array(list("aabbb")), np.array([1, 1, 0, 1, 0]) == 1)
    assert naming._shares(examined).tolist() == [0.25, 0.25, 0, 0.5, 0]


def test_a_naming_without_a_record_takes_probabilities_as_they_are():
    rng = np.random.default_rng(7)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(LOOKS))))
    fitted = fit_naming(nominal, kinds(rng, 60))
    assert fitted is not None
    arrays = {name: value for name, value in fitted.arrays().items() if name != "record"}
    said = np.array([[0.75, 0.25], [0.4, 0.6]])
    assert Naming.restored(fitted.card(), arrays).sureness(said) == pytest.approx([0.75, 0.6])
