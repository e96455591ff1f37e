from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from secondguess import ImageSet, UserError
from secondguess.images import conform, load, load_images
from secondguess.stress import Invalid, make, names
from secondguess.stress.generated import GeneratedSource, alternate
from secondguess.stress.invalid import GENERATED, MIX, MIXED
from secondguess.stress.patches import count_patches, shuffle_patches
from secondguess.stress.textures import TEXTURES, texture

Floats = NDArray[np.float32]
SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 15, 22), (1, 5, 4), (3, 3, 9), (1, 1, 1)]


def nominal(n: int = 40, shape: tuple[int, int, int] = (1, 12, 12), seed: int = 0) -> ImageSet:
    rng = np.random.default_rng(seed)
    return ImageSet.from_arrays(
        rng.integers(0, 256, (n, *shape), dtype=np.uint8),
        rng.integers(0, 3, n),
        class_names=["a", "b", "c"],
        layout="NCHW",
        name="toys",
        ids=[f"toy {i}" for i in range(n)],
    )


@pytest.mark.parametrize("source", [MIXED, *GENERATED, "photos", "digits", "mnist5k"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 7)])
def test_every_source_gives_images_of_no_class(source: str, shape: tuple[int, int, int]) -> None:
    given = nominal(13, shape)
    made = Invalid(source).make(given, seed=4)
    pixels = made.materialise()
    assert pixels.shape == (13, *shape)
    assert pixels.dtype == np.float32
    assert np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1
    assert (made.labels == -1).all()
    assert made.class_names == given.class_names
    assert made.soft_labels is None and made.is_ambiguous is None
    assert made.name == f"{source}, as invalid toys"
    assert set(made.columns) == {"source"}


