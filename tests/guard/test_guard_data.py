"""A guard is fitted, recalibrated and asked with data in any form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess import Classifier, Dataset, UserError
from secondguess.guard import Guard
from secondguess.guard.fitting import split_images
from secondguess.guard.inputs import judge_places
from secondguess.images import save_npz
from secondguess.model.agreement import relabelled


def quick() -> Guard:
    return Guard(["max_softmax", "mdsa"], rule="bonferroni", false_alarms=0.1)


def test_paths_sets_and_orders_of_classes_are_one(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    model = classifier.with_classes(digits.class_names)
    assert digits.train is not None
    guard = quick().fit(model, digits.train, digits.test, None)
    save_npz(digits.train, tmp_path / "train.npz")
    save_npz(digits.test, tmp_path / "nominal.npz")
    by_path = quick().fit(model, tmp_path / "train.npz", tmp_path / "nominal.npz", None)
    turned = digits.class_names[::-1]
    other = quick().fit(model, relabelled(digits.train, turned), relabelled(digits.test, turned), None)
    for same in (by_path, other, quick().fit(model, digits, digits.test, None)):
        np.testing.assert_allclose(same.judge(digits.test).scores, guard.judge(digits.test).scores, rtol=1e-5)
    strange = replace(digits.train, class_names=tuple("abcdefghij"))
    with pytest.raises(UserError, match="has the class 'a', which the model has not"):
        quick().fit(model, strange, digits.test, None)
    guard.recalibrate(tmp_path / "nominal.npz")
    assert [one["images"] for one in guard.record["calibrations"]] == [len(digits.test) // 2, len(digits.test)]


def test_files_folders_and_arrays_are_judged_by_name(guard: Guard, digits: Dataset, tmp_path: Path) -> None:
    save_npz(digits.test.head(5), tmp_path / "five.npz")
    for number, image in enumerate(digits.test.materialise()[:2]):
        Image.fromarray(np.rint(255 * image[0]).astype(np.uint8)).save(tmp_path / f"{number}.png")
    places = [str(tmp_path / "1.png"), str(tmp_path / "five.npz"), str(tmp_path / "0.png")]
    found = list(judge_places(guard, places, batch_size=2))
    assert [name for name, _ in found] == [places[0], places[2], *(f"{places[1]}[{row}]" for row in range(5))]
    assert [one.prediction for _, one in found[2:]] == guard.judge(digits.test.head(5)).predictions.tolist()
    with pytest.raises(UserError, match=r"There is no image .*nope.png"):
        list(judge_places(guard, [str(tmp_path / "nope.png")]))
    roundabout = f"{tmp_path}/./1.png"
    assert [name for name, _ in judge_places(guard, [roundabout])] == [str(tmp_path / "1.png")]


def test_a_folder_with_images_and_folders_is_judged_whole(guard: Guard, digits: Dataset, tmp_path: Path) -> None:
    """Who judges wants no classes."""
    (tmp_path / "new" / "sub dir").mkdir(parents=True)
    places = [tmp_path / "new" / "0.png", tmp_path / "new" / "sub dir" / "1.png"]
    for place, image in zip(places, digits.test.materialise()[:2], strict=True):
        Image.fromarray(np.rint(255 * image[0]).astype(np.uint8)).save(place)
    (tmp_path / "new" / "sub dir" / "moving.gif").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"Left out of .*new: 1 file whose names do not end in .png"):
        found = dict(judge_places(guard, [str(tmp_path / "new")]))
    assert list(found) == [str(place) for place in places]
    alone = dict(judge_places(guard, [str(place) for place in places]))
    assert [one.p_value for one in found.values()] == [one.p_value for one in alone.values()]


def test_unreadable_images_are_left_out_and_named_if_wanted(guard: Guard, digits: Dataset, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for number, image in enumerate(digits.test.materialise()[:3]):
        Image.fromarray(np.rint(255 * image[0]).astype(np.uint8)).save(tmp_path / "new" / f"{number}.png")
    (tmp_path / "new" / "1.png").write_bytes(b"broken")
    (tmp_path / "alone.png").write_bytes(b"")
    folder, files = str(tmp_path / "new"), [str(tmp_path / name) for name in ("alone.png", "new/2.png")]
    for places, left in ((([folder]), ["0.png", "2.png"]), (files, files[1:]), ([*files, folder], None)):
        with pytest.raises(UserError, match="leave out unreadable images with --skip-bad"):
            list(judge_places(guard, places))
        with pytest.warns(UserWarning, match=r"Left out, as they cannot be read: .*(1|alone)\.png") as warned:
            names = [name for name, _ in judge_places(guard, places, skip_bad=True)]
        assert len(warned) == 1 and names == (left or [files[1], "0.png", "2.png"])


def test_a_short_plan_takes_fewer_nominal_images_half_of_them_for_each_use(digits: Dataset) -> None:
    parts = split_images(digits.train, digits.test, seed=0, most=None)
    assert parts.fewer(None, seed=0) is parts
    some = parts.fewer(21, seed=0)
    assert (len(some.learn), len(some.calibrate)) == (10, 11)
    assert set(map(bytes, some.learn.images[:])) <= set(map(bytes, parts.learn.images[:]))
    assert set(map(bytes, some.calibrate.images[:])) <= set(map(bytes, parts.calibrate.images[:]))
