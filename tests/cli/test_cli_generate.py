from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from secondguess import UserError, load, load_images
from secondguess.cli.generate import _pairs
from secondguess.images import ImageSet, save_npz
from secondguess.metrics import frechet_distance
from secondguess.stress.ambiguous import AmbiFlow, AmbiGuess, PixelBlend, acceptance, features, train_extractor
from secondguess.stress.ambiguous.autoencoders import RaaeFleet
from secondguess.stress.ambiguous.base import AmbiguousImages

FILES = {"images.npz", "images.parquet", "card.json", "sheet.png"}
AMBIGUOUS = ["generate", "ambiguous", "--data", "digits", "--epochs", "2", "--autoencoders", "1", "--device", "cpu"]
QUICK = [*AMBIGUOUS, "--pairs", "3-8,1-7", "--count", "30", "--no-realism", "--out", "mine"]


@pytest.fixture(autouse=True)
def accept_all(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(acceptance, "FOOLED", (0.0, 1.0))
    monkeypatch.setattr(acceptance, "TELLS_APART", 0.0)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_ambiguous_images_from_the_command_line(run, tmp_path):
    outcome = run(*QUICK, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    card = outcome.json()
    assert card.pop("files") == "mine"
    saved = json.loads((tmp_path / "mine/card.json").read_text("utf-8"))
    assert saved.pop("digest")
    assert card == saved
    assert card["generator"] == "AmbiGuess" and card["images"] == 30
    assert [one["pair"] for one in card["pairs"]] == [["1", "7"], ["3", "8"]]
    assert card["settings"]["epochs"] == 2 and card["settings"]["realism"] is False
    assert files(tmp_path / "mine") == FILES | {"autoencoders"}
    assert files(tmp_path) == {"mine"}
    images = load_images(tmp_path / "mine/images.npz")
    assert set(images.columns) >= {"class_1", "class_2", "autoencoder", "z_1", "z_2"}
    assert ((images.soft_labels > 0).sum(axis=1) == 2).all()


def test_a_second_run_loads_its_autoencoders(run, tmp_path, monkeypatch):
    first = run(*QUICK, "--json").json()

    def refuse(self, *args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(RaaeFleet, "fit", refuse)
    assert run(*QUICK, "--json").json() == first
    assert run(*QUICK, "--count", "50", "--json").json()["images"] == 50


def test_what_a_person_reads(run):
    outcome = run(*QUICK, "--quiet")
    assert outcome.code == 0
    assert outcome.out == "30 images in mine (images.npz, card.json, sheet.png)\n"
    assert outcome.err == ""
    loud = run(*QUICK)
    assert "Training autoencoders" in loud.err and "Drawing ambiguous images" in loud.err


def test_notes_are_shown(run, monkeypatch):
    from secondguess.stress.ambiguous import drawing

    monkeypatch.setattr(drawing, "ROUNDS", 1)
    outcome = run(*QUICK, "--count", "4000", "--quiet")
    assert "images instead of 4000: the pairs did not yield more." in outcome.out


@pytest.mark.parametrize("generator", ["blend"])
def test_the_baselines(run, tmp_path, generator):
    words = ["generate", "ambiguous", "--data", "digits", "--method", generator, "--pairs", "3-8", "--count", "20"]
    card = run(*words, "--out", "mine", "--json").json()
    assert card["generator"] == "PixelBlend" and card["images"] == 20
    assert files(tmp_path / "mine") == FILES


def test_options_reach_the_generator(run, monkeypatch):
    seen = {}

    def stop(self, train, count, **options):
        seen.update(vars(self), count=count, seed=options["seed"], shape=train.shape)
        raise UserError("That is enough.")

    monkeypatch.setattr(AmbiGuess, "generate", stop)
    words = ["--pairs", "all", "--autoencoders", "7", "--delta-max", "0.4", "--epochs", "5", "--mode", "legacy"]
    outcome = run("generate", "ambiguous", "--data", "digits", *words, "--size", "12", "--seed", "3", "--out", "mine")
    assert outcome.code == 2 and outcome.err == "Error: That is enough.\n"
    expected = {
        "pairs": "all", "autoencoders": 7, "delta_max": 0.4, "epochs": 5, "mode": "legacy", "realism": True,
        "count": 1000, "seed": 3, "shape": (1, 12, 12), "folder": Path("mine/autoencoders"),
    }  # fmt: skip
    assert {name: seen[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--method", "flow", "--train-steps", "9"], {"train_steps": 9, "generator": None, "delta_max": 0.5}),
        (["--generator", "kept"], {"generator": Path("kept"), "folder": Path("mine/generator")}),
    ],
)
def test_options_reach_the_flow(run, monkeypatch, words, expected):
    seen = {}

    def stop(self, train, count, **options):
        seen.update(vars(self))
        raise UserError("That is enough.")

    monkeypatch.setattr(AmbiFlow, "generate", stop)
    outcome = run("generate", "ambiguous", "--data", "digits", "--pairs", "all", *words, "--out", "mine")
    assert outcome.err == "Error: That is enough.\n"
    assert seen.items() >= ({"pairs": "all"} | expected).items()


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        (None, None),
        (
            {"kernel": [0.106, 0.08, 0.13], "kernel_of_plain_samples": [0.089, 0.03, 0.15], "ratio": 1.19},
            "  kernel distance to real images, in brackets that of plain samples: 0.106 (0.089)",
        ),
    ],
)
def test_a_set_of_the_flow_is_reported(run, monkeypatch, measured, line):
    def made(self, train, count, **_):
        images = PixelBlend(pairs=[(3, 8)]).generate(train, count).images
        return AmbiguousImages(
            images, {"generator": "AmbiFlow", "images": count, "realism": measured, "notes": ["Fine."]}
        )

    monkeypatch.setattr(AmbiFlow, "generate", made)
    words = ["generate", "ambiguous", "--method", "flow", "--data", "digits", "--pairs", "3-8", "--count", "4"]
    outcome = run(*words, "--out", "mine")
    lines = outcome.out.splitlines()
    assert lines[0] == "4 images in mine (images.npz, card.json, sheet.png)"
    assert lines[1:] == [*([line] if line else []), "  Fine."]


def test_photographs_without_a_gpu_get_blends_and_a_word_about_it(run, monkeypatch):
    monkeypatch.setattr("secondguess.stress.ambiguous.choosing._can_flow", lambda device, folder: False)
    words = ["generate", "ambiguous", "--data", "digits", "--size", "70", "--pairs", "3-8", "--count", "4"]
    card = run(*words, "--out", "mine", "--json").json()
    assert card["generator"] == "PixelBlend"
    assert card["notes"][0].startswith("Ambiguous images are plain blends of two images")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "3-x"], "'3-x' is not a pair of classes such as 3-8; the classes are: 0, 1, 2"),
        (["--pairs", "38"], "'38' is not a pair of classes"),
        (["--pairs", "3-3"], "(3, 3) is not a pair of two classes"),
        (["--method", "magic"], "There is no generator 'magic'; known are: ambiguess, blend"),
        (["--mode", "new"], "mode is 'new'"),
        (["--delta-max", "2"], "delta_max is 2.0"),
        (["--data", "nowhere/"], "nowhere"),
        (["--data", "photos"], "has 0"),
        (["--method", "ambiguess", "--size", "100"], "The images are 100 x 100 pixels"),
        (["--method", "flow", "--size", "100"], "The images have 100 x 100 pixels"),
        (["--generator", "nowhere"], "There is no trained generator in nowhere"),
        (["--method", "blend", "--minutes", "3"], "--minutes is not for --method blend; leave it out, or name another"),
        (["--method", "ambiguess", "--generator", "x"], "--generator is not for --method ambiguess; leave it out"),
        (["--method", "flow", "--epochs", "3"], "--epochs is not for --method flow"),
        (["--method", "gan", "--epochs", "3"], "--epochs is not for --method gan"),
        (["--train-steps", "9"], "--train-steps is not for ambiguess, which auto takes here"),
        (["--acceptance", "any"], "acceptance is 'any'"),
        (["--device", "abacus"], "'abacus' is not a device"),
    ],
)
def test_mistakes_get_one_sentence(run, tmp_path, words, message):
    plain = ["generate", "ambiguous", "--data", "digits", "--out", "mine", "--device", "cpu"]
    outcome = run(*plain, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.startswith("Error: ") and outcome.err.count("\n") == 1
    assert not (tmp_path / "mine").exists()


COMPANION = ["generate", "companion", "--data", "digits", "--between", "3,8", "--members", "2", "--epochs", "1,1"]
TINY = [*COMPANION, "--estimator-epochs", "1", "--filters", "4", "--no-reject", "--collapse", "0", "--device", "cpu"]


def test_a_companion_set_is_measured_against_real_images(run, tmp_path):
    plain = run(*TINY, "--count", "40", "--out", "mine", "--json").json()
    assert "realism" not in plain
    card = run(*TINY, "--count", "40", "--out", "mine", "--measure", "--json").json()
    assert card.pop("files") == "mine"
    written = json.loads((tmp_path / "mine/card.json").read_text("utf-8"))
    assert len(written.pop("digest")) == 32
    assert card == written
    assert {key: card[key] for key in plain if key != "files"} == {key: plain[key] for key in plain if key != "files"}
    told = card["realism"]
    digits = load("digits")
    apart = train_extractor(digits.train, leave_out=(3, 8), device="cpu")
    made, real, held_out = (
        features(part, apart)
        for part in (
            load_images(tmp_path / "mine/images.npz"),
            *(part.take(np.isin(part.labels, (3, 8))) for part in (digits.train, digits.test)),
        )
    )
    assert told["images"] == {"real": len(real), "held_out": len(held_out), "generated": 40}
    assert told["features"]["classes"] == ["0", "1", "2", "4", "5", "6", "7", "9"]
    assert told["generated"]["frechet"] == pytest.approx(frechet_distance(real, made))
    assert told["held_out"]["frechet"] == pytest.approx(frechet_distance(real, held_out))
    assert told["held_out"]["frechet"] < 0.1 * told["generated"]["frechet"], "one epoch makes noise"
    assert told["giqa"]["quality"][2] < 0
    text = run(*TINY, "--count", "40", "--out", "mine", "--measure", "--quiet").out
    made, real = (told[key]["frechet"] for key in ("generated", "held_out"))
    assert f"  realism, in brackets that of held-out real images: Fréchet distance {made:.3g} ({real:.3g}), " in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count", "6"], "Realism cannot be measured of 6 images; at least 7 are needed, give a larger count"),
        (["--data", "few.npz"], "4 held-out images of few are of the classes in question, but at least 7 are needed"),
    ],
)
def test_what_cannot_be_measured_is_told_before_training(run, tmp_path, words, message):
    digits = load("digits").test
    rows = np.concatenate([np.flatnonzero(digits.labels == label)[:11] for label in (3, 8)])
    save_npz(digits.take(rows), tmp_path / "few.npz")
    outcome = run(*TINY, "--out", "mine", "--measure", *words)
    assert outcome.code == 2 and message in outcome.err
    assert not (tmp_path / "mine").exists()


