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
from secondguess.progress import Advance, Progress, Silent
from secondguess.stress.ambiguous.acceptance import TrainedFleet, examine
from secondguess.stress.ambiguous.autoencoders import Member, RaaeFleet
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages, assemble
from secondguess.stress.ambiguous.card import ambiguity_card, latent_picture
from secondguess.stress.ambiguous.drawing import Drawer
from secondguess.stress.ambiguous.latent import Mode
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess.stress.ambiguous.realism import Realism
from secondguess.stress.registry import generators, register

__all__ = ["AmbiGuess"]

STEPS_PER_EPOCH = 12  # 12,000 images of a pair of MNIST in batches of 1,000
SMALLEST, LARGEST = 8, 64  # pixels per side
LARGEST_STACK = 256
STACK_BYTES = 8 << 30  # of activations on a GPU
STACK_PIXELS = 2000 * 28 * 28  # in a batch of all members together on a CPU

Pair = tuple[int, int]


@register
class AmbiGuess(AmbiguousGenerator):
    """Ambiguous images from the latent space of two-class autoencoders.

    Args:
        pairs: `"all"`, `"confused"` (those between which ambiguity is realistic, judged from the data), or a list.
        autoencoders: trained for each pair; 20 in the paper.
        delta_max: the largest |p1 - p2|; 0.25 for test sets and 0.4 for training sets in the paper.
        cells: of the grid, along each axis; 50 in the authors' code.
        epochs: 80 in the authors' code.
        batch_size: images per step; a twelfth of the largest pair, at most 1,000 (the authors' value), if left out.
        mode: `"paper"` or `"legacy"`.
        realism: reject images that a person would assign to neither class.
        stratify: let every pair contribute equally.
        device: where to train.
        folder: where trained autoencoders are kept, so that an interrupted run goes on.
    """

    name = "ambiguous"

    def __init__(
        self,
        *,
        pairs: str | Sequence[tuple[int, int]] = "confused",
        autoencoders: int = 2,
        delta_max: float = 0.25,
        cells: int = 50,
        epochs: int = 80,
        batch_size: int | None = None,
        mode: Mode = "paper",
        realism: bool = True,
        stratify: bool = True,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        if mode not in ("paper", "legacy"):
            raise UserError(f"mode is {mode!r}; it must be 'paper' or 'legacy'.")
        if not 0 < delta_max <= 1:
            raise UserError(f"delta_max is {delta_max}; |p1 - p2| lies between 0 and 1.")
        if autoencoders < 1 or epochs < 1 or cells < 2:
            raise UserError("At least one autoencoder, one epoch and two cells are needed.")
        self.pairs, self.autoencoders, self.delta_max, self.cells = pairs, autoencoders, delta_max, cells
        self.epochs, self.batch_size, self.mode = epochs, batch_size, mode
        self.realism, self.stratify, self.device = realism, stratify, device
        self.folder = Path(folder) if folder is not None else None

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """By name it is quick, with one autoencoder for a pair; train more of them for a set to keep."""
        if detail not in ("", "ambiguess"):
            raise unknown("generator", detail, generators())
        return {"autoencoders": 1}

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
            raise UserError(
                "No autoencoder gave an image that is ambiguous and realistic; train more of them (autoencoders=...), "
                "for longer (epochs=...), name other pairs, or switch realism off."
            )
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
        trained = []
        stacks = self._stacks(pairs, {pair: len(rows[pair]) for pair in pairs}, train.shape, device, seed)
        total = len(stacks) * self.epochs
        with (progress or Silent()).task("Training autoencoders", total) as advance:
            for index, (members, size) in enumerate(stacks):
                fleet = RaaeFleet(members, train.shape, codes, device)
                theirs = [rows[member.pair] for member in members]
                classes = [which[member.pair] for member in members]
                path = self._path(train, members, codes, size, seed + index)
                if path is None or not fleet.load(path):
                    fleet.fit(
                        images,
                        theirs,
                        classes,
                        epochs=self.epochs,
                        batch_size=size,
                        seed=seed + index,
                        by_own_size=self.mode == "legacy",
                        after_epoch=partial(_forward, advance, index * self.epochs, total),
                    )
                    if path is not None:
                        fleet.save(path)
                trained.append(examine(fleet, images, theirs, classes, seed))
                advance((index + 1) * self.epochs, total)
        return trained

    def _stacks(
        self,
        pairs: Sequence[tuple[int, int]],
        sizes: dict[tuple[int, int], int],
        shape: tuple[int, int, int],
        device: torch.device,
        seed: int,
    ) -> list[tuple[list[Member], int]]:
        """Members that take the same number of steps per epoch, in stacks that fit into memory; their batch size."""
        batch = self.batch_size or min(1000, max(2, math.ceil(max(sizes.values()) / STEPS_PER_EPOCH)))
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
        names = ("pairs", "autoencoders", "delta_max", "cells", "epochs", "batch_size", "mode", "realism", "stratify")
        return {name: getattr(self, name) for name in names}

    def _path(self, train: ImageSet, members: Sequence[Member], codes: int, size: int, seed: int) -> Path | None:
        if self.folder is None:
            return None
        parts = [train.fingerprint, [[*m.pair, m.seed] for m in members], codes, size, self.epochs, self.mode, seed]
        key = hashlib.blake2b(json.dumps(parts).encode("utf-8"), digest_size=8).hexdigest()
        return self.folder / f"autoencoders-{key}.safetensors"


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


def _largest_stack(batch: int, shape: tuple[int, int, int], device: torch.device) -> int:
    """How many autoencoders train together: on a GPU as many as fit, on a CPU until arithmetic outweighs bookkeeping.

    About eight tensors of the size of a batch are alive at once. The rule depends on the kind of device only, so
    that the same seed gives the same images on another machine of the same kind.
    """
    if device.type == "cuda":
        return max(1, min(LARGEST_STACK, STACK_BYTES // (8 * 4 * batch * math.prod(shape))))
    return max(1, min(LARGEST_STACK, STACK_PIXELS // (batch * math.prod(shape))))
