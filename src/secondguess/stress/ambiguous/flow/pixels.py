"""From the images of a set to those inside the network, and back: 8 bits and padding."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.stress.ambiguous.flow.network import Architecture

__all__ = ["flattened_digest", "from_padded", "scaled", "to_padded"]


def to_padded(images: NDArray[np.uint8], architecture: Architecture) -> Tensor:
    """Images uint8 (n, C, h, w) as the network takes them, (n, C, H, W): padded by repeating their borders."""
    _, height, width = architecture.padded
    above, left = (height - images.shape[2]) // 2, (width - images.shape[3]) // 2
    below, right = height - images.shape[2] - above, width - images.shape[3] - left
    sides = ((0, 0), (0, 0), (above, below), (left, right))
    padded = images if not any(map(any, sides)) else np.pad(images, sides, mode="edge")
    return torch.from_numpy(np.ascontiguousarray(padded))


def scaled(images: NDArray[np.uint8], architecture: Architecture, device: torch.device) -> Tensor:
    """The same as `to_padded`, on a device and in [-1, 1]."""
    return to_padded(images, architecture).to(device).float() / 127.5 - 1


def from_padded(x: Tensor, architecture: Architecture) -> NDArray[np.uint8]:
    """The opposite, of the network's images (n, C, H, W) in [-1, 1]; rounded to 8 bits."""
    _, height, width = architecture.shape
    above, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    inner = x[:, :, above : above + height, left : left + width]
    pixels: NDArray[np.uint8] = ((inner.float() + 1) * 127.5).round().clamp(0, 255).byte().cpu().numpy()
    return pixels


def flattened_digest(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    """A digest of images and labels, which tells one training from another."""
    digest = hashlib.blake2b(repr(images.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels).data)
    return digest.hexdigest()
