"""From denoising losses to probabilities: a multinomial logistic regression on held-out real images.

    log p(c | x) = b_c - sum_t w_t L_c,t + constant

with one weight for each time and one offset for each class. Between two classes this is the logistic regression of the
differences of their losses; because the weights are shared, a few hundred held-out images calibrate all pairs at once.

Losses at neighbouring times say nearly the same, so that weights of alternating signs explain real images as well as
equal ones do, and multiply the scatter of the draws. Weights are positive therefore and drawn to each other, in units
of the scatter of the losses.

Few real images lie near the boundary of two classes, so that offsets which are free to move are mostly chance, and two
judges would disagree by them about whatever lies between the classes. They are drawn to the logarithms of the classes'
frequencies, where they would be if the losses were likelihoods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["LossCalibration"]

Floats = NDArray[np.float64]
RIDGE, EVENNESS = 1e-3, 0.02
NEVER = 1e-9  # images of a class that has none
SPREAD = 0.2  # of the offsets around the logarithms of the frequencies, before any image is seen


@dataclass(frozen=True)
class LossCalibration:
    """Weights of the times and offsets of the classes.

    Attributes:
        weights: float64 (T,).
        offsets: float64 (K,).
    """

    weights: Floats
    offsets: Floats

    def logits(self, losses: Floats) -> Floats:
        """Logarithms of the probabilities (n, K) of losses (n, K, T), up to a constant for each image."""
        return np.asarray(self.offsets - losses @ self.weights)

    def probabilities(self, losses: Floats) -> Floats:
        """Probabilities (n, K) of losses (n, K, T); classes without losses (NaN) get none."""
        logits = self.logits(losses)
        logits = np.where(np.isnan(logits), -np.inf, logits)
        logits = logits - logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def to_dict(self) -> dict[str, list[float]]:
        """As JSON holds it."""
        return {"weights": self.weights.tolist(), "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, list[float]]) -> LossCalibration:
        """The opposite of `to_dict`."""
        return cls(np.array(values["weights"]), np.array(values["offsets"]))

    @classmethod
    def fit(cls, losses: Floats, labels: NDArray[np.int64]) -> LossCalibration:
        """The most likely weights and offsets for losses (n, K, T) of images with known labels (n,).

        Images whose own class has no losses cannot be explained and are left out. A class without images, of which the
        network has learnt nothing, takes no part and gets no probability.
        """
        rows = np.arange(len(losses))
        own = losses[rows, labels]
        known = ~np.isnan(own).any(axis=1)
        counted = np.bincount(labels[known], minlength=losses.shape[1])
        centred = np.where((counted > 0)[:, None], losses[known] - own[known, None, :], np.nan)
        missing = torch.from_numpy(np.isnan(centred).any(axis=2))
        scale = np.nanstd(centred, axis=(0, 1)) + 1e-12
        values = torch.from_numpy(np.nan_to_num(centred / scale))
        truth = torch.from_numpy(labels[known])
        raw = torch.zeros(losses.shape[2], dtype=torch.float64, requires_grad=True)
        moved = torch.zeros(losses.shape[1], dtype=torch.float64, requires_grad=True)
        usual = torch.from_numpy(np.log(np.maximum(counted, NEVER)))
        optimiser = torch.optim.LBFGS([raw, moved], max_iter=500, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            weights = torch.nn.functional.softplus(raw)
            logits = (usual + moved - values @ weights).masked_fill(missing, -torch.inf)
            loss = torch.nn.functional.cross_entropy(logits, truth)
            loss = loss + moved.square().sum() / (2 * SPREAD**2 * len(truth)) + RIDGE * weights.square().mean()
            loss = loss + EVENNESS * (weights - weights.mean()).square().mean()
            torch.autograd.backward(loss)
            return loss

        with torch.enable_grad():
            optimiser.step(closure)  # type: ignore[no-untyped-call]
        offsets = (usual + moved).detach().numpy()
        weights = torch.nn.functional.softplus(raw).detach().numpy() / scale
        return cls(weights, offsets - offsets[counted > 0].mean())
