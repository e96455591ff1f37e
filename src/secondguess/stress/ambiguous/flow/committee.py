"""A committee that is trained to doubt: ordinary classifiers of several families, none of them the model under test.

Each family learns the images, and as many blends of two of them with the labels blended alike (mixup, Zhang et al.,
2018), of mirror images where images may be mirrored; labels are smoothed, and a temperature of at least 1 is fitted on
held-out images. The committee's opinion is the mean of its members' probabilities. What it says of an image that is of
two classes is calibrated on images with known shares (`shares.py`).

It is kept beside the generator, so that more images of the same generator are judged by the same committee:

    committee.json         families, temperatures, calibration, shape of the images, and the digests of the weights
    0-simple_cnn.safetensors, ...
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from secondguess.contracts.sealed import Damaged, digest_of, read_json, write_json_sealed
from secondguess.files import make_folder, write_bytes
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.progress import Progress, Silent, Titled
from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.shares import ShareCalibration, log_odds_of
from secondguess.training._checkpoint import copy_state
from secondguess.training.temperature import fit_temperature

__all__ = ["Committee"]

Floats = NDArray[np.float64]
CARD, FORMAT = "committee.json", 3
# A VGG, a pyramid with dense layers, a wider VGG: of photographs, networks without batch norm learn little.
COLOUR = ("icos_m", "icos_d", "icos_n")
GREY = ("lenet", "simple_cnn", "fully_connected")
SMOOTHED = 0.05
MIXED = 500  # mixtures, and as many real images, that shares are calibrated on
BLENDS = 0.4  # parameter of the Beta distribution of a blend's weight, as in mixup
SMALLEST = 16  # pixels per side that convolutions without padding need
PHOTOGRAPH = 32  # pixels per side that three times two convolutions need


class Committee:
    """Probabilities of all classes from classifiers of several families.

    Args:
        families: architectures of the zoo; None takes what suits the size and the colour of the images.
        epochs: of each member.
        flips: whether images may be mirrored.
        seed: of everything random.
        device: where to compute.
    """

    def __init__(
        self,
        families: Sequence[str] | None = None,
        *,
        epochs: int = 8,
        flips: bool = False,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.families, self.epochs, self.flips, self.seed, self.device = families, epochs, flips, seed, device
        self.shares = ShareCalibration()
        self._members: list[tuple[str, nn.Module, float]] = []
        self._about: dict[str, Any] = {}

    def fit(self, train: ImageSet, held_out: ImageSet, *, progress: Progress | None = None) -> Self:
        """Train every family on `train` and make it as unsure as it should be on `held_out`."""
        from secondguess import zoo
        from secondguess.training import train as learn

        mixed = _Mixed(train, self.flips, self.seed)
        self._members, self._about = [], self.about(train)
        for number, name in enumerate(self._about["families"]):
            seed = self.seed + number
            model = zoo.make(name, num_classes=train.num_classes, input_shape=train.shape, seed=seed)
            report = Titled(progress or Silent(), f"Training a judge ({name})")
            learn(model, mixed, mixed.labels, epochs=self.epochs, seed=seed, device=self.device, progress=report)
            temperature = max(1.0, fit_temperature(self._logits(model, held_out), held_out.labels))
            self._members.append((name, model, temperature))
        pixels = np.concatenate([np.rint(part * 255).astype(np.uint8) for part, _ in held_out.batches(1000)])
        known = known_mixtures(pixels, held_out.labels, MIXED, self.seed)
        seen = self.judge(ImageSet.from_arrays(known.images, layout="NCHW"))
        self.shares = ShareCalibration.fit(log_odds_of(seen, known.pair), known)
        return self

    def about(self, train: ImageSet) -> dict[str, Any]:
        """Everything that determines it, as JSON holds it."""
        return {
            "format": FORMAT,
            "families": list(self.families or _suitable(train.shape)),
            **{name: getattr(self, name) for name in ("epochs", "flips", "seed")},
            "shape": list(train.shape),
            "classes": train.num_classes,
            "data": train.fingerprint,
        }

    @property
    def learnt(self) -> str:
        """The fingerprint of the images that it was trained on."""
        return str(self._about.get("data", ""))

    @property
    def digest(self) -> str:
        """Of what its members are, and of their calibration."""
        parts = [
            digest_of(save(copy_state(model)) + repr(temperature).encode()) for _, model, temperature in self._members
        ]
        return digest_of("".join([*parts, json.dumps(self.shares.to_dict())]).encode())

    def judge(self, images: ImageSet) -> Floats:
        """The members' mean probabilities (n, K)."""
        opinions = []
        for _, model, temperature in self._members:
            logits = self._logits(model, images) / temperature
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            opinions.append(odds / odds.sum(axis=1, keepdims=True))
        return np.asarray(np.mean(opinions, axis=0))

    def save(self, folder: str | Path) -> Path:
        """Write the folder; its card last, so that an interruption leaves no half of a committee."""
        folder, members = make_folder(folder), []
        for number, (name, model, temperature) in enumerate(self._members):
            content, file = save(copy_state(model)), f"{number}-{name}.safetensors"
            write_bytes(folder / file, content)
            members.append({"family": name, "temperature": temperature, "file": file, "weights": digest_of(content)})
        write_json_sealed(folder / CARD, self._about | {"members": members, "shares": self.shares.to_dict()})
        return folder

    @classmethod
    def load(cls, folder: str | Path, *, about: Mapping[str, Any] | None = None, device: str = "auto") -> Self | None:
        """What `save` has written; None where nothing sound is there, or one that is not as `about` says."""
        from secondguess import zoo

        folder, committee = Path(folder), cls(device=device)
        if not (folder / CARD).is_file():
            return None
        try:
            card = read_json(folder / CARD)
            if card.get("format") != FORMAT:  # of another version: nothing is wrong with it
                return None
            members = card.pop("members")
            committee.shares = ShareCalibration.from_dict(card.pop("shares"))
            committee._about, shape = card, tuple(card["shape"])
            for member in members:
                content = (folder / member["file"]).read_bytes()
                if digest_of(content) != member["weights"]:
                    raise Damaged(f"{member['file']} does not hold what was written")
                model = zoo.make(member["family"], num_classes=card["classes"], input_shape=shape, seed=0)
                model.load_state_dict(load(content))
                committee._members.append((member["family"], model.eval(), float(member["temperature"])))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            warnings.warn(f"The committee in {folder} is damaged ({error}) and is trained again.", stacklevel=2)
            return None
        return committee if about is None or about == card else None

    def _logits(self, model: nn.Module, images: ImageSet) -> Floats:
        member = Classifier(model, device=self.device, output_kind="logits")
        return np.asarray(member.observe(images, Needs(logits=True)).logits, dtype=np.float64)


