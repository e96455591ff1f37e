"""What an alarm is for, and what is promised of errors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secondguess import Classifier, Dataset, UserError
from secondguess.guard import PROTECT, Guard, GuardReport, StressSplit
from secondguess.guard.calibrating import calibrate
from secondguess.guard.fitting import split_images
from secondguess.guard.onnx_export import export_onnx
from secondguess.guard.panel import fit_panel
from secondguess.guard.protect import FEWEST, Answers, Stressed, examples
from secondguess.guard.runtime import Runtime
from secondguess.guard.stress_split import StressMaker
from secondguess.images import ImageSet
from secondguess.metrics import auroc

SUPERVISORS = ["entropy", "mdsa"]


def fitted(classifier: Classifier, digits: Dataset, stress: StressSplit | str | None, **options) -> Guard:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of which a tiny set has few
        return Guard(SUPERVISORS, false_alarms=0.1, **options).fit(classifier, digits.train, digits.test, stress)


def answers(right: list[int], wrong: list[int], n: int) -> Answers:
    rows = np.arange(n)
    return Answers(np.isin(rows, right), np.isin(rows, wrong))


def test_answers_are_read_from_labels_of_every_kind() -> None:
    pixels, predictions = np.zeros((3, 1, 2, 2), np.float32), np.array([0, 1, 1])
    plain = Answers.of(ImageSet.from_arrays(pixels, [0, 0, -1], class_names=["a", "b"]), predictions)
    assert plain.right.tolist() == [True, False, False]
    assert plain.wrong.tolist() == [False, True, False]
    assert plain.known.tolist() == [True, True, False]
    soft = ImageSet.from_arrays(pixels, soft_labels=[[0.5, 0.5], [0.95, 0.05], [0.5, 0.5]], class_names=["a", "b"])
    assert Answers.of(soft, predictions, "ambiguous").wrong.tolist() == [False, True, False]
    assert Answers.of(soft, predictions, "invalid").wrong.all()
    assert plain.quiet("novelty").all()
    assert plain.quiet("both").tolist() == plain.quiet("errors").tolist() == [True, False, True]


def test_what_a_panel_learns_from_follows_what_is_protected() -> None:
    nominal, strange = np.arange(40.0)[:, None], 100 + np.arange(30.0)[:, None]
    known = answers(list(range(25)), list(range(25, 40)), 40)
    sorts = np.resize(["fog", "snow"], 30)
    stress = {"corrupted": Stressed(strange, answers(list(range(18)), list(range(18, 30)), 30), sorts)}
    novelty, both, errors = (examples(word, nominal, known, stress) for word in ("novelty", "both", "errors"))
    assert len(novelty.nominal) == 40 and set(novelty.anomalies) == {"out-of-distribution"}
    assert novelty.harmless is both.harmless is None
    assert len(both.nominal) == 25 and both.anomalies["mistaken"].ravel().tolist() == list(range(25, 40))
    assert len(both.anomalies["out-of-distribution"]) == 30
    assert errors.harmless is not None
    assert errors.harmless.ravel().tolist() == list(range(100, 118))
    assert errors.anomalies["out-of-distribution"].ravel().tolist() == list(range(118, 130))
    assert both.sorts["out-of-distribution"].tolist() == sorts.tolist()
    assert errors.sorts["out-of-distribution"].tolist() == sorts[18:].tolist()


def test_a_model_without_enough_errors_teaches_nothing_about_them() -> None:
    nominal = np.zeros((40, 1))
    few = answers(list(range(FEWEST - 1, 40)), list(range(FEWEST - 1)), 40)
    assert set(examples("both", nominal, few, {}).anomalies) == set()
    with pytest.raises(UserError, match="answers fewer than 10 of these images wrongly"):
        examples("errors", nominal, few, {})


def test_every_protection_reports_mistakes_and_answers_within_sets(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit
) -> None:
    novelty, both, errors = (
        fitted(classifier, digits, stress_split, protect=word).report for word in ("novelty", "both", "errors")
    )
    for report in (novelty, both, errors):
        assert report.mistakes is not None
        assert report.seen["corrupted"].by_answer is not None
        assert report.seen["invalid"].by_answer is None  # no answer is right there
        assert GuardReport.from_dict(report.to_dict()) == report
    assert novelty.calibrated_on == 180 > both.calibrated_on == errors.calibrated_on
    assert "nominal images, " in str(novelty) and "answered rightly" in str(both)
    assert "Of the model's mistakes on nominal images" in str(errors)


def test_a_panel_that_protects_against_errors_leaves_strange_images_alone() -> None:
    """Two scores: how strange an image is, and how doubtful its answer; only the second has to do with errors."""
    rng = np.random.default_rng(0)

    def draw(n: int, strangeness: float) -> tuple[np.ndarray, Answers]:
        doubt = rng.normal(0, 1, n)
        wrong = rng.random(n) < 1 / (1 + np.exp(-4 * (doubt - 1)))
        return np.column_stack([rng.normal(strangeness, 1, n), doubt]), Answers(~wrong, wrong)

    nominal, corrupted, ordinary, strange = draw(800, 0), draw(800, 4), draw(400, 0), draw(400, 4)
    aurocs = {}
    for word in PROTECT:
        taught = examples(word, *nominal, {"corrupted": Stressed(*corrupted)})
        panel = fit_panel(taught.nominal, taught.anomalies, harmless=taught.harmless, seed=0)
        (calm, _), (odd, _) = panel.combine(ordinary[0]), panel.combine(strange[0])
        within = auroc(odd[strange[1].right], odd[strange[1].wrong])
        aurocs[word] = auroc(calm[ordinary[1].right], calm[ordinary[1].wrong]), within, auroc(calm, odd)
        one = panel.combine(strange[0][:1])[0]
        assert one == pytest.approx(odd[:1])  # the way of a single image knows it, too
    mistakes, within, novelty = zip(*(aurocs[word] for word in ("errors", "novelty", "both")), strict=True)
    assert mistakes[0] > 0.9 > mistakes[1] and mistakes[2] > 0.8
    assert within[0] > 0.9 > within[1]
    assert novelty[1] > 0.95 and novelty[2] > 0.9 and novelty[0] < 0.8


def test_a_promised_risk_decides_alarms_everywhere(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, tmp_path: Path
) -> None:
    guard = fitted(classifier, digits, stress_split, risk=0.05, confidence=0.9)
    promise, limit = guard.report.promise, guard.pipeline.limit
    assert promise is not None and limit is not None
    judged = guard.judge(digits.test)
    statistics = guard.pipeline.combine(guard.session.observe(digits.test))[1]
    assert judged.alarms.tolist() == (statistics > limit).tolist()
    half = split_images(digits.train, digits.test, seed=0, most=None).calibrate
    calm = guard.judge(half)
    assert promise.accepted.value == pytest.approx(1 - calm.alarms.mean(), abs=0.02)
    wrong = (calm.predictions != half.labels)[~calm.alarms]
    assert promise.wrong.value == pytest.approx(wrong.mean(), abs=0.01) and wrong.mean() < 0.05
    assert "at most 5.00% of the accepted predictions are wrong" in guard.summary()
    assert repr(guard).endswith("a risk of 0.05; fitted)")
    again = Guard.load(guard.save(tmp_path / "guard"), classifier)
    assert again.judge(digits.test).alarms.tolist() == judged.alarms.tolist()
    assert again.report == guard.report and again.risk == 0.05 and again.pipeline.limit == limit
    exported = Runtime(export_onnx(guard, tmp_path / "exported"))
    assert (exported.judge(digits.test.materialise()).alarms == judged.alarms).mean() > 0.99
    assert again.recalibrate(half).pipeline.limit == limit  # the same images settle the same
    with pytest.raises(UserError, match="have no labels, without which a guard cannot promise a risk"):
        again.recalibrate(replace(half, labels=np.full(len(half), -1)))


def test_a_limit_may_be_infinite_and_survive_a_file(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    guard = fitted(classifier, digits, None, rule="bonferroni", risk=0.4)
    assert guard.pipeline.limit == np.inf
    assert not guard.judge(digits.test).alarms.any()
    assert Guard.load(guard.save(tmp_path / "guard"), classifier).pipeline.limit == np.inf


def test_what_cannot_be_promised_is_refused(classifier: Classifier, digits: Dataset) -> None:
    with pytest.raises(UserError, match=r"A risk of 0.001 cannot be promised with 95% confidence"):
        fitted(classifier, digits, None, rule="bonferroni", risk=0.001)
    with pytest.raises(UserError, match="A risk is promised for all classes together"):
        Guard(SUPERVISORS, risk=0.1, per_class=True)
    with pytest.raises(UserError, match="no protection against 'fire'; there is errors, novelty, both"):
        Guard(SUPERVISORS, protect="fire")  # type: ignore[arg-type]


def test_without_labels_only_novelty_is_known(classifier: Classifier, digits: Dataset) -> None:
    unknown = replace(digits.test, labels=np.full(len(digits.test), -1))
    bare = Dataset(name="bare", train=digits.train, test=unknown)
    guard = fitted(classifier, bare, None, rule="bonferroni")
    assert guard.report.mistakes is None
    assert guard.report.notes[-1].startswith("The validation images have no labels")
    with pytest.raises(UserError, match="have no labels, without which a guard cannot protect against errors"):
        fitted(classifier, bare, None, rule="bonferroni", protect="errors")


def test_too_few_right_answers_are_said_to_be_that() -> None:
    settings = Guard(SUPERVISORS, false_alarms=0.1).settings
    with pytest.raises(UserError, match="answers 5 of 30 nominal images rightly, and 9 such are needed"):
        calibrate(
            np.arange(30.0), np.zeros(30, np.int64), answers(list(range(5)), list(range(5, 30)), 30), settings, None
        )


def test_a_model_that_is_always_wrong_is_refused_before_stress_sets_are_made(
    classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = (classifier.observe(digits.test).predictions + 1) % 10
    mistaken = Dataset(name="mistaken", train=digits.train, test=replace(digits.test, labels=elsewhere))

    def never(*_: object, **__: object) -> StressSplit:
        raise AssertionError("a stress set was made")

    monkeypatch.setattr(StressMaker, "make", never)
    with pytest.raises(UserError, match=r"answers 0 of .* nominal images rightly, and 2 such .*--protect novelty"):
        fitted(classifier, mistaken, "generated")
    assert fitted(classifier, mistaken, None, rule="bonferroni", protect="novelty").pipeline.panel.rule == "bonferroni"
