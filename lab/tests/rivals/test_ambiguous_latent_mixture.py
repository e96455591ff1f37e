from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from secondguess import stress
from secondguess.contracts import registry as contracts_registry
from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.stress import registry
from secondguess.stress.ambiguous.comparison import realism_share
from secondguess.stress.ambiguous.realism import Realism
from secondguess_lab.rivals import latent_mixture, latent_mixture_pool
from secondguess_lab.rivals.latent_mixture import LatentMixture
from secondguess_lab.rivals.latent_mixture_pool import even_in_entropy, judge, shares
from secondguess_lab.rivals.latent_mixture_vae import GreyLevels, Vae, decode, encode, train_vae

CPU = torch.device("cpu")
QUICK = {"members": 3, "epochs": 30, "member_epochs": 10, "batch_size": 16, "device": "cpu"}


def test_it_is_a_stress_set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "secondguess.stress"
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    points = [EntryPoint(name, value, group) for name, value in declared[group].items()]
    monkeypatch.setattr(contracts_registry, "entry_points", lambda *, group: points)
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    monkeypatch.setattr(registry.REGISTRY, "complete", False)
    assert isinstance(stress.make("ambiguous:latent-mixture:members=3"), LatentMixture)
    assert "latent_mixture" in registry.generators()


@pytest.fixture(scope="module")
def train() -> ImageSet:
    """Four classes of digits, after ten images nobody has labelled."""
    digits = load("digits").train
    rows = np.concatenate([np.arange(10), np.flatnonzero(np.isin(digits.labels, [3, 5, 8, 9]))[::2]])
    labels = np.where(np.arange(len(rows)) < 10, -1, digits.labels[rows])
    return ImageSet.from_arrays(digits.images[rows], labels, class_names=digits.class_names, name="four digits")


@pytest.fixture(scope="module")
def made(train):
    return LatentMixture(**QUICK).generate(train, 80, seed=3)


@pytest.fixture(scope="module")
def trained(train):
    """Trained once more: what follows holds only if the same seed gives the same networks."""
    return LatentMixture(**QUICK).train(train, seed=3)


@pytest.fixture
def ready(trained, monkeypatch):
    """Generators that need no training."""
    monkeypatch.setattr(LatentMixture, "train", lambda self, train, **_: trained)
    return lambda **options: LatentMixture(**QUICK, **options)


def test_the_members_hesitate_alike_about_every_image(made, trained):
    p = softmax(trained.ensemble.predict(made.images.materialise(), device="cpu").astype(np.float64), axis=2)
    total = entropy(p.mean(axis=0), axis=1)
    disagreement = total - entropy(p, axis=2).mean(axis=0)
    assert disagreement.max() <= 0.05
    assert total.min() >= 0.05
    np.testing.assert_allclose(made.images.columns["entropy"], total, atol=1e-6)
    np.testing.assert_allclose(made.images.columns["mutual_information"], disagreement, atol=1e-6)
    np.testing.assert_allclose(made.images.soft_labels, p.mean(axis=0), atol=1e-6)


def test_an_image_is_the_mixture_its_columns_tell_of(train, made, trained):
    columns = made.images.columns
    sources = np.stack([columns[f"source_{n}"] for n in range(1, 5)], axis=1)
    weights = np.stack([columns[f"weight_{n}"] for n in range(1, 5)], axis=1)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert not weights[sources < 0].any()
    assert set((sources >= 0).sum(axis=1)) == {2, 3, 4}
    for row in range(20):
        used = sources[row] >= 0
        z = weights[row, used] @ encode(trained.vae, train.images[sources[row, used]]).numpy()
        image = trained.calibration(decode(trained.vae, torch.tensor(z[None], dtype=torch.float32)))
        assert np.abs(image[0] / 255.0 - made.images.images[row]).max() <= 1.01 / 255


def test_sources_are_labelled_images_of_different_classes(train, made):
    sources = np.stack([made.images.columns[f"source_{n}"] for n in range(1, 5)], axis=1)
    for row in sources:
        labels = train.labels[row[row >= 0]]
        assert labels.min() >= 0
        assert len(set(labels)) == len(labels)


def test_labels_are_soft_over_more_than_two_classes(made):
    images = made.images
    np.testing.assert_allclose(images.soft_labels.sum(axis=1), 1)
    assert ((images.soft_labels > 0.05).sum(axis=1) > 2).any()
    two = np.sort(np.argsort(-images.soft_labels, axis=1)[:, :2], axis=1)
    np.testing.assert_array_equal(two, np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1))
    assert images.soft_labels[np.arange(len(images)), images.labels].min() > 0
    assert images.is_ambiguous.all()


