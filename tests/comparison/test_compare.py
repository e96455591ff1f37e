from __future__ import annotations

import json
import re
from dataclasses import replace

import defusedxml.ElementTree
import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

import secondguess as sg
from compare_house import answers, audited, flipped
from secondguess import ImageSet, UserError
from secondguess.audits.predictions import NOMINAL, Predictions
from secondguess.contracts.sealed import file_digest

RNG = np.random.default_rng(0)
FILES = {"compare.html", "compare.json", "compare.md", "junit.xml"}


def test_accuracy_is_tested_by_mcnemar():
    found = sg.compare(*flipped(12, 2)).measure("accuracy.test")
    referee = mcnemar([[0, 12], [2, 0]], exact=True).pvalue
    assert found.change.p_value == pytest.approx(referee)
    assert (found.change.before, found.change.after) == (0.8, 0.75)
    assert found.p_value == found.change.p_value and found.paired, "the question itself is not corrected"
    assert found.outcome == "worse" and found.moved[0] == "−5.0 points"
    rows = {row["measure"]: row for row in sg.compare(*flipped(12, 2)).rows()}
    assert rows["accuracy.test"]["p_value"] == pytest.approx(referee)


def test_all_other_measures_share_one_level():
    """Referee: statsmodels' Holm within each family, times the number of families."""
    found = sg.compare(*flipped(20, 8))
    others = [one for one in found.measures if one.name != "accuracy.test"]
    families = {one.family for one in others}
    assert families == {"overall", "class", "detection"}
    for family in families:
        rows = [one for one in others if one.family == family]
        referee = 3 * multipletests([one.change.p_value for one in rows], method="holm")[1]
        np.testing.assert_allclose([one.p_value for one in rows], np.minimum(referee, 1))


@pytest.mark.parametrize(
    ("lost", "gained", "ready", "headline"),
    [
        (0, 0, True, "No: no difference is shown"),
        (40, 0, False, "Yes: it is right less often"),
        (0, 30, True, r"No: \d+ measures have become better, and nothing worse"),
        (5, 5, None, "It cannot be told from 200 images"),
    ],
)
def test_the_verdict_in_words(lost, gained, ready, headline):
    found = sg.compare(*flipped(lost, gained))
    assert found.verdict.ready is ready and re.fullmatch(headline, found.verdict.headline)
    assert len(found.summary().splitlines()) <= 10
    assert found.summary().endswith("old (before) with new (after) on the same 200 images")


def test_one_class_that_has_become_worse_is_found_among_better_ones():
    labels = np.arange(400) % 4
    before = np.arange(400) % 8 < 6
    after = before | (labels != 2)
    after[labels == 2] &= np.arange(100) < 60
    found = sg.compare(audited("old", {NOMINAL: answers(before)}), audited("new", {NOMINAL: answers(after)}))
    assert found.measure("accuracy.class.c.recall").outcome == "worse"
    assert found.verdict.headline.startswith("In places: more accurate, but")
    assert found.numbers["worse.class"].value == 1


def test_flips_come_with_the_surest_first_and_with_pictures():
    before, after = flipped(3, 2)
    surest = replace(after.predictions.sets[NOMINAL], confidence=np.linspace(0.3, 0.9, 200))
    after = audited("new", {NOMINAL: surest})
    pixels = RNG.random((200, 1, 8, 8), dtype=np.float32)
    images = ImageSet.from_arrays(pixels, np.arange(200) % 4, class_names=tuple("abcd"))
    for side in (before, after):
        one = side.predictions.sets[NOMINAL]
        side.predictions.sets[NOMINAL] = replace(one, digests=images.digests)
    found = sg.compare(before, after, test=images)
    assert [flip.after[1] for flip in found.negative] == sorted(
        (flip.after[1] for flip in found.negative), reverse=True
    )
    assert len(found.negative) == 3 and len(found.positive) == 2
    assert all(flip.uri.startswith("data:image/png") for flip in found.negative)
    assert {flip.label for flip in found.negative} == {"a", "b", "c"} and found.negative[0].before[0] == "c"
    assert sg.compare(before, after).negative[0].uri == ""


