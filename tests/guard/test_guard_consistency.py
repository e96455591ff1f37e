"""What a mirror image says about an alarm, where mirror images mean nothing to the task."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from secondguess import Classifier, Dataset
from secondguess.guard import Guard, StressSplit, consistency, make_stress_split
from secondguess.guard.consistency import FINEST, changes_that_keep, mirrored, moved
from secondguess.guard.fitting import split_images
from secondguess.guard.naming import LOOKS, Examined, Naming, fit_naming
from secondguess.guard.onnx_export import _exported, export_onnx
from secondguess.guard.planned import plan_guard
from secondguess.guard.runtime import Runtime
from secondguess.guard.unfinished import Unfinished
from secondguess.images import ImageSet
from secondguess.model.outputs import NotFinite
from secondguess.progress import Silent
from secondguess.supervisors import SupervisorSet, make, make_all


@pytest.fixture(scope="module")
def split(both_ways: Dataset, indifferent: Classifier) -> StressSplit:
    parts = split_images(both_ways.train, both_ways.test, seed=0, most=None)
    how = {"ambiguous": "blend", "attacked": 24, "device": "cpu"}
    return make_stress_split(indifferent, both_ways.train, parts.learn, parts.calibrate, **how)


@pytest.fixture(scope="module")
def asking(both_ways: Dataset, indifferent: Classifier, split: StressSplit) -> Guard:
    """A guard that asks about mirror images."""
    made = Guard(["entropy", "pcs", "mdsa"], false_alarms=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.fit(indifferent, both_ways.train, both_ways.test, split)


@pytest.fixture(scope="module")
def images(both_ways: Dataset, split: StressSplit) -> np.ndarray:
    """Nominal images, and attacked and invalid ones."""
    strange = [split.test[kind].head(20).materialise() for kind in ("adversarial", "invalid")]
    return np.concatenate([both_ways.test.head(40).materialise(), *strange])


def test_how_far_an_answer_moves():
    rng = np.random.default_rng(0)
    before, after = rng.dirichlet(np.ones(4), size=(2, 50))
    before[0], after[0] = [1, 0, 0, 0], [0, 1, 0, 0]
    found = moved(before, after)
    assert found[0].tolist() == [1, 0]
    assert found[:, 0] == pytest.approx([np.max(np.abs(a - b)) for a, b in zip(after, before, strict=True)])
    assert found[:, 1] == pytest.approx(entropy(after, axis=1) - entropy(before, axis=1))


def test_some_images_at_a_time_are_as_all_at_once(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(1)
    images = rng.random((30, 3, 5, 6), dtype=np.float32)

    def ask(pixels):
        sums = pixels[..., :2].astype(float).sum(axis=(2, 3))
        return sums / sums.sum(axis=1, keepdims=True)

    rows, before = np.array([4, 29, 0, 7]), ask(images)
    once = consistency.consistency(images, rows, before[rows], ["mirror"], ask)
    assert once == pytest.approx(moved(before, ask(images[..., ::-1]))[rows])
    monkeypatch.setattr(consistency, "NUMBERS", 1)
    assert consistency.consistency(images, rows, before[rows], ["mirror"], ask).tolist() == once.tolist()
    assert consistency.consistency(images, rows, before[rows], [], ask).shape == (4, 0)


def test_a_change_that_means_something_is_not_used():
    """A mirror image changes which half is brighter, left or right, and not which is, top or bottom."""
    images = np.random.default_rng(2).random((40, 1, 6, 6), dtype=np.float32)

    def ask(axis):
        def answer(pixels):
            share = np.split(pixels, 2, axis=axis)[0].sum(axis=(1, 2, 3)) / pixels.sum(axis=(1, 2, 3))
            return np.stack([share, 1 - share], axis=1)

        return answer

    assert changes_that_keep(images, ask(3)(images), ask(3)) == {}
    kept = changes_that_keep(images, ask(2)(images), ask(2))
    assert list(kept) == ["mirror"] and np.abs(kept["mirror"]).max() < 1e-5


def test_an_image_without_an_answer_does_not_keep_others_from_theirs():
    images = np.random.default_rng(3).random((6, 1, 4, 4), dtype=np.float32)
    before = np.full((6, 2), 0.5)

    def ask(pixels):
        bad = np.flatnonzero((pixels == mirrored(images)[2]).all(axis=(1, 2, 3)))
        if len(bad):
            raise NotFinite(bad, len(pixels))
        return np.tile([0.75, 0.25], (len(pixels), 1))

    found = consistency.consistency(images, np.arange(6), before, ["mirror"], ask)
    assert found[2].tolist() == [1, 0] and found[:2, 0].tolist() == [0.25, 0.25]
    assert np.isfinite(found).all()
    assert moved(before, np.full((6, 2), np.nan)).tolist() == [[1, 0]] * 6


def kinds(rng: np.random.Generator, n: int) -> dict[str, Examined]:
    """Two kinds that differ only in how far the answer moves."""
    looks = rng.normal(size=(2, n, len(LOOKS) + 2))
    looks[:, :, -2:] = rng.random((2, n, 2)) * [[[0.1, 0.1]], [[0.9, 0.9]]]
    sorts = np.resize(["a", "b", "c"], n)
    return {
        kind: Examined(rng.normal(size=(n, 3)) + 3, own, sorts)
        for kind, own in zip(("out-of-distribution", "adversarial"), looks, strict=True)
    }


def test_names_are_learnt_from_it_and_not_from_its_last_digits():
    rng = np.random.default_rng(4)
    usual = rng.normal(size=(200, len(LOOKS) + 2))
    usual[:, -2:] = 1e-9 * rng.random((200, 2))  # of a model that is always sure
    nominal = Examined(rng.normal(size=(200, 3)), usual)
    learnt, judged = kinds(rng, 150), kinds(rng, 100)
    fitted = fit_naming(nominal, learnt, ["mirror"])
    assert fitted is not None and (fitted.spread[-2:] == FINEST).all() and fitted.spread[-3] > FINEST
    for place, one in enumerate(judged.values()):
        assert (fitted.chances(one.values).argmax(axis=1) == place).mean() > 0.9
    read = Naming.restored(json.loads(json.dumps(fitted.card())), fitted.arrays())
    assert read.changes == ("mirror",) and read.chances(one.values).tolist() == fitted.chances(one.values).tolist()
    values = nominal.values
    shaken = values.copy()
    shaken[:, -2:] += 1e-7
    assert fitted.chances(shaken) == pytest.approx(fitted.chances(values), abs=1e-4)
    without = {kind: Examined(one.scores, one.looks[:, :-2], one.sorts) for kind, one in learnt.items()}
    blind = fit_naming(Examined(nominal.scores, usual[:, :-2]), without)
    assert blind is not None and blind.changes == ()
    for one in judged.values():
        values = np.hstack([one.scores, one.looks[:, :-2]])
        assert blind.chances(values).max(axis=1).mean() < fitted.chances(one.values).max(axis=1).mean()


def test_a_guard_of_digits_does_not_ask(guard: Guard, strangers: ImageSet, monkeypatch: pytest.MonkeyPatch):
    """The mirror image of a digit is another sign, and the guard is what it was."""
    naming = guard.pipeline.naming
    assert naming is not None and naming.changes == ()
    assert len(naming.centre) == len(guard.pipeline.labels) + len(LOOKS)
    monkeypatch.setattr(type(guard.session), "predict", lambda *_: pytest.fail("the model was asked again"))
    assert guard.judge(strangers).alarms.any()


def test_only_images_with_an_alarm_are_asked_about(asking: Guard, images: np.ndarray, monkeypatch: pytest.MonkeyPatch):
    asked = []
    predict = type(asking.session).predict
    monkeypatch.setattr(type(asking.session), "predict", lambda self, x: asked.append(x) or predict(self, x))
    judged = asking.judge(images)
    assert asking.pipeline.naming is not None and asking.pipeline.naming.changes == ("mirror",)
    assert 0 < judged.alarms.sum() < len(images)
    np.testing.assert_array_equal(np.concatenate(asked), mirrored(images[judged.alarms]))
    asked.clear()
    assert not asking.judge(images[~judged.alarms]).alarms.any() and not asked


def test_one_image_is_judged_as_among_many_in_any_order(asking: Guard, images: np.ndarray):
    together = asking.judge(images)
    assert np.isfinite(together.chances).all()
    alone = [asking.judge(image) for image in images]
    assert np.concatenate([one.chances for one in alone]) == pytest.approx(together.chances, abs=1e-4)
    assert np.concatenate([one.codes for one in alone]).tolist() == together.codes.tolist()
    order = np.random.default_rng(0).permutation(len(images))
    shuffled = asking.judge(images[order])
    assert shuffled.chances == pytest.approx(together.chances[order], abs=1e-4)
    many = asking.judge(np.tile(images, (5, 1, 1, 1)))  # more than a batch
    assert len(many) > asking.classifier.batch_size
    assert many.chances[: len(images)] == pytest.approx(together.chances, abs=1e-4)


def test_it_is_saved_and_an_observation_is_judged_alike(asking: Guard, images: np.ndarray, tmp_path: Path):
    expected = asking.judge(images)
    read = Guard.load(asking.save(tmp_path / "guard"), asking.classifier)
    assert read.judge(images).chances.tolist() == expected.chances.tolist()
    needs = type(asking.needs)(traces=asking.needs.traces, images=True)
    observed = asking.classifier.observe(images, needs)
    assert asking.judge_observation(observed).chances == pytest.approx(expected.chances, abs=1e-4)
    by_scores = asking.pipeline.judge(observed)  # without the model, by the scores alone
    assert by_scores.alarms.tolist() == expected.alarms.tolist()
    assert by_scores.chances == pytest.approx(asking.pipeline.panel.combine(by_scores.scores)[1])


def test_an_exported_guard_asks_too(asking: Guard, images: np.ndarray, tmp_path: Path):
    folder, expected = export_onnx(asking, tmp_path / "exported"), asking.judge(images)
    told = Runtime(folder, threads=1).judge(images)
    assert told.alarms.tolist() == expected.alarms.tolist()
    assert told.chances == pytest.approx(expected.chances, abs=1e-3)
    assert np.concatenate([Runtime(folder, threads=1).judge(one).chances for one in images[-3:]]) == pytest.approx(
        told.chances[-3:], abs=1e-4
    )


@pytest.mark.slow
def test_an_onnx_file_is_asked_in_two_graphs(
    both_ways: Dataset, indifferent: Classifier, split: StressSplit, images: np.ndarray, tmp_path: Path
):
    path = tmp_path / "model.onnx"
    path.write_bytes(_exported(indifferent.backend.module, [torch.rand(2, 1, 8, 8)], ["images"], ["raw"]))
    model = Classifier(str(path), class_names=indifferent.class_names, device="cpu")
    guard = Guard(["entropy", "pcs", make("mdsa", layers="penultimate")], false_alarms=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard.fit(model, both_ways.train, both_ways.test, split)
    assert guard.pipeline.naming is not None and guard.pipeline.naming.changes == ("mirror",)
    told = Runtime(export_onnx(guard, tmp_path / "exported"), threads=1).judge(images)
    assert told.chances == pytest.approx(guard.judge(images).chances, abs=1e-3)


@pytest.mark.parametrize("older", [2, 3, 4])
def test_an_exported_guard_of_an_older_format_is_read(guard: Guard, strangers: ImageSet, tmp_path: Path, older: int):
    folder = export_onnx(guard, tmp_path / "exported")
    expected = Runtime(folder, threads=1).judge(strangers)
    card = json.loads((folder / "onnx.json").read_text())
    assert card.pop("format") == 5 and (older == 4 or card.pop("resize") == "stretch")
    (graph,) = card.pop("graphs").values()
    (folder / graph).rename(folder / "model.onnx")
    card |= {"two_graphs": False, "files": {"model.onnx": card["files"][graph]}}
    if older == 2:
        del card["naming"]["changes"]
    (folder / "onnx.json").write_text(json.dumps({k: v for k, v in card.items() if k != "digest"} | {"format": older}))
    assert Runtime(folder, threads=1).judge(strangers).chances.tolist() == expected.chances.tolist()
    (folder / "mine.onnx").write_bytes(b"not ours")
    export_onnx(guard, folder)
    assert not (folder / "model.onnx").exists() and (folder / "mine.onnx").exists()


def test_attacks_are_told_from_other_kinds(asking: Guard, split: StressSplit):
    """The two attacks that were not met are named, as far as they raise an alarm."""
    judged = asking.judge(split.test["adversarial"])
    named = [str(verdict.kind) for verdict in judged.verdicts if not verdict.is_nominal]
    assert named.count("adversarial") / len(named) > 0.5


def test_the_plan_has_a_price_for_it(both_ways: Dataset, indifferent: Classifier, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("secondguess.planning.Pace.observing", lambda self, needs=None: 0.5)
    parts = split_images(both_ways.train, both_ways.test, seed=0, most=None)

    def seconds(names: bool) -> float:
        work = {"unfinished": Unfinished(None, None), "progress": Silent(), "names": names}
        plan = plan_guard(indifferent, SupervisorSet(make_all(["entropy"])), parts, None, 1e6, **work)
        part = plan.part("nominal")
        assert part is not None
        return part.expected

    count = len(parts.learn) + len(parts.calibrate)
    assert seconds(True) - seconds(False) == pytest.approx(0.5 * count / 2)