def test_hard_labels_are_drawn_from_the_soft_ones(train, ready):
    images = ready(pool=1).generate(train, 3000).images
    seen = np.bincount(images.labels, minlength=10) / len(images)
    assert np.abs(seen - images.soft_labels.mean(axis=0)).max() < 4 * np.sqrt(0.25 / len(images))


def test_ten_draws_are_tenths_with_the_same_mean(train, ready):
    drawn = ready(labels="draws").generate(train, 400).images.soft_labels
    mean = ready(labels="mean").generate(train, 400).images.soft_labels
    np.testing.assert_allclose(drawn * 10, np.rint(drawn * 10), atol=1e-9)
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    assert np.abs(drawn - mean).max() <= 0.7
    assert np.abs((drawn - mean).mean(axis=0)).max() < 0.03


def test_legacy_sources_come_from_the_beginning_of_the_set(train, ready):
    columns = ready(mode="legacy").generate(train, 50).images.columns
    sources = np.stack([columns[f"source_{n}"] for n in range(1, 5)])
    largest_class = np.bincount(train.labels[train.labels >= 0]).max()
    assert sources.max() < 10 + largest_class < len(train)
    labels = [train.labels[row[row >= 0]] for row in sources.T]
    assert any(len(set(each)) < len(each) for each in labels)


def test_the_seed_decides(train, ready):
    one, same, other = (ready().generate(train, 20, seed=seed).images for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_the_card(train, made, tmp_path):
    card = made.card
    assert card["generator"] == "LatentMixture"
    assert card["settings"]["seed"] == 3
    assert card["settings"]["labels"] == "mean"
    assert card["train"] == train.describe()
    assert card["images"] == len(made.images) == 80
    assert card["label_entropy_bits"] == pytest.approx(entropy(made.images.soft_labels, base=2, axis=1).mean())
    assert 0 < card["kept_share"] <= card["agreed_share"] <= 1
    assert card["realism_share"] == realism_share(made.images, Realism(train, seed=3))
    assert card["notes"] == []
    made.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"card.json", "images.npz", "sheet.png"}


def test_it_gives_up_with_a_note(train, ready, monkeypatch):
    monkeypatch.setattr(latent_mixture, "PATIENCE", 1)
    monkeypatch.setattr(latent_mixture_pool, "ENTROPY", (0.5, 0.6))
    made = ready(pool=1).generate(train, 6000)
    assert 0 < len(made.images) < 6000
    assert made.card["notes"] == [
        f"{len(made.images)} images instead of 6000: the ensemble kept no more of {made.card['mixtures']}."
    ]


def test_an_ensemble_that_keeps_nothing_is_an_error(train, ready, monkeypatch):
    monkeypatch.setattr(latent_mixture_pool, "ENTROPY", (2.9, 3.0))  # more than ln 10
    with pytest.raises(UserError, match=r"kept none of \d+ mixtures.*train autoencoder and ensemble for longer"):
        ready().generate(train, 2)


def test_two_classes_make_mixtures_of_two(train, ready):
    pair = train.take(np.isin(train.labels, [3, 5]))
    columns = ready().generate(pair, 10).images.columns
    assert (columns["source_3"] == -1).all()


def test_impossible_requests(train):
    with pytest.raises(UserError, match="0 ambiguous images were asked for"):
        LatentMixture().generate(train, 0)
    with pytest.raises(UserError, match=r"lie between two classes, but .* has 1"):
        LatentMixture().generate(train.take(train.labels == 3), 5)
    with pytest.raises(UserError, match=r"lie between two classes, but .* has 0"):
        LatentMixture().generate(train.take(train.labels < 0), 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "new"}, "mode is 'new'; it must be 'paper' or 'legacy'"),
        ({"labels": "hard"}, "labels is 'hard'; it must be 'mean' or 'draws'"),
        ({"members": 1}, "members is 1; it takes at least two networks to disagree"),
        ({"epochs": 0}, "must be at least 1"),
    ],
)
def test_impossible_settings(options, message):
    with pytest.raises(UserError, match=message):
        LatentMixture(**options)


def test_the_opinion_of_extreme_members():
    logits = np.array([[[1000.0, 0, 0], [0, 0, 0]], [[0, 1000.0, 0], [0, 0, 0]]])
    opinion = judge(logits)
    np.testing.assert_allclose(opinion.probabilities, [[0.5, 0.5, 0], [1 / 3] * 3], atol=1e-12)
    np.testing.assert_allclose(opinion.entropy, np.log([2, 3]))
    np.testing.assert_allclose(opinion.mutual_information, [np.log(2), 0], atol=1e-12)
    assert opinion.kept.tolist() == [False, True]