def test_stress_sets_are_compared_kind_by_kind():
    kinds = np.repeat(["fog", "snow"], 60)

    def sets(fog, seed):
        rng = np.random.default_rng(seed)
        right = np.where(kinds == "fog", np.arange(120) < fog, np.arange(120) % 3 > 0)
        scores = {"entropy": rng.random(120) + 0.5}
        stress = answers(right, images=np.arange(1000, 1120), kinds=kinds, scores=scores)
        invalid = replace(answers(np.zeros(50), images=np.arange(50) + 100 * seed), labels=np.full(50, -1))
        nominal = answers(np.arange(200) < 150, scores={"entropy": rng.random(200), "pcs": rng.random(200)})
        return {NOMINAL: nominal, "corrupted": stress, "invalid": invalid}

    found = sg.compare(audited("old", sets(50, 20)), audited("new", sets(20, 30)))
    assert found.measure("accuracy.stress.corrupted.fog").outcome == "worse"
    assert found.measure("accuracy.stress.corrupted.snow").outcome == "same"
    assert found.measure("accuracy.stress.corrupted").change.interval.n == 120
    assert found.measure("accuracy.stress.invalid") is None
    assert {one.name for one in found.measures if one.family == "detection"} == {
        "supervisor.entropy.mistakes.auroc",
        "supervisor.entropy.corrupted.auroc",
        "supervisor.entropy.invalid.auroc",
        "supervisor.pcs.mistakes.auroc",
    }
    assert not found.measure("supervisor.entropy.invalid.auroc").paired
    assert "The invalid images are not the same before and now, so what is said of them is unpaired." in found.notes


def stressed(right, kinds, **more):
    """An audit of 40 test images and of stress images that were answered like this."""
    sets = {NOMINAL: answers(np.arange(40) < 30), "corrupted": answers(right, images=range(100, 160), kinds=kinds)}
    return audited(sets=sets, **more)


def test_an_image_that_counts_as_another_kind_now_is_of_neither():
    kinds, now = np.array(["fog", "snow"] * 30), np.array(["fog", "snow"] * 30)
    now[0] = "snow"
    found = sg.compare(stressed(np.arange(60) < 40, kinds), stressed(np.arange(60) < 20, now))
    sizes = {one.name: one.change.interval.n for one in found.measures if one.family == "kind"}
    assert sizes == {
        "accuracy.stress.corrupted": 60,
        "accuracy.stress.corrupted.fog": 29,
        "accuracy.stress.corrupted.snow": 30,
    }
    assert found.measure("accuracy.stress.corrupted.fog").change.before == 19 / 29


@pytest.mark.parametrize(("before", "after", "outcome"), [(0, 1, "better"), (1, 0, "worse")])
def test_stress_images_that_nobody_answered_before_are_compared(before, after, outcome):
    kinds = np.array(["fog", "snow"] * 30)
    found = sg.compare(stressed(np.full(60, before), kinds), stressed(np.full(60, after), kinds))
    rows = [one for one in found.measures if one.family == "kind"]
    assert [one.outcome for one in rows] == [outcome] * 3
    assert [(one.change.before, one.change.after) for one in rows] == [(before, after)] * 3


def test_classes_without_names_are_taken_for_those_of_the_other(tmp_path):
    """Referee: the same comparison, both with names."""
    before, after = flipped(20, 8)
    named = sg.compare(before, after)
    numbers = replace(before.predictions, class_names=tuple("0123"))
    unnamed = audited("old", dict(numbers.sets), class_names=numbers.class_names)
    for sides, said in (
        ((unnamed, after), "The classes before have no names but numbers, so they are taken for those now"),
        ((before, audited("new", dict(after.predictions.sets), class_names=numbers.class_names)), "The classes now"),
    ):
        found = sg.compare(*sides, folder=tmp_path)
        assert found.measures == named.measures and found.negative == named.negative
        assert len(found.notes) == 1 and found.notes[0].startswith(said)
    assert named.notes == []


def test_a_stress_set_beside_a_handful_of_test_images_is_not_told_from_them():
    kinds = np.full(60, "fog")
    sides = [stressed(np.arange(60) < 40, kinds) for _ in range(2)]
    for side in sides:
        side.predictions.sets[NOMINAL] = side.predictions.sets[NOMINAL].take(np.arange(4))
    assert {one.family for one in sg.compare(*sides).measures} == {"kind"}
    for side in sides:
        side.predictions.sets[NOMINAL] = answers(np.ones(5))
    assert sg.compare(*sides).measure("supervisor.entropy.corrupted.auroc") is not None


