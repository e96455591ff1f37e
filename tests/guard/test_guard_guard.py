"""The guard as a whole: fitting, judging, threads, recalibration, what it says of itself."""

from __future__ import annotations

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from secondguess import Classifier, Dataset, UserError
from secondguess.guard import Guard, Guarded, GuardReport, StressSplit, conformal_p_values
from secondguess.guard.fitting import split_images
from secondguess.guard.stress_split import held_out_corruptions, learnt_corruptions
from secondguess.images import ImageSet
from secondguess.metrics import Interval
from secondguess.stress import CORRUPTIONS
from secondguess.supervisors import SupervisorSet, make, make_all

CHEAP = ["entropy", "pcs"]


def test_a_guard_says_all_there_is_to_say(guard: Guard, digits: Dataset, strangers: ImageSet) -> None:
    judged = guard.judge(digits.test)
    assert len(judged) == len(digits.test) == len(judged.verdicts) == len(judged.actions)
    assert judged.predictions.tolist() == guard.classifier.observe(digits.test).predictions.tolist()
    assert judged.evidence.shape == (len(digits.test), 4)
    assert ((judged.p_values <= 0.05) == judged.alarms).all()
    assert [verdict.is_nominal for verdict in judged.verdicts] == (~judged.alarms).tolist()
    assert guard.judge(strangers).alarms.mean() > 0.9
    seen = guard.classifier.observe(digits.test, guard.needs)
    assert guard.judge_observation(seen).p_values == pytest.approx(judged.p_values, abs=0.02)
    one = guard.judge(strangers)[-1]
    assert one.class_name == digits.test.class_names[one.prediction]
    assert list(one.evidence.values()) == sorted(one.evidence.values())
    assert one.to_dict()["verdict"] == list(one.verdict.kinds)
    assert one.action in str(one)
    assert sum(one.anomalies.values()) == pytest.approx(1)
    with pytest.raises(IndexError):
        judged[len(judged)]


def test_a_guard_and_its_judgements_say_what_they_are(guard: Guard, strangers: ImageSet, tmp_path: Path) -> None:
    assert guard.summary().startswith(
        "A guard for Sequential: entropy, pcs, mdsa, relative_mahalanobis.\nOf a thousand"
    )
    assert str(guard) == guard.summary() and len(guard.summary().splitlines()) <= 10
    assert guard.summary().splitlines()[0] in guard._repr_html_()
    told = json.loads(json.dumps(guard.to_dict()))
    assert told["settings"]["min_probability"] == 0.7 and told["supervisors"][2] == "mdsa"
    assert told["report"]["calibrated_on"] == 173 and told["actions"]["invalid"] == "refuse"
    assert Guard().summary() == "Guard(recommended; 0.01 false alarms; not fitted)"
    judged = guard.judge(strangers)
    assert judged.summary().startswith(f"{len(strangers)} images, {int(judged.alarms.sum())} alarms\n")
    assert guard.judge(strangers.materialise()[0]).summary() == str(guard.judge(strangers.materialise()[0])[0])
    saved = json.loads((judged.save(tmp_path / "judged") / "judgements.json").read_text())
    assert saved == json.loads(json.dumps(judged.to_dict())) and len(saved["judgements"]) == len(strangers)
    assert judged._repr_html_().startswith("<pre>")


def test_p_values_are_those_of_the_calibration_half(guard: Guard, digits: Dataset) -> None:
    half = split_images(digits.train, digits.test, seed=0, most=None).calibrate
    pipeline = guard.pipeline
    statistics = [
        pipeline.combine(guard.session.observe(images.materialise()))[1] for images in (half, digits.train.head(30))
    ]
    right = guard.classifier.observe(half).predictions == half.labels  # an alarm on the others would not be false
    expected = conformal_p_values(statistics[0][right], statistics[1])
    assert guard.judge(digits.train.head(30)).p_values == pytest.approx(expected, abs=1 / len(half))
    told = guard.report.false_alarms
    assert told.n == guard.report.calibrated_on == right.sum() == 173
    assert told.value == pytest.approx(8 / 174)


def test_the_size_of_the_batch_and_the_form_of_the_images_do_not_matter(guard: Guard, digits: Dataset) -> None:
    images = digits.test.head(12).materialise()
    together = guard.judge(images)
    for other in (
        [guard.judge(image)[0].p_value for image in images],
        guard.judge(torch.from_numpy(images)).p_values,
        guard.judge([Image.fromarray(np.rint(image[0] * 255).astype(np.uint8)) for image in images]).p_values,
    ):
        assert np.abs(together.p_values - other).max() < 0.03


