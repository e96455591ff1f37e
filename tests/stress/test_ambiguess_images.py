"""AmbiGuess from images to images, with autoencoders that are trained for a moment only."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import entropy

from secondguess.errors import UserError
from secondguess.images import ImageSet, load, load_images
from secondguess.stress.ambiguous import AmbiGuess, acceptance, ambiguess, drawing
from secondguess.stress.ambiguous.autoencoders import RaaeFleet
from secondguess.stress.ambiguous.drawing import Drawer
from secondguess.stress.ambiguous.latent import labels, survey
from secondguess.stress.ambiguous.realism import Realism

PAIRS = [(1, 7), (3, 8)]
FIELDS = {
    "generator", "settings", "train", "images", "label_entropy_bits", "autoencoders", "final_filter_share",
    "realism_share", "pairs", "notes",
}  # fmt: skip


@pytest.fixture(scope="module")
def train() -> ImageSet:
    return load("digits").train


@pytest.fixture(autouse=True)
def easy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept every autoencoder, except where the training is real."""
    torch.set_num_threads(1)
    if "slow" not in request.keywords:
        monkeypatch.setattr(acceptance, "FOOLED", (0.0, 1.0))
        monkeypatch.setattr(acceptance, "TELLS_APART", 0.0)


def quick(**options) -> AmbiGuess:
    return AmbiGuess(**{"pairs": PAIRS, "autoencoders": 2, "epochs": 3, "cells": 20, "realism": False} | options)


@pytest.fixture(scope="module")
def trained(train):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptance, "FOOLED", (0.0, 1.0))
        patch.setattr(acceptance, "TELLS_APART", 0.0)
        return quick().train(train, PAIRS, seed=0)


@pytest.fixture(scope="module")
def made(train, trained):
    return quick().generate(train, 60, seed=0, trained=trained)


def test_as_many_as_asked_for_equally_many_of_each_pair(made, train):
    images = made.images
    assert len(images) == 60
    pairs = Counter(zip(images.columns["class_1"].tolist(), images.columns["class_2"].tolist(), strict=True))
    assert pairs == {(1, 7): 30, (3, 8): 30}
    assert images.shape == train.shape
    assert images.class_names == train.class_names
    assert images.is_ambiguous.all()
    assert images.name == "ambiguous between classes of digits/train"


def test_two_classes_share_each_label_and_differ_by_less_than_delta(made):
    soft = made.images.soft_labels
    rows = np.arange(60)
    first, second = soft[rows, made.images.columns["class_1"]], soft[rows, made.images.columns["class_2"]]
    np.testing.assert_allclose(first + second, 1)
    assert ((soft > 0).sum(axis=1) == 2).all()
    assert (np.abs(first - second) < 0.25).all()
    assert (soft[rows, made.images.labels] > 0).all()


@pytest.mark.parametrize("mode", ["paper", "legacy"])
def test_each_image_is_what_its_autoencoder_makes_of_its_latent_point(train, mode):
    guess = quick(mode=mode)
    trained = guess.train(train, PAIRS)
    images = guess.generate(train, 20, trained=trained).images
    fleets = {
        (*member.pair, member.number): one.fleet.only(index)
        for one in trained
        for index, member in enumerate(one.fleet.members)
    }
    assert {fleet.codes for fleet in fleets.values()} == {10 if mode == "legacy" else 2}
    right = 1 if mode == "legacy" else 3
    columns = images.columns
    assert set(columns) == {"class_1", "class_2", "autoencoder", "z_1", "z_2"}
    for row in range(len(images)):
        key = tuple(int(columns[name][row]) for name in ("class_1", "class_2", "autoencoder"))
        z = torch.tensor([[[columns["z_1"][row], columns["z_2"][row]]]], dtype=torch.float32)
        assert abs(z[0, 0, 0]) <= right and abs(z[0, 0, 1]) <= 5
        with torch.no_grad():
            p1 = labels(fleets[key], z, mode).item()
            pixels = fleets[key].decode(z)[0, 0].numpy()
        assert images.soft_labels[row, key[0]] == pytest.approx(p1, abs=1e-5)
        np.testing.assert_allclose(images.images[row], np.minimum(np.floor(pixels * 256), 255) / 255, atol=1.01 / 255)


