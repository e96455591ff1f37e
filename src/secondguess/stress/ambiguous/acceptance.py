"""Which trained autoencoders are good enough to draw from.

An autoencoder is accepted if its discriminator is neither fooled nor sure (accuracy in telling prior points from
encoded images in [0.4, 0.6]) and gives the right class the higher probability for at least 90 % of the images. Both
are measured after the training, in evaluation mode, on fresh prior points: the authors' code takes a running average
over all epochs, with a threshold on raw logits, and therefore rejects autoencoders that end well.

Natural neighbours (a shirt and a T-shirt) cannot be told apart in 90 % of the cases by anybody, and the paper's rule
leaves them without a single image. With `acceptance="achievable"` such a pair is held against an independent classifier
of its images:

* the discriminator may miss as much more than that classifier as the paper allows for classes that a classifier tells
  apart without error: it must reach `achievable - 0.1`, or 0.9 where that is less
* prior points and encoded images are compared for the images that the classifier tells apart clearly, with a margin of
  1. The prior has two clusters, and what could be either lies between them, as it should: a discriminator that
  recognises it there says nothing against the autoencoder
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

__all__ = ["Acceptance", "TrainedFleet", "examine", "margins"]

Acceptance = Literal["paper", "achievable"]

FOOLED = (0.4, 0.6)
TELLS_APART = 0.9
ALLOWED = 0.1  # of accuracy below what is achievable: the paper's 0.9, where everything is
COMPONENTS, LEARNT, FOLDS = 50, 3000, 3  # of the independent classifier
CLEAR = 1.0  # margin of images that it tells apart clearly
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
        fooled_clear: (M,) as `fooled`, of the images that this classifier tells apart clearly; None takes `fooled`.
        accepted: (M,) whether both checks hold.
    """

    fleet: RaaeFleet
    fooled: NDArray[np.float64]
    class_accuracy: NDArray[np.float64]
    reconstruction: NDArray[np.float64]
    blur: NDArray[np.float64]
    achievable: NDArray[np.float64] | float = 1.0
    fooled_clear: NDArray[np.float64] | None = None
    accepted: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        if self.fooled_clear is None:
            self.fooled_clear = self.fooled
        balanced = (self.fooled >= FOOLED[0]) & (self.fooled_clear <= FOOLED[1])
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
    names = ("fooled", "fooled_clear", "class_accuracy", "reconstruction", "blur")
    results: dict[str, list[float]] = {name: [] for name in names}
    known: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    with isolated_rng(fleet.device):
        seed_rng(seed, fleet.device)
        for index, member in enumerate(fleet.members):
            one = fleet.only(index)
            x = images[torch.from_numpy(rows[index]).to(fleet.device)][None]
            y = torch.from_numpy(which[index]).to(fleet.device)[None]
            z = one.encode(x)
            decoded = one.decode(z)
            right = float((one.class_logits(z).argmax(dim=-1) == y).float().mean())
            prior, classes = one.prior(x.shape[1])
            on_real = float((one.discriminate(prior, classes) > 0).float().mean())
            seen_through = (one.discriminate(z, y) <= 0)[0].cpu().numpy()
            fooled = fooled_clear = (on_real + float(seen_through.mean())) / 2
            if acceptance == "achievable" and (right < TELLS_APART or fooled > FOOLED[1]):
                if member.pair not in known:
                    known[member.pair] = margins(x[0].cpu().numpy(), which[index], seed=seed)
                chosen, margin = known[member.pair]
                if (margin >= CLEAR).any():
                    fooled_clear = (on_real + float(seen_through[chosen[margin >= CLEAR]].mean())) / 2
            blur = float(np.quantile(sharpness(_some(decoded[0]).cpu().numpy()), 0.05))
            error = float((x - decoded).square().mean())
            for name, value in zip(names, (fooled, fooled_clear, right, error, blur), strict=True):
                results[name].append(value)
    reached = {pair: float((margin > 0).mean()) for pair, (_, margin) in known.items()}
    achievable = np.array([reached.get(member.pair, 1.0) for member in fleet.members])
    return TrainedFleet(fleet, **{name: np.array(values) for name, values in results.items()}, achievable=achievable)


def margins(
    images: NDArray[np.float32], which: NDArray[np.int64], *, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How clearly two classes can be told apart, by a support vector machine on principal components.

    Args:
        images: (n, C, H, W).
        which: (n,), 0 or 1.
        seed: of the subsample and of the folds.

    Returns:
        The images that were looked at, and how far each lies on the side of its own class, by a machine that has not
        seen it: more than 0 if it was recognised, 1 or more if that was clear.
    """
    from sklearn.decomposition import PCA
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    chosen = np.random.default_rng(seed).permutation(len(images))[:LEARNT]
    if np.bincount(which[chosen], minlength=2).min() < FOLDS:
        return chosen, np.full(len(chosen), CLEAR)  # too few to know better than the paper
    flat, own = images[chosen].reshape(len(chosen), -1), which[chosen]
    components = min(COMPONENTS, flat.shape[1], len(flat) // 2)
    machine = make_pipeline(PCA(components, random_state=seed), SVC(C=3.0))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found = cross_val_predict(machine, flat, own, cv=folds, method="decision_function")
    return chosen, np.asarray(found * (2 * own - 1), dtype=np.float64)


def _some(images: Tensor) -> Tensor:
    """At most `BLURRED` of the images, evenly spaced: sets read from folders are sorted by class."""
    return images[torch.linspace(0, len(images) - 1, min(len(images), BLURRED), device=images.device).long()]
