"""The generative model as classifier: a judge that is allowed to doubt.

Images are judged in three looks, each at what the one before has left open:

1. the classes that an image was made of, with few draws of noise (`glance`)
2. all other classes, with the same draws: how likely is it that it is none of them
3. the classes that are still possible (more than `HOPELESS`, and the likeliest two), with all draws

Each look has a calibration of its own, fitted to held-out real images that went through the same looks.
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
from secondguess.stress.ambiguous.flow.pixels import to_padded

__all__ = ["DenoisingJudge", "Look"]

Floats = NDArray[np.float64]
HOPELESS = 5e-3


@dataclass(frozen=True)
class Look:
    """Losses of images after a look, which the next one continues.

    Attributes:
        losses: float64 (n, K, T) of the few draws; NaN where no look was taken.
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
        few: draws of the first two looks; even.
        draws: of the last look, in addition; even.
        seed: of the noise.
    """

    def __init__(self, field: VelocityField, *, few: int = 2, draws: int = 8, seed: int = 0) -> None:
        if few < 2 or draws < 2 or few % 2 or draws % 2:
            raise UserError(f"few is {few} and draws {draws}; noise comes in pairs, so both must be even.")
        self.field, self.few, self.draws, self.seed = field, few, draws, seed
        self._bank = NoiseBank(field.network.architecture.padded, few + draws, seed, field.device)
        self.quick: LossCalibration | None = None
        self.thorough: LossCalibration | None = None

    def fit(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64], *, progress: Progress | None = None
    ) -> dict[str, float]:
        """Calibrate on real images (n, C, H, W) that the flow was not trained on.

        Returns:
            How good the judge is on images that it was not calibrated on either (each half of them judged with the
            calibration of the other): `accuracy`, `log_loss` in nats, and `hesitates`, the share of the images to which
            it gives no class more than 0.7.
        """
        first = self._losses(images, np.ones((len(images), self.field.classes), bool), few=True, progress=progress)
        self.quick = LossCalibration.fit(first, labels)
        last = self._continued(images, Look(first, self.quick.probabilities(first)), progress)
        self.thorough = LossCalibration.fit(last, labels)
        return _cross_validated(last, labels)

    def calibrations(self) -> dict[str, Any]:
        """Both calibrations, as JSON holds them."""
        return {
            "quick": self._calibrated(self.quick).to_dict(),
            "thorough": self._calibrated(self.thorough).to_dict(),
        }

    def glance(
        self,
        images: NDArray[np.uint8],
        classes: NDArray[np.int64] | None = None,
        *,
        seen: Look | None = None,
        progress: Progress | None = None,
    ) -> Look:
        """Look at some classes (n, m) of each image, or at all that have not been seen yet."""
        wanted = np.ones((len(images), self.field.classes), dtype=bool)
        if classes is not None:
            wanted[:] = False
            np.put_along_axis(wanted, classes, True, axis=1)
        if seen is not None:
            wanted &= np.isnan(seen.losses).any(axis=2)
        losses = self._losses(images, wanted, few=True, progress=progress)
        if seen is not None:
            losses = np.where(np.isnan(losses), seen.losses, losses)
        return Look(losses, self._calibrated(self.quick).probabilities(losses))

    def judge(self, images: NDArray[np.uint8], seen: Look | None = None, *, progress: Progress | None = None) -> Floats:
        """Probabilities (n, K) of all classes; `seen` is what an earlier look at the same images gave."""
        look = self.glance(images, seen=seen, progress=progress)
        last = self._continued(images, look, progress)
        thorough = self._calibrated(self.thorough).probabilities(last)
        left_out = np.where(np.isnan(last).any(axis=2), look.probabilities, 0.0)
        return np.asarray(thorough * (1 - left_out.sum(axis=1, keepdims=True)) + left_out)

    def _continued(self, images: NDArray[np.uint8], look: Look, progress: Progress | None) -> Floats:
        """Mean losses over all draws of the classes that are still possible."""
        second = np.partition(look.probabilities, -2, axis=1)[:, -2:-1]
        possible = look.probabilities >= np.minimum(second, HOPELESS)  # two classes at least
        more = self._losses(images, possible, few=False, progress=progress)
        return np.asarray((look.losses * self.few + more * self.draws) / (self.few + self.draws))

    def _losses(
        self, images: NDArray[np.uint8], wanted: NDArray[np.bool_], *, few: bool, progress: Progress | None
    ) -> Floats:
        field = self.field
        x = to_padded(images, field.network.architecture).to(field.device).float() / 127.5 - 1
        draws = slice(0, self.few) if few else slice(self.few, None)
        with (progress or Silent()).task("Judging", int(wanted.sum())) as advance, torch.no_grad():
            losses = denoising_losses(
                field,
                x,
                torch.from_numpy(wanted).to(field.device),
                self._bank,
                draws,
                batch_size=field.batch_size,
                advance=advance,
            )
        return losses.double().cpu().numpy()

    @staticmethod
    def _calibrated(calibration: LossCalibration | None) -> LossCalibration:
        if calibration is None:
            raise UserError("The judge has not been calibrated yet; call fit with held-out real images first.")
        return calibration


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
