from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess import ImageSet, StressSet, UserError
from secondguess.contracts import registry as contracts_registry
from secondguess.contracts.sealed import read_json
from secondguess.images import load_images
from secondguess.stress import Corrupted, Given, Invalid, corrupt, corrupted, make, make_all, names, registry, saving
from secondguess.stress.adversarial import stress_set
from secondguess.stress.saving import card_of, save_stress_set, sheet_png

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
    with pytest.raises(UserError, match=r"no corruption 'rotat'; did you mean 'rotate'"):
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
    stress = make(f"invalid:{tmp_path}")
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


class Rings(Negative):
    """Stands for a generator of ambiguous images."""

    kind = "ambiguous"
    name = "ambiguous_rings"
    expensive = True

    def __init__(self, radius: int = 1) -> None:
        self.radius = radius


def test_make_understands_every_name_it_lists() -> None:
    listed = [name for name in names() if not name.endswith(":PATH")]
    assert {"ambiguous", "ambiguous_blend", "corrupted:shot_noise", "adversarial:pgd", "invalid"} <= set(listed)
    made = make_all(listed)
    assert [one.kind for one in made] == [name.partition(":")[0].partition("_")[0] for name in listed]
    assert len({one.name for one in made}) == len(made)
    assert make("corrupted:shot_noise").name == "corrupted_shot_noise"