def test_a_guarded_model_is_called_like_a_model_by_many_threads(guard: Guard, digits: Dataset) -> None:
    model = Guarded(guard.classifier, guard)
    images = digits.test.materialise()
    expected = model(images)
    rows = np.arange(len(images))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: model(images[row]), rows.tolist()))
    p_values = np.concatenate([answer.p_values for answer in answers])
    assert np.concatenate([answer.probabilities for answer in answers]) == pytest.approx(
        expected.probabilities, abs=1e-5
    )
    assert np.abs(p_values - expected.p_values).max() < 0.03
    assert answers[0].actions[0] == expected.actions[0]
    assert Guarded(guard.classifier.backend.module, guard)(images[0]).p_values == pytest.approx(p_values[:1])
    with pytest.raises(UserError, match="has not learnt anything yet"):
        Guarded(guard.classifier, Guard())


def test_a_guard_is_not_put_before_another_model(guard: Guard, other_classifier: Classifier) -> None:
    for other in (other_classifier, other_classifier.backend.module):
        with pytest.raises(UserError, match="was fitted on another model"):
            Guarded(other, guard)


def test_what_the_report_says(guard: Guard, stress_split: StressSplit) -> None:
    report = guard.report
    assert report.seen.keys() == stress_split.test.keys() == {"ambiguous", "corrupted", "adversarial", "invalid"}
    invalid = guard.judge(stress_split.test["invalid"])
    seen = report.seen["invalid"]
    assert seen.detected.value == pytest.approx(invalid.alarms.mean(), abs=0.01)
    assert seen.images == len(invalid)
    first = np.array([verdict.kind for verdict, alarm in zip(invalid.verdicts, invalid.alarms, strict=True) if alarm])
    assert seen.right == pytest.approx((first == "invalid").mean(), abs=0.02)
    assert seen.right <= seen.within
    assert set(report.seen["corrupted"].sorts) <= set(held_out_corruptions())
    assert list(report.seen["corrupted"].sorts.values()) == sorted(report.seen["corrupted"].sorts.values())
    assert all("%" in text for text in report.missed)
    assert GuardReport.from_dict(report.to_dict()) == report
    assert "Of a thousand nominal images that are answered rightly, 46 raise a false alarm" in str(report)


def test_a_guard_that_sees_little_says_so_first(guard: Guard) -> None:
    report = guard.report
    assert not report.weak
    assert "of little use" not in str(report)

    def seeing(share: float) -> GuardReport:
        low = replace(next(iter(report.seen.values())), detected=Interval(share, 0.0, 1.0, 100))
        mistakes = None if report.mistakes is None else replace(report.mistakes, detected=low.detected)
        return replace(report, mistakes=mistakes, seen=dict.fromkeys(report.seen, low))

    assert str(seeing(0.49)).startswith("This guard is of little use so far: it sees less than half of everything")
    assert not seeing(0.5).weak
    assert not replace(report, mistakes=None, seen={}).weak, "it was tried on nothing"


def test_what_is_learnt_from_is_not_what_is_tested_on(stress_split: StressSplit) -> None:
    learnt, tested = stress_split.learn, stress_split.test
    assert set(learnt_corruptions()) | set(held_out_corruptions()) == set(CORRUPTIONS) - {"identity"}
    for kind, column in (("corrupted", "corruption"), ("adversarial", "attack")):
        assert not set(learnt[kind].columns[column]) & set(tested[kind].columns[column])
    pairs = [set(zip(one.columns["class_1"].tolist(), one.columns["class_2"].tolist(), strict=True)) for one in
             (learnt["ambiguous"], tested["ambiguous"])]  # fmt: skip
    assert pairs[0]
    assert not pairs[0] & pairs[1]
    assert (learnt["adversarial"].columns["epsilon"] > 0).all()


def test_fresh_nominal_images_move_the_line_and_nothing_else(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit
) -> None:
    guard = Guard(CHEAP, false_alarms=0.1).fit(classifier, digits.train, digits.test, stress_split)
    before = guard.judge(digits.test)
    panel = guard.pipeline.panel
    changed = stress_split.test["corrupted"]
    guard.recalibrate(changed)  # the world has changed: this is nominal from now on
    after = guard.judge(changed)
    right = after.predictions == changed.labels
    assert guard.pipeline.panel is panel
    assert after.alarms[right].mean() <= 0.1
    assert guard.report.expected_alarms.value == pytest.approx(after.alarms.mean(), abs=0.01)
    assert guard.judge(digits.test).p_values.mean() > before.p_values.mean() + 0.1
    assert guard.report.calibrated_on == right.sum()
    assert guard.report.notes[-1].startswith("The threshold has been calibrated anew")
    assert [one["images"] for one in guard.record["calibrations"]] == [180, len(stress_split.test["corrupted"])]
    with pytest.raises(UserError, match="9 are needed"):
        guard.recalibrate(digits.test.head(5))


