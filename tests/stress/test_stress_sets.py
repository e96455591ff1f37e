from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess import ImageSet, StressSet, UserError
from secondguess.data import load_images
from secondguess.stress import Corrupted, Given, Invalid, corrupt, corrupted, make, names

FOUR = ("shot_noise", "impulse_noise", "rotate", "contrast")


def nominal(n: int = 42, shape: tuple[int, int, int] = (1, 8, 8), seed: int = 0) -> ImageSet:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
    return ImageSet.from_arrays(
        pixels,
        rng.integers(0, 3, n),
        class_names=["a", "b", "c"],
        layout="NCHW",
        name="toys",
        ids=[f"toy {i}" for i in range(n)],
    )


@pytest.fixture(scope="module")
def photos() -> ImageSet:
    return load_images("photos")


def test_corruptions_share_the_images_equally_and_at_random() -> None:
    made = Corrupted(FOUR).make(nominal(42), seed=0)
    kinds, counts = np.unique(made.columns["corruption"], return_counts=True)
    assert set(kinds) == set(FOUR)
    assert set(counts) <= {10, 11}
    assert (made.columns["corruption"] != Corrupted(FOUR).make(nominal(42), seed=1).columns["corruption"]).any()
    assert (made.columns["corruption"][:4] != made.columns["corruption"][4:8]).any()


def test_corrupted_images_keep_all_that_is_known_of_them() -> None:
    given = nominal()
    made = Corrupted(FOUR).make(given)
    np.testing.assert_array_equal(made.labels, given.labels)
    assert made.class_names == given.class_names
    assert made.ids == given.ids
    assert made.shape == given.shape
    assert len(made) == len(given)
    assert made.name == "toys, corrupted_shot_noise_impulse_noise_rotate_contrast"
    assert (made.materialise() != given.materialise()).any(axis=(1, 2, 3)).all()


def test_soft_labels_survive_corruption() -> None:
    soft = np.random.default_rng(1).dirichlet([1, 1, 1], size=10)
    given = ImageSet.from_arrays(
        np.full((10, 8, 8), 100, dtype=np.uint8), soft_labels=soft, is_ambiguous=np.arange(10) % 2 == 0
    )
    made = Corrupted().make(given)
    assert made.soft_labels is not None and made.is_ambiguous is not None
    np.testing.assert_allclose(made.soft_labels, soft)
    np.testing.assert_array_equal(made.is_ambiguous, np.arange(10) % 2 == 0)


def test_unlabelled_images_stay_unlabelled() -> None:
    made = Corrupted().make(ImageSet.from_arrays(np.full((10, 8, 8), 100, dtype=np.uint8)))
    assert not made.is_labelled
    assert made.class_names == ()


def test_each_image_is_what_its_corruption_makes_of_it() -> None:
    given = nominal()
    made = Corrupted(["contrast"], severity=2).make(given)
    np.testing.assert_array_equal(made.materialise(), corrupt(given.materialise(), "contrast", severity=2))
    assert made.name == "toys, corrupted_contrast"
    assert Corrupted(["contrast", "rotate"]).name == "corrupted_contrast_rotate"


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 12), (3, 12, 3)])
def test_same_seed_same_set_whatever_the_block(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    given = nominal(60, shape)
    first = Corrupted(FOUR).make(given, seed=3)
    monkeypatch.setattr(corrupted, "BLOCK", 4)
    second = Corrupted(FOUR).make(given, seed=3)
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first.columns["corruption"], second.columns["corruption"])
    assert first.fingerprint != Corrupted(FOUR).make(given, seed=4).fingerprint


@pytest.mark.parametrize("name", ["shot_noise", "impulse_noise", "rotate"])
def test_another_seed_is_other_noise(name: str) -> None:
    first, second = (Corrupted([name]).make(nominal(), seed=seed) for seed in (1, 2))
    assert first.fingerprint != second.fingerprint


def test_fewer_images_than_corruptions_will_do() -> None:
    assert len(set(Corrupted(FOUR).make(nominal(2)).columns["corruption"])) == 2