@pytest.mark.parametrize(("count", "outcome"), [(5, "same"), (40, "worse")])
def test_a_score_that_has_gone_dead_is_shown_by_many_images_and_not_by_five(count, outcome):
    """It told all images apart, and now none: by what the images contribute, both AUROCs are known for certain."""

    def side(loud):
        nominal = answers(np.ones(count), scores={"knn": np.zeros(count)})
        odd = np.arange(1000, 1000 + count)
        invalid = answers(np.zeros(count), images=odd, labels=np.full(count, -1), scores={"knn": np.full(count, loud)})
        return audited(sets={NOMINAL: nominal, "invalid": invalid})

    found = sg.compare(side(1.0), side(0.0)).measure("supervisor.knn.invalid.auroc")
    assert (found.change.before, found.change.after) == (1.0, 0.5) and found.outcome == outcome


def test_different_test_sets_are_compared_unpaired_and_that_is_said():
    before = audited("old", {NOMINAL: answers(np.arange(200) < 160)})
    after = audited("new", {NOMINAL: answers(np.arange(300) < 150, images=np.arange(1000, 1300))})
    found = sg.compare(before, after)
    assert "compared unpaired" in found.notes[0] and "(200 before, 300 now)" in found.notes[0]
    assert found.summary().endswith("on different images, unpaired")
    assert found.negative == [] and "flips.negative" not in found.numbers
    assert found.verdict.ready is False and not found.measure("calibration.ece").paired


def test_what_was_left_out_is_said():
    before = answers(np.ones(60))
    after = answers(np.ones(40), images=np.arange(30, 70), scores={"pcs": np.ones(40)})
    labels = after.labels.copy()
    labels[:2] += np.where(labels[:2] < 3, 1, -1)
    found = sg.compare(
        audited("old", {NOMINAL: before}),
        audited("new", {NOMINAL: replace(after, labels=labels)}, status="interrupted"),
    )
    assert found.notes == [
        "40 test images that only one of the two has seen are left out.",
        "2 test images that have another label now are left out.",
        "Only one of the two has the supervisor entropy, pcs.",
        "One of the two audits was interrupted; what it had measured until then is compared.",
    ]


@pytest.mark.parametrize(("sizes", "alike"), [((4000, 1081), False), ((4000, 4000), True), ((4000, None), True)])
def test_supervisors_of_other_sizes_make_no_model_worse(sizes, alike):
    """An audit in ten minutes and one in two of the same model: the second has fitted its supervisors on less."""
    right = np.arange(400) < 300
    noise = np.random.default_rng(0).random(400)
    sides = []
    for size, scores in zip(sizes, (noise - right, noise), strict=True):
        plan = None if size is None else {"minutes": 10.0, "parts": [{"name": "test"}, {"name": "train", "size": size}]}
        sides.append(audited("model", {NOMINAL: answers(right, scores={"knn": scores})}, plan=plan))
    found = sg.compare(*sides)
    assert found.measure("supervisor.knn.mistakes.auroc").outcome == "worse"
    assert found.verdict.headline.startswith("In places" if alike else "No: no difference is shown")
    said = "Supervisors were fitted on 4,000 training images before and on 1,081 now" in " ".join(found.notes)
    assert said is not alike
    (reason,) = (one for one in found.verdict.reasons if one.topic == "detection")
    assert reason.weight == ("caution" if alike else "unknown")


def test_without_labels_the_rest_is_compared():
    unlabelled = {NOMINAL: answers(np.ones(50), labels=np.full(50, -1))}
    found = sg.compare(audited("old", unlabelled), audited("new", unlabelled))
    assert [one.name for one in found.measures] == ["entropy.test"]
    assert found.verdict.ready is None and "too few images have labels" in found.verdict.headline


def test_a_handful_of_images_shows_nothing(tmp_path):
    few = {NOMINAL: answers([1, 0, 1], entropy=np.array([0.1, 0.2, 0.3]))}
    found = sg.compare(audited("old", few), audited("new", {NOMINAL: answers([0, 1, 1])}), folder=tmp_path)
    assert found.measures == [] and found.verdict.ready is None
    assert (len(found.negative), len(found.positive)) == (1, 1)


def test_too_many_tests_show_nothing_where_there_is_nothing():
    """Comparisons of equally good models, forty classes each: rarely is any class called worse or better."""
    from secondguess.comparison.measures import _classes
    from secondguess.comparison.pairing import match
    from secondguess.metrics import holm

    names = tuple(str(one) for one in range(40))
    shown = 0
    for _ in range(20):
        hard = RNG.random(1000)
        sides = [answers(hard + 0.3 * RNG.random(1000) < 0.9, labels=np.arange(1000) % 40) for _ in range(2)]
        sides = [replace(one, predicted=np.where(one.right, one.labels, 0)) for one in sides]
        before, after = (audited(sets={NOMINAL: one}, class_names=names).predictions for one in sides)
        pair = match(before, after)[1][NOMINAL]
        shown += (holm([one.change.p_value for one in _classes(pair, names)]) < 0.05).any()
    assert shown <= 3