def test_make_finds_every_generator_of_ambiguous_images() -> None:
    written = ("ambiguous", "ambiguous:ambiguess", "ambiguous:blend", "ambiguous_blend", "ambiguous-blend")
    kinds = [type(make(name)).__name__ for name in written]
    assert kinds == ["AmbiGuess", "AmbiGuess", "PixelBlend", "PixelBlend", "PixelBlend"]
    assert make("ambiguous").autoencoders == 1  # by name it is quick
    assert (
        make("ambiguous:autoencoders=3:delta-max=0.5").params().items() >= {"autoencoders": 3, "delta_max": 0.5}.items()
    )
    assert make("ambiguous:blend:pairs=all").pairs == "all"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points of other packages; whatever is put into the list is installed."""
    entries: list[EntryPoint] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "secondguess.stress"
        return entries

    monkeypatch.setattr(contracts_registry, "entry_points", entry_points)
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    monkeypatch.setattr(registry.REGISTRY, "complete", False)
    return entries


def test_other_packages_add_stress_sets_and_generators(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("negative", f"{__name__}:Negative", "secondguess.stress"))
    installed.append(EntryPoint("broken", "no_such_package:Broken", "secondguess.stress"))
    assert names()[-2:] == ["negative", "broken"]  # listing loads nothing
    assert make("negative").name == "negative"
    with pytest.raises(UserError, match=r"'broken' \(no_such_package:Broken\) cannot be loaded: No module named"):
        make("broken")
    installed[-1] = EntryPoint("ambiguous_rings", f"{__name__}:Rings", "secondguess.stress")
    assert make("ambiguous:rings").name == "ambiguous_rings"
    others = {"latent_mixture"}  # of the laboratory, where it has been loaded
    assert [one for one in registry.generators() if one not in others] == [
        "ambiguess",
        "blend",
        "ambigan",
        "flow",
        "rings",
    ]
    assert registry.make_generator("rings", pairs="all", radius=3).params() == {"radius": 3}
    with pytest.warns(UserWarning, match="was left out"):
        installed.append(EntryPoint("broken", "no_such_package:Broken", "secondguess.stress"))
        assert [one.name for one in make_all("standard")][-1] == "negative"


@pytest.mark.parametrize(
    "name", ["corrupted:fog:severity=3", "invalid:textures", "ambiguous:blend", "ambiguous:ambigan"]
)
def test_a_saved_one_is_found_again_by_its_name(name: str, tmp_path: Path) -> None:
    stress = make(name)
    stress.save(tmp_path / "it.safetensors")
    loaded = StressSet.load(tmp_path / "it.safetensors")
    assert type(loaded) is type(stress) and loaded.params() == stress.params() and loaded.name == stress.name


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("corrupted:fog:severity=3", {"corruptions": ("fog",), "mix": None, "severity": 3}),
        ("corrupted:jpeg-compression", {"corruptions": ("jpeg_compression",), "mix": None, "severity": None}),
        ("corrupted:mnist-c", {"corruptions": None, "mix": "mnist_c", "severity": None}),
        ("corrupted:severity=2", {"corruptions": None, "mix": None, "severity": 2}),
        ("invalid:s3://bucket/a=b", {"source": "s3://bucket/a=b"}),
        ("invalid:C:/photos", {"source": "C:/photos"}),
    ],
)
def test_details_and_parameters_may_follow_a_name(name: str, params: dict[str, object]) -> None:
    made = make(name)
    assert made.params() == params
    assert made.clone().params() == params


def test_attacks_by_name_are_limited() -> None:
    all_of_them, one = make("adversarial"), make("adversarial:pgd")
    assert all_of_them.limit == one.limit == stress_set.BY_NAME
    assert one.attacks == ("pgd",)
    with pytest.raises(UserError, match="no attack 'nonsense'"):
        make("adversarial:nonsense")


def test_listing_and_making_stress_sets_needs_no_torch() -> None:
    code = "import sys; from secondguess import stress; stress.names(); stress.make_all(['corrupted', 'invalid']); "
    done = subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], check=False)
    assert done.returncode == 0


def test_make_takes_one_name_several_and_ready_made() -> None:
    ready = Negative()
    assert make("corrupted").name == "corrupted"
    assert make_all(["invalid", ready])[1] is ready
    np.testing.assert_allclose(ready.make(nominal()).materialise(), 1 - nominal().materialise())


@pytest.mark.parametrize("name", ["corupted", "", "storm", "corrupted:nonsense", "ambiguous:nonsense"])
def test_make_refuses_what_it_does_not_know(name: str) -> None:
    with pytest.raises(UserError, match=r"There is no (stress set|corruption|generator) .*; (did you mean|known are)"):
        make(name)
    with pytest.raises(UserError, match="There is no"):
        make_all([name])


def shape_of(png: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(png)) as picture:
        return picture.size


def test_a_sheet_has_a_row_for_each_value_and_at_most_sixteen_images_in_it() -> None:
    given = nominal(100)
    made = replace(given, columns={"kind": np.array(["wet", "dry"])[np.arange(100) % 2], "n": np.arange(100) % 3})
    assert shape_of(sheet_png(given)) == (128 + 16 * 48, 3 * 48)  # by class
    assert shape_of(sheet_png(made, ("kind",))) == (128 + 16 * 48, 2 * 48)
    assert shape_of(sheet_png(made, ("kind", "n"))) == (128 + 16 * 48, 6 * 48)
    many = [sheet_png(replace(given, columns={"n": np.arange(100) % kinds}), ("n",)) for kinds in (100, 45)]
    assert [shape_of(one) for one in many] == [(2 * (128 + 8 * 48), 40 * 48), (2 * (128 + 8 * 48), 23 * 48)]


def test_a_sheet_shows_the_images_of_its_rows() -> None:
    levels = np.repeat([0, 200], 3).astype(np.uint8)
    given = ImageSet.from_arrays(
        np.tile(levels[:, None, None], (1, 8, 8)), np.repeat([1, 0], 3), class_names=["bright", "dark"]
    )
    with Image.open(io.BytesIO(sheet_png(given))) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels[10, 140] == 200).all() and (pixels[58, 140] == 0).all()  # rows in the order of their names
    assert (pixels[10, 128 + 3 * 48 + 10] == 255).all()  # three images a row, then nothing


def test_a_sheet_of_colour_images_is_in_colour_and_unknown_classes_have_a_row() -> None:
    red = np.zeros((2, 3, 9, 7), dtype=np.uint8)
    red[:, 0] = 255
    given = ImageSet.from_arrays(red, layout="NCHW")
    with Image.open(io.BytesIO(sheet_png(given))) as picture:
        assert picture.size == (128 + 16 * 48, 48)
        assert picture.convert("RGB").getpixel((140, 10)) == (255, 0, 0)


def test_columns_of_classes_are_spelt_with_their_names() -> None:
    given = replace(nominal(4), columns={"class_1": np.array([0, 0, 1, 1]), "attack": np.array(["fgsm"] * 4)})
    assert [saving._spelt(given, row, ("class_1", "attack")) for row in (0, 3)] == [("a", "fgsm"), ("b", "fgsm")]
    assert saving._spelt(given, 2, ()) == (given.class_names[given.labels[2]],)


def test_a_stress_set_on_disk_is_the_same_set(tmp_path: Path) -> None:
    made = Corrupted(FOUR).make(nominal())
    card = card_of(made, "corrupted", {"severity": None})
    assert save_stress_set(made, card, tmp_path / "a" / "b", by=("corruption",)) == tmp_path / "a" / "b"
    files = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    assert files == {"images.npz", "images.parquet", "card.json", "sheet.png"}
    for name in ("images.npz", "images.parquet"):
        loaded = load_images(tmp_path / "a" / "b" / name)
        np.testing.assert_array_equal(loaded.labels, made.labels)
        np.testing.assert_allclose(loaded.materialise(), made.materialise(), atol=0.5 / 255)
        np.testing.assert_array_equal(loaded.columns["corruption"], made.columns["corruption"])
    assert read_json(tmp_path / "a" / "b" / "card.json") == card


def test_a_card_counts_every_sort_of_image() -> None:
    made = Corrupted(FOUR).make(nominal())
    card = card_of(made, "corrupted", {"seed": 3})
    assert card["kind"] == "corrupted" and card["settings"] == {"seed": 3}
    assert card["images"] == 42 and card["fingerprint"] == made.fingerprint
    assert card["counts"].keys() == {"corruption"}
    assert sum(card["counts"]["corruption"].values()) == 42
    assert set(card["counts"]["corruption"]) == set(FOUR)
    columns = {"id": np.array([f"{n}" for n in range(42)]), "good": np.arange(42) < 40, "number": np.arange(42)}
    counts = card_of(replace(made, columns=columns), "x", {})["counts"]
    assert counts["good"] == {"False": 2, "True": 40} and "number" not in counts
