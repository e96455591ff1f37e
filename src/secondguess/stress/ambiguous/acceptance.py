"""Which trained autoencoders are good enough to draw from.

An autoencoder is accepted if its discriminator is neither fooled nor sure (accuracy in telling prior points from
encoded images in [0.4, 0.6]) and gives the right class the higher probability for at least 90 % of the images. Both
are measured after the training, in evaluation mode, on fresh prior points: the authors' code takes a running average
over all epochs, with a threshold on raw logits, and therefore rejects autoencoders that end well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.devices import isolated_rng, seed_rng
from secondguess.stress.ambiguous.autoencoders import RaaeFleet
from secondguess.stress.ambiguous.realism import sharpness

__all__ = ["TrainedFleet", "examine"]

FOOLED = (0.4, 0.6)
TELLS_APART = 0.9
BLURRED = 500  # reconstructions whose sharpness is measured


@dataclass
class TrainedFleet:
    """A stack of trained autoencoders, with what their acceptance was judged on.

    Attributes:
        fleet: the autoencoders.
        fooled: (M,) real/fake accuracy of the discriminators.
        class_accuracy: (M,) how often they give the right class the higher probability.
        reconstruction: (M,) mean squared error.
        blur: (M,) sharpness that 95 % of reconstructed real images exceed.
        accepted: (M,) whether both checks hold.
    """

    fleet: RaaeFleet
    fooled: NDArray[np.float64]
    class_accuracy: NDArray[np.float64]
    reconstruction: NDArray[np.float64]
    blur: NDArray[np.float64]
    accepted: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        balanced = (self.fooled >= FOOLED[0]) & (self.fooled <= FOOLED[1])
        self.accepted = balanced & (self.class_accuracy >= TELLS_APART)


@torch.no_grad()
def examine(
    fleet: RaaeFleet, images: Tensor, rows: Sequence[NDArray[np.int64]], which: Sequence[NDArray[np.int64]], seed: int
) -> TrainedFleet:
    """Judge every autoencoder of a stack on all images of its pair and on as many fresh points of the prior.

    Args:
        fleet: M autoencoders.
        images: (n, C, H, W) on the device of the fleet.
        rows: for each member, the positions of its images.
        which: for each member, 0 or 1 for each of these: first or second class of its pair.
        seed: of the prior points.
    """
    results: dict[str, list[float]] = {"fooled": [], "class_accuracy": [], "reconstruction": [], "blur": []}
    with isolated_rng(fleet.device):
        seed_rng(seed, fleet.device)
        for index in range(len(fleet)):
            one = fleet.only(index)
            x = images[torch.from_numpy(rows[index]).to(fleet.device)][None]
            y = torch.from_numpy(which[index]).to(fleet.device)[None]
            z = one.encode(x)
            decoded = one.decode(z)
            logits = one.class_logits(z)
            prior, classes = one.prior(x.shape[1])
            on_real = (one.discriminate(prior, classes) > 0).float().mean()
            on_fake = (one.discriminate(z, y) <= 0).float().mean()
            results["fooled"].append(float((on_real + on_fake) / 2))
            results["class_accuracy"].append(float((logits.argmax(dim=-1) == y).float().mean()))
            results["reconstruction"].append(float((x - decoded).square().mean()))
            results["blur"].append(float(np.quantile(sharpness(_some(decoded[0]).cpu().numpy()), 0.05)))
    return TrainedFleet(fleet, **{name: np.array(values) for name, values in results.items()})


def _some(images: Tensor) -> Tensor:
    """At most `BLURRED` of the images, evenly spaced: sets read from folders are sorted by class."""
    return images[torch.linspace(0, len(images) - 1, min(len(images), BLURRED), device=images.device).long()]
