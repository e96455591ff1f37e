"""AmbiGuess: truly ambiguous images with soft labels, made independently of the model under test.

For each pair of classes, regularised adversarial autoencoders arrange the images of both in a plane, one class around
(-3, 0), the other around (3, 0). Between them lie images that could be either. What follows is the algorithm of Weiss,
García Gómez and Tonella, "Generating and detecting true ambiguity: a forgotten danger in DNN supervision testing"
(Empirical Software Engineering, 2023):

1. train some autoencoders for each pair                           `autoencoders.py`
2. accept those whose discriminator is neither fooled nor sure (real/fake accuracy in [0.4, 0.6]) and tells the classes
   apart (accuracy of at least 0.9)
3. survey the confined latent space, weight its cells, draw points, filter   `latent.py`
4. decode the points; their soft label comes from the discriminator; draw a hard label from it
5. gather the images of all autoencoders of all pairs

Where the paper and its authors' code differ, `mode` says which to follow (see `latent.py`). Departures of ours:

* `realism`: images that a person would assign to neither class are rejected (`realism.py`);
* `stratify`: every pair contributes equally, as far as it can, instead of in proportion to its accepted autoencoders;
* the batch size shrinks with the data, so that a pair of 800 images gets as many training steps as one of 12,000;
* the adversarial losses are divided by the size of a full batch, not of each batch (`autoencoders.py`);
* acceptance is measured on fresh prior points in evaluation mode, not as a running average over the training.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secondguess.contracts.registry import unknown
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.planning import Pace, Price, timed
from secondguess.progress import Advance, Progress, Silent
from secondguess.stress.ambiguous.acceptance import Acceptance, TrainedFleet, examine
from secondguess.stress.ambiguous.autoencoders import Member, RaaeFleet
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages, assemble
from secondguess.stress.ambiguous.card import ambiguity_card, latent_picture
from secondguess.stress.ambiguous.drawing import Drawer
from secondguess.stress.ambiguous.latent import Mode
from secondguess.stress.ambiguous.pairs import choose_pairs, how_many, seconds_to_choose
from secondguess.stress.ambiguous.realism import Realism
from secondguess.stress.base import Given
from secondguess.stress.registry import generators, register

__all__ = ["AmbiGuess"]

STEPS_PER_EPOCH = 12  # 12,000 images of a pair of MNIST in batches of 1,000
SMALLEST, LARGEST = 8, 64  # pixels per side
TOGETHER = 8  # autoencoders whose common step is timed
DRAWING = 3.0  # seconds to draw images from trained autoencoders, about
LARGEST_STACK = 256
STACK_BYTES = 8 << 30  # of activations on a GPU
STACK_PIXELS = 2000 * 28 * 28  # in a batch of all members together on a CPU

Pair = tuple[int, int]
Stack = tuple[list[Member], int]  # autoencoders that train together, and their batch size


@register
class AmbiGuess(AmbiguousGenerator):
    """Ambiguous images from the latent space of two-class autoencoders.

    Args:
        pairs: `"all"`, `"confused"` (those between which ambiguity is realistic, judged from the data), how many of
            these, or a list.
        autoencoders: trained for each pair; 20 in the paper.
        delta_max: the largest |p1 - p2|; 0.25 for test sets and 0.4 for training sets in the paper.
        cells: of the grid, along each axis; 50 in the authors' code.
        epochs: 80 in the authors' code.
        batch_size: images per step; a twelfth of the largest pair, at most 1,000 (the authors' value), if left out.
        mode: `"paper"` or `"legacy"`.
        acceptance: `"paper"`, or `"achievable"`, which does not ask natural neighbours for more than is possible
            (`acceptance.py`).
        realism: reject images that a person would assign to neither class.
        stratify: let every pair contribute equally.
        device: where to train.
        folder: where trained autoencoders are kept, so that an interrupted run goes on.
    """

    name = "ambiguous"
    dial, least = "pairs", 3

    def __init__(
        self,
        *,
        pairs: str | int | Sequence[tuple[int, int]] = "confused",
        autoencoders: int = 2,
        delta_max: float = 0.25,
        cells: int = 50,
        epochs: int = 80,
        batch_size: int | None = None,
        mode: Mode = "paper",
        acceptance: Acceptance = "paper",
        realism: bool = True,
        stratify: bool = True,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        if mode not in ("paper", "legacy"):
            raise UserError(f"mode is {mode!r}; it must be 'paper' or 'legacy'.")
        if acceptance not in ("paper", "achievable"):
            raise UserError(f"acceptance is {acceptance!r}; it must be 'paper' or 'achievable'.")
        if not 0 < delta_max <= 1:
            raise UserError(f"delta_max is {delta_max}; |p1 - p2| lies between 0 and 1.")
        if autoencoders < 1 or epochs < 1 or cells < 2:
            raise UserError("At least one autoencoder, one epoch and two cells are needed.")
        self.pairs, self.autoencoders, self.delta_max, self.cells = pairs, autoencoders, delta_max, cells
        self.epochs, self.batch_size, self.mode, self.acceptance = epochs, batch_size, mode, acceptance
        self.realism, self.stratify, self.device = realism, stratify, device
        self.folder = Path(folder) if folder is not None else None

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """By name it is quick, with one autoencoder for a pair; train more of them for a set to keep."""
        if detail not in ("", "ambiguess"):
            raise unknown("generator", detail, generators())
        return {"autoencoders": 1}

    def price(self, pace: Pace, given: Given) -> Price:
        """The training of the autoencoders of each pair, of which a step is timed."""
        assert given.train is not None
        _check_shape(given.train)
        present = np.bincount(given.train.labels[given.train.labels >= 0])
        images = 2 * float(np.mean(present[present > 0]))  # of a pair
        each = self.autoencoders * self.epochs * images * self._pace(given, pace, math.ceil(images))
        fixed = pace.slowness * (DRAWING + (seconds_to_choose(given.train) if self.pairs == "confused" else 0.0))
        if self.pairs != "confused":
            pairs = choose_pairs(given.train, self.pairs, seed=given.seed)
            return Price(0.0, fixed + len(pairs) * each, unit="pairs")
        return Price(each, fixed, how_many(int((present > 0).sum())), self.least, "pairs")

    def _pace(self, given: Given, pace: Pace, images: int) -> float:
        """Seconds for an image in a step of the training of one autoencoder, of a pair of so many images."""
        device = pick_device(given.device if self.device == "auto" else self.device)
        batch = self._batch(images)
        # As many train together as will on a processor; on a GPU a few say enough.
        count = min(TOGETHER, _largest_stack(batch, given.nominal.shape, torch.device("cpu")))
        fleet = RaaeFleet([Member((0, 1), number, number) for number in range(count)], given.nominal.shape, 2, device)
        some = torch.zeros(batch, *given.nominal.shape, device=device)
        rows, which = [np.arange(batch)] * count, [np.arange(batch) % 2] * count
        step = partial(fleet.fit, some, rows, which, epochs=1, batch_size=batch)
        step()
        return timed(step, pace.clock) / (batch * count)

    def _batch(self, images: int) -> int:
        """Images in a step, where the largest pair has so many."""
        return self.batch_size or min(1000, max(2, math.ceil(images / STEPS_PER_EPOCH)))

    def generate(
        self,
        train: ImageSet,
        count: int,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        trained: Sequence[TrainedFleet] | None = None,
    ) -> AmbiguousImages:
        """Make `count` ambiguous images of the classes of `train`; fewer, if the pairs do not yield more.

        Args:
            train: labelled images.
            count: how many.
            seed: of everything random.
            progress: where to report.
            trained: what `train` returned, to draw from the same autoencoders again.
        """
        if count < 1:
            raise UserError(f"{count} ambiguous images were asked for; ask for at least one.")
        progress = progress or Silent()
        _check_shape(train)
        if trained is None:
            pairs = choose_pairs(train, self.pairs, seed=seed)
            trained = self.train(train, pairs, seed=seed, progress=progress)
        check = Realism(train, seed=seed) if self.realism else None
        drawer = Drawer(trained, self.delta_max, self.cells, self.mode, check, seed)
        chosen = drawer.run(count, stratify=self.stratify, progress=progress)
        if chosen is None:
            raise UserError(_why_nothing(trained, drawer))
        space: dict[str, Any] = {"delta_max": self.delta_max, "cells": self.cells, "mode": self.mode}
        return AmbiguousImages(
            assemble(train, chosen, name=self.name, seed=seed),
            ambiguity_card(train, drawer, chosen, count, self._settings() | {"seed": seed}),
            latent_picture(train, trained, chosen, **space),
        )

    def train(
        self, train: ImageSet, pairs: Sequence[tuple[int, int]], *, seed: int = 0, progress: Progress | None = None
    ) -> list[TrainedFleet]:
        """Train `autoencoders` of them for each pair, in stacks."""
        device = pick_device(self.device)
        # The discriminator's input says which of the two classes it is given; the authors encode it over all classes.
        codes = train.num_classes if self.mode == "legacy" else 2
        used = np.flatnonzero(np.isin(train.labels, np.unique(pairs)))
        labels = train.labels[used]
        images = torch.from_numpy(np.ascontiguousarray(train.images[used])).to(device)
        rows = {pair: np.flatnonzero(np.isin(labels, pair)) for pair in pairs}
        which = {pair: (labels[rows[pair]] == pair[1]).astype(np.int64) for pair in pairs}
        trained: list[TrainedFleet] = []
        waiting = self._stacks(pairs, {pair: len(rows[pair]) for pair in pairs}, train.shape, device, seed)
        with (progress or Silent()).task("Training autoencoders", len(waiting) * self.epochs) as advance:
            while waiting:
                (members, size), index = waiting[0], len(trained)
                total = (index + len(waiting)) * self.epochs
                theirs = [rows[member.pair] for member in members]
                classes = [which[member.pair] for member in members]
                report = partial(_forward, advance, index * self.epochs, total)
                try:
                    fleet = RaaeFleet(members, train.shape, codes, device)
                    path = self._path(train, members, codes, size, seed + index)
                    if path is None or not fleet.load(path):
                        how: dict[str, Any] = {"batch_size": size, "seed": seed + index, "after_epoch": report}
                        own = self.mode == "legacy"
                        fleet.fit(images, theirs, classes, epochs=self.epochs, by_own_size=own, **how)
                        if path is not None:
                            fleet.save(path)
                    trained.append(examine(fleet, images, theirs, classes, seed, self.acceptance))
                except torch.OutOfMemoryError:
                    if len(members) == 1:
                        raise
                    waiting = _halved(waiting, device)
                    continue
                waiting = waiting[1:]
                advance((index + 1) * self.epochs, total)
        return trained

    def _stacks(
        self,
        pairs: Sequence[tuple[int, int]],
        sizes: dict[tuple[int, int], int],
        shape: tuple[int, int, int],
        device: torch.device,
        seed: int,
    ) -> list[Stack]:
        """Members that take the same number of steps per epoch, in stacks that fit into memory; their batch size."""
        batch = self._batch(max(sizes.values()))
        groups: dict[int, list[Member]] = defaultdict(list)
        for pair in pairs:
            for number in range(self.autoencoders):
                entropy = np.random.SeedSequence([seed, *pair, number]).generate_state(1)[0]
                groups[math.ceil(sizes[pair] / batch)].append(Member(pair, number, int(entropy)))
        largest = _largest_stack(batch, shape, device)
        return [
            (members[start : start + largest], batch)
            for _, members in sorted(groups.items())
            for start in range(0, len(members), largest)
        ]

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.params().items() if name not in ("device", "folder")}

    def _path(self, train: ImageSet, members: Sequence[Member], codes: int, size: int, seed: int) -> Path | None:
        if self.folder is None:
            return None
        parts = [train.fingerprint, [[*m.pair, m.seed] for m in members], codes, size, self.epochs, self.mode, seed]
        key = hashlib.blake2b(json.dumps(parts).encode("utf-8"), digest_size=8).hexdigest()
        return self.folder / f"autoencoders-{key}.safetensors"


def _why_nothing(trained: Sequence[TrainedFleet], drawer: Drawer) -> str:
    """Where the images were lost, and what could help against just that."""
    made = sum(len(one.accepted) for one in trained)
    if not any(one.accepted.any() for one in trained):
        apart = max(float(one.class_accuracy.max()) for one in trained)
        return (
            f"No ambiguous images were made: none of the {made} autoencoders was accepted, the best of which tells its "
            f"two classes apart in {apart:.0%} of cases; train more of them (autoencoders=...) or for longer "
            "(epochs=...), name other pairs, or take another generator: they are made for small grey images."
        )
    if not drawer.ambiguous.total():
        return (
            f"No ambiguous images were made: none of {drawer.drawn.total():,} points of the latent spaces lies between "
            "two classes; train more autoencoders (autoencoders=...), or allow a larger delta_max."
        )
    return (
        f"No ambiguous images were made: {drawer.ambiguous.total():,} were found, but nearly all are unlike any real "
        "image of their two classes; train the autoencoders for longer (epochs=...), name other pairs, or switch "
        "realism off."
    )


def _check_shape(train: ImageSet) -> None:
    height, width = train.shape[1:]
    if min(height, width) < SMALLEST or max(height, width) > LARGEST:
        raise UserError(
            f"The images are {height} x {width} pixels; ambiguous ones can be made with {SMALLEST} to {LARGEST} pixels "
            f"a side, so load them with size={LARGEST} or less."
        )


def _forward(advance: Advance, before: int, total: int, done: int, _epochs: int) -> None:
    """Report the epochs of one stack as part of those of all stacks."""
    advance(before + done, total)


def _halved(stacks: list[Stack], device: torch.device) -> list[Stack]:
    """The same members in stacks of half the size of the first, after what did not fit has been given back."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    most = max(1, len(stacks[0][0]) // 2)
    return [(members[start : start + most], size) for members, size in stacks for start in range(0, len(members), most)]


def _largest_stack(batch: int, shape: tuple[int, int, int], device: torch.device) -> int:
    """How many autoencoders train together: on a GPU as many as fit, on a CPU until arithmetic outweighs bookkeeping.

    On a GPU a single autoencoder makes one step, whose memory is measured: that of a convolutional network is many
    times the size of its images. The rule does not look at how much memory is free, so that the same seed gives the
    same images on another machine of the same kind; where a stack does not fit all the same, it is halved.
    """
    if device.type == "cuda":
        return max(1, min(LARGEST_STACK, STACK_BYTES // _bytes_of_one(batch, shape, device)))
    return max(1, min(LARGEST_STACK, STACK_PIXELS // (batch * math.prod(shape))))


def _bytes_of_one(batch: int, shape: tuple[int, int, int], device: torch.device) -> int:
    """The most memory that a step of one autoencoder holds."""
    fleet = RaaeFleet([Member((0, 1), 0, 0)], shape, 2, device)
    images = torch.zeros(batch, *shape, device=device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    fleet.fit(images, [np.arange(batch)], [np.arange(batch) % 2], epochs=1, batch_size=batch)
    return max(1, torch.cuda.max_memory_allocated(device) - before)