def test_pixels_are_bytes_and_the_brightest_stays_bright(made):
    bytes_ = made.images.materialise() * 255
    np.testing.assert_allclose(bytes_, np.rint(bytes_), atol=1e-4)
    levels = torch.tensor([0.0, 1 / 512, 1 / 256, 0.5, 0.999999, 1.0])
    assert drawing._to_bytes(levels).tolist() == [0, 0, 1, 128, 255, 255]


def test_the_seed_decides(train, made):
    again = quick().generate(train, 60, seed=0)
    other = quick().generate(train, 60, seed=1)
    assert again.images.fingerprint == made.images.fingerprint != other.images.fingerprint
    assert again.card == made.card


def test_checkpoints_make_a_second_run_quick_and_equal(train, tmp_path, monkeypatch):
    fits, fit = [], RaaeFleet.fit
    monkeypatch.setattr(RaaeFleet, "fit", lambda self, *args, **options: fits.append(1) or fit(self, *args, **options))

    def run(count=20, *, data=train, seed=0, folder=tmp_path / "kept", **changes):
        options = {"pairs": [(3, 8)], "autoencoders": 1, "epochs": 2, "folder": folder} | changes
        fits.clear()
        return quick(**options).generate(data, count, seed=seed).images, len(fits)

    first, again, unkept = run(), run(), run(folder=None)
    assert (first[1], again[1], unkept[1]) == (1, 0, 1)
    assert first[0].fingerprint == again[0].fingerprint == unkept[0].fingerprint
    assert len(list((tmp_path / "kept").iterdir())) == 1
    more, fitted = run(40, delta_max=0.4, cells=10)
    assert fitted == 0 and len(more) == 40
    changed = [{"epochs": 1}, {"mode": "legacy"}, {"batch_size": 50}, {"autoencoders": 2}, {"seed": 9}]
    assert [run(5, **one)[1] for one in changed] == [1] * 5
    assert run(5, data=train.take(np.arange(1, len(train))))[1] == 1


def test_what_is_kept_does_not_depend_on_what_was_trained_before(train, tmp_path, monkeypatch):
    monkeypatch.setattr(ambiguess, "STACK_PIXELS", 1)  # each autoencoder in a stack of its own
    fresh = quick(autoencoders=1, epochs=1, folder=tmp_path / "a").generate(train, 10)
    quick(autoencoders=1, epochs=1, pairs=[(3, 8)], folder=tmp_path / "b").generate(train, 10)
    resumed = quick(autoencoders=1, epochs=1, folder=tmp_path / "b").generate(train, 10)
    assert fresh.images.fingerprint == resumed.images.fingerprint


