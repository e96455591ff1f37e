from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from secondguess import UserError
from secondguess.cli.app import app
from secondguess.images import ImageSet, load_images, save_npz
from secondguess.stress.ambiguous import AmbiGAN, AmbiguityEstimator
from secondguess.stress.ambiguous import ambigan as ambigan_module
from secondguess.stress.ambiguous.ambigan import estimator_for
from secondguess.stress.ambiguous.companion import Reality, Rejection, draw_companion
from secondguess.stress.ambiguous.gan_losses import Target
from secondguess.stress.ambiguous.gan_networks import GanArchitecture
from secondguess.stress.ambiguous.gan_selection import Candidate, choose, pareto_front, search
from secondguess.stress.ambiguous.gan_step import GanRecipe
from secondguess.stress.ambiguous.gan_training import Collapsed, Watch
from secondguess.stress.ambiguous.making import _features, _forget

TINY = GanArchitecture(latent=6, filters=4, blocks=2)


def shapes(count: int = 240, classes: int = 2) -> ImageSet:
    """Bright left halves, upper halves and middles; labels 0, 2 and 3 of four classes."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 0.3, (count, 1, 8, 8)).astype(np.float32)
    which = np.arange(count) % classes
    images[which == 0, :, :, :4] += 0.6
    images[which == 1, :, :4] += 0.6
    images[which == 2, :, 2:6, 2:6] += 0.6
    labels = np.array([0, 2, 3])[which]
    return ImageSet.from_arrays(images, labels, class_names=["left", "none", "upper", "middle"], layout="NCHW")


def make(classes=(2, 0), **options) -> AmbiGAN:
    fleet = AmbiguityEstimator(classes, members=3, epochs=12, batch_size=30, lr=0.02, device="cpu")
    settings = {
        "epochs": (3, 2),
        "architecture": TINY,
        "recipe": GanRecipe(batch_size=16, lr=2e-3),
        "estimator": fleet,
        "watch": Watch(collapse=0),
        "device": "cpu",
        "rejection": Rejection(None, None, realism=False),
    }
    return AmbiGAN(classes, **(settings | options))


@pytest.fixture(scope="module")
def trained():
    maker = make()
    return maker, maker.train(shapes(), seed=0)


def test_a_companion_set_says_what_was_judged(trained, tmp_path):
    maker, gan = trained
    made = maker.generate(shapes(), 60, trained=gan)
    images = made.images
    mean, agreement = gan.estimator.judge(images.images[:])
    np.testing.assert_allclose(images.columns["mean_probability"], mean[:, 0], atol=1e-6)
    np.testing.assert_allclose(images.columns["variance"], agreement.variance, atol=1e-6)
    np.testing.assert_allclose(images.columns["mutual_information"], agreement.mutual_information, atol=1e-6)
    assert set(images.columns["target_r"]) == {0.5}
    assert set(images.columns["class_1"]) == {2} and set(images.columns["class_2"]) == {0}
    np.testing.assert_allclose(images.soft_labels[:, [2, 0]], mean, atol=1e-6)
    np.testing.assert_allclose(images.soft_labels.sum(axis=1), 1)
    assert set(images.labels) <= {0, 2} and images.is_ambiguous.all()
    assert made.card["acd"] == pytest.approx(np.abs(mean[:, 0] - 0.5).mean(), abs=1e-6)
    assert made.card["images"] == 60 and json.dumps(made.card)
    made.save(tmp_path)
    again = load_images(str(tmp_path / "images.npz"))
    assert np.array_equal(again.images[:], images.images[:]) and np.array_equal(again.soft_labels, images.soft_labels)
    np.testing.assert_array_equal(again.columns["variance"], images.columns["variance"])
    assert (tmp_path / "sheet.png").stat().st_size > 100


def test_what_is_accepted_meets_the_conditions(trained):
    maker, gan = trained
    everything = maker.generate(shapes(), 300, trained=gan).images.columns
    distance = np.abs(everything["mean_probability"] - 0.5)
    strict = make(
        rejection=Rejection(
            float(np.median(distance)), float(np.median(everything["mutual_information"])), realism=False
        )
    )
    made = strict.generate(shapes(), 40, trained=gan)
    columns = made.images.columns
    assert np.abs(columns["mean_probability"] - 0.5).max() <= np.median(distance)
    assert columns["mutual_information"].max() <= np.median(everything["mutual_information"])
    assert 0 < made.card["shares"]["accepted"] < 1
    assert made.card["acd"] < made.card["acd_before_rejection"]


def test_realism_rejects_images_unlike_either_class(trained):
    maker, gan = trained
    picky = make(rejection=Rejection(None, None, realism=True, draws=200))
    loose = maker.generate(shapes(), 30, trained=gan).card["shares"]["realistic"]
    try:
        share = picky.generate(shapes(), 30, trained=gan).card["shares"]["realistic"]
    except UserError as error:
        assert "looked real" in str(error)
        share = 0.0
    assert share < loose == 1


def test_faint_images_are_not_real():
    data = shapes()
    reality, classes = Reality.of(data, (2, 0)), (2, 0)
    wide = np.full((len(data), 2), [1.0, 0.0])  # those of class 2 should pass for class 2
    own = data.labels == 2
    bright = reality.accepts(data.images[:], wide, classes)
    assert bright[own].mean() > 0.9 > 0.1 > bright[~own].mean()
    for pale in (data.images[:] * np.float32(0.3), data.images[:] * np.float32(0.3) + np.float32(0.5)):
        assert not reality.accepts(pale, wide, classes).any()


def test_many_equally_likely_classes_are_compared_with_too():
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 0.2, (300, 1, 8, 8)).astype(np.float32)
    labels = np.arange(300) % 6
    for image, label in zip(images, labels, strict=True):
        image[0, label] += 0.7
    data = ImageSet.from_arrays(images, labels, layout="NCHW")
    accepted = Reality.of(data, tuple(range(6))).accepts(images, np.full((300, 6), 1 / 6), tuple(range(6)))
    assert accepted.mean() < 0.1  # plain images of one class cannot pass for all six


def test_realism_needs_real_images(trained):
    maker, gan = trained
    with pytest.raises(UserError, match="give real images"):
        draw_companion(gan.generator(maker.recipe, "cpu"), gan.estimator, Target(2, (0.5, 0.5)), 5)


def test_the_default_judges_can_agree_and_the_papers_are_the_papers():
    ours, papers = estimator_for("agreement", (1, 0)), estimator_for("ambigan", (1, 0))
    assert (ours.subsets, ours.calibrated, papers.subsets, papers.calibrated) == ("batch", True, "disjoint", False)
    assert papers.settings() == AmbiguityEstimator((1, 0)).settings()
    assert estimator_for("agreement", (1, 0), subsets="disjoint").subsets == "disjoint"
    for method in ("agreement", "ambigan", "gasten", "gasten2"):
        maker = make(method=method)
        found = (maker.combine, maker.alpha, maker.variance)
        assert found == (("guarded", 4.0, 0.01) if method == "agreement" else ("sum", 1.0, 0.1))
    told = make(combine="sum", alpha=0.0, variance=0.3)
    assert (told.combine, told.alpha, told.variance) == ("sum", 0.0, 0.3)


def test_who_rejects_less_trains_nothing_again(tmp_path, monkeypatch):
    make(epochs=(1, 1), folder=tmp_path, rejection=Rejection(0.4, 0.6, realism=False)).generate(shapes(90), 5)
    monkeypatch.setattr(AmbiguityEstimator, "fit", None)
    monkeypatch.setattr("secondguess.stress.ambiguous.gan_training._epoch", None)
    made = make(epochs=(1, 1), folder=tmp_path, rejection=Rejection.nothing()).generate(shapes(90), 5)
    assert len(made.images) == 5


def test_a_grid_measures_realism_without_the_classes_where_there_are_others(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "secondguess.stress.ambiguous.making.train_extractor",
        lambda train, **options: asked.append(options["leave_out"]),
    )
    three, two = shapes(90, classes=3), shapes(90)
    four = ImageSet.from_arrays(three.images[:], np.arange(90) % 4, layout="NCHW")
    for train, classes in ((four, (2, 0)), (three, (2, 0)), (two, (2, 0))):
        _features(train, classes, 0, "cpu")
    assert asked == [(2, 0), (), ()]


def test_a_set_that_falls_short_says_why(trained):
    _, gan = trained
    strict = make(rejection=Rejection(0.02, None, realism=False, draws=1))
    card = strict.generate(shapes(), 400, trained=gan).card
    assert card["images"] < 400 and "were on target" in card["notes"][0]
    with pytest.raises(UserError, match="None of 500 images was accepted"):
        make(rejection=Rejection(-1.0, None, realism=False, draws=1)).generate(shapes(), 500, trained=gan)


def test_the_same_seed_gives_the_same_set():
    sets = [make(epochs=(1, 1)).generate(shapes(90), 20, seed=seed).images for seed in (1, 1, 2)]
    assert np.array_equal(sets[0].images[:], sets[1].images[:])
    assert np.array_equal(sets[0].labels, sets[1].labels)
    assert not np.array_equal(sets[0].images[:], sets[2].images[:])


@pytest.mark.parametrize("method", ["gasten", "gasten2", "ambigan"])
def test_every_method_makes_a_set(method):
    made = make(method=method, epochs=(1, 1)).generate(shapes(90), 10)
    assert len(made.images) == 10 and made.card["settings"]["method"] == method


def test_three_classes_and_a_dial():
    maker = make((3, 0, 2), epochs=(1, 2), r="dial")
    made = maker.generate(shapes(180, classes=3), 50).images
    assert made.soft_labels[:, 1].max() == 0 and set(made.labels) <= {0, 2, 3}
    assert (made.columns["class_1"] != made.columns["class_2"]).all()
    likeliest = made.soft_labels.argmax(axis=1)
    np.testing.assert_array_equal(made.columns["class_1"], likeliest)
    assert len(np.unique(made.columns["target_r"])) > 40


def test_an_interrupted_run_keeps_its_estimator_and_its_stages(tmp_path, monkeypatch):
    first = make(epochs=(2, 1), folder=tmp_path).generate(shapes(90), 20).images
    monkeypatch.setattr(AmbiguityEstimator, "fit", None)
    monkeypatch.setattr("secondguess.stress.ambiguous.gan_training._epoch", None)
    again = make(epochs=(2, 1), folder=tmp_path).generate(shapes(90), 20).images
    assert np.array_equal(first.images[:], again.images[:])
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"estimator", "stage1", "stage2"}


def test_a_collapse_begins_again_with_other_numbers(monkeypatch):
    seeds, really = [], ambigan_module.train_stage

    def collapsing(start, **options):
        seeds.append(options["seed"])
        if len(seeds) < 3:
            raise Collapsed("once more")
        return really(start, **options)

    monkeypatch.setattr(ambigan_module, "train_stage", collapsing)
    gan = make(epochs=(1, 1)).train(shapes(90))
    assert gan.attempts == (3, 1) and len(set(seeds[:3])) == 3 and seeds[3] == seeds[0]
    seeds.clear()
    monkeypatch.setattr(ambigan_module, "ATTEMPTS", 2)
    with pytest.raises(Collapsed, match="once more"):
        make(epochs=(1, 1)).train(shapes(90))


def test_the_front_is_what_nobody_beats():
    rng = np.random.default_rng(0)
    points = rng.integers(0, 6, (40, 2)).astype(float)
    found = pareto_front(points[:, 0], points[:, 1])
    for index, (x, y) in enumerate(points):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert found[index] == (not beaten)


def test_realism_decides_among_the_acceptable():
    candidates = [Candidate(1.0, 0.1, frechet, acd, 0.0, None) for frechet, acd in ((1, 0.3), (5, 0.09), (9, 0.02))]
    assert choose(candidates, acceptable=0.1).frechet == 5
    assert choose(candidates, acceptable=0.5).frechet == 1
    assert choose(candidates, acceptable=0.01).frechet == 9
    with pytest.raises(UserError, match="nothing to choose"):
        choose([])


def test_a_search_trains_stage_1_once_and_equal_ratios_once(monkeypatch):
    begun, really = [], ambigan_module.train_stage

    def counting(start, **options):
        begun.append(options.get("ambiguity") is None)
        return really(start, **options)

    monkeypatch.setattr(ambigan_module, "train_stage", counting)
    flat = lambda images: images.reshape(len(images), -1)[:, ::9].astype(np.float64)  # noqa: E731
    found = search(
        make(epochs=(1, 1), combine="sum"), shapes(90), flat, alphas=(0.5, 1.0), variances=(0.1, 0.2), images=50
    )
    assert begun.count(True) == 1 and begun.count(False) == 3
    assert [(one.alpha, one.variance) for one in found] == [(0.5, 0.1), (0.5, 0.2), (1.0, 0.1), (1.0, 0.2)]
    assert found[0].acd == found[3].acd and all(one.frechet > 0 for one in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "There is no method 'magic'"),
        ({"combine": "both"}, "combine is 'both'; it must be one of sum, alternate, guarded"),
        ({"alpha": -1}, "alpha=-1"),
        ({"epochs": (0, 5)}, "stage 1 needs an epoch"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


def test_bad_requests(trained):
    maker, gan = trained
    with pytest.raises(UserError, match="at least one"):
        maker.generate(shapes(), 0, trained=gan)
    with pytest.raises(UserError, match="no image of the class 'none'"):
        make((0, 1)).train(shapes())
    with pytest.raises(UserError, match="knows the classes"):
        make(estimator=AmbiguityEstimator((0, 3))).train(shapes())
    unlabelled = ImageSet.from_arrays(shapes().images[:], class_names=["a", "b"], layout="NCHW")
    with pytest.raises(UserError, match="have no labels"):
        make().train(unlabelled)


def run(*arguments: str):
    return CliRunner().invoke(app, ["generate", "companion", *arguments])


def test_the_command_writes_a_set(tmp_path):
    save_npz(shapes(120), tmp_path / "shapes.npz")
    options = ["--data", str(tmp_path / "shapes.npz"), "--between", "upper,left", "--count", "12", "--r", "dial"]
    options += [
        "--members",
        "2",
        "--estimator-epochs",
        "2",
        "--epochs",
        "1,1",
        "--filters",
        "4",
        "--no-reject",
        "--collapse",
        "0",
    ]
    options += ["--device", "cpu", "--out", str(tmp_path / "out"), "--json"]
    result = run(*options)
    assert result.exit_code == 0, result.output
    card = json.loads(result.stdout)
    assert card["images"] == 12 and card["classes"] == ["upper", "left"]
    made = load_images(str(tmp_path / "out" / "images.npz"))
    assert set(made.columns) >= {"class_1", "mean_probability", "variance", "mutual_information", "target_r", "dial"}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "images.npz",
        "card.json",
        "samples.png",
        "training",
    }


def test_the_command_searches_a_grid(tmp_path):
    save_npz(shapes(60), tmp_path / "shapes.npz")
    options = ["--data", str(tmp_path / "shapes.npz"), "--between", "2,left", "--count", "5", "--grid", "--json"]
    options += ["--members", "2", "--estimator-epochs", "1", "--epochs", "1,1", "--filters", "2", "--no-reject"]
    result = run(*options, "--collapse", "0", "--device", "cpu", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    card = json.loads(result.stdout)
    assert len(card["grid"]) == 6 and any(row["front"] for row in card["grid"])
    chosen = {"alpha": card["settings"]["alpha"], "variance": card["settings"]["variance"]}
    assert any(chosen.items() <= row.items() for row in card["grid"])


def test_beginning_anew_forgets_what_was_trained_and_nothing_else(tmp_path):
    names = ("estimator-1.safetensors", "stage1-2-1/state.json", "stage2-3-1/state.json")
    for name in (*names, "notes.txt", "stage1-2-1/samples-0010.png", "mine/state.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    _forget(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "stage1-2-1/samples-0010.png", "mine/state.json"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--between", "upper,lower"], "There is no class 'lower'"),
        (["--between", "0,4"], "There is no class '4'"),
        (["--preset", "huge"], "There is no preset 'huge'"),
        (["--between", "upper,left", "--epochs", "7"], "--epochs is '7'"),
        (["--between", "upper,left", "--r", "many"], "'many' is not a number"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, options, message):
    save_npz(shapes(40), tmp_path / "shapes.npz")
    result = run("--data", str(tmp_path / "shapes.npz"), "--device", "cpu", "--out", str(tmp_path / "out"), *options)
    assert result.exit_code != 0
    assert message in str(result.exception) or message in result.output