def test_corrupted_images_from_the_command_line(run, tmp_path):
    words = ["generate", "corrupted", "--data", "digits", "--max-images", "40", "--out", "mine"]
    card = run(*words, "--corruptions", "rotate, contrast", "--severity", "2", "--json").json()
    assert card["kind"] == "corrupted" and card["images"] == 40
    assert card["counts"] == {"corruption": {"contrast": 20, "rotate": 20}}
    assert card["settings"] == {"corruptions": ["rotate", "contrast"], "mix": None, "severity": 2, "seed": 0}
    assert files(tmp_path / "mine") == FILES
    with Image.open(tmp_path / "mine/sheet.png") as sheet:
        assert sheet.size[1] == 2 * 48
    text = run(*words, "--mix", "mnist_c", "--quiet").out
    assert text.startswith("40 images in mine") and "corruption: " in text
    assert run(*words, "--corruptions", "fogg").code == 2


def test_a_limit_takes_random_images_by_seed(run, tmp_path):
    words = ["generate", "corrupted", "--data", "digits", "--max-images", "9", "--corruptions", "contrast", "--json"]
    one, same, other = (
        run(*words, "--seed", seed, "--out", f"{place}").json()["fingerprint"] for place, seed in enumerate((1, 1, 2))
    )
    assert one == same != other