def test_same_seed_same_guard(classifier: Classifier, digits: Dataset, stress_split: StressSplit) -> None:
    first, second = (
        Guard(CHEAP, false_alarms=0.1)
        .fit(classifier, digits.train, digits.test, stress_split, seed=3)
        .judge(digits.test)
        for _ in range(2)
    )
    assert first.p_values.tolist() == second.p_values.tolist()


def test_a_guard_by_a_plain_rule_needs_no_stress(classifier: Classifier, digits: Dataset, strangers: ImageSet) -> None:
    guard = Guard(["entropy", "mdsa"], false_alarms=0.1, rule="cauchy", per_class=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judged = guard.fit(classifier, digits.train, digits.test, None).judge(strangers)
    assert set(map(str, (*judged.verdicts, *guard.judge(digits.test).verdicts))) == {"suspicious", "nominal"}
    assert judged.alarms.mean() > 0.6
    assert guard.report.seen == {}
    assert guard.report.verdict_accuracy is None
    assert sum(guard.record["calibrations"][0]["groups"].values()) == 173
    assert guard.recalibrate(digits.test).report.notes == ()  # nothing was said of anomalies that could be outdated


def test_a_latency_budget_saves_questions(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = np.array([0.01, 0.02, 0.3])  # whatever the machine does
    monkeypatch.setattr(SupervisorSet, "costs", lambda supervisors, observation: costs)
    three = [*CHEAP, make("dissector", epochs=3)]
    full = Guard(three, false_alarms=0.1, latency_ms=1e6)
    full.fit(classifier, digits.train, digits.test, stress_split)
    assert full.pipeline.cascade is None
    quick = Guard(three, false_alarms=0.1, latency_ms=float(costs[:2].sum() + costs[2] / 3))
    quick.fit(classifier, digits.train, digits.test, stress_split)
    judged = quick.judge(digits.test)
    skipped = np.isnan(judged.scores[:, 2])
    assert 0.3 < skipped.mean() < 1
    assert not judged.alarms[skipped].any()
    assert "dissector" not in judged[int(np.flatnonzero(skipped)[0])].evidence
    assert 0 < quick.report.fully_scored < 0.7
    assert "if all supervisors were always asked" in str(quick.report)
    assert quick.report.seen["invalid"].without_cascade >= 0.6


def test_alarms_among_images_that_a_cascade_has_cleared_have_names(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More alarms are wanted than images are in the grey zone."""
    costs = np.array([0.01, 0.02, 1.0])
    monkeypatch.setattr(SupervisorSet, "costs", lambda supervisors, observation: costs)
    quick = Guard([*CHEAP, make("dissector", epochs=3)], false_alarms=0.4, latency_ms=0.08)
    quick.fit(classifier, digits.train, digits.test, stress_split)
    judged = quick.judge(digits.test)
    assert judged.alarms.mean() > 0.2 > quick.report.fully_scored
    assert np.isfinite(judged.scores[judged.alarms]).all() and np.isfinite(judged.chances[judged.alarms]).all()
    assert np.isnan(judged.scores[~judged.alarms]).any()
    assert all(one.evidence.keys() == set(quick.pipeline.labels) for one in judged if not one.verdict.is_nominal)
    judged.save(tmp_path / "judged")
    # What is known beforehand of all scores, as in an exported guard, is judged alike.
    seen = quick.session.observe(quick.session.batch(digits.test))
    scores = quick.pipeline.supervisors.score(seen)
    again = quick.pipeline.judge_scores(seen.probabilities, scores, digits.test.materialise(), quick.session.predict)
    assert again.codes.tolist() == judged.codes.tolist()
    assert again.chances[judged.alarms] == pytest.approx(judged.chances[judged.alarms])


@pytest.mark.parametrize("promise", [{"false_alarms": 0.1}, {"risk": 0.3, "confidence": 0.8}])
def test_a_cascade_is_compared_with_the_same_promise(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, monkeypatch: pytest.MonkeyPatch, promise
) -> None:
    """Fitted without a budget, the same guard detects what the report says that it would."""
    monkeypatch.setattr(SupervisorSet, "costs", lambda supervisors, observation: np.array([0.01, 0.02]))
    quick, whole = (Guard(CHEAP, latency_ms=budget, **promise) for budget in (0.02, None))
    for guard in (quick, whole):
        guard.fit(classifier, digits.train, digits.test, stress_split)
    assert quick.pipeline.cascade is not None
    for kind, seen in quick.report.seen.items():
        assert seen.without_cascade == whole.report.seen[kind].detected.value


@pytest.mark.parametrize("protect", ["both", "errors"])
def test_the_order_of_the_classes_of_fresh_images_makes_no_difference(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, protect: str
) -> None:
    """A folder has its classes in the order of their names, a model in that of its outputs."""
    names = tuple(f"digit {letter}" for letter in "jihgfedcba")
    model = Classifier(classifier.backend.module, class_names=names, device="cpu")

    def named(images: ImageSet, own: tuple[str, ...]) -> ImageSet:
        places = np.array([own.index(name) for name in names])
        labels = np.where(images.labels < 0, -1, places[images.labels])
        return replace(images, labels=labels, class_names=own)

    def reordered(split: StressSplit, own: tuple[str, ...]) -> StressSplit:
        parts = (
            {kind: replace(named(one, own), soft_labels=None) for kind, one in some.items()}
            for some in (split.learn, split.test)
        )
        return StressSplit(*parts)

    found = []
    for own in (names, tuple(sorted(names))):
        guard = Guard(CHEAP, false_alarms=0.1, protect=protect)
        guard.fit(model, named(digits.train, own), named(digits.test, own), reordered(stress_split, own))
        fitted = guard.report.seen["corrupted"].by_answer
        guard.recalibrate(named(digits.test, own))
        found.append((fitted, guard.report.calibrated_on, guard.report.false_alarms))
    assert found[0] == found[1]
    assert found[0][1] > 300, "most are answered rightly"


def test_a_kind_of_anomaly_with_a_single_image_is_refused(stress_split: StressSplit) -> None:
    one = stress_split.learn["invalid"].head(1)
    with pytest.raises(UserError, match="has 1 invalid images to learn from; give 2 or more"):
        StressSplit({"invalid": one})
    StressSplit({}, {"invalid": one})


def test_without_calibration_images_training_images_must_do_and_it_says_so(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit
) -> None:
    with pytest.warns(UserWarning, match="more false alarms than promised"):
        guard = Guard(CHEAP, false_alarms=0.1).fit(classifier, digits.train, stress=stress_split)
    assert "split off from the training images" in guard.report.notes[0]
    assert guard.record["fitted_on"]["images"] == 958


def test_the_images_that_the_model_learnt_from_are_no_validation_images(
    classifier: Classifier, digits: Dataset
) -> None:
    again = replace(digits.train, name="copied")
    with pytest.raises(
        UserError, match=r"training images .* and the validation images copied are the same images; a mo"
    ):
        Guard(CHEAP, rule="bonferroni").fit(classifier, digits.train, again, stress=None)


def test_what_is_no_stress_is_refused_before_anything_is_fitted(classifier: Classifier, digits: Dataset) -> None:
    for wrong in ("Generated", "generate", {"invalid": digits.test}):
        with pytest.raises(UserError, match="give 'generated', a StressSplit, or None with a plain rule"):
            Guard().fit(classifier, digits.train, digits.test, wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="has no kind 'blurred'; its kinds are ambiguous, corrupted, adversarial, inv"):
        StressSplit({"blurred": digits.test})


def test_supervisors_of_a_group_are_not_taken_for_given_ones() -> None:
    guard = Guard(["standard", "knn:k=3", make("dsa", subsampling=100)])
    labels = SupervisorSet(make_all(guard.supervisors)).labels
    given = guard._given(len(labels))
    assert [label for label, one in zip(labels, given, strict=True) if one] == list(labels[-2:])
    assert Guard()._given(5) == [False] * 5


def test_what_cannot_be_guarded_is_said(classifier: Classifier, digits: Dataset, stress_split: StressSplit) -> None:
    with pytest.raises(UserError, match=r"180 calibration images are left .* and 999 are needed"):
        Guard(CHEAP, false_alarms=0.001).fit(classifier, digits.train, digits.test, stress_split)
    with pytest.raises(UserError, match="needs traces"):
        Guard(["mdsa"]).fit(Classifier(classifier.predict), digits.train, digits.test, stress_split)
    with pytest.raises(UserError, match="has not learnt anything yet"):
        Guard().judge(digits.test)
    with pytest.raises(UserError, match="min_probability is 2"):
        Guard(min_probability=2)
    with pytest.raises(UserError, match="above 0 and below 1"):
        Guard(false_alarms=0)
    with pytest.raises(UserError, match="There is no supervisor 'entropi'; did you mean 'entropy'"):
        Guard(["entropi"])
    with pytest.raises(UserError, match="'entropy' is there twice"):
        Guard(["entropy", "entropy"]).fit(classifier, digits.train, digits.test, stress_split)
    with pytest.raises(UserError, match="at least one supervisor"):
        Guard([]).fit(classifier, digits.train, digits.test, stress_split)
    assert "not fitted" in repr(Guard())