def _suitable(shape: tuple[int, ...]) -> tuple[str, ...]:
    channels, height, width = shape
    if min(height, width) < SMALLEST:
        return ("fully_connected",)
    return COLOUR if channels == 3 and min(height, width) >= PHOTOGRAPH else GREY


class _Mixed:
    """The images, followed by a blend of each, mirrored or not, with another one; computed when they are read."""

    def __init__(self, train: ImageSet, flips: bool, seed: int) -> None:
        self._flips = flips
        rng = np.random.default_rng([seed, len(train)])
        self._images = train.images
        self._partner, self._weight = rng.permutation(len(train)), rng.beta(BLENDS, BLENDS, len(train))
        sharp = np.eye(train.num_classes)[train.labels] * (1 - SMOOTHED) + SMOOTHED / train.num_classes
        weight = self._weight[:, None]
        self.labels: Floats = np.concatenate([sharp, weight * sharp + (1 - weight) * sharp[self._partner]])

    def __len__(self) -> int:
        return 2 * len(self._partner)

    def __getitem__(self, index: Any, /) -> NDArray[np.float32]:
        places = np.arange(len(self))[index]
        own = places % len(self._partner)
        blended = places >= len(self._partner)
        weight = np.where(blended, self._weight[own], 1.0).astype(np.float32)[:, None, None, None]
        images = self._images[own]
        if self._flips:
            images = np.where(blended[:, None, None, None], images[..., ::-1], images)
        return np.asarray(weight * images + (1 - weight) * self._images[self._partner[own]], dtype=np.float32)
