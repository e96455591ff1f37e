"""Random numbers that belong to an image: a stream each, drawn for many images at once on any device.

Word c of the stream of an image is SplitMix64 (Steele, Lea & Flood 2014) of a key and the counter c:

    z = key + c · 0x9E3779B97F4A7C15
    z = (z ^ z >> 30) · 0xBF58476D1CE4E5B9
    z = (z ^ z >> 27) · 0x94D049BB133111EB
    word = z ^ z >> 31

The key is the same function of the seed and the image's place in the whole set. What an image is given therefore
depends neither on the batch it is in nor on the device, and a stream is taken up again by its counter alone. A word
gives two normal numbers (Box & Muller 1958) of 24 bits each, or one uniform number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Noise"]

GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SCALE = 2.0**-24
LOW = (1 << 24) - 1


class Noise:
    """Streams of random numbers, one per image.

    Args:
        seed: of all streams.
        places: (n,) int64 of the images in the whole set, where they are a part of one; else a row is its own place.
    """

    def __init__(self, seed: int, places: Tensor | None = None) -> None:
        self.seed, self._places = seed, places

    def uniform(self, rows: Tensor, counters: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Numbers in (0, 1), float32 (m, *shape), from word `counters` (m,) of the streams of `rows` (m,)."""
        words = self._words(rows, counters, math.prod(shape))
        return _unit(words).reshape(len(rows), *shape)

    def normal(self, rows: Tensor, counters: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers, float32 (m, *shape)."""
        count = math.prod(shape)
        words = self._words(rows, counters, (count + 1) // 2)
        length = _unit(words).log_().mul_(-2).sqrt_()
        angle = _unit(words >> 24).mul_(2 * math.pi)
        pairs = torch.cat([length * angle.cos(), length.mul_(angle.sin_())], dim=1)
        return pairs[:, :count].reshape(len(rows), *shape)

    def _words(self, rows: Tensor, counters: Tensor, count: int) -> Tensor:
        """Words (m, count) of the streams, int64 with wrap-around."""
        places = rows if self._places is None else self._places[rows]
        keys = _mix(_mix(rows.new_full((), self.seed) * _signed(GOLDEN)) + (places + 1) * _signed(GOLDEN))
        words = counters[:, None] + torch.arange(1, count + 1, device=rows.device)
        return _mix(words.mul_(_signed(GOLDEN)).add_(keys[:, None]))


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _signed(FIRST)
    z = (z ^ _shift(z, 27)) * _signed(SECOND)
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """A logical shift to the right: torch's own repeats the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _unit(words: Tensor) -> Tensor:
    """The lowest 24 bits as a number in (0, 1)."""
    return (words & LOW).to(torch.float32).add_(0.5).mul_(SCALE)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
