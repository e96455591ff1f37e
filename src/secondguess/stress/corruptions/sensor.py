"""Noise of the sensor: every value of every channel is hit on its own."""

from __future__ import annotations

import numpy as np

from secondguess.stress.corruptions.registry import Work, corruption

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


@corruption(60, 25, 12, 5, 3, default=5)
def shot_noise(images: Work, rng: np.random.Generator, rate: float) -> Work:
    """Photon noise: Poisson(c v) / c."""
    return rng.poisson(images * rate) / rate


@corruption(0.03, 0.06, 0.09, 0.17, 0.27, default=4)
def impulse_noise(images: Work, rng: np.random.Generator, share: float) -> Work:
    """Salt and pepper: each value, with probability c, becomes 0 or 1, half of the time each."""
    drawn = rng.random(images.shape)
    return np.where(drawn < share, (drawn < share / 2).astype(np.float64), images)


@corruption(0.08, 0.12, 0.18, 0.26, 0.38, default=5)
def gaussian_noise(images: Work, rng: np.random.Generator, deviation: float) -> Work:
    """Electronic noise: v + N(0, c)."""
    return images + deviation * rng.standard_normal(images.shape)


@corruption(0.15, 0.2, 0.35, 0.45, 0.6, default=5)
def speckle_noise(images: Work, rng: np.random.Generator, deviation: float) -> Work:
    """Noise in proportion to the light: v + v N(0, c)."""
    return images + images * deviation * rng.standard_normal(images.shape)
