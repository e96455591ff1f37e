from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from secondguess import UserError
from secondguess.hubris import CompanionSet, read_companion
from secondguess.hubris.companion import restricted
from secondguess.images import ImageSet, save_npz


def plain(n: int, classes: int, **options: object) -> ImageSet:
    images = np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32)
    return ImageSet.from_arrays(images, np.full(n, -1), class_names=[str(k) for k in range(classes)], **options)


def test_pairs_and_dials_come_from_the_columns_and_soft_labels(blends: ImageSet) -> None:
    found = CompanionSet.of(blends)
    assert len(found) == 300 and found.classes is None and found.source == "soft_labels"
    for row, (first, second) in enumerate(found.pairs):
        assert (first, second) == (blends.columns["class_1"][row], blends.columns["class_2"][row])
        assert found.dial[row] == pytest.approx(blends.soft_labels[row, first])
        assert blends.soft_labels[row, [first, second]].sum() == pytest.approx(1)


def test_two_classes_are_kept_in_the_order_named(blends: ImageSet) -> None:
    one, other = CompanionSet.of(blends, (9, 8)), CompanionSet.of(blends, (8, 9))
    assert len(one) == len(other) == 100
    assert (one.classes, other.classes) == ((9, 8), (8, 9))
    assert one.dial == pytest.approx(1 - other.dial)
    assert one.images.content_fingerprint == other.images.content_fingerprint


def test_without_columns_the_two_likeliest_classes_count() -> None:
    soft = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]])
    found = CompanionSet.of(plain(3, 3, soft_labels=soft))
    assert found.pairs.tolist() == [[1, 2], [0, 2], [2, 0]]
    assert found.dial == pytest.approx([2 / 3, 0.5, 0.995]), "a dial of 1 would make relative hubris infinite"


def test_a_column_an_array_a_function_or_an_estimator_is_a_dial(blends: ImageSet) -> None:
    told = np.linspace(0.1, 0.9, 300)
    with_column = replace(blends, columns={**blends.columns, "judged": told})
    for reference in ("judged", told, lambda images: told[: len(images)]):
        assert CompanionSet.of(with_column, reference=reference).dial == pytest.approx(told)
    # The column is about class_1, which is 8 of this pair; asked about 9 first, it is turned round.
    rows = np.flatnonzero((blends.columns["class_1"] == 8) & (blends.columns["class_2"] == 9))
    assert len(rows) == 100
    assert CompanionSet.of(with_column, (8, 9), "judged").dial == pytest.approx(told[rows])
    assert CompanionSet.of(with_column, (9, 8), "judged").dial == pytest.approx(1 - told[rows])
    estimator = SimpleNamespace(predict=lambda images: np.full(len(images), 0.3), classes=(9, 8))
    assert CompanionSet.of(blends, (9, 8), estimator).dial == pytest.approx(0.3)
    assert CompanionSet.of(blends, (8, 9), estimator).dial == pytest.approx(0.7)
    assert CompanionSet.of(blends, reference="constant").dial is None


def test_an_estimators_column_stands_in_for_soft_labels() -> None:
    ones, twos = np.full(4, 1), np.full(4, 2)
    columns = {"class_1": ones, "class_2": twos, "mean_probability": np.array([0.2, 0.4, 0.6, 0.8])}
    found = CompanionSet.of(plain(4, 3, columns=columns))
    assert found.source == "mean_probability" and found.dial == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_images_without_anything_need_their_classes_named() -> None:
    with pytest.raises(UserError, match="neither soft labels nor columns class_1 and class_2"):
        CompanionSet.of(plain(3, 5))
    found = CompanionSet.of(plain(3, 5), (4, 2))
    assert found.classes == (4, 2) and found.dial is None and found.source == "constant"
    assert CompanionSet.of(plain(3, 2)).classes == (0, 1)
    soft = np.array([[0.2, 0.8], [0.7, 0.3]])
    assert CompanionSet.of(plain(2, 2, soft_labels=soft)).dial == pytest.approx([0.2, 0.7])


def test_which_outputs_answer(blends: ImageSet) -> None:
    pair = CompanionSet.of(blends, (9, 8))
    assert pair.outputs(10).tolist() == [[9, 8]] * 100
    assert pair.outputs(2).tolist() == [[0, 1]] * 100
    with pytest.raises(UserError, match="the model has 5 outputs"):
        pair.outputs(5)
    with pytest.raises(UserError, match="the model has 2 outputs"):
        CompanionSet.of(blends).outputs(2)


def test_restricted_answers_are_renormalised() -> None:
    p = np.array([[0.1, 0.3, 0.6], [0.5, 0.5, 0.0]])
    logits, mass = restricted(p, np.array([[2, 0], [1, 2]]))
    weights = np.exp(logits)
    assert weights / weights.sum(axis=1, keepdims=True) == pytest.approx(np.array([[6 / 7, 1 / 7], [1, 0]]))
    assert mass == pytest.approx([0.7, 0.5])


def test_a_saved_set_is_read_back(blends: ImageSet, tmp_path: Path) -> None:
    save_npz(blends, tmp_path / "images.npz")
    (tmp_path / "sheet.png").write_bytes(b"no image of the set")
    for where in (tmp_path, tmp_path / "images.npz"):
        found = read_companion(where, (3, 8))
        assert found.dial == pytest.approx(CompanionSet.of(blends, (3, 8)).dial)
        assert found.images.shape == blends.shape


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": (9, 9)}, "two different"),
        ({"classes": (0, 1)}, "No image of .* lies between the classes 0 and 1"),
        ({"reference": "judged"}, "no column 'judged' .*soft_labels, or constant"),
        ({"reference": np.full(300, 1.5)}, "one probability of the first class"),
        ({"reference": np.full(2, 0.5)}, "one probability of the first class"),
    ],
)
def test_mistakes_are_explained(blends: ImageSet, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        CompanionSet.of(blends, **options)


def test_soft_labels_that_say_nothing_of_the_pair_are_refused() -> None:
    columns = {"class_1": np.array([0]), "class_2": np.array([1])}
    with pytest.raises(UserError, match="gives nothing to the two classes"):
        CompanionSet.of(plain(1, 3, soft_labels=[[0.0, 0.0, 1.0]], columns=columns))
    with pytest.raises(UserError, match="has no soft labels"):
        CompanionSet.of(plain(1, 3, columns=columns), reference="soft_labels")