@pytest.mark.slow
def test_equally_good_models_are_rarely_called_different():
    """Whole comparisons: of 150, the accuracy differs in one of twenty at most, and so does anything else."""
    kinds, shown = np.repeat([f"kind {one}" for one in range(8)], 50), np.zeros(2)
    for _ in range(150):
        hard, harder = RNG.random((2, 400))

        def side(hard=hard, harder=harder):
            right = hard + 0.3 * RNG.random(400) < 0.95
            sure = np.clip(1 - 0.5 * hard + 0.1 * RNG.normal(size=400), 0.3, 0.999)
            losses = {"nll": -np.log(np.where(right, sure, 1 - sure)), "brier": (right - sure) ** 2}
            scores = [{name: base + 0.3 * RNG.normal(size=400) for name in "abc"} for base in (1 - sure, harder)]
            nominal = answers(right, confidence=sure, entropy=1 - sure, scores=scores[0], **losses)
            stressed = harder + 0.3 * RNG.random(400) < 0.8
            stress = answers(stressed, images=np.arange(1000, 1400), kinds=kinds, scores=scores[1])
            return audited(sets={NOMINAL: nominal, "corrupted": stress})

        found = sg.compare(side(), side())
        changed = {one.name for one in found.measures if one.outcome != "same"}
        shown += "accuracy.test" in changed, bool(changed - {"accuracy.test"})
    assert (shown <= 14).all(), "the upper end of what chance does to 5% of 150"


def test_gates_hold_or_not_and_reach_every_file(tmp_path):
    gates = ["flips.negative<=5", "change.accuracy.test.low>=-50%", "worse<=0", "change.acuracy.test>=0"]
    found = sg.compare(*flipped(12, 2), no_worse_than=0.5, gates=gates, folder=tmp_path / "out")
    assert [gate.outcome for gate in found.gates] == ["failed", "failed", "passed", "failed", "error"]
    assert str(found.gates[0].gate) == "change.accuracy.test >= -0.005"
    assert "The comparison has no number 'change.acuracy.test'; did you mean" in found.gates[4].reason
    assert found.verdict.headline == "Worse than allowed: a gate does not hold" and not found.passed
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    root = defusedxml.ElementTree.parse(tmp_path / "out/junit.xml").getroot()
    assert [root.get(key) for key in ("failures", "errors", "skipped")] == ["3", "1", "0"]
    content = json.loads((tmp_path / "out/compare.json").read_text("utf-8"))
    assert content == json.loads(json.dumps(found.to_dict()))
    assert content["numbers"]["flips.negative"]["value"] == 12 and len(content["flips"]["negative"]) == 12
    page = (tmp_path / "out/compare.html").read_text("utf-8")
    assert "Right before, wrong now (12)" in page and "change." in page and found.page.name == "compare.html"
    assert "| gate | measured | outcome |" in found.markdown()


def test_models_of_one_name_are_told_apart_by_where_their_audits_are(tmp_path):
    before, after = flipped(12, 2)
    name = after.about["model"]["name"] = before.about["model"]["name"]
    before.save(tmp_path / "last"), after.save(tmp_path / "now")
    found = sg.compare(tmp_path / "last", tmp_path / "now" / "audit.json")
    assert found.before.name == f"{name} in {tmp_path / 'last'}"
    assert found.after.name == f"{name} in {tmp_path / 'now' / 'audit.json'}" and found.after.name in found.summary()
    assert found.to_dict()["after"]["model"]["name"] == name
    for given in ((before, after), (before, tmp_path / "now"), (tmp_path / "now", tmp_path / "now")):
        assert {side.name for side in (sg.compare(*given).before, sg.compare(*given).after)} == {name}


def test_hostile_names_stay_text_on_every_page(tmp_path):
    names = ("<script>alert(1)</script>", "a|b*c_d", "@everybody", "`x`\n# big")
    before, after = flipped(12, 2)
    sides = [
        audited("<i>m</i>", {NOMINAL: one.predictions.sets[NOMINAL]}, class_names=names) for one in (before, after)
    ]
    found = sg.compare(*sides, folder=tmp_path)
    page, comment = (tmp_path / "compare.html").read_text("utf-8"), found.markdown()
    assert "<script" not in page and "<i>" not in page
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*', page) == []
    assert "<script" not in comment and "<i>" not in comment and "@everybody" not in comment
    assert "a\\|b\\*c\\_d" in comment and "\n# big" not in comment
    assert comment.startswith("<!-- secondguess compare -->\n### ")
    assert "<script" not in found._repr_html_() and "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (None, "cannot be read"),
        ("[]", "is no audit.json with the answers to each image"),
        ('{"predictions": null}', "audit the model again with this version"),
        ('{"predictions": {"file": "p.npz", "digest": "0"}}', "audit the model again"),
        ("[" * 100_000, "is no audit.json"),
    ],
)
def test_what_is_no_audit_is_refused(tmp_path, write, message):
    if write is not None:
        (tmp_path / "audit.json").write_text(write)
    with pytest.raises(UserError, match=message):
        sg.compare(tmp_path / "audit.json", flipped(0, 0)[1])


