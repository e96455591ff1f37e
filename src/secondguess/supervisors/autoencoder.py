"""A variational autoencoder of the nominal images: an image that it cannot reconstruct is suspicious.

Encoder: convolutions of 32 and 64 channels, 3x3 with stride 2, and a dense layer of 16, all with ReLU; then the mean mu
and the log-variance of a latent Gaussian. Decoder: a dense layer back to 64 channels, transposed convolutions of 64 and
32 channels with stride 2, all with ReLU, and one of stride 1 to the pixels' logits. It is trained on

    loss(x) = sum_pixels BCE(x, D(z)) + KL(N(mu, sigma^2) || N(0, I)),   z ~ N(mu(x), sigma^2(x))

averaged over a batch, with Adam at 1e-3, 30 epochs, batches of 128 and two latent dimensions: the network of Keras'
example, as used by Weiss, Garcia Gomez and Tonella (Empirical Software Engineering, 2023).

The score is an error of the reconstruction D(mu(x)), without a draw:

| error     | score                                                                     |
|-----------|---------------------------------------------------------------------------|
| bce       | sum_pixels BCE(x, D), the paper's                                         |
| per_pixel | mean_pixels KL(x || D) / (mean_pixels KL(x || flat) + .001), our own      |

BCE(x, D) never falls below the entropy of the pixel x read as a probability, which is 0 for black and white pixels and
large for grey ones: the paper's score rewards images that are dark or binary, whatever they show, and digits pass for
clothes. KL(x || D) = BCE(x, D) - BCE(x, x) is without that floor, but a faint image still has little to miss. So it is
compared with what a flat image, each channel at its own mean, would miss: 0 is a perfect reconstruction, 1 one that
knows no more than the mean. The .001 nats keep images without any contrast finite; they score very high.

Departures: images of any size from 8 pixels per side and any number of channels (the decoder draws up to three rows and
columns too many, which are cut off); strided convolutions are padded on both sides, where Keras pads one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.images import ImageSource
    from secondguess.supervisors._vae import Vae

__all__ = ["Autoencoder"]

SMALLEST = 8  # pixels per side
FAINT = 1e-3  # nats per pixel


@register
class Autoencoder(Supervisor):
    """Suspicious = a variational autoencoder of the nominal images reconstructs the image badly.

    Formula and sources are in the module's description. It uses the pixels only, never the classifier.

    Cost: one small convolutional network per image (some 7 million multiplications at 28x28); fitting sees every image
    30 times.

    Good at: out-of-distribution images and corruptions that add structure, whatever the classifier predicts. Bad at:
    ambiguous images, adversarial ones whose change is small, and blur, which makes an image simpler to reconstruct.
    `error="bce"` in addition rewards dark and binary images: a black one scores lowest of all.

    Args:
        error: `"bce"` as in the paper, or `"per_pixel"`, which does not reward dark, binary or faint images.
        latent: the number of latent dimensions; 2 in the paper, more reconstruct finer detail.
        epochs: passes over the nominal images.
        batch_size: images per step.
        seed: of weights, order and noise.
        device: where to train and to score: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:N"` or `"mps"`.
    """

    name = "autoencoder"
    dial, least = "epochs", 2

    def __init__(
        self,
        error: Literal["bce", "per_pixel"] = "bce",
        latent: int = 2,
        epochs: int = 30,
        batch_size: int = 128,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if error not in ("bce", "per_pixel"):
            raise UserError(f"The error of the autoencoder is 'bce' or 'per_pixel', not {error!r}.")
        for what, number in (("latent", latent), ("epochs", epochs), ("batch_size", batch_size)):
            if number < 1:
                raise UserError(f"{what} of the autoencoder is {number}; it must be at least 1.")
        self.error = error
        self.latent = latent
        self.epochs = epochs
        self.batch_size = batch_size
        self.seed = seed
        self.device = device

    @property
    def needs(self) -> Needs:
        """The images."""
        return Needs(images=True)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        from secondguess.devices import pick_device
        from secondguess.supervisors._vae import train

        images = _checked(observation.pixels)
        device = pick_device(self.device)
        how = (self.latent, self.epochs, self.batch_size, self.seed, device)
        vae, losses = train(images, *how, advance=self._advance)
        self._vae = vae
        self.shape_ = list(images.shape)
        self.losses_ = losses
        self.weights_ = {name: value.cpu().numpy() for name, value in vae.state_dict().items()}

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        import torch

        images = _checked(observation.pixels)
        if list(images.shape) != list(self.shape_):
            raise UserError(
                f"The autoencoder was fitted on images of shape {tuple(self.shape_)}, but these are "
                f"{tuple(images.shape)} (channels, height, width); load them alike."
            )
        vae = self._restored()
        rows = max(1, min(256, (16 << 20) // (4 * math.prod(images.shape))))
        starts = range(0, len(images), rows)
        with torch.inference_mode():
            return np.concatenate([self._errors(vae, torch.from_numpy(images[i : i + rows])) for i in starts])

    def _errors(self, vae: Vae, images: torch.Tensor) -> NDArray[np.float64]:
        """The errors (b,) of the reconstructions of images (b, C, H, W)."""
        from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

        logits = vae.decode(vae.encode(images.to(vae.device))[0]).cpu().double()
        pixels = images.double()
        errors = binary_cross_entropy_with_logits(logits, pixels, reduction="none").flatten(1)
        if self.error == "bce":
            found: NDArray[np.float64] = errors.sum(dim=1).numpy()
            return found
        flat = pixels.mean(dim=(2, 3), keepdim=True).expand_as(pixels)
        floor = binary_cross_entropy(pixels, pixels, reduction="none").flatten(1)
        missed = (errors - floor).mean(dim=1).clamp_min(0)
        worst = (binary_cross_entropy(flat, pixels, reduction="none").flatten(1) - floor).mean(dim=1).clamp_min(0)
        ratio: NDArray[np.float64] = (missed / (worst + FAINT)).numpy()
        return ratio

    def _restored(self) -> Vae:
        """The network; built from the learnt weights after loading."""
        import torch

        from secondguess.devices import pick_device
        from secondguess.supervisors._vae import Vae

        if getattr(self, "_vae", None) is None:
            channels, height, width = self.shape_
            vae = Vae((channels, height, width), self.latent)
            vae.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in self.weights_.items()})
            self._vae = vae.to(pick_device(self.device)).eval()
        return self._vae


def _checked(images: ImageSource | None) -> ImageSource:
    assert images is not None  # checked against `needs`
    if min(images.shape[1:]) < SMALLEST:
        raise UserError(
            f"The autoencoder halves images twice, and so needs {SMALLEST}x{SMALLEST} pixels at least; these have "
            f"{images.shape[1]}x{images.shape[2]}: load them larger (size=...) or leave it out."
        )
    return images
