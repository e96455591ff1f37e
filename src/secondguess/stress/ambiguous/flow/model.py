"""A trained flow with its calibrated judge: what is kept in a folder and used again.

flow.json             architecture, class names, calibration, history, and the digest of the weights
weights.safetensors   the averaged weights
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from secondguess.contracts.sealed import Damaged, digest_of, read_json, write_json_sealed
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes
from secondguess.images import ImageSet
from secondguess.stress.ambiguous.flow.balancing import balance
from secondguess.stress.ambiguous.flow.calibration import LossCalibration
from secondguess.stress.ambiguous.flow.fields import VelocityField
from secondguess.stress.ambiguous.flow.judge import CALIBRATIONS, DenoisingJudge
from secondguess.stress.ambiguous.flow.network import Architecture, FlowNetwork
from secondguess.stress.ambiguous.flow.pixels import from_padded, scaled
from secondguess.stress.ambiguous.flow.sampling import Streams, integrate
from secondguess.stress.ambiguous.flow.shares import ShareCalibration
from secondguess.training._checkpoint import copy_state

__all__ = ["Flow"]

CARD, WEIGHTS, FORMAT = "flow.json", "weights.safetensors", 4
# Until when there is guidance: towards the end it is said to be largely unnecessary (Kynkäänniemi et al., "Applying
# guidance in a limited interval improves sample and distribution quality in diffusion models", 2024), and it is a third
# of the cost of a step. Not compared with 1 on photographs.
GUIDED = 0.7
AGAIN = 0.5  # where what is composed anew begins
Bytes = NDArray[np.uint8]


@dataclass(eq=False)
class Flow:
    """A conditional generator of images of some classes, which is their judge as well.

    Attributes:
        network: the averaged one.
        class_names: of its K classes.
        judge: calibrated on real images that the network was not trained on.
        history: of the training and of the calibration; JSON-able.
    """

    network: FlowNetwork
    class_names: tuple[str, ...]
    judge: DenoisingJudge
    history: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Of the weights."""
        return digest_of(save(copy_state(self.network)))

    @property
    def field(self) -> VelocityField:
        """The velocities of the network."""
        return self.judge.field

    def sample(self, labels: NDArray[np.int64], *, guidance: float = 1.5, steps: int = 20, seed: int = 0) -> Bytes:
        """Plain images uint8 (n, C, H, W) of these classes (n,)."""
        parts = torch.from_numpy(labels).to(self.field.device)[:, None]

        def made(rows: slice, noise: Tensor, _: Streams) -> Tensor:
            shares = torch.ones_like(parts[rows], dtype=torch.float32)
            settings: dict[str, Any] = {"guidance": guidance, "until": GUIDED, "steps": steps}
            return integrate(self.field, len(self.class_names), noise, parts[rows], shares, **settings)

        return self._in_blocks(len(labels), seed, made)

    def compose(
        self,
        parts: NDArray[np.int64],
        log_odds: NDArray[np.float64],
        *,
        guidance: float = 3.5,
        steps: int = 16,
        seed: int = 0,
        rivals: NDArray[np.float64] | None = None,
        again: Bytes | None = None,
    ) -> Bytes:
        """Images uint8 (n, C, H, W) between classes.

        Args:
            parts: (n, m), the classes of each image.
            log_odds: (n, m), how likely each class should be to the network, up to a constant; zeros for equality.
            guidance: away from images of no class; 1 is none.
            steps: of the sampling.
            seed: of the noise; that of an image does not depend on the block that it is computed in.
            rivals: (n, K + 1), weights of the classes, and of none, that guidance leads away from; None for no class.
            again: (n, C, H, W), images to be composed anew from the middle of the way; `log_odds` are what is added
                from there on.
        """
        where = torch.from_numpy(parts).to(self.field.device)
        target = torch.from_numpy(log_odds)
        away = None if rivals is None else torch.from_numpy(rivals).to(self.field.device, torch.float32)

        def made(rows: slice, noise: Tensor, streams: Streams) -> Tensor:
            nothing, asked = len(self.class_names), (where[rows], target[rows])
            settings: dict[str, Any] = {"guidance": guidance, "until": GUIDED, "steps": steps}
            settings["rivals"] = None if away is None else away[rows]
            if again is not None:
                begin = settings["begin"] = round(AGAIN * steps) / steps
                noise = (1 - begin) * noise + begin * scaled(again[rows], self.network.architecture, noise.device)
            return balance(self.field, nothing, noise, *asked, streams, **settings)[0]

        return self._in_blocks(len(parts), seed, made)

    def _in_blocks(self, count: int, seed: int, made: Any) -> Bytes:
        shape, images = self.network.architecture.padded, [np.zeros((0, *self.network.architecture.shape), np.uint8)]
        block = max(1, self.field.batch_size // Streams.CHUNK) * Streams.CHUNK
        with torch.no_grad():
            for start in range(0, count, block):
                rows = slice(start, min(start + block, count))
                streams = Streams(seed, range(rows.start, rows.stop))
                noise = streams(shape).to(self.field.device)
                images.append(from_padded(made(rows, noise, streams), self.network.architecture))
        return np.concatenate(images)

    def check(self, train: ImageSet) -> None:
        """Raise unless the flow was trained for images like these."""
        own, given = self.network.architecture.shape, train.shape
        if own != given or self.class_names != train.class_names:
            raise UserError(
                f"The generator is made for images of shape {own} and the classes {', '.join(self.class_names[:10])}, "
                f"but {train.name!r} has {given} and {', '.join(train.class_names[:10])}; train another one."
            )

    def save(self, folder: str | Path) -> Path:
        """Write the folder; an older `flow.json` goes first, the new one comes last: no half is taken for a whole."""
        folder, judge = make_folder(folder), self.judge
        (folder / CARD).unlink(missing_ok=True)
        content = save(copy_state(self.network))
        write_bytes(folder / WEIGHTS, content)
        card = {
            "format": FORMAT,
            "architecture": self.network.architecture.to_dict(),
            "class_names": list(self.class_names),
            "judge": {
                **judge.settings(),
                **judge.calibrations(),
            },
            "history": self.history,
            "weights": digest_of(content),
        }
        write_json_sealed(folder / CARD, card)
        return folder

    @staticmethod
    def at_hand(folder: str | Path | None) -> bool:
        """Whether a folder holds a trained generator of this version."""
        if folder is None or not (card := Path(folder) / CARD).is_file():
            return False
        try:
            return bool(read_json(card).get("format") == FORMAT)
        except (OSError, ValueError):
            return False

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """Read what `save` has written."""
        folder = Path(folder)
        if not (folder / CARD).is_file():
            raise UserError(f"There is no trained generator in {folder}: it has no {CARD}; train one there first.")
        try:
            card = read_json(folder / CARD)
            if card["format"] != FORMAT:
                raise Damaged(f"it is of another version: format {card['format']}, not {FORMAT}")
            content = (folder / WEIGHTS).read_bytes()
            if digest_of(content) != card["weights"]:
                raise Damaged(f"{WEIGHTS} does not hold what was written")
            network = FlowNetwork(Architecture.from_dict(card["architecture"]))
            network.load_state_dict({name: value.float() for name, value in load(content).items()})
            settings = dict(card["judge"])
            calibrations = {name: LossCalibration.from_dict(settings.pop(name)) for name in CALIBRATIONS}
            shares = ShareCalibration.from_dict(settings.pop("shares"))
            judge = DenoisingJudge(VelocityField(network.to(pick_device(device)).eval()), **settings)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise UserError(f"The generator in {folder} is damaged ({error}); train it again.") from error
        judge.quick, judge.thorough, judge.final = (calibrations[name] for name in CALIBRATIONS)
        judge.shares = shares
        return cls(network, tuple(card["class_names"]), judge, dict(card["history"]))