def test_the_choice_is_flatter_in_entropy_and_takes_nothing_twice():
    rng = np.random.default_rng(0)
    entropies = np.minimum(0.05 + rng.exponential(0.2, 20_000), 1.9)
    rows = even_in_entropy(entropies, 1000, 10, rng)
    assert len(set(rows.tolist())) == 1000
    before, after = (np.histogram(each, 16, (0.05, 1.9))[0] / len(each) for each in (entropies, entropies[rows]))
    assert entropy(after) > entropy(before) + 0.5
    assert entropies[rows].max() > 1.6


def test_shares_grow_with_the_fifth_root():
    available = np.array([100_000, 3125, 1024, 0, 32])  # fifth roots 10, 5, 4, 0, 2
    assert shares(available, 210).tolist() == [100, 50, 40, 0, 20]
    assert shares(available, 420).tolist() == [204, 102, 82, 0, 32]  # 32 are all there are; 388 for 10 : 5 : 4
    assert shares(available, 10**6).tolist() == available.tolist()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 32, 20), (3, 13, 10), (1, 40, 34)])
def test_the_autoencoder_gives_back_what_it_takes(shape):
    vae = Vae(shape, 0.5, 0.25)
    mean, log_variance = vae.encode(torch.rand(5, *shape))
    assert mean.shape == log_variance.shape == (5, 32)
    assert vae.decode(mean).shape == (5, *shape)


def test_the_loss_is_likelihood_plus_divergence():
    torch.manual_seed(0)
    vae = Vae((1, 8, 8), 0.4, 0.3)
    images = torch.rand(6, 1, 8, 8)
    torch.manual_seed(1)
    loss = vae.loss(images)
    torch.manual_seed(1)
    mean, log_variance = vae.encode(images)
    posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
    z = posterior.mean + posterior.stddev * torch.randn(mean.shape)
    pixels = torch.distributions.Bernoulli(logits=vae.decode(z), validate_args=False)
    prior = torch.distributions.Normal(torch.zeros(32), torch.ones(32))
    expected = torch.distributions.kl_divergence(posterior, prior).sum() - pixels.log_prob(images).sum()
    torch.testing.assert_close(loss, expected / 6)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 12)])
def test_training_leaves_the_global_random_state_alone_and_learns(shape):
    images = np.random.default_rng(0).random((40, 1, 1, 1)) * np.ones((1, *shape))
    source = ImageSet.from_arrays(images.astype(np.float32), layout="NCHW").images
    torch.manual_seed(5)
    before = torch.get_rng_state()
    short, same, longer = (train_vae(source, epochs=n, batch_size=10, seed=1, device=CPU) for n in (1, 1, 30))
    assert torch.equal(before, torch.get_rng_state())
    for one, other in zip(short.state_dict().values(), same.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    errors = [np.square(decode(vae, encode(vae, source[:])) - source[:]).mean() for vae in (short, longer)]
    assert errors[1] < 0.7 * errors[0]


def test_calibrated_images_have_the_mean_and_deviation_of_real_ones(train, trained):
    real = train.take(train.labels >= 0).materialise()
    levels = trained.calibration(decode(trained.vae, encode(trained.vae, real)))
    assert levels.dtype == np.uint8
    assert levels.mean() / 255 == pytest.approx(real.mean(), abs=2e-3)
    assert levels.std() / 255 == pytest.approx(real.std(), abs=2e-3)


def test_the_published_stretch_follows_the_match_of_mean_and_deviation(train, trained):
    known = train.take(train.labels >= 0)
    decoded = decode(trained.vae, encode(trained.vae, known.materialise()))
    matched = (decoded - decoded.mean()) / decoded.std() * known.materialise().std() + known.materialise().mean()
    calibration = GreyLevels.fit(trained.vae, known.images, stretch=(1.2, -0.15))
    expected = np.clip(1.2 * matched - 0.15, 0, 1)
    assert np.abs(calibration(decoded) / 255.0 - expected).max() < 0.51 / 255


def test_larger_images_are_judged_by_lenets():
    images = np.random.default_rng(0).random((4, 3, 16, 18), dtype=np.float32)
    small = ImageSet.from_arrays(images, [0, 1, 0, 1], layout="NCHW")
    network = latent_mixture._network(small, 0)
    assert [layer.kernel_size for layer in network.modules() if isinstance(layer, torch.nn.Conv2d)] == [(5, 5)] * 2
    assert network(torch.from_numpy(images)).shape == (4, 2)
