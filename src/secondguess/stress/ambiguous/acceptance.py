"""Which trained autoencoders are good enough to draw from.

An autoencoder is accepted if its discriminator is neither fooled nor sure (accuracy in telling prior points from
encoded images in [0.4, 0.6]) and gives the right class the higher probability for at least 90 % of the images. Both
are measured after the training, in evaluation mode, on fresh prior points: the authors' code takes a running average
over all epochs, with a threshold on raw logits, and therefore rejects autoencoders that end well.

Natural neighbours (a shirt and a T-shirt) cannot be told apart in 90 % of the cases by anybody, and the paper's rule
leaves them without a single image. With `acceptance="achievable"` the discriminator may miss as much more than an
independent classifier of the pair as the paper allows for classes that a classifier tells apart without error: it must
reach `achievable - 0.1`, or 0.9 where that is less. And because it is told the class, it recognises every image that
looks like the other class, and lies in its cluster, as no point of the prior: of the share `1 - achievable` it is right
in all cases instead of one half. That much is added to the upper limit: `0.6 + (1 - achievable) / 2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.devices import isolated_rng, seed_rng
from secondguess.stress.ambiguous.autoencoders import RaaeFleet
from secondguess.stress.ambiguous.realism import sharpness

__all__ = ["Acceptance", "TrainedFleet", "achievable_accuracy", "examine"]

Acceptance = Literal["paper", "achievable"]

FOOLED = (0.4, 0.6)
TELLS_APART = 0.9
ALLOWED = 0.1  # of accuracy below what is achievable: the paper's 0.9, where everything is
COMPONENTS, LEARNT, FOLDS = 50, 3000, 3  # of the independent classifier
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
        achievable: (M,) accuracy of an independent classifier of the pair; 1 asks for what the paper asks.
        accepted: (M,) whether both checks hold.
    """

    fleet: RaaeFleet
    fooled: NDArray[np.float64]
    class_accuracy: NDArray[np.float64]
    reconstruction: NDArray[np.float64]
    blur: NDArray[np.float64]
    achievable: NDArray[np.float64] | float = 1.0
    accepted: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        recognised = (1 - np.asarray(self.achievable)) / 2
        balanced = (self.fooled >= FOOLED[0]) & (self.fooled <= FOOLED[1] + recognised)
        self.accepted = balanced & (self.class_accuracy >= np.minimum(TELLS_APART, self.achievable - ALLOWED))


@torch.no_grad()
def examine(
    fleet: RaaeFleet,
    images: Tensor,
    rows: Sequence[NDArray[np.int64]],
    which: Sequence[NDArray[np.int64]],
    seed: int,
    acceptance: Acceptance = "paper",
) -> TrainedFleet:
    """Judge every autoencoder of a stack on all images of its pair and on as many fresh points of the prior.

    Args:
        fleet: M autoencoders.
        images: (n, C, H, W) on the device of the fleet.
        rows: for each member, the positions of its images.
        which: for each member, 0 or 1 for each of these: first or second class of its pair.
        seed: of the prior points.
        acceptance: by which rule. An independent classifier learns only the pairs that fall short of the paper's.
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
    found = {name: np.array(values) for name, values in results.items()}
    achievable: dict[tuple[int, int], float] = {}
    for index, member in enumerate(fleet.members):
        if (
            acceptance == "achievable"
            and (found["class_accuracy"][index] < TELLS_APART or found["fooled"][index] > FOOLED[1])
            and member.pair not in achievable
        ):
            own = images[torch.from_numpy(rows[index]).to(fleet.device)].cpu().numpy()
            achievable[member.pair] = achievable_accuracy(own, which[index], seed=seed)
    reached = np.array([achievable.get(member.pair, 1.0) for member in fleet.members])
    return TrainedFleet(fleet, **found, achievable=reached)


def achievable_accuracy(images: NDArray[np.float32], which: NDArray[np.int64], *, seed: int = 0) -> float:
    """How well two classes can be told apart: accuracy of a support vector machine on principal components.

    Args:
        images: (n, C, H, W).
        which: (n,), 0 or 1.
        seed: of the subsample and of the folds; every image counts with a machine that has not seen it.
    """
    from sklearn.decomposition import PCA
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    if np.bincount(which, minlength=2).min() < FOLDS:
        return 1.0  # too few to know better than the paper
    chosen = np.random.default_rng(seed).permutation(len(images))[:LEARNT]
    flat, which = images[chosen].reshape(len(chosen), -1), which[chosen]
    components = min(COMPONENTS, flat.shape[1], len(flat) // 2)
    machine = make_pipeline(PCA(components, random_state=seed), SVC(C=3.0))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return float(cross_val_score(machine, flat, which, cv=folds).mean())


def _some(images: Tensor) -> Tensor:
    """At most `BLURRED` of the images, evenly spaced: sets read from folders are sorted by class."""
    return images[torch.linspace(0, len(images) - 1, min(len(images), BLURRED), device=images.device).long()]