def test_an_interrupted_training_goes_on(train, tmp_path, monkeypatch):
    monkeypatch.setattr(ambiguess, "STACK_PIXELS", 1)
    fit, fits = RaaeFleet.fit, []

    def interrupted(self, *args, **options):
        fits.append(self.members)
        if len(fits) == 3:
            raise KeyboardInterrupt
        fit(self, *args, **options)

    monkeypatch.setattr(RaaeFleet, "fit", interrupted)
    guess = quick(epochs=1, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        guess.train(train, PAIRS)
    trained = guess.train(train, PAIRS)
    assert len(fits) == 5 and len(trained) == 4  # two were kept, the third begins again


def test_stacks_hold_members_of_the_same_number_of_steps(train, monkeypatch):
    monkeypatch.setattr(ambiguess, "STACK_PIXELS", 3 * 30 * 64)
    pairs = [(0, 1), (0, 2), (1, 2)]
    sizes = {(0, 1): 100, (0, 2): 91, (1, 2): 90}
    guess = quick(batch_size=30)
    stacks = guess._stacks(pairs, sizes, (1, 8, 8), torch.device("cpu"), seed=0)
    steps = [{-(-sizes[member.pair] // 30) for member in members} for members, _ in stacks]
    assert all(len(one) == 1 for one in steps)
    assert [len(members) for members, _ in stacks] == [2, 3, 1]
    found = [(member.pair, member.number) for members, _ in stacks for member in members]
    assert sorted(found) == [(pair, number) for pair in pairs for number in (0, 1)]
    assert len({member.seed for members, _ in stacks for member in members}) == 6


@pytest.mark.parametrize(("images", "expected"), [(12_000, 1000), (1200, 100), (13, 2), (50_000, 1000)])
def test_the_batch_shrinks_with_the_data(images, expected):
    ((_, size),) = AmbiGuess(autoencoders=1)._stacks([(0, 1)], {(0, 1): images}, (1, 8, 8), torch.device("cpu"), 0)
    assert size == expected


def test_the_card_counts_what_there_is(made, train):
    card = made.card
    assert set(card) == FIELDS
    assert json.loads(json.dumps(card))["images"] == card["images"] == 60
    assert card["generator"] == "AmbiGuess"
    assert card["train"] == train.describe()
    assert card["settings"].items() >= {"seed": 0, "epochs": 3, "cells": 20, "mode": "paper"}.items()
    assert card["label_entropy_bits"] == pytest.approx(entropy(made.images.soft_labels, base=2, axis=1).mean())
    assert card["autoencoders"]["trained"] == card["autoencoders"]["accepted"] == 4
    assert 0 < card["autoencoders"]["reconstruction_mse"] < 0.3
    assert 0 < card["final_filter_share"] <= 1
    assert card["realism_share"] == 1
    assert [one["pair"] for one in card["pairs"]] == [["1", "7"], ["3", "8"]]
    assert [one["images"] for one in card["pairs"]] == [30, 30]
    assert all(one["autoencoders"] == one["accepted"] == 2 for one in card["pairs"])
    assert card["notes"] == []


def test_saved_files_can_be_loaded_with_their_soft_labels(made, tmp_path):
    folder = made.save(tmp_path / "set")
    assert {path.name for path in folder.iterdir()} == {"images.npz", "images.parquet", "card.json", "sheet.png"}
    assert json.loads((folder / "card.json").read_text("utf-8"))["images"] == 60
    for name in ("images.npz", "images.parquet"):
        loaded = load_images(folder / name)
        np.testing.assert_allclose(loaded.soft_labels, made.images.soft_labels, atol=1e-9)
        np.testing.assert_array_equal(loaded.labels, made.images.labels)
        np.testing.assert_array_equal(loaded.materialise(), made.images.materialise())
        assert loaded.is_ambiguous.all()
        assert loaded.class_names == made.images.class_names
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.size == (128 + 16 * 48, 2 * 48)  # one row a pair


def test_without_pyarrow_the_card_says_that_there_is_no_parquet(made, tmp_path, monkeypatch):
    from secondguess.errors import MissingExtra
    from secondguess.stress import saving

    def missing(images, path):
        raise MissingExtra("pyarrow is missing; install secondguess[hub].")

    monkeypatch.setattr(saving, "save_parquet", missing)
    made.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"images.npz", "card.json", "sheet.png"}
    assert "No Parquet file was written" in json.loads((tmp_path / "card.json").read_text())["notes"][-1]
    assert made.card["notes"] == []


def test_the_latent_picture_is_of_the_autoencoder_that_gave_most(made, train, trained):
    picture, columns = made.latent, made.images.columns
    keys = Counter(zip(*(columns[name].tolist() for name in ("class_1", "class_2", "autoencoder")), strict=True))
    classes = tuple(int(name) for name in picture.pair)
    drawn = [
        (columns["z_1"][row], columns["z_2"][row])
        for row in range(60)
        if (columns["class_1"][row], columns["class_2"][row]) == classes
    ]
    assert len(picture.drawn) == max(keys.values())
    assert {tuple(point) for point in picture.drawn} <= set(drawn)
    mine = np.isin(train.labels, classes)
    np.testing.assert_array_equal(picture.which, train.labels[mine] == classes[1])
    assert picture.z.shape == (mine.sum(), 2)
    assert picture.weights.shape == (20, 20)
    assert picture.bounds == pytest.approx((-3, 3, -5, 5))
    number = next(key[2] for key, count in keys.items() if key[:2] == classes and count == len(picture.drawn))
    fleet, index = next(
        (one.fleet, index)
        for one in trained
        for index, member in enumerate(one.fleet.members)
        if (member.pair, member.number) == (classes, number)
    )
    with torch.no_grad():
        z = fleet.only(index).encode(torch.from_numpy(train.images[mine])[None])[0]
    np.testing.assert_allclose(picture.z, z, rtol=1e-4, atol=1e-4)
    grid = survey(fleet.only(index), delta_max=0.25, cells=20)
    np.testing.assert_allclose(picture.weights, grid.weights[0], rtol=1e-4, atol=1e-5)


def test_the_latent_picture_of_a_large_sorted_set_shows_both_classes(train, monkeypatch):
    from secondguess.stress.ambiguous import card

    monkeypatch.setattr(card, "PICTURED", 20)
    ordered = train.take(np.argsort(train.labels, kind="stable"))
    picture = quick(pairs=[(3, 8)], epochs=1).generate(ordered, 5).latent
    assert len(picture.z) == 20
    assert 8 <= picture.which.sum() <= 12


def test_colour_images_of_an_odd_size(monkeypatch):
    rng = np.random.default_rng(0)
    bases = rng.random((3, 3, 11, 9))
    which = np.arange(60) % 3
    images = (bases[which] + rng.normal(0, 0.05, (60, 3, 11, 9))).clip(0, 1).astype(np.float32)
    train = ImageSet.from_arrays(images, which, layout="NCHW", class_names=["red", "green", "blue"])
    made = quick(pairs="all", epochs=2, delta_max=0.9).generate(train, 12)
    assert made.images.shape == (3, 11, 9)
    assert len(made.images) == 12
    assert [one["pair"] for one in made.card["pairs"]] == [["red", "green"], ["red", "blue"], ["green", "blue"]]


def test_fewer_than_asked_for_is_noted(train, trained, monkeypatch):
    monkeypatch.setattr(drawing, "ROUNDS", 1)
    made = quick().generate(train, 5000, trained=trained)
    drawn = 2 * 2 * drawing.CANDIDATES
    assert 0 < len(made.images) <= drawn
    assert made.card["notes"] == [f"{len(made.images)} images instead of 5000: the pairs did not yield more."]
    assert made.card["final_filter_share"] == pytest.approx(len(made.images) / drawn)


def test_unaccepted_autoencoders_give_nothing(train, trained):
    judged = [replace(one) for one in trained]
    for one in judged:
        one.accepted = np.array([member.pair == (1, 7) and member.number == 1 for member in one.fleet.members])
    made = quick().generate(train, 20, trained=judged)
    assert set(made.images.columns["class_1"]) == {1}
    assert set(made.images.columns["autoencoder"]) == {1}
    assert made.card["autoencoders"]["accepted"] == 1 and made.card["autoencoders"]["trained"] == 4
    assert "No autoencoder was accepted for 3-8." in made.card["notes"]


def test_nothing_at_all_is_an_error(train, trained):
    judged = [replace(one) for one in trained]
    for one in judged:
        one.accepted = np.zeros(len(one.fleet), dtype=bool)
    with pytest.raises(
        UserError, match=r"none of the \d+ autoencoders was accepted.*\(autoencoders=\.\.\.\)"
    ) as caught:
        quick().generate(train, 20, trained=judged)
    assert "realism" not in str(caught.value), "switching it off would not help"


def test_images_that_are_all_unreal_are_said_to_be(train, trained, monkeypatch):
    monkeypatch.setattr(Realism, "plausible", lambda self, images, pair: np.zeros(len(images), dtype=bool))
    with pytest.raises(UserError, match=r"nearly all are unlike any real image .* switch realism off"):
        quick(realism=True).generate(train, 20, trained=trained)


def test_points_that_are_never_ambiguous_are_said_to_be(trained):
    barren = Drawer(trained, 0.25, 20, "paper", None, 0, drawn=Counter({(0, 1): 640}))
    assert "none of 640 points of the latent spaces lies between two classes" in ambiguess._why_nothing(trained, barren)


def test_stacks_are_halved_where_memory_is_short(train, monkeypatch):
    fitted, fit = [], RaaeFleet.fit

    def small(self, *args, **options):
        if len(self) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        fitted.append(len(self))
        fit(self, *args, **options)

    monkeypatch.setattr(RaaeFleet, "fit", small)
    pairs = [(0, 1), (0, 2), (1, 2)]
    made = quick(autoencoders=2, epochs=1).train(train, pairs)
    assert max(fitted) <= 2 and sum(fitted) == sum(len(one.fleet) for one in made) == 6
    monkeypatch.setattr(
        RaaeFleet, "fit", lambda self, *args, **options: (_ for _ in ()).throw(torch.OutOfMemoryError())
    )
    with pytest.raises(torch.OutOfMemoryError):
        quick(autoencoders=1, epochs=1).train(train, pairs[:1])


class Picky:
    """A check that passes a share of the images of each pair."""

    def __init__(self, shares) -> None:
        self.shares, self.seen = shares, Counter()

    def plausible(self, images, pair):
        assert images.dtype == np.float32 and images.min() >= 0 and images.max() <= 1
        start = self.seen[pair]
        self.seen[pair] += len(images)
        places = np.arange(start, start + len(images)) % 20
        return places < round(20 * self.shares[pair])


def drawer(trained, check, delta_max=0.25) -> Drawer:
    return Drawer([replace(one, blur=np.zeros(len(one.fleet))) for one in trained], delta_max, 20, "paper", check, 0)


class Quiet:
    @contextmanager
    def task(self, label, total):
        yield lambda done, total: None


def test_the_check_is_counted_and_obeyed(trained):
    check = Picky({(1, 7): 0.5, (3, 8): 1.0})
    drawing_ = drawer(trained, check)
    chosen = drawing_.run(300, stratify=True, progress=Quiet())
    assert len(chosen) == 300
    assert Counter(map(tuple, chosen.pair.tolist())) == {(1, 7): 150, (3, 8): 150}
    assert drawing_.ambiguous == check.seen
    for pair, share in check.shares.items():
        assert drawing_.realistic[pair] == pytest.approx(share * drawing_.ambiguous[pair], abs=10)
        assert drawing_.drawn[pair] >= drawing_.ambiguous[pair]
    assert drawing_.drawn[1, 7] > drawing_.drawn[3, 8]  # who loses more is drawn from more often
    assert not drawing_.barren


def test_a_pair_with_hardly_a_realistic_image_is_left_out(trained):
    drawing_ = drawer(trained, Picky({(1, 7): 0.1, (3, 8): 1.0}))
    chosen = drawing_.run(400, stratify=True, progress=Quiet())
    assert drawing_.barren == {(1, 7)}
    assert set(map(tuple, chosen.pair.tolist())) == {(3, 8)}
    assert len(chosen) == 400


def test_blurred_images_are_left_out(trained):
    strict = [replace(one, blur=np.full(len(one.fleet), 1e9)) for one in trained]
    check = Picky(dict.fromkeys(PAIRS, 1.0))
    assert Drawer(strict, 0.25, 20, "paper", check, 0).run(50, stratify=True, progress=Quiet()) is None
    assert Drawer(strict, 0.25, 20, "paper", None, 0).run(50, stratify=True, progress=Quiet()) is not None


def test_without_stratification_pairs_come_as_they_fall(trained):
    judged = [replace(one) for one in trained]
    for one in judged:
        one.accepted = np.array([member.pair == (1, 7) or member.number == 0 for member in one.fleet.members])
    # Two autoencoders of one pair, one of the other: the pools differ in size, and so do the shares.
    loose = quick(stratify=False).generate(load("digits").train, 100, trained=judged).images.columns["class_1"]
    fair = quick(stratify=True).generate(load("digits").train, 100, trained=judged).images.columns["class_1"]
    assert (fair == 1).sum() == 50
    assert (loose == 1).sum() > 55


def test_the_real_check_of_realism_is_used(train, trained, monkeypatch):
    asked = []

    def plausible(self, images, pair):
        asked.append(pair)
        return np.ones(len(images), dtype=bool)

    monkeypatch.setattr(Realism, "plausible", plausible)
    made = quick(realism=True).generate(train, 20, trained=[replace(one, blur=one.blur * 0) for one in trained])
    assert set(asked) == set(PAIRS)
    assert made.card["settings"]["realism"] is True


def test_progress_is_told_for_training_and_drawing(train):
    seen = {}

    class Recorder:
        @contextmanager
        def task(self, label, total):
            seen[label] = [total]
            yield lambda done, total: seen[label].append((done, total))

    quick(epochs=2, autoencoders=1).generate(train, 10, progress=Recorder())
    assert set(seen) == {"Training autoencoders", "Drawing ambiguous images"}
    total = seen["Training autoencoders"][0]
    done = [one[0] for one in seen["Training autoencoders"][1:]]
    assert done == sorted(done) and done[-1] == total
    assert seen["Drawing ambiguous images"][-1] == (10, 10)


def test_as_a_stress_set_it_makes_as_many_as_there_are_nominal_images(train):
    guess = quick(epochs=1)
    nominal = load("digits").test.head(17)
    images = guess.make(nominal, train=train)
    assert len(images) == 17
    assert guess.last is not None and guess.last.images is images
    for useless in (ImageSet.from_source(train.images), None):
        with pytest.raises(UserError, match="between the classes of labelled training images; give them with --train"):
            guess.make(nominal, train=useless)


def test_a_run_lends_its_folder_to_a_generator_that_has_none(train, tmp_path):
    nominal = load("digits").test.head(5)
    guess, own = quick(epochs=1), quick(epochs=1, folder=tmp_path / "own")
    guess.make(nominal, train=train, folder=tmp_path / "lent", device="cpu")
    own.make(nominal, train=train, folder=tmp_path / "other", device="cpu")
    assert {path.name for path in tmp_path.iterdir()} == {"lent", "own"}
    assert guess.folder is None and guess.device == "auto"  # the user's own generator stays as it was


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "new"}, "mode is 'new'; it must be 'paper' or 'legacy'"),
        ({"delta_max": 0}, r"delta_max is 0; \|p1 - p2\| lies between 0 and 1"),
        ({"delta_max": 1.5}, r"delta_max is 1.5"),
        ({"autoencoders": 0}, "At least one autoencoder, one epoch and two cells are needed"),
        ({"epochs": 0}, "one epoch"),
        ({"cells": 1}, "two cells"),
    ],
)
def test_impossible_settings(options, message):
    with pytest.raises(UserError, match=message):
        AmbiGuess(**options)


