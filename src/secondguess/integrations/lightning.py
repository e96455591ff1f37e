"""A guard beside a trainer of Lightning: every batch that is tested or predicted is judged, too."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import MissingExtra, UserError, require
from secondguess.guard import Guard, Guarded, Judgements

__all__ = ["GuardCallback"]

# Lightning has two names, and a trainer wants callbacks of its own.
_PACKAGE = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
Callback: Any
try:
    Callback = require(_PACKAGE, "lightning").Callback
except MissingExtra:  # the class can be read about, and says what is missing when it is made
    Callback = object


class GuardCallback(Callback):  # type: ignore[misc]
    """Judges what `trainer.test` and `trainer.predict` see, and logs how many alarms there were.

        guard = sg.Guard().fit(sg.Classifier.open(module, mean=MEAN, std=STD), train, validation)
        judging = GuardCallback(guard)
        Trainer(callbacks=[judging]).predict(module, loader)
        judging.judgements  # one `Judgements` for each batch

    A test logs `guard/alarms`, the share of images that raise one, and with labels `guard/accuracy_accepted`, the
    accuracy without these. The module runs a second time for each batch, so that the guard sees what it needs.

    Args:
        guard: fitted on the module, or read for it by `Guard.load(folder, classifier)`.

    Attributes:
        judgements: of the batches since the last test or prediction began.
    """

    def __init__(self, guard: Guard) -> None:
        require(_PACKAGE, "lightning")
        super().__init__()
        self.guard = guard
        self.judgements: list[Judgements] = []
        self._guarded: Guarded | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the guard in front of the module; a guard of another one is refused."""
        if stage in ("test", "predict"):
            self._guarded, self.judgements = Guarded(pl_module, self.guard), []

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Judge a batch, and log the share of alarms and the accuracy of what is accepted."""
        judged, labels = self._judge(batch), _labels(batch)
        how: Any = {"on_step": False, "on_epoch": True}
        pl_module.log("guard/alarms", float(judged.alarms.mean()), batch_size=len(judged), **how)
        accepted = ~judged.alarms
        if labels is not None and accepted.any():
            right = float((judged.predictions == labels)[accepted].mean())
            pl_module.log("guard/accuracy_accepted", right, batch_size=int(accepted.sum()), **how)

    def on_predict_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Judge a batch."""
        self._judge(batch)

    def _judge(self, batch: Any) -> Judgements:
        assert self._guarded is not None
        judged = self._guarded(_unnormalised(_first(batch), self._guarded))
        self.judgements.append(judged)
        return judged


def _first(batch: Any) -> Any:
    """The images of a batch: the batch itself, or the first part of it."""
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in ("image", "images", "pixel_values") if key in batch), None)
        if batch is None:
            raise UserError("A batch is a dictionary without images; name them image, images or pixel_values.")
    return batch[0] if isinstance(batch, Sequence) else batch


def _labels(batch: Any) -> NDArray[np.int64] | None:
    """The classes of a batch (n,), where it has them."""
    if isinstance(batch, Mapping):
        found = next((batch[key] for key in ("label", "labels") if key in batch), None)
    else:
        found = batch[1] if isinstance(batch, Sequence) and len(batch) > 1 else None
    return None if found is None or found.ndim != 1 else found.detach().cpu().numpy()


def _unnormalised(images: Any, guarded: Guarded) -> NDArray[np.float32]:
    """What the module takes as what the classifier takes, which normalises images in [0, 1] itself."""
    about = guarded.classifier.description
    pixels: NDArray[np.float32] = images.detach().cpu().float().numpy()
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (about.mean, about.std))
    return np.clip(pixels * std + mean, 0, 1)