def test_answers_that_do_not_belong_to_the_audit_are_refused(tmp_path):
    before, after = flipped(3, 2)
    before.save(tmp_path / "before"), after.save(tmp_path / "after")
    found = sg.compare(tmp_path / "before", str(tmp_path / "after" / "audit.json"))
    assert (len(found.negative), len(found.positive)) == (3, 2)
    (tmp_path / "after/predictions.npz").write_bytes((tmp_path / "before/predictions.npz").read_bytes())
    with pytest.raises(UserError, match=r"it is not the file that was written with audit\.json; run the audit again"):
        sg.compare(tmp_path / "before", tmp_path / "after")
    (tmp_path / "after/predictions.npz").unlink()
    with pytest.raises(UserError, match="keep it beside"):
        sg.compare(tmp_path / "before", tmp_path / "after")


def test_sets_may_be_named_after_a_path(tmp_path):
    """As two sets of invalid images are, which are told apart by the folders that they came from."""
    before = flipped(3, 2)[0]
    nominal = before.predictions.sets[NOMINAL]
    sets = {NOMINAL: nominal, "invalid:source=/tmp/x/plain": nominal.take(np.arange(5)), "invalid": nominal}
    replace(before.predictions, sets=sets).save(tmp_path / "p.npz")
    read = Predictions.read(tmp_path / "p.npz", file_digest(tmp_path / "p.npz"))
    assert read.sets.keys() == sets.keys()
    assert [len(one) for one in read.sets.values()] == [len(one) for one in sets.values()]
    assert read.sets[NOMINAL].scores.keys() == nominal.scores.keys() != set()


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.full(200, 9)},
        {"predicted": np.full(200, -1)},
        {"confidence": np.full(200, "sure")},
        {"scores": {"entropy": np.ones((200, 2))}},
    ],
    ids=["label", "answer", "text", "shape"],
)
def test_answers_that_make_no_sense_are_refused(tmp_path, change):
    before, after = flipped(3, 2)
    after.predictions.sets[NOMINAL] = replace(after.predictions.sets[NOMINAL], **change)
    after.save(tmp_path)
    with pytest.raises(UserError, match="its arrays do not belong together; run the audit again"):
        sg.compare(before, tmp_path)


def test_other_mistakes_get_one_sentence(tmp_path):
    before, after = flipped(3, 2)
    with pytest.raises(UserError, match="give a number from 0 to 100"):
        sg.compare(before, after, no_worse_than=-1)
    with pytest.raises(UserError, match="nowhere is no audit and is taken for a model, but there are no images"):
        sg.compare("nowhere", after)
    with pytest.raises(UserError, match="has not been saved yet"):
        _ = sg.compare(before, after).page
    before.predictions = None
    with pytest.raises(UserError, match="interrupted before it had seen"):
        sg.compare(before, after)


def test_two_models_are_asked_about_the_same_images(tmp_path):
    digits = sg.load("digits")
    weights = RNG.normal(size=(64, 10))

    def model(noise):
        def answer(images):
            return np.float32(images.reshape(len(images), -1) @ (weights + noise))

        return sg.Classifier(answer, name=f"noise {noise}", output_kind="logits")

    found = sg.compare(
        model(0), model(0.5), digits.test, stress=["invalid"], supervisors=["entropy"], max_test=60, minutes=None
    )
    assert found.nominal.paired and len(found.nominal.after) == 60
    assert found.pairs["invalid"].paired and found.measure("supervisor.entropy.invalid.auroc").paired
    assert all(flip.uri for flip in found.negative)


def test_a_flip_is_shown_without_its_picture():
    from secondguess.comparison.flips import Flip

    one = Flip("a.png", "cat", ("cat", 0.9), ("dog", 0.8), "data:image/png;base64,AAAA")
    assert "a.png" in repr(one) and "base64" not in repr(one)
