"""Corrupted images: nominal ones, degraded. Their class is unchanged, and a robust model may still recognise it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.registry import snake_case
from secondguess.contracts.sealed import digest_of
from secondguess.engine import Sent, Task
from secondguess.errors import UserError
from secondguess.images.scratch import scratch
from secondguess.images.sources import ViewSource
from secondguess.progress import Advance
from secondguess.stress.base import Given, StressSet, changed
from secondguess.stress.corruptions import COLOUR, FASHION_MNIST_C, MNIST_C, check_severity, corrupt, drawn, find, noise
from secondguess.stress.registry import register

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource

__all__ = ["Corrupted", "Mix"]

Mix = Literal["mnist_c", "fashion_mnist_c"]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

# Images in double precision at a time, and values if the images are large, shared by the threads: every corruption has
# random numbers of its own, so that several can be applied at once. The result takes one byte per value, and
# goes to a file where it is large: made lazily, images would not come from one stream of random numbers.
BLOCK, BLOCK_VALUES = 256, 1 << 22  # small images: few at a time stay in the cache of a processor
MOST_THREADS = 4
MOST, LARGEST = 2048, 64 << 20  # images of a shard, and their bytes
SHARDS, FEWEST = 16, 64  # at least so many shards, but none of fewer images


@register
class Corrupted(StressSet):
    """Each nominal image gets one corruption.

    Args:
        corruptions: names from `secondguess.stress.corruptions.CORRUPTIONS`, which share the images equally, at random;
            if left out, `MNIST_C` for images of one channel and `COLOUR` for others.
        mix: one of the two published mixes instead. `"mnist_c"`: the k-th of `MNIST_C` for the k-th 15th of the images,
            ceil(n / 15) each, then shuffled. `"fashion_mnist_c"`: for each image one of `FASHION_MNIST_C`, drawn, in
            the old order.
        severity: 1 to 5, or the published default of each corruption.
    """

    kind = "corrupted"
    name = "corrupted"
    groups = "corruption"

    def __init__(
        self, corruptions: Sequence[str] | None = None, *, mix: Mix | None = None, severity: int | None = None
    ) -> None:
        self.corruptions = None if corruptions is None else tuple(map(snake_case, corruptions))
        self.mix = mix
        self.severity = severity
        self.name = "_".join(["corrupted", *(self.corruptions or ()), *([mix] if mix else [])])
        check_severity(severity)
        if self.corruptions is not None and mix is not None:
            raise UserError("Corruptions and a mix were given; a mix brings its own corruptions, so name only one.")
        if mix is not None and mix not in get_args(Mix):
            raise UserError(f"There is no mix {mix!r}; there is {', '.join(get_args(Mix))}.")
        if self.corruptions == ():
            raise UserError("At least one corruption must be named.")
        for name in self.corruptions or ():
            find(name)

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is one corruption, or one of the published mixes."""
        if (mix := snake_case(detail)) in get_args(Mix):
            return {"mix": mix}
        return {"corruptions": [detail]} if detail else {}

    def _make(self, given: Given) -> ImageSet:
        nominal = given.nominal
        names = self._names(nominal.shape[0])
        share, order = self._shares(len(nominal), len(names), np.random.default_rng(given.seed))
        images = scratch((len(nominal), *nominal.shape), np.uint8, given.folder)
        rows_of = {name: np.flatnonzero(share == index) for index, name in enumerate(names)}
        if given.engine == "local":
            self._spoil_here(images, rows_of, given)
        else:
            self._spoil_in_shards(images, rows_of, given)
        made = changed(nominal, images, self.name, {"corruption": np.array(names)[share]})
        return made if order is None else made.take(order)

    def _spoil_here(self, images: Bytes, rows_of: Mapping[str, Ints], given: Given) -> None:
        """Corrupt the images in threads of this process."""
        nominal, names = given.nominal, list(rows_of)
        threads = min(MOST_THREADS, os.cpu_count() or 1, len(names))
        block = max(1, min(BLOCK, BLOCK_VALUES // math.prod(nominal.shape)) // threads)
        reading, ended, done = Lock(), Event(), 0

        def read(rows: Ints) -> NDArray[np.float32]:
            with reading:  # not every source can be read by several threads
                return nominal.images[rows]

        def spoil(name: str, advance: Advance) -> None:
            nonlocal done
            for rows, made in _spoilt(read, rows_of[name], name, self.severity, given.seed, block):
                images[rows] = made
                if ended.is_set():
                    return
                with reading:
                    done += len(rows)
                    advance(done, len(nominal))

        with (
            given.progress.task("Corrupting images", len(nominal)) as advance,
            ThreadPoolExecutor(threads, "secondguess-corrupt") as pool,
        ):
            try:
                for future in [pool.submit(spoil, name, advance) for name in names]:
                    future.result()
            finally:
                ended.set()

    def _spoil_in_shards(self, images: Bytes, rows_of: Mapping[str, Ints], given: Given) -> None:
        """Corrupt the images on an engine."""
        source, parts, tasks = given.nominal.images, [], []
        for name, rows in rows_of.items():
            for some, skip in self._blocks(name, rows, source):
                fingerprint = digest_of(source.fingerprint.encode() + some.tobytes())
                params = {"images": Sent(ViewSource(source, some), fingerprint), "name": name}
                params |= {"severity": self.severity, "skip": skip}
                tasks.append(Task(spoil_shard, params, given.seed))
                parts.append(some)
        for place, made in given.in_shards(tasks, "Corrupting images"):
            images[parts[place]] = made["images"]

    def _blocks(self, name: str, rows: Ints, source: ImageSource) -> Iterator[tuple[Ints, int]]:
        """Yield the rows of each shard of a corruption, and how many of its random numbers come before them.

        Where nobody knows how many that are before they are drawn, all rows are one shard.
        """
        block = max(1, min(MOST, LARGEST // math.prod(source.shape), max(FEWEST, -(-len(source) // SHARDS))))
        each = drawn(name, source.shape, self.severity) if len(rows) > block else None
        size = max(1, len(rows) if each is None else block)
        for start in range(0, len(rows), size):
            yield rows[start : start + size], start * (each or 0)

    def _names(self, channels: int) -> tuple[str, ...]:
        """The corruptions for images with this number of channels."""
        if self.mix is not None:
            return {"mnist_c": MNIST_C, "fashion_mnist_c": FASHION_MNIST_C}[self.mix]
        return self.corruptions or (MNIST_C if channels == 1 else COLOUR)

    def _shares(
        self, n: int, corruptions: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Which corruption each of n images gets, and the order (n,) in which they come, if not the old one."""
        if self.mix == "mnist_c":
            return np.arange(n) // math.ceil(n / corruptions), rng.permutation(n)
        if self.mix == "fashion_mnist_c":
            return rng.integers(corruptions, size=n), None
        share = np.empty(n, dtype=np.int64)
        share[rng.permutation(n)] = np.arange(n) % corruptions
        return share, None


def spoil_shard(*, images: Sent, name: str, severity: int | None, skip: int, seed: int) -> dict[str, Any]:
    """What a worker does: its images with one corruption, (n, C, H, W) bytes; the first `skip` numbers are others'."""
    source = images.value
    made = np.empty((len(source), *source.shape), np.uint8)
    block = max(1, min(BLOCK // 2, BLOCK_VALUES // math.prod(source.shape)))
    for rows, some in _spoilt(source.__getitem__, np.arange(len(source)), name, severity, seed, block, skip):
        made[rows] = some
    return {"images": made}


def _spoilt(
    read: Callable[[Ints], NDArray[np.float32]],
    rows: Ints,
    name: str,
    severity: int | None,
    seed: int,
    block: int,
    skip: int = 0,
) -> Iterator[tuple[Ints, Bytes]]:
    """Yield some of the rows and what becomes of their images, block by block."""
    rng = noise(name, seed, skip)
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        spoilt = corrupt(read(some), name, severity=severity, seed=rng)
        yield some, np.rint(spoilt * 255).astype(np.uint8)
