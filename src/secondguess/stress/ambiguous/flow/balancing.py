"""Composition under control: every image ends with the log-odds between its classes that were asked for.

The mean of two velocities lets each image drift to one class or the other: what leans to one class early is completed
as that class. Here the shares of the classes are chosen anew in each step, so that the image stays between them.

Sampling is ancestral, as in DDPM (Ho, Jain, Abbeel, 2020). A step from t to u > t draws

    x_u ~ N(m_c, V)     m_c = A y_c + B x_t     y_c = x_t + (1 - t) v_c
    A = s^2 u / (1-t)^2     B = (t/u) (1-u)^2 / (1-t)^2     V = s^2 (1-u)^2 / (1-t)^2
    s^2 = (1-t)^2 - (t/u)^2 (1-u)^2

where y_c is the image that class c expects. All classes share the process that turns images into noise, so that the
likelihood ratio of a whole path is that of its end, whoever chose the path, and it is known step by step: with
D_c = m_c - mean m,

    log p_c grows by ( <D_c, x_u - mean m> - |D_c|^2 / 2 ) / V + a part that is the same for all classes.

Skreta et al. ("The superposition of diffusion models using the Itô density estimator", 2025) have the same in
continuous time. For a step with y = y(none) + w [ sum_c k_c y_c - y(none) ] the growth is linear in k; we solve for
k, noise included, so that log p_c minus its target becomes equal for all classes. Departure: k is kept within bounds,
because in the beginning the classes hardly differ.

What lies between two classes is often nearest to a third: between an automobile and a cat there are trucks and dogs.
Guidance leads away from "no class", the mean of all images; with `rivals` it leads away from a mean of embeddings in
which these classes have more weight, for the same number of passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from secondguess.stress.ambiguous.flow.sampling import Field

__all__ = ["balance"]

BOUND = 1.5  # the largest distance of a share from an equal one
WELL_POSED = 1e-4  # relative to the largest eigenvalue of the classes' differences


def balance(
    field: Field,
    nothing: int,
    noise: Tensor,
    parts: Tensor,
    target: Tensor,
    draw: Callable[[tuple[int, ...]], Tensor],
    *,
    guidance: float = 1.5,
    until: float = 1.0,
    steps: int = 40,
    rivals: Tensor | None = None,
    begin: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Images (n, C, H, W), and the log-densities (n, m) of their classes, up to a constant for each image.

    Args:
        field: velocities.
        nothing: the class that stands for none.
        noise: (n, C, H, W), standard normal; where it begins later, images as noisy as they are then.
        parts: (n, m) classes of each image.
        target: (n, m) log-densities that are asked for; only their differences matter. What grows before the beginning
            does not count.
        draw: gives the noise of a step, (n, C, H, W) for (C, H, W), such as `sampling.Streams`.
        guidance: w; 1 spares the velocity of no class.
        until: the time after which there is no guidance any more.
        steps: of the sampling.
        rivals: (n, K + 1), weights of the embeddings that guidance leads away from; None for those of no class.
        begin: the time to begin at; the steps before it are left out.
    """
    x = noise
    reached = torch.zeros(target.shape, device=noise.device)
    target = _centred(target.to(noise.device, torch.float32))
    for step in range(round(begin * steps), steps):
        t, u = step / steps, (step + 1) / steps
        spread = (1 - t) ** 2 - (t / u * (1 - u)) ** 2
        forward, variance = spread * u / (1 - t) ** 2, spread * (1 - u) ** 2 / (1 - t) ** 2
        w = guidance if t < until else 1.0
        velocities, free = _look(field, nothing, x, t, parts, w != 1.0, rivals)
        mean = velocities.mean(dim=0)
        aside = forward * (1 - t) * (w - 1) * (mean - free)  # of guidance, from the mean of the classes
        shake = variance**0.5 * draw(tuple(x.shape[1:])).to(x.device)
        apart = (forward * (1 - t) * (velocities - mean)).flatten(2).transpose(0, 1)  # D, (n, m, d)
        gram = apart @ apart.transpose(1, 2)
        middle = forward * (x + (1 - t) * mean) + t / u * ((1 - u) / (1 - t)) ** 2 * x
        x = middle + aside + shake
        if variance > 0:
            grown = (apart @ (aside + shake).flatten(1)[:, :, None])[:, :, 0]
            grown = _centred(grown - gram.diagonal(dim1=1, dim2=2) / 2)
            shares = _solved(gram * w, variance * (target - reached) - grown).clamp(-BOUND, BOUND)
            reached = reached + (grown + w * (gram @ shares[:, :, None])[:, :, 0]) / variance
            x = x + w * (shares[:, None, :] @ apart).reshape(x.shape)
    return x, reached


def _look(
    field: Field, nothing: int, x: Tensor, t: float, parts: Tensor, guided: bool, rivals: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """Velocities (m, n, C, H, W) of the classes, and that of no class, or of rivals, where it is needed."""
    count, several = parts.shape
    asked, copies = parts.T.reshape(-1), several + guided
    if guided and rivals is not None:
        weights = torch.nn.functional.one_hot(asked, nothing + 1).to(rivals.dtype)
        asked = torch.cat([weights, rivals])
    elif guided:
        asked = torch.cat([asked, torch.full((count,), nothing, device=parts.device, dtype=parts.dtype)])
    times = torch.full((count * copies,), t, device=x.device)
    found = field(x.repeat(copies, 1, 1, 1), times, asked).reshape(copies, *x.shape)
    return found[:several], found[-1] if guided else 0.0


def _solved(gram: Tensor, right: Tensor) -> Tensor:
    """The shortest solution (n, m) of gram (n, m, m) times it = right (n, m); differences of classes only."""
    inverse = torch.linalg.pinv(gram.double().cpu(), rtol=WELL_POSED, hermitian=True).to(gram.device, gram.dtype)
    return (inverse @ right[:, :, None])[:, :, 0]


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(dim=1, keepdim=True)
