"""Latent mixtures: the recipe behind AmbiguousMNIST, for any images.

Mukhoti, Kirsch, van Amersfoort, Torr and Gal ("Deep deterministic uncertainty: a simple baseline", 2021) decode convex
mixtures of the latent means of a few training images and let an ensemble choose:

1. train a variational autoencoder                                               `latent_mixture_vae.py`
2. train five LeNets on the training images; they judge, and the model under test plays no part
3. give decoded images the grey levels of real ones                              `latent_mixture_vae.py`
4. for k = 2, 3, 4: draw groups of k training images; decode 64 mixtures of each group's latent means, with weights
   from Dirichlet(1); keep those about which the networks hesitate alike         `latent_mixture_pool.py`
5. choose among the kept ones so that all degrees of entropy are there           `latent_mixture_pool.py`
6. the ensemble's mean softmax is the soft label: any number of classes, not just two

The sources of a group are meant to be of k different classes. The published code draws a number below the size of each
such class and then takes the image at that position of the *whole* set, so its sources are arbitrary: `mode="legacy"`.

Departures: LeNets keep their last weights, not those of the epoch that did best on test data, and take pixels as they
are; images below 16 pixels, which LeNet's convolutions would use up, are judged by a small padded network instead; the
pool from which step 5 chooses is a multiple of what is wanted, not four million images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess import zoo
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Progress, Silent, Titled
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages, ambiguous_set
from secondguess.stress.ambiguous.comparison import figures, likeliest_pair
from secondguess.training import Fleet, train_fleet
from secondguess_lab.rivals.latent_mixture_pool import MixturePool, Opinion, even_in_entropy, judge
from secondguess_lab.rivals.latent_mixture_vae import GreyLevels, Vae, decode, encode, train_vae

__all__ = ["LatentMixture", "TrainedMixture"]

Mode = Literal["paper", "legacy"]
Labels = Literal["mean", "draws"]
SIZES = (2, 3, 4)  # images in a mixture
MIXTURES = 64  # of each group
GROUPS = 32  # of each size, decoded and judged at a time
DRAWS = 10  # labels per image, with labels="draws"
POOL_BYTES = 4 << 30  # of kept mixtures, which are copied once: about twice that in memory
PATIENCE = 50  # mixtures tried for each one wanted in the pool, then give up
SMALLEST_FOR_LENET = 16  # pixels a side


@dataclass(frozen=True)
class TrainedMixture:
    """What makes and judges the images.

    Attributes:
        vae: the autoencoder.
        calibration: of its images.
        ensemble: the networks that judge.
        device: where they compute.
    """

    vae: Vae
    calibration: GreyLevels
    ensemble: Fleet
    device: torch.device

    def opinion(self, images: NDArray[np.uint8]) -> Opinion:
        """What the ensemble thinks of images (n, C, H, W), uint8."""
        return judge(self.ensemble.predict(images.astype(np.float32) / 255, device=self.device))


class LatentMixture(AmbiguousGenerator):
    """Mixtures in the latent space of a variational autoencoder about which an ensemble hesitates.

    The columns `source_1` to `source_4` are the positions of the mixed images in the training set (-1: none),
    `weight_1` to `weight_4` their weights, `entropy` and `mutual_information` the ensemble's, in nats, `class_1` <
    `class_2` the two likeliest classes.

    Args:
        members: networks in the ensemble.
        epochs: of the autoencoder.
        member_epochs: of each network in the ensemble.
        batch_size: of both; a small training set makes more steps per epoch with a smaller one.
        pool: kept mixtures for each image wanted, from which the final choice is made; about 350 in the original.
        labels: `"mean"` is the ensemble's mean softmax; `"draws"` is ten draws from it, divided by ten, as published:
            the same labels with noise added, but with exact zeros.
        mode: `"paper"` or `"legacy"`, where sources come from.
        stretch: contrast and offset of the published calibration, (1.20, -0.15); without it both are fitted.
        device: where to compute.
    """

    name = "ambiguous_latent_mixture"
    expensive = True

    def __init__(
        self,
        *,
        members: int = 5,
        epochs: int = 74,
        member_epochs: int = 19,
        batch_size: int = 128,
        pool: int = 10,
        labels: Labels = "mean",
        mode: Mode = "paper",
        stretch: tuple[float, float] | None = None,
        device: str = "auto",
    ) -> None:
        if mode not in ("paper", "legacy"):
            raise UserError(f"mode is {mode!r}; it must be 'paper' or 'legacy'.")
        if labels not in ("mean", "draws"):
            raise UserError(f"labels is {labels!r}; it must be 'mean' or 'draws'.")
        if members < 2:
            raise UserError(f"members is {members}; it takes at least two networks to disagree.")
        if min(epochs, member_epochs, batch_size, pool) < 1:
            raise UserError("epochs, member_epochs, batch_size and pool must be at least 1.")
        self.members, self.epochs, self.member_epochs = members, epochs, member_epochs
        self.batch_size, self.pool = batch_size, pool
        self.labels, self.mode, self.stretch, self.device = labels, mode, stretch, device

    def generate(
        self,
        train: ImageSet,
        count: int,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        trained: TrainedMixture | None = None,
    ) -> AmbiguousImages:
        """Make `count` ambiguous images of the classes of `train`; fewer, if the ensemble does not keep more.

        With `trained`, which `train` has made of the same images, nothing is trained.
        """
        if count < 1:
            raise UserError(f"{count} ambiguous images were asked for; ask for at least one.")
        progress = progress or Silent()
        trained = trained or self.train(train, seed=seed, progress=progress)
        pool, yields = self._gather(trained, train, count, seed, progress)
        rng = np.random.default_rng([seed, 1])
        chosen = pool.take(rng.permutation(even_in_entropy(pool.opinion.entropy, count, len(_rows(train)), rng)))
        images = self._assemble(train, chosen, rng)
        return AmbiguousImages(images, self._card(train, trained, images, yields, count, seed))

    def train(self, train: ImageSet, *, seed: int = 0, progress: Progress | None = None) -> TrainedMixture:
        """Train the autoencoder and the ensemble on the labelled images."""
        rows = _rows(train)
        if len(rows) < 2:
            raise UserError(f"Ambiguous images lie between two classes, but {train.name!r} has {len(rows)}.")
        progress, device = progress or Silent(), pick_device(self.device)
        known = train.take(train.labels >= 0)
        with progress.task("Training the autoencoder", self.epochs) as advance:
            vae = train_vae(
                known.images,
                epochs=self.epochs,
                batch_size=self.batch_size,
                seed=seed,
                device=device,
                after_epoch=advance,
            )
        ensemble = train_fleet(
            lambda member_seed: _network(train, member_seed),
            self.members,
            known.images,
            known.labels,
            epochs=self.member_epochs,
            batch_size=self.batch_size,
            eps=1e-8,
            seed=seed,
            device=device,
            progress=Titled(progress, "Training the ensemble"),
        )
        return TrainedMixture(vae, GreyLevels.fit(vae, known.images, stretch=self.stretch, seed=seed), ensemble, device)

    def _gather(
        self, trained: TrainedMixture, train: ImageSet, count: int, seed: int, progress: Progress
    ) -> tuple[MixturePool, dict[str, int]]:
        """Draw until the pool is full, or give up after `PATIENCE` mixtures for each place in it."""
        wanted = min(self.pool * count, max(count, POOL_BYTES // math.prod(train.shape)))
        rows, rng = _rows(train), np.random.default_rng([seed, 0])
        sizes = [k for k in SIZES if k <= len(rows)]
        yields = {"drawn": 0, "agreed": 0, "kept": 0}
        parts: list[MixturePool] = []
        with progress.task("Mixing latent means", wanted) as advance:
            while yields["kept"] < wanted and yields["drawn"] < PATIENCE * wanted:
                for k in sizes:
                    mixtures = self._mixtures(trained, train, self._groups(rows, k, rng), rng)
                    yields["drawn"] += len(mixtures)
                    yields["agreed"] += int(mixtures.opinion.agreed.sum())
                    yields["kept"] += int(mixtures.opinion.kept.sum())
                    parts.append(mixtures.take(mixtures.opinion.kept))
                advance(min(yields["kept"], wanted), wanted)
        if not yields["kept"]:
            raise UserError(
                f"The ensemble kept none of {yields['drawn']} mixtures, because it was sure of them or at odds; train "
                "autoencoder and ensemble for longer (epochs=..., member_epochs=...) or give them more images."
            )
        return MixturePool.concatenate(parts), yields

    def _mixtures(
        self, trained: TrainedMixture, train: ImageSet, groups: NDArray[np.int64], rng: np.random.Generator
    ) -> MixturePool:
        """Mixtures of each group (G, k) of training images, all of them."""
        k = groups.shape[1]
        weights = rng.dirichlet(np.ones(k), (len(groups), MIXTURES))
        means = encode(trained.vae, train.images[groups.ravel()]).reshape(*groups.shape, -1)
        z = torch.from_numpy(weights.astype(np.float32)).to(means.device) @ means
        images = trained.calibration(decode(trained.vae, z.flatten(0, 1)))
        pad = ((0, 0), (0, SIZES[-1] - k))
        sources = np.pad(np.repeat(groups, MIXTURES, axis=0), pad, constant_values=-1)
        return MixturePool(images, trained.opinion(images), sources, np.pad(weights.reshape(-1, k), pad))

    def _groups(self, rows: list[NDArray[np.int64]], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Positions (GROUPS, k) of training images, in each group one of each of k classes."""
        everything = np.sort(np.concatenate(rows))
        groups = np.empty((GROUPS, k), dtype=np.int64)
        for group in groups:
            for place, label in enumerate(rng.choice(len(rows), k, replace=False)):
                position = rng.integers(len(rows[label]))
                group[place] = everything[position] if self.mode == "legacy" else rows[label][position]
        return groups

    def _assemble(self, train: ImageSet, chosen: MixturePool, rng: np.random.Generator) -> ImageSet:
        soft = chosen.opinion.probabilities
        if self.labels == "draws":
            soft = rng.multinomial(DRAWS, soft) / DRAWS
        hard = (rng.random((len(soft), 1)) >= soft.cumsum(axis=1)[:, :-1]).sum(axis=1)
        pair = np.sort(likeliest_pair(soft), axis=1)
        columns: dict[str, NDArray[Any]] = {"class_1": pair[:, 0], "class_2": pair[:, 1]}
        columns |= {f"source_{n + 1}": chosen.sources[:, n] for n in range(SIZES[-1])}
        columns |= {f"weight_{n + 1}": chosen.weights[:, n] for n in range(SIZES[-1])}
        columns |= {name: getattr(chosen.opinion, name) for name in ("entropy", "mutual_information")}
        return ambiguous_set(train, chosen.images, hard, soft, columns, self.name)

    def _card(
        self,
        train: ImageSet,
        trained: TrainedMixture,
        images: ImageSet,
        yields: dict[str, int],
        count: int,
        seed: int,
    ) -> dict[str, Any]:
        names = ("members", "epochs", "member_epochs", "batch_size", "pool", "labels", "mode", "stretch")
        notes = []
        if len(images) < count:
            notes.append(f"{len(images)} images instead of {count}: the ensemble kept no more of {yields['drawn']}.")
        return {
            "generator": "LatentMixture",
            "settings": {name: getattr(self, name) for name in names} | {"seed": seed},
            **figures(images, train, seed=seed),
            "mixtures": yields["drawn"],
            "agreed_share": yields["agreed"] / yields["drawn"],
            "kept_share": yields["kept"] / yields["drawn"],
            "calibration": {"gain": trained.calibration.gain, "offset": trained.calibration.offset},
            "ensemble_training_loss": float(trained.ensemble.losses[-1].mean()),
            "notes": notes,
        }


def _rows(train: ImageSet) -> list[NDArray[np.int64]]:
    """The positions of the images of each class that has any."""
    return [np.flatnonzero(train.labels == label) for label in np.unique(train.labels[train.labels >= 0])]


def _network(train: ImageSet, seed: int) -> nn.Module:
    size: dict[str, Any] = {"num_classes": train.num_classes, "input_shape": train.shape, "seed": seed}
    if min(train.shape[1:]) >= SMALLEST_FOR_LENET:
        return zoo.make("lenet", **size)
    return zoo.make("ambiguity_member", channels=(16, 32), **size)