@pytest.mark.parametrize("source", [MIXED, *GENERATED, "photos"])
def test_same_seed_same_images_however_they_are_read(source: str) -> None:
    given = nominal(30)
    first, again, other = (Invalid(source).make(given, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint
    assert (first.fingerprint != other.fingerprint) == (source != "inverted")
    whole = first.materialise()
    np.testing.assert_array_equal(np.concatenate([images for images, _ in first.batches(7)]), whole)
    np.testing.assert_array_equal(first.images[np.array([21, 3, 3])], whole[[21, 3, 3]])
    np.testing.assert_array_equal(first.images[-1], whole[-1])
    assert first.images[np.array([], dtype=np.int64)].shape == (0, *given.shape)


def test_the_default_is_a_mix_in_equal_shares() -> None:
    made = Invalid().make(nominal(40))
    kinds, counts = np.unique(made.columns["source"], return_counts=True)
    assert set(kinds) == set(MIX)
    assert set(counts) <= {13, 14}
    assert make("invalid").name == "invalid"


def test_each_part_of_the_mix_is_what_it_is_called() -> None:
    given = nominal(60, (3, 64, 64))
    made = Invalid().make(given, seed=1)
    pixels, source = made.materialise(), made.columns["source"]
    photographs = {image.tobytes() for image in load_images("photos").materialise()}
    assert all(
        (image.tobytes() in photographs) == (kind == "photos") for image, kind in zip(pixels, source, strict=True)
    )
    spectra = {np.sort(image.ravel()).tobytes() for image in given.materialise()}
    same_pixels = [np.sort(image.ravel()).tobytes() in spectra for image in pixels]
    np.testing.assert_array_equal(same_pixels, source == "shuffled")
    originals = [np.sort(image.ravel()).tobytes() for image in pixels[source == "shuffled"]]
    assert len(set(originals)) == 20  # no nominal image is used twice


def test_shares_stay_equal_where_a_part_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    few = load_images("photos").head(5)
    monkeypatch.setattr("secondguess.images.load_images", lambda name: few)
    made = Invalid().make(nominal(100))
    assert len(made) == 15
    assert set(np.unique(made.columns["source"], return_counts=True)[1]) == {5}


def test_a_single_image_will_do() -> None:
    for source in (MIXED, *GENERATED):
        assert len(Invalid(source).make(nominal(1))) == 1


def test_inverted_is_one_minus_the_image() -> None:
    given = nominal()
    made = Invalid("inverted").make(given)
    np.testing.assert_array_equal(made.materialise(), 1 - given.materialise())
    assert made.ids == given.ids
    assert set(made.columns["source"]) == {"inverted"}
    assert "inverted" not in MIX


def test_digits_and_mnist_against_each_other() -> None:
    digits, mnist = load("digits").test, load("mnist5k").test
    small = Invalid("mnist5k").make(digits.head(20), seed=3)
    assert small.shape == (1, 8, 8)
    known = {image.tobytes() for image in conform(mnist, (1, 8, 8)).materialise()}
    assert {image.tobytes() for image in small.materialise()} <= known
    assert Invalid("digits").make(mnist.head(20)).shape == (1, 28, 28)


def test_a_folder_by_the_name_of_a_generator_is_reached_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "textures").mkdir()
    Image.fromarray(np.full((12, 12), 51, dtype=np.uint8)).save(tmp_path / "textures" / "grey.png")
    monkeypatch.chdir(tmp_path)
    mine = make("invalid:./textures")
    made = mine.make(nominal())
    assert len(made) == 1
    np.testing.assert_allclose(made.materialise(), 0.2, atol=1e-6)
    assert mine.name == "invalid"
    ours = make("invalid:textures")
    assert len(ours.make(nominal())) == 40
    assert ours.name == "invalid_textures"


def test_names() -> None:
    assert {"invalid", "invalid:textures", "invalid:shuffled", "invalid:inverted", "invalid:PATH"} <= set(names())
    with pytest.raises(UserError, match="no data set 'txtures'"):
        Invalid("txtures").make(nominal())


def cut(image: Floats, height: int, width: int) -> list[bytes]:
    rows, columns = image.shape[1] // height, image.shape[2] // width
    return [
        image[:, r * height : (r + 1) * height, c * width : (c + 1) * width].tobytes()
        for r in range(rows)
        for c in range(columns)
    ]


@pytest.mark.parametrize(
    ("shape", "patch"),
    [((1, 28, 28), (4, 4)), ((3, 32, 32), (4, 4)), ((1, 8, 8), (2, 2)), ((3, 15, 22), (2, 3)), ((1, 5, 4), (2, 2))],
)
def test_every_patch_moves_and_none_is_lost(shape: tuple[int, int, int], patch: tuple[int, int]) -> None:
    images = np.random.default_rng(0).random((9, *shape), dtype=np.float32)
    keys = np.random.default_rng(1).random((9, count_patches(shape[1:])))
    shuffled = shuffle_patches(images, keys)
    for before, after in zip(images, shuffled, strict=True):
        old, new = cut(before, *patch), cut(after, *patch)
        assert len(old) == count_patches(shape[1:])
        assert sorted(old) == sorted(new)
        assert all(a != b for a, b in zip(old, new, strict=True))
    height, width = (side // size * size for side, size in zip(shape[1:], patch, strict=True))
    np.testing.assert_array_equal(shuffled[:, :, height:], images[:, :, height:])
    np.testing.assert_array_equal(shuffled[:, :, :, width:], images[:, :, :, width:])


def test_patches_by_hand() -> None:
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    # the cycle 2 -> 0 -> 3 -> 1 -> 2: the patch at 2 goes to 0, that at 0 to 3, that at 3 to 1, that at 1 to 2
    moved = shuffle_patches(image, np.array([[0.2, 0.9, 0.1, 0.5]]))[0, 0]
    np.testing.assert_array_equal(moved, [[8, 9, 10, 11], [12, 13, 14, 15], [2, 3, 0, 1], [6, 7, 4, 5]])


def test_cycles_differ_from_image_to_image() -> None:
    image = np.random.default_rng(0).random((1, 1, 28, 28), dtype=np.float32)
    keys = np.random.default_rng(1).random((50, count_patches((28, 28))))
    assert len({shuffled.tobytes() for shuffled in shuffle_patches(np.repeat(image, 50, 0), keys)}) == 50


@pytest.mark.parametrize("name", TEXTURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_textures_of_any_shape(name: str, shape: tuple[int, int, int]) -> None:
    for seed in range(5):
        image = texture(name, shape, np.random.default_rng(seed))
        assert image.shape == shape and image.dtype == np.float32
        assert 0 <= image.min() <= image.max() <= 1
        np.testing.assert_array_equal(image, texture(name, shape, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", TEXTURES)
def test_textures_show_something_and_each_something_else(name: str) -> None:
    images = np.stack([texture(name, (3, 32, 32), np.random.default_rng(seed)) for seed in range(40)])
    assert (np.ptp(images, axis=(2, 3)).max(axis=1) > 0.2).all()
    assert len({image.tobytes() for image in images}) == 40
    assert (images.std(axis=1) > 0.02).any(axis=(1, 2)).mean() > 0.8  # in colour


def test_a_checkerboard_has_two_colours_and_a_grating_one_frequency() -> None:
    for seed in range(10):
        board = texture("checkerboards", (1, 32, 32), np.random.default_rng(seed))
        assert len(np.unique(board)) == 2
        grating = texture("gratings", (1, 64, 64), np.random.default_rng(seed))[0]
        window = np.hanning(64)[:, None] * np.hanning(64)
        spectrum = np.abs(np.fft.fft2((grating - grating.mean()) * window)) ** 2
        assert np.sort(spectrum.ravel())[-32:].sum() > 0.95 * spectrum.sum()


def test_noise_comes_fine_and_coarse() -> None:
    fields = [texture("noise", (1, 32, 32), np.random.default_rng(seed))[0] for seed in range(60)]
    smoothness = [
        np.corrcoef(field[:, :-1].ravel(), field[:, 1:].ravel())[0, 1] for field in np.array(fields, dtype=np.float64)
    ]
    assert min(smoothness) < 0.2 and max(smoothness) > 0.95


def test_textures_share_the_images_equally() -> None:
    made = Invalid("textures").make(nominal(42))
    kinds, counts = np.unique(made.columns["source"], return_counts=True)
    assert set(kinds) == set(TEXTURES)
    assert set(counts) <= {10, 11}


def test_sources_take_turns() -> None:
    def constant(value: float) -> GeneratedSource:
        return GeneratedSource(
            3, (1, 2, 2), lambda rows: np.full((len(rows), 1, 2, 2), value) + rows[:, None, None, None]
        )

    both = alternate([constant(0), constant(10)], 5)
    np.testing.assert_array_equal(both[:][:, 0, 0, 0], [0, 10, 1, 11, 2])
    assert both[:].dtype == np.float32
    assert len(both) == 5


def test_a_folder_of_the_same_name_as_an_embedded_set_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nominal = ImageSet.from_arrays(np.zeros((12, 8, 8), np.uint8), np.arange(12) % 2)
    expected = Invalid().make(nominal, seed=0)
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Invalid().make(nominal, seed=0)
    np.testing.assert_array_equal(made.images[:], expected.images[:])
    assert set(made.columns["source"].tolist()) == {"photos", "textures", "shuffled"}