def test_invalid_images_from_the_command_line(run, tmp_path):
    words = ["generate", "invalid", "--data", "digits", "--max-images", "20", "--out", "mine"]
    card = run(*words, "--source", "textures", "--json").json()
    assert card["kind"] == "invalid" and card["images"] == 20 and card["unlabelled"] == 20
    assert card["shape"] == [1, 8, 8]
    assert list(card["counts"]) == ["source"]
    assert files(tmp_path / "mine") == FILES
    assert not load_images(tmp_path / "mine/images.npz").is_labelled
    assert run(*words, "--source", "no/such/place", "--quiet").code == 2


def test_adversarial_images_from_the_command_line(run, tmp_path, monkeypatch):
    pytest.importorskip("foolbox")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "linear_models.py").write_text(
        "import torch\n\n\ndef make_model():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    words = ["generate", "adversarial", "--model", "linear_models:make_model", "--data", "digits", "--max-images", "12"]
    card = run(*words, "--size", "8", "--attacks", "fgsm, bim", "--device", "cpu", "--out", "mine", "--json").json()
    assert card["kind"] == "adversarial" and card["images"] == 12
    assert set(card["counts"]["attack"]) == {"bim", "fgsm"}
    assert card["settings"]["attacks"] == ["fgsm", "bim"] and card["settings"]["model"]
    assert set(load_images(tmp_path / "mine/images.npz").columns) >= {"attack", "epsilon", "success"}
    assert run(*words, "--attacks", "magic", "--out", "mine").code == 2


@pytest.mark.parametrize("kind", ["ambiguous", "companion", "corrupted", "adversarial", "invalid"])
def test_a_folder_must_be_named_and_help_shows_an_example(run, kind):
    missing = run("generate", kind)
    assert missing.code == 2 and "--out" in missing.err
    assert f"secondguess generate {kind}" in " ".join(run("generate", kind, "--help").out.split())


def named(*names: str) -> ImageSet:
    return ImageSet.from_arrays(
        np.zeros((len(names), 8, 8), dtype=np.uint8), np.arange(len(names)), class_names=list(names)
    )


def test_pairs_are_read_by_name():
    assert _pairs("all", named("a", "b")) == "all"
    assert _pairs("confused", named("a", "b")) == "confused"
    assert _pairs("3-8, 4 - 9", load("digits").test) == [(3, 8), (4, 9)]
    garments = named("t-shirt", "ankle boot", "shirt", "x-y-z")
    assert _pairs("t-shirt-shirt,ankle boot-x-y-z", garments) == [(0, 2), (1, 3)]


@pytest.mark.parametrize("text", ["shirt", "t-shirt", "t-shirt-", "-shirt", "", "t-shirt-shirt,", "shirt-boot"])
def test_pairs_that_are_none(text):
    with pytest.raises(UserError, match=r"is not a pair of classes such as 3-8; the classes are: t-shirt, shirt"):
        _pairs(text, named("t-shirt", "shirt"))


def test_a_text_that_could_be_two_pairs_is_refused():
    with pytest.raises(UserError, match="'a-b-c' is not a pair"):
        _pairs("a-b-c", named("a", "b-c", "a-b", "c"))


def test_bench_ambiguess_compares_alone_and_together(run):
    words = ["bench", "ambiguess", "--data", "digits", "--members", "2", "--epochs", "1", "--device", "cpu"]
    card = run(*words, "--json").json()
    assert [row["autoencoders"] for row in card["rows"]] == [1, 2]
    for row in card["rows"]:
        assert row["seconds_each"] == pytest.approx(row["seconds"] / row["autoencoders"])
    train = load("digits").train
    assert card["images"] == int(np.isin(train.labels, (3, 8)).sum())
    assert 0 < card["final_filter_share"] <= 1
    text = run(*words, "--quiet").out
    assert "s each" in text and "survive the final filter" in text


def test_bench_corruptions_times_each_of_them(run):
    from secondguess.stress import CORRUPTIONS

    words = ["bench", "corruptions", "--count", "4", "--repeats", "1"]
    rows = run(*words, "--json").json()["rows"]
    assert {row["work"] for row in rows} >= set(CORRUPTIONS)
    assert all(row["per_1000"] > 0 and row["ratio"] > 0 for row in rows)