@pytest.mark.parametrize("shape", [(7, 8), (8, 7), (65, 64), (64, 100)])
def test_impossible_sizes(shape):
    images = ImageSet.from_arrays(np.zeros((4, *shape), dtype=np.uint8), [0, 1, 0, 1])
    with pytest.raises(UserError, match=rf"images are {shape[0]} x {shape[1]} pixels; .* with 8 to 64 pixels a side"):
        quick().generate(images, 5)


def test_impossible_requests(train):
    with pytest.raises(UserError, match="0 ambiguous images were asked for"):
        quick().generate(train, 0)
    with pytest.raises(UserError, match=r"lie between two classes, but .* has 0"):
        quick(pairs="confused").generate(ImageSet.from_source(train.images), 5)
    with pytest.raises(UserError, match=r"\(3, 11\) is not a pair"):
        quick(pairs=[(3, 11)]).generate(train, 5)


@pytest.mark.slow
def test_a_short_real_training_on_threes_and_eights():
    train = load("mnist5k").train
    guess = AmbiGuess(pairs=[(3, 8)], autoencoders=2, device="cpu")
    (trained,) = guess.train(train, [(3, 8)])
    rows = np.flatnonzero(np.isin(train.labels, (3, 8)))
    for index in range(2):
        with torch.no_grad():
            z = trained.fleet.only(index).encode(torch.from_numpy(train.images[rows])[None])[0].numpy()
        assert -3.5 < z[train.labels[rows] == 3, 0].mean() < -2
        assert 2 < z[train.labels[rows] == 8, 0].mean() < 3.5
    assert (trained.reconstruction < 0.06).all()
    assert (trained.class_accuracy > 0.9).all()
    loose = replace(trained)
    loose.accepted = np.ones(2, dtype=bool)
    made = AmbiGuess(pairs=[(3, 8)], realism=False).generate(train, 300, trained=[loose])
    assert made.card["final_filter_share"] >= 0.9
    legacy = AmbiGuess(pairs=[(3, 8)], realism=False, mode="legacy").generate(train, 50, trained=[loose])
    assert legacy.card["final_filter_share"] < made.card["final_filter_share"]
