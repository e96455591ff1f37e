"""The generative model as classifier: a judge that is allowed to doubt.

Images are judged in four looks, each at what the one before has left open:

1. the classes that an image was made of, with few draws of noise (`glance`)
2. all other classes, or those that another judge has not ruled out, with the same draws: how likely is it that it is
   none of them
3. the classes that are still possible (more than `HOPELESS`, and the likeliest two), with more draws (`examine`);
   where most images fail by the share of two classes, these can be looked at before all others (`compare`)
4. two classes whose shares are wanted as precisely as a label should be, with many more (`settle`)

Each number of draws has a calibration of its own, fitted to held-out real images that went through the same looks:
the scatter of few draws is a reason to be less sure. What log-odds say of an image that is of two classes is a
calibration more (`shares.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.flow.calibration import LossCalibration
from secondguess.stress.ambiguous.flow.fields import VelocityField
from secondguess.stress.ambiguous.flow.losses import NoiseBank, denoising_losses
from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.pixels import scaled
from secondguess.stress.ambiguous.flow.shares import TINY, ShareCalibration, priors, separations

__all__ = ["CALIBRATIONS", "DenoisingJudge", "Look", "chosen_classes"]

Floats = NDArray[np.float64]
HOPELESS = 5e-3
CALIBRATIONS = ("quick", "thorough", "final")
MIXED = 200  # mixtures, and as many real images, that shares are calibrated on


@dataclass(frozen=True)
class Look:
    """Losses of images after a look, which the next one continues.

    Attributes:
        losses: float64 (n, K, T), means over the draws so far; NaN where no look was taken.
        probabilities: float64 (n, K).
    """

    losses: Floats
    probabilities: Floats

    def take(self, rows: NDArray[Any]) -> Look:
        """Some of the images."""
        return Look(self.losses[rows], self.probabilities[rows])


class DenoisingJudge:
    """Probabilities of all classes from the losses of a flow.

    Args:
        field: the velocities of a trained flow.
        few: draws of the first two looks; even, and with mirror images a multiple of four.
        draws: of the third, in addition; likewise.
        last: of the fourth, in addition; likewise.
        mirrored: whether half of the draws look at the mirror image, which is right where the flow has learnt both.
        seed: of the noise.
    """

    def __init__(
        self,
        field: VelocityField,
        *,
        few: int = 4,
        draws: int = 12,
        last: int = 24,
        mirrored: bool = False,
        seed: int = 0,
    ) -> None:
        step = 4 if mirrored else 2
        if min(few, draws, last) < step or any(number % step for number in (few, draws, last)):
            why = "in pairs, for an image and its mirror image" if mirrored else "in pairs"
            raise UserError(
                f"few is {few}, draws {draws} and last {last}; noise comes {why}, so all must be multiples of {step}."
            )
        self.field, self.few, self.draws, self.last = field, few, draws, last
        self.mirrored, self.seed = mirrored, seed
        self._bank = NoiseBank(field.network.architecture.padded, few + draws + last, seed, field.device)
        self.quick: LossCalibration | None = None
        self.thorough: LossCalibration | None = None
        self.final: LossCalibration | None = None
        self.shares = ShareCalibration()

    def fit(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64], *, progress: Progress | None = None
    ) -> dict[str, float]:
        """Calibrate on real images (n, C, H, W) that the flow was not trained on.

        Returns:
            How good the judge is on images that it was not calibrated on either (each half of them judged with the
            calibration of the other): `accuracy`, `log_loss` in nats, and `hesitates`, the share of the images to which
            it gives no class more than 0.7; and what `ShareCalibration.quality` says of images with known shares.
        """
        first = self._losses(images, np.ones((len(images), self.field.classes), bool), self._draws(0), progress)
        self.quick = LossCalibration.fit(first, labels)
        open_, third = self._continued(images, Look(first, self.quick.probabilities(first)), progress)
        self.thorough = LossCalibration.fit(third, labels)
        all_draws = self._pooled(third, self._losses(images, open_, self._draws(2), progress), 2)
        self.final = LossCalibration.fit(all_draws, labels)
        known = known_mixtures(images, labels, MIXED, self.seed)
        odds = self.weigh(known.images, known.pair, progress=progress)
        counted = ~np.isnan(all_draws[np.arange(len(labels)), labels]).any(axis=1)  # by the last calibration
        prior = priors(labels[counted], self.field.classes)
        self.shares = ShareCalibration.fit(odds, known, separations(self.final.logits(first) - prior, labels), prior)
        return _cross_validated(all_draws, labels) | self.shares.quality(odds, known)

    def settings(self) -> dict[str, Any]:
        """What it was made with, but for the field."""
        return {name: getattr(self, name) for name in ("few", "draws", "last", "mirrored", "seed")}

    def with_seed(self, seed: int) -> DenoisingJudge:
        """The same judge with other noise."""
        other = DenoisingJudge(self.field, **(self.settings() | {"seed": seed}))
        other.quick, other.thorough, other.final = self.quick, self.thorough, self.final
        other.shares = self.shares
        return other

    def calibrations(self) -> dict[str, Any]:
        """All calibrations, as JSON holds them."""
        losses = {name: self._calibrated(getattr(self, name)).to_dict() for name in CALIBRATIONS}
        return {**losses, "shares": self.shares.to_dict()}

    def glance(
        self,
        images: NDArray[np.uint8],
        wanted: NDArray[np.bool_] | None = None,
        *,
        seen: Look | None = None,
        progress: Progress | None = None,
    ) -> Look:
        """Look at some classes (n, K) of each image, or at all, unless they have been seen already."""
        if wanted is None:
            wanted = np.ones((len(images), self.field.classes), dtype=bool)
        if seen is not None:
            wanted = wanted & np.isnan(seen.losses).any(axis=2)
        losses = self._losses(images, wanted, self._draws(0), progress)
        if seen is not None:
            losses = np.where(np.isnan(losses), seen.losses, losses)
        return Look(losses, self._calibrated(self.quick).probabilities(losses))

    def compare(
        self, images: NDArray[np.uint8], pair: NDArray[np.int64], seen: Look, *, progress: Progress | None = None
    ) -> Look:
        """The part of the third look that two classes (n, 2) of each image are worth; their shares among each other."""
        losses = self._losses(images, chosen_classes(pair, self.field.classes), self._draws(1), progress)
        third = self._pooled(seen.losses, losses, 1)
        return Look(third, self._calibrated(self.thorough).probabilities(third))

    def examine(
        self,
        images: NDArray[np.uint8],
        seen: Look | None = None,
        *,
        compared: Look | None = None,
        progress: Progress | None = None,
    ) -> Look:
        """Look at every class that is still possible, among those that `glance` has seen of the same images, or all.

        Args:
            images: to be judged.
            seen: what `glance` gave.
            compared: what `compare` gave, which is not looked at again.
            progress: where to report.
        """
        look = self.glance(images, progress=progress) if seen is None else seen
        _, third = self._continued(images, look, progress, compared)
        thorough = self._calibrated(self.thorough).probabilities(third)
        left_out = np.where(np.isnan(third).any(axis=2), look.probabilities, 0.0)
        return Look(third, thorough * (1 - left_out.sum(axis=1, keepdims=True)) + left_out)

    def judge(self, images: NDArray[np.uint8], *, progress: Progress | None = None) -> Floats:
        """Probabilities (n, K) of all classes."""
        return self.examine(images, progress=progress).probabilities

    def settle(
        self, images: NDArray[np.uint8], pair: NDArray[np.int64], seen: Look, *, progress: Progress | None = None
    ) -> Floats:
        """Probabilities (n, 2) of two classes of each image among each other; `seen` is what `examine` gave."""
        wanted = chosen_classes(pair, self.field.classes)
        losses = self._pooled(seen.losses, self._losses(images, wanted, self._draws(2), progress), 2)
        found = self._calibrated(self.final).probabilities(np.where(wanted[:, :, None], losses, np.nan))
        examined = ~np.isnan(losses).any(axis=2) | ~wanted  # the others had next to no probability
        shares = np.where(examined.all(axis=1, keepdims=True), found, seen.probabilities)
        both = np.maximum(np.take_along_axis(shares, pair, axis=1), TINY)
        return np.asarray(both / both.sum(axis=1, keepdims=True))

    def lean(self, pair: NDArray[np.int64], seen: Look) -> Floats:
        """Log-odds (n,) of the first of two classes that were seen: as noisy as few draws are, but not shrunk for it.

        `Look.probabilities` are: they are the best answer for one image, whereas a mean or a slope over many images
        wants this one.
        """
        wanted = chosen_classes(pair, self.field.classes)
        both = self._calibrated(self.final).logits(seen.losses)
        both = np.take_along_axis(np.where(wanted, both, 0.0), pair, axis=1)
        return np.asarray(both[:, 0] - both[:, 1])

    def weigh(self, images: NDArray[np.uint8], pair: NDArray[np.int64], *, progress: Progress | None = None) -> Floats:
        """Log-odds (n,) of the first of two classes (n, 2), with all draws and without a look at any other class."""
        wanted = chosen_classes(pair, self.field.classes)
        every = slice(0, self._draws(2).stop)
        return self.lean(pair, Look(self._losses(images, wanted, every, progress), np.zeros(wanted.shape)))

    def _continued(
        self, images: NDArray[np.uint8], look: Look, progress: Progress | None, compared: Look | None = None
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Which classes are still possible, and their mean losses over the draws of three looks."""
        second = np.partition(look.probabilities, -2, axis=1)[:, -2:-1]
        possible = look.probabilities >= np.minimum(second, HOPELESS)  # two classes at least
        known = np.zeros_like(look.losses, dtype=bool) if compared is None else ~np.isnan(compared.losses)
        more = self._losses(images, possible & ~known.any(axis=2), self._draws(1), progress)
        third = self._pooled(look.losses, more, 1)
        return possible, third if compared is None else np.where(known, compared.losses, third)

    def _draws(self, look: int) -> slice:
        """Which draws a look takes: those of the first two, of the third, or of the fourth."""
        ends = np.cumsum([0, self.few, self.draws, self.last])
        return slice(int(ends[look]), int(ends[look + 1]))

    def _pooled(self, before: Floats, more: Floats, look: int) -> Floats:
        """Means over the draws of a look and of those before it."""
        taken = self._draws(look)
        return np.asarray((before * taken.start + more * (taken.stop - taken.start)) / taken.stop)

    def _losses(
        self, images: NDArray[np.uint8], wanted: NDArray[np.bool_], draws: slice, progress: Progress | None
    ) -> Floats:
        field = self.field
        x = scaled(images, field.network.architecture, field.device)
        with (progress or Silent()).task("Judging", int(wanted.sum())) as advance, torch.no_grad():
            losses = denoising_losses(
                field,
                x,
                torch.from_numpy(wanted).to(field.device),
                self._bank,
                draws,
                batch_size=field.batch_size,
                mirrored=self.mirrored,
                advance=advance,
            )
        return losses.double().cpu().numpy()

    @staticmethod
    def _calibrated(calibration: LossCalibration | None) -> LossCalibration:
        if calibration is None:
            raise UserError("The judge has not been calibrated yet; call fit with held-out real images first.")
        return calibration


def chosen_classes(pair: NDArray[np.int64], classes: int) -> NDArray[np.bool_]:
    """Which of the classes (n, K) are those of the pair (n, 2)."""
    wanted = np.zeros((len(pair), classes), dtype=bool)
    np.put_along_axis(wanted, pair, True, axis=1)
    return wanted


def _cross_validated(losses: Floats, labels: NDArray[np.int64]) -> dict[str, float]:
    rows = np.random.default_rng(0).permutation(len(losses))
    halves = rows[::2], rows[1::2]
    probabilities = np.empty(losses.shape[:2])
    for fitted, judged in (halves, halves[::-1]):
        probabilities[judged] = LossCalibration.fit(losses[fitted], labels[fitted]).probabilities(losses[judged])
    right = np.maximum(probabilities[np.arange(len(labels)), labels], 1e-6)
    return {
        "images": float(len(labels)),
        "accuracy": float((probabilities.argmax(axis=1) == labels).mean()),
        "log_loss": float(-np.log(right).mean()),
        "hesitates": float((probabilities.max(axis=1) < 0.7).mean()),
    }
