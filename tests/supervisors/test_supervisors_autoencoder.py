from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from secondguess import Observation, UserError, check_supervisor
from secondguess.images import ImageSet
from secondguess.supervisors import _vae
from secondguess.supervisors._vae import Vae, divergence
from secondguess.supervisors.autoencoder import Autoencoder

Images = NDArray[np.float32]


def observed(images: Images) -> Observation:
    source = ImageSet.from_arrays(images, layout="NCHW").images
    return Observation(np.full((len(images), 2), 0.5), images=source)


def bars(n: int = 160, shape: tuple[int, int, int] = (1, 12, 12), seed: int = 0) -> Images:
    """Grey images with a bright bar, upright or across."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(0.2, 0.3, (n, *shape)).astype(np.float32)
    for image in images:
        place = int(rng.integers(1, 4))
        if rng.random() < 0.5:
            image[:, place : place + 2] = 0.8
        else:
            image[:, :, place : place + 2] = 0.8
    return images


def reconstructed(fitted: Autoencoder, images: Images) -> NDArray[np.float64]:
    vae = fitted._restored()
    with torch.no_grad():
        mean, _ = vae.encode(torch.from_numpy(images))
        return vae.decode(mean).double().sigmoid().numpy()


def cross_entropy(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """BCE in nats a pixel, with 0 log 0 = 0."""
    x, y = np.broadcast_arrays(x.astype(np.float64), y.astype(np.float64))
    on = np.where(x > 0, -x * np.log(np.where(x > 0, y, 1)), 0)
    off = np.where(x < 1, -(1 - x) * np.log(np.where(x < 1, 1 - y, 1)), 0)
    return on + off


@pytest.fixture(scope="module")
def fitted() -> Autoencoder:
    return Autoencoder(epochs=12).fit(observed(bars()))


def test_the_divergence_is_that_of_torch() -> None:
    rng = torch.Generator().manual_seed(0)
    mean, log_variance = torch.randn(50, 3, generator=rng), torch.randn(50, 3, generator=rng)
    ours = torch.distributions.Normal(mean, (log_variance / 2).exp())
    prior = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    expected = torch.distributions.kl_divergence(ours, prior).sum(dim=1)
    torch.testing.assert_close(divergence(mean, log_variance), expected)


def test_the_loss_is_cross_entropy_plus_divergence() -> None:
    images = torch.from_numpy(bars(20))
    torch.manual_seed(0)
    vae = Vae((1, 12, 12), 2)
    with torch.no_grad():
        torch.manual_seed(5)
        found = float(vae.loss(images))
        mean, log_variance = vae.encode(images)
        torch.manual_seed(5)
        pixels = vae.decode(mean + torch.randn_like(mean) * (log_variance / 2).exp()).sigmoid().numpy()
    error = cross_entropy(images.numpy(), pixels).sum(axis=(1, 2, 3)).mean()
    assert found == pytest.approx(error + float(divergence(mean, log_variance).mean()), rel=1e-4)


def test_the_network_is_the_papers() -> None:
    vae = Vae((1, 28, 28), 2)
    # Layer by layer: two convolutions, a dense layer, two outputs; a dense layer and three transposed convolutions.
    encoder = (9 * 32 + 32) + (9 * 32 * 64 + 64) + (7 * 7 * 64 * 16 + 16) + 2 * (16 * 2 + 2)
    decoder = (2 * 3136 + 3136) + (9 * 64 * 64 + 64) + (9 * 64 * 32 + 32) + (9 * 32 + 1)
    assert sum(p.numel() for p in vae.parameters()) == encoder + decoder
    assert vae.decode(torch.zeros(3, 2)).shape == (3, 1, 28, 28)


def test_the_score_is_the_summed_cross_entropy_of_the_reconstruction(fitted: Autoencoder) -> None:
    images = bars(40, seed=1)
    images[0] = 0
    images[1, :, :3] = 1
    expected = cross_entropy(images, reconstructed(fitted, images)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(fitted.score(observed(images)), expected, rtol=1e-5)


def test_per_pixel_is_what_was_missed_against_a_flat_image(fitted: Autoencoder) -> None:
    images = bars(40, seed=2)
    images[0] = 0
    images[1, :, :3] = 1
    images[2] = 1
    relative = Autoencoder("per_pixel")
    relative.__dict__.update({**fitted.__dict__, "error": "per_pixel"})
    drawn, axes = reconstructed(fitted, images), (1, 2, 3)
    floor = cross_entropy(images, images).mean(axis=axes)
    flat = images.astype(np.float64).mean(axis=(2, 3), keepdims=True)
    missed = cross_entropy(images, drawn).mean(axis=axes) - floor
    worst = cross_entropy(images, np.clip(flat, 1e-300, 1)).mean(axis=axes) - floor
    worst[[0, 2]] = 0  # without contrast the flat image misses nothing
    found = relative.score(observed(images))
    np.testing.assert_allclose(found, missed / (worst + 1e-3), rtol=1e-4)
    assert (found >= 0).all()


def test_dark_images_are_rewarded_by_the_paper_and_not_per_pixel(fitted: Autoencoder) -> None:
    nominal = bars(60, seed=3)
    dark, black = 0.1 * nominal, np.zeros_like(nominal)
    relative = Autoencoder("per_pixel")
    relative.__dict__.update({**fitted.__dict__, "error": "per_pixel"})
    usual = np.median(fitted.score(observed(nominal)))
    assert fitted.score(observed(black)).max() < usual
    usual = np.quantile(relative.score(observed(nominal)), 0.95)
    for odd in (dark, black):
        assert relative.score(observed(odd)).min() > usual


@pytest.mark.parametrize("error", ["bce", "per_pixel"])
def test_what_was_not_learnt_scores_higher(error: Any) -> None:
    fitted = Autoencoder(error, epochs=20).fit(observed(bars()))
    rng = np.random.default_rng(0)
    usual = fitted.score(observed(bars(80, seed=4)))
    odd = fitted.score(observed(rng.random((80, 1, 12, 12)).astype(np.float32)))
    assert (odd[:, None] > usual).mean() > 0.95
    assert fitted.losses_[-1] < fitted.losses_[0]


def test_the_contract_is_kept_by_default() -> None:
    check_supervisor(Autoencoder)


def test_the_contract_is_kept_per_pixel() -> None:
    check_supervisor(Autoencoder("per_pixel", latent=3, epochs=8, batch_size=50))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 9), (1, 10, 23), (3, 32, 32), (4, 17, 11)])
def test_any_size_and_any_number_of_channels(shape: tuple[int, int, int], tmp_path: Path) -> None:
    images = bars(24, shape)
    fitted = Autoencoder(epochs=1).fit(observed(images))
    scores = fitted.score(observed(images))
    assert scores.shape == (24,)
    assert np.isfinite(scores).all()
    fitted.save(tmp_path / "vae.safetensors")
    loaded = Autoencoder.load(tmp_path / "vae.safetensors")
    np.testing.assert_allclose(loaded.score(observed(images)), scores, rtol=1e-6)


def test_the_file_holds_the_weights_by_name(fitted: Autoencoder, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    fitted.save(tmp_path / "vae.safetensors")
    names = set(load_file(tmp_path / "vae.safetensors"))
    assert {"losses_", "weights_/mean.weight", "weights_/encoder.0.bias"} <= names


def test_the_seed_decides_and_the_callers_random_numbers_are_untouched() -> None:
    seen = observed(bars(40))
    state = torch.get_rng_state()
    scores = [Autoencoder(epochs=2, seed=seed).fit(seen).score(seen) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_images_too_many_to_keep_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = observed(bars(50))
    kept = Autoencoder(epochs=2).fit(seen).score(seen)
    monkeypatch.setattr(_vae, "RESIDENT_BYTES", 0)
    np.testing.assert_allclose(Autoencoder(epochs=2).fit(seen).score(seen), kept, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"error": "mse"}, "error of the autoencoder is 'bce' or 'per_pixel', not 'mse'"),
        ({"latent": 0}, "latent of the autoencoder is 0"),
        ({"epochs": 0}, "epochs of the autoencoder is 0"),
        ({"batch_size": -1}, "batch_size of the autoencoder is -1"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Autoencoder(**options)


def test_bad_images_are_refused(fitted: Autoencoder) -> None:
    with pytest.raises(UserError, match="needs 8x8 pixels at least; these have 7x30"):
        Autoencoder().fit(observed(bars(5, (1, 7, 30))))
    with pytest.raises(UserError, match=r"fitted on images of shape \(1, 12, 12\), but these are \(1, 16, 12\)"):
        fitted.score(observed(bars(5, (1, 16, 12))))
    with pytest.raises(UserError, match="needs the images"):
        fitted.score(Observation(np.full((3, 2), 0.5)))
