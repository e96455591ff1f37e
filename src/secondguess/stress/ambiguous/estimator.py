"""The ambiguity estimator: how ambiguous an image is to many different small classifiers.

M = 50 small networks (Teixeira, Gomes, Soares, van Rijn, "Hubris benchmarking with AmbiGANs", 2025), with 2 to 4 blocks
of 1 to 5 channels each, both drawn uniformly. Member m gives the probability p_m(x) of the first of two classes; the
estimate is the mean of the probabilities,

    p(x) = 1/M sum_m p_m(x).

The mean alone calls an image ambiguous that half of the members are sure is one class and half are sure is the other.
So the estimator also says how far its members agree: with H the entropy in nats,

    variance(x) = 1/M sum_m (p_m - p)^2          mutual information(x) = H(p) - 1/M sum_m H(p_m)

The first splits the members' squared distance from 1/2: mean (p_m - 1/2)^2 = (p - 1/2)^2 + variance. Both are 0 where
all members say the same, and 1/4 and ln 2 where they are sure and split in halves.

Departures from the published estimator:

* `subsets="disjoint"` (default) gives every member images that no other member ever sees, as the paper says. The
  published code cuts each shuffled batch into pieces, one for each member, so that after some epochs every member has
  seen almost every image: `subsets="batch"`. It sets a 51st piece aside that nothing uses; we do not.
* `calibrated=True` divides each member's logits by a temperature of its own, at least 1, that suits the held-out
  images best. A network that overfits a few hundred images is overconfident on all others; fifty such networks disagree
  on images about which calibrated ones would only be uncertain.
* More than two classes: members end in a softmax over them; variance is then half the sum over the classes, which for
  two classes is the one above.
* A batch that does not divide evenly leaves a few images out, others in each epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from secondguess.contracts.saving import DAMAGE, read, write
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.estimator_members import FoldedMembers, MemberNetworks, fitting_depth
from secondguess.training._examples import derive_seed
from secondguess.training._run import deterministic
from secondguess.training.temperature import fit_temperature
from secondguess.zoo.small import ambiguity_members

__all__ = ["Agreement", "AmbiguityEstimator", "Subsets", "agreement_of", "balanced_rows"]

Subsets = Literal["disjoint", "batch"]
Floats = NDArray[np.float64]

HELD_OUT = 6  # one image in six is for validation
BLOCK = 500  # images at a time: 50 members of 5 channels make 250 maps of each
NOUN, NAME = "ambiguity estimator", "small_cnns"


class Agreement(NamedTuple):
    """How far the members agree about images.

    Attributes:
        variance: float64 (n,), of the members' probabilities.
        mutual_information: float64 (n,), in nats.
    """

    variance: Floats
    mutual_information: Floats


class AmbiguityEstimator:
    """Many small classifiers of two or more classes, trained and asked as one network.

    Args:
        classes: the labels it tells apart; for two, `predict` gives the probability of the first.
        members: how many networks; 50 in the paper.
        architectures: seed of their depths and widths; 32 in the published settings.
        subsets: `"disjoint"` or `"batch"`.
        epochs: 200 in the published settings; the epoch with the lowest validation loss of the mean counts.
        batch_size: images per step of all members together; 800 in the published settings.
        lr: of Adam; 1e-3 in the published settings.
        calibrated: whether members are made as unsure as they should be, once trained; not so in the paper.
        seed: of initial weights, of the split and of the order.
        device: where to train and to compute.
    """

    def __init__(
        self,
        classes: Sequence[int],
        *,
        members: int = 50,
        architectures: int = 32,
        subsets: Subsets = "disjoint",
        epochs: int = 200,
        batch_size: int = 800,
        lr: float = 1e-3,
        calibrated: bool = False,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if len(set(classes)) < 2 or len(set(classes)) < len(classes):
            raise UserError(f"The classes are {list(classes)}; an ambiguity estimator needs two or more different.")
        if subsets not in ("disjoint", "batch"):
            raise UserError(f"subsets is {subsets!r}; it must be 'disjoint' or 'batch'.")
        if members < 1 or epochs < 1 or batch_size < members:
            raise UserError(
                f"{members} members, {epochs} epochs and batches of {batch_size} were asked for; at least one of each "
                "is needed, and an image of every batch for each member."
            )
        self.classes, self.count, self.architectures = tuple(int(label) for label in classes), members, architectures
        self.subsets, self.epochs, self.batch_size = subsets, epochs, batch_size
        self.lr, self.calibrated, self.seed, self.device = lr, calibrated, seed, device
        self.history: list[dict[str, float]] = []
        self._networks: MemberNetworks | None = None
        self._folded: FoldedMembers | None = None

    @property
    def outputs(self) -> int:
        """Logits of a member: one for two classes."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def is_fitted(self) -> bool:
        """Whether it has been trained."""
        return self._networks is not None

    @property
    def networks(self) -> MemberNetworks:
        """The trained members."""
        if self._networks is None:
            raise UserError("The ambiguity estimator has not been trained yet; call fit first.")
        return self._networks

    def settings(self) -> dict[str, Any]:
        """The parameters it can be made of again."""
        return {
            "classes": list(self.classes),
            "members": self.count,
            "architectures": self.architectures,
            "subsets": self.subsets,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "calibrated": self.calibrated,
            "seed": self.seed,
        }

    def fit(self, train: ImageSet, *, progress: Progress | None = None) -> Self:
        """Train on the images of `train` that belong to the classes, balanced by repeating images of rarer classes."""
        rows, which = balanced_rows(train, self.classes, self.seed)
        rng = np.random.default_rng([self.seed, 1])
        shuffled = rng.permutation(len(rows))
        cut = len(rows) // HELD_OUT
        held_out, learn = shuffled[:cut], shuffled[cut:]
        if len(learn) < 2 * self.count or cut < 1:
            raise UserError(
                f"{len(rows)} images of the classes are too few for {self.count} members of an ambiguity estimator; "
                f"give at least {3 * self.count}, or ask for fewer members."
            )
        device = pick_device(self.device)
        used, place = np.unique(rows, return_inverse=True)
        images = torch.from_numpy(np.ascontiguousarray(train.images[used])).to(device)
        targets = torch.from_numpy(which).to(device)
        where = torch.from_numpy(place).to(device)
        seeds = [derive_seed(self.seed, member) % 2**32 for member in range(self.count)]
        networks = self._untrained(train.shape, seeds).to(device)
        with deterministic():
            self._train(networks, images, where, targets, learn, held_out, progress or Silent())
            if self.calibrated:
                checked = torch.from_numpy(held_out).to(device)
                networks.cool(_temperatures(networks.eval(), images, where[checked], targets[checked]))
        self._networks, self._folded = networks.eval(), None
        return self

    def predict(self, images: NDArray[np.float32]) -> Floats:
        """The mean probability (n,) of the first class for images (n, C, H, W); (n, K) for K > 2 classes."""
        return np.asarray(self.members(images).mean(axis=0))

    def members(self, images: NDArray[np.float32]) -> Floats:
        """Every member's probability (M, n) of the first class; (M, n, K) for K > 2 classes."""
        all_of_them = self._all(images)
        return all_of_them[..., 0] if self.outputs == 1 else all_of_them

    def agreement(self, images: NDArray[np.float32]) -> Agreement:
        """Variance and mutual information (n,) of the members' probabilities for images (n, C, H, W)."""
        return agreement_of(self._all(images))

    def judge(self, images: NDArray[np.float32]) -> tuple[Floats, Agreement]:
        """Mean probabilities (n, K) of all classes, and the agreement, from one pass."""
        everything = self._all(images)
        return everything.mean(axis=0), agreement_of(everything)

    def module(self) -> FoldedMembers:
        """The members as a frozen, differentiable module: images (n, C, H, W) -> probabilities (M, n, K)."""
        if self._folded is None:
            device = pick_device(self.device)
            self._folded = FoldedMembers(self.networks.to(device), dense=device.type == "cuda").to(device).eval()
        return self._folded

    def save(self, path: str | Path) -> None:
        """Write parameters and weights to one `.safetensors` file, atomically."""
        state = {name: value.detach().cpu().numpy() for name, value in self.networks.state_dict().items()}
        learnt = {"weights": state, "shape": list(self.networks.shape), "history": self.history}
        write(
            path, NOUN, NAME, self.settings(), learnt, writable={}, refuse=lambda value: f"{value!r} cannot be saved."
        )

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> AmbiguityEstimator:
        """Read what `save` has written."""
        saved = read(path, NOUN)
        try:
            made = cls(**saved.params({}), device=device)
            state = saved.state({})
            networks = made._untrained(tuple(state["shape"]), seeds=())
            networks.load_state_dict({name: torch.from_numpy(value) for name, value in state["weights"].items()})
            made.history = list(state["history"])
        except (*DAMAGE, RuntimeError) as error:
            raise UserError(f"{path} is damaged, or was saved by another version of secondguess: {error}.") from error
        made._networks = networks.to(pick_device(device)).eval()
        return made

    def _untrained(self, shape: tuple[int, int, int], seeds: Sequence[int]) -> MemberNetworks:
        channels = [fitting_depth(widths, shape) for widths in ambiguity_members(self.architectures, self.count)]
        return MemberNetworks(channels, shape, self.outputs, seeds)

    @torch.no_grad()
    def _all(self, images: NDArray[np.float32]) -> Floats:
        module, device = self.module(), pick_device(self.device)
        shape = self.networks.shape
        if images.ndim != 4 or tuple(images.shape[1:]) != shape:
            raise UserError(f"Images of shape {images.shape} were given; the estimator was trained on (n, {shape}).")
        parts = [
            module(torch.from_numpy(np.ascontiguousarray(images[start : start + BLOCK])).to(device)).cpu().numpy()
            for start in range(0, len(images), BLOCK)
        ]
        return np.concatenate(parts, axis=1).astype(np.float64)

    def _train(
        self,
        networks: MemberNetworks,
        images: Tensor,
        where: Tensor,
        targets: Tensor,
        learn: NDArray[np.int64],
        held_out: NDArray[np.int64],
        progress: Progress,
    ) -> None:
        """Adam on the sum of the members' losses, which is one Adam for each of them."""
        optimiser = torch.optim.Adam(networks.parameters(), lr=self.lr, foreach=True)
        checked = torch.from_numpy(held_out).to(images.device)
        best, best_state = np.inf, copy.deepcopy(networks.state_dict())
        self.history = []
        with progress.task("Training the ambiguity estimator", self.epochs) as advance, torch.enable_grad():
            for epoch in range(self.epochs):
                networks.train()
                for chosen in self._steps(learn, epoch, images.device):
                    logits = networks(images[where[chosen]] * 2 - 1)
                    loss = _losses(logits, targets[chosen]).mean(dim=1).sum()
                    optimiser.zero_grad(set_to_none=True)
                    torch.autograd.backward(loss)
                    optimiser.step()
                loss_now, accuracy = _validate(networks, images, where[checked], targets[checked])
                if not np.isfinite(loss_now):
                    raise UserError(
                        f"The ambiguity estimator diverged in epoch {epoch + 1}; lower the learning rate lr={self.lr}."
                    )
                self.history.append({"validation_loss": loss_now, "validation_accuracy": accuracy})
                if loss_now < best:
                    best, best_state = loss_now, copy.deepcopy(networks.state_dict())
                advance(epoch + 1, self.epochs)
        networks.load_state_dict(best_state)

    def _steps(self, learn: NDArray[np.int64], epoch: int, device: torch.device) -> Iterator[Tensor]:
        """The positions (M, m) of each member's images in every step of an epoch; one copy to the device."""
        rng = np.random.default_rng([self.seed, 2, epoch])
        each = len(learn) // self.count
        if self.subsets == "disjoint":
            # `learn` is in random order, so that every piece of it is a random sample.
            own = learn[: each * self.count].reshape(self.count, each)
            order = rng.permuted(own, axis=1)
        else:
            order = rng.permutation(learn)[: each * self.count].reshape(each, self.count).T
        size = max(2, self.batch_size // self.count)
        on_device = torch.from_numpy(np.ascontiguousarray(order)).to(device)
        for start in range(0, each, size):
            if each - start >= 2:  # batch normalisation learns nothing from one image
                yield on_device[:, start : start + size]


def balanced_rows(train: ImageSet, classes: Sequence[int], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the images of the classes, rarer classes repeated at random until all are as frequent.

    Returns:
        Positions (n,) in `train`, and which of the classes each is, (n,): 0 for the first.
    """
    groups = [np.flatnonzero(train.labels == label) for label in classes]
    for label, group in zip(classes, groups, strict=True):
        if not len(group):
            known = 0 <= label < train.num_classes
            name = train.class_names[label] if known else str(label)
            raise UserError(f"There is no image of the class {name!r} in {train.name}; name classes that it has.")
    most = max(map(len, groups))
    rng = np.random.default_rng([seed, 0])
    filled = [np.concatenate([group, rng.choice(group, most - len(group))]) for group in groups]
    which = np.repeat(np.arange(len(groups)), most)
    return np.concatenate(filled).astype(np.int64), which.astype(np.int64)


def agreement_of(members: Floats) -> Agreement:
    """Agreement of members' probabilities (M, n, K)."""
    variance = members.var(axis=0).sum(axis=-1) / 2
    information = _entropy(members.mean(axis=0)) - _entropy(members).mean(axis=0)
    return Agreement(variance, np.maximum(information, 0.0))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1))


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy (M, m) of logits (M, m, outputs) with which class it is, (M, m)."""
    if logits.shape[-1] == 1:
        first = (targets == 0).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits[..., 0], first, reduction="none")
    flat = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.reshape(targets.shape)


@torch.no_grad()
def _temperatures(networks: MemberNetworks, images: Tensor, rows: Tensor, targets: Tensor) -> list[float]:
    """Divisors of the members' logits, at least 1: few held-out images cannot show a member to be underconfident."""
    folded = FoldedMembers(networks, dense=images.device.type == "cuda").to(images.device)
    logits = torch.cat([folded.logits(images[part]) for part in torch.split(rows, BLOCK)], dim=1).cpu().numpy()
    if logits.shape[-1] == 1:
        logits = np.concatenate([logits, np.zeros_like(logits)], axis=-1)
    truth = targets.cpu().numpy()
    return [max(1.0, fit_temperature(one, truth)) for one in logits]


@torch.no_grad()
def _validate(networks: MemberNetworks, images: Tensor, rows: Tensor, targets: Tensor) -> tuple[float, float]:
    """Cross-entropy and accuracy of the members' mean."""
    folded = FoldedMembers(networks, dense=images.device.type == "cuda").to(images.device)
    means = torch.cat([folded(images[part]).mean(dim=0) for part in torch.split(rows, BLOCK)])
    right = means.gather(1, targets[:, None])[:, 0]
    loss = -torch.log(right.clamp_min(1e-12)).mean()
    return float(loss), float((means.argmax(dim=1) == targets).double().mean())