def test_corrupted_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UserError, match="At least one corruption must be named"):
        Corrupted([])
    with pytest.raises(UserError, match=r"no corruption 'rotat'; there is rotate"):
        Corrupted(["rotat"])
    with pytest.raises(UserError, match="from 1 to 5, not 9"):
        Corrupted(severity=9).make(nominal())


def test_invalid_images_belong_to_no_class_and_have_the_shape_of_the_nominal_ones(photos: ImageSet) -> None:
    for shape in [(1, 8, 8), (3, 20, 12)]:
        given = nominal(30, shape)
        made = Invalid("photos").make(given)
        assert made.shape == shape
        assert len(made) == 30
        assert (made.labels == -1).all()
        assert made.labels.dtype == np.int64
        assert not made.is_labelled
        assert made.class_names == given.class_names
        assert set(made.columns) == {"source"}
        assert set(made.columns["source"]) == {"photos"}
        assert made.name == "photos, as invalid toys"


def test_invalid_images_are_a_seeded_subset(photos: ImageSet) -> None:
    given = nominal(25, (3, 64, 64))
    first, again, other = (Invalid("photos").make(given, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    known = {picture.tobytes() for picture in photos.materialise()}
    chosen = [picture.tobytes() for picture in first.materialise()]
    assert set(chosen) <= known


def test_invalid_images_are_never_more_than_there_are(photos: ImageSet) -> None:
    assert len(Invalid("photos").make(nominal(1200))) == len(photos)


def test_invalid_images_may_come_from_a_folder(tmp_path: Path) -> None:
    for index, level in enumerate((0, 128, 255)):
        Image.fromarray(np.full((20, 10), level, dtype=np.uint8)).save(tmp_path / f"{index}.png")
    (stress,) = make(f"invalid:{tmp_path}")
    made = stress.make(nominal(10))
    assert len(made) == 3
    np.testing.assert_allclose(sorted(made.materialise().mean(axis=(1, 2, 3))), [0, 128 / 255, 1], atol=1e-6)
    assert (made.labels == -1).all()


def test_invalid_labels_of_the_other_data_are_not_believed(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((8, 8), 9, dtype=np.uint8)).save(tmp_path / name / "1.png")
    made = Invalid(str(tmp_path)).make(nominal(5))
    assert not made.is_labelled
    assert made.class_names == ("a", "b", "c")


def test_a_missing_source_is_an_error() -> None:
    with pytest.raises(UserError, match="no data set 'no/such/folder/at/all'"):
        Invalid("no/such/folder/at/all").make(nominal(5))


class EmptySource:
    shape = (1, 8, 8)

    def __len__(self) -> int:
        return 0


def test_an_empty_set_is_an_error() -> None:
    empty = object.__new__(ImageSet)
    object.__setattr__(empty, "images", EmptySource())
    with pytest.raises(UserError, match="'corrupted' cannot be made from an empty set"):
        Corrupted().make(empty)


class Negative(StressSet):
    kind = "corrupted"
    name = "negative"

    def _make(self, given: Given) -> ImageSet:
        nominal = given.nominal
        return ImageSet.from_arrays(1 - nominal.materialise(), nominal.labels, class_names=nominal.class_names)


def test_make_understands_every_name_it_lists() -> None:
    listed = [name for name in names() if not name.endswith(":PATH")]
    assert {"corrupted", "corrupted:shot_noise", "invalid"} <= set(listed)
    made = make(listed)
    assert [one.kind for one in made] == [name.partition(":")[0] for name in listed]
    assert len({one.name for one in made}) == len(made)
    assert make("corrupted:shot_noise")[0].name == "corrupted_shot_noise"


def test_make_takes_one_name_several_and_ready_made() -> None:
    ready = Negative()
    assert make("corrupted")[0].name == "corrupted"
    assert make(["invalid", ready])[1] is ready
    np.testing.assert_allclose(ready.make(nominal()).materialise(), 1 - nominal().materialise())


@pytest.mark.parametrize("name", ["corupted", "", "storm", "corrupted:nonsense"])
def test_make_refuses_what_it_does_not_know(name: str) -> None:
    with pytest.raises(UserError, match=r"There is no (stress set|corruption) .*; there is"):
        make(name)
    with pytest.raises(UserError, match="There is no"):
        make([name])
