"""Companion sets: ambiguous images between classes of a data set, each with the judgement of an ambiguity estimator.

Images are drawn from a generator, rounded to 8 bits, and judged as they will be saved. With the target t (the
probabilities of the classes, 1/2 each in the papers), the members' mean p and their mutual information I, an image is
rejected if

* it misses the target:          half the sum of abs(p_k - t_k) > `tolerance`       (abs(p - r) for two classes)
* the members disagree:          I > `disagreement`
* it does not look real:         it is farther from the real images of a class it should pass for (t_k >= 1 / 2K) than
                                 95 % of held-out real images of that class are (`realism.py`)
* it is too faint:               its contrast, the standard deviation of its pixels, is lower than that of 99 % of the
                                 real images: few classifiers tell the classes of a faint image, nor does a person

The papers reject nothing. The soft label is p, which the target only aims at; the columns of the set are

| column             | what                                                                         |
|--------------------|------------------------------------------------------------------------------|
| class_1, class_2   | the two classes; of more than two, those that p finds likeliest for the image|
| mean_probability   | p of class_1                                                                 |
| variance           | of the members                                                               |
| mutual_information | of the members, in nats                                                      |
| target_r           | t of class_1                                                                 |

Labels, soft labels, `class_1` and `class_2` are as in AmbiGuess' sets: either kind can replace the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.base import ambiguous_set
from secondguess.stress.ambiguous.estimator import Agreement, AmbiguityEstimator
from secondguess.stress.ambiguous.gan_losses import Target, target_distance
from secondguess.stress.ambiguous.gan_networks import Gan
from secondguess.stress.ambiguous.gan_training import samples
from secondguess.stress.ambiguous.realism import Realism

__all__ = ["Companion", "Reality", "Rejection", "assemble_companion", "companion_card", "draw_companion"]

BLOCK = 1000  # images at a time
FAINT = 0.01  # share of the real images that count as too faint
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rejection:
    """Which images are thrown away.

    Attributes:
        tolerance: largest distance from the target; None accepts any.
        disagreement: largest mutual information of the members, in nats; None accepts any.
        realism: whether to compare with real images.
        draws: how many images may be drawn for each that is asked for.
    """

    tolerance: float | None = 0.1
    disagreement: float | None = 0.2
    realism: bool = True
    draws: int = 50

    @classmethod
    def nothing(cls) -> Rejection:
        """Keep everything, as the papers do."""
        return cls(None, None, realism=False, draws=1)


@dataclass(frozen=True)
class Reality:
    """What real images of the classes are like.

    Attributes:
        realism: distances to them, which do not see how faint an image is.
        contrast: the least standard deviation of the pixels of an image.
    """

    realism: Realism
    contrast: float

    @classmethod
    def of(cls, train: ImageSet, classes: tuple[int, ...], *, seed: int = 0) -> Reality:
        """From the images of `train` that belong to the classes."""
        own = train.take(np.flatnonzero(np.isin(train.labels, classes)))
        contrasts = np.concatenate([_contrast(images) for images, _ in own.batches(BLOCK)])
        return cls(Realism(own, seed=seed), float(np.quantile(contrasts, FAINT)))

    def accepts(self, images: NDArray[np.float32], target: Floats, classes: tuple[int, ...]) -> NDArray[np.bool_]:
        """Whether each image (n,) could be real for every class that it should pass for.

        Args:
            images: (n, C, H, W) in [0, 1].
            target: (n, K); an image should pass for a class with at least half of an equal share.
            classes: the K labels.
        """
        fine = _contrast(images) >= self.contrast
        for column, label in enumerate(classes):
            fine &= (target[:, column] < 0.5 / len(classes)) | (self.realism.distance(images, label) <= 1.0)
        return fine


@dataclass(frozen=True)
class Companion:
    """Images of a companion set before they become one.

    Attributes:
        images: uint8 (n, C, H, W).
        mean: float64 (n, K), the members' mean.
        target: float64 (n, K).
        agreement: of the members, (n,) each.
        drawn: images that were drawn.
        passed: of these, how many met each condition on its own.
        raw_acd: mean distance from the target of everything that was drawn.
    """

    images: NDArray[np.uint8]
    mean: Floats
    target: Floats
    agreement: Agreement
    drawn: int
    passed: dict[str, int]
    raw_acd: float

    def __len__(self) -> int:
        return len(self.images)

    @property
    def acd(self) -> float:
        """Average confusion distance: from the target, which is 1/2 in the papers."""
        return float(target_distance(self.mean, self.target).mean())


def draw_companion(
    gan: Gan,
    estimator: AmbiguityEstimator,
    target: Target,
    count: int,
    *,
    rejection: Rejection | None = None,
    reality: Reality | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Companion:
    """Draw images until `count` are accepted, or too many have been drawn.

    Args:
        gan: the generator.
        estimator: the judges.
        target: the probabilities that they should give.
        count: how many images.
        rejection: which to throw away.
        reality: what to compare with; needed if `rejection` asks for realism.
        seed: of the noise.
        progress: where to report.
    """
    rejection = rejection or Rejection()
    if rejection.realism and reality is None:
        raise UserError("To reject images that do not look real, give real images with reality=Reality.of(...).")
    kept: list[tuple[NDArray[np.uint8], Floats, Floats, Floats, Floats]] = []
    passed = {"on_target": 0, "agreed": 0, "realistic": 0, "accepted": 0}
    drawn, distance = 0, 0.0
    with (progress or Silent()).task("Drawing images", count) as advance:
        for images, wanted in samples(gan, count * rejection.draws, target, seed=seed):
            pixels = (images * 255).round().byte().cpu().numpy()
            unit = pixels.astype(np.float32) / np.float32(255)
            mean, agreement = estimator.judge(unit)
            goal = wanted.double().cpu().numpy()
            checks = {
                "on_target": _within(target_distance(mean, goal), rejection.tolerance),
                "agreed": _within(agreement.mutual_information, rejection.disagreement),
                "realistic": np.ones(len(unit), dtype=bool)
                if reality is None or not rejection.realism
                else reality.accepts(unit, goal, estimator.classes),
            }
            checks["accepted"] = checks["on_target"] & checks["agreed"] & checks["realistic"]
            for name, fine in checks.items():
                passed[name] += int(fine.sum())
            drawn += len(pixels)
            distance += float(target_distance(mean, goal).sum())
            mine = np.flatnonzero(checks["accepted"])[: count - sum(len(part[0]) for part in kept)]
            variance, information = (values[mine] for values in agreement)
            kept.append((pixels[mine], mean[mine], goal[mine], variance, information))
            advance(min(count, passed["accepted"]), count)
            if passed["accepted"] >= count:
                break
    if not passed["accepted"]:
        raise UserError(
            f"None of {drawn:,} images was accepted ({_spelt(passed, drawn)}); train for longer, take a larger alpha, "
            "or reject less."
        )
    columns = [np.concatenate(column) for column in zip(*kept, strict=True)]
    return Companion(
        columns[0], columns[1], columns[2], Agreement(columns[3], columns[4]), drawn, passed, distance / drawn
    )


def assemble_companion(train: ImageSet, classes: tuple[int, ...], made: Companion, *, name: str, seed: int) -> ImageSet:
    """A set with soft labels, hard labels drawn from them, and a column for every judgement."""
    rng = np.random.default_rng([seed, len(made)])
    mean = made.mean / made.mean.sum(axis=1, keepdims=True)
    soft = np.zeros((len(made), train.num_classes))
    soft[:, list(classes)] = mean
    draws = rng.random((len(made), 1))
    hard = np.asarray(classes)[np.minimum((mean.cumsum(axis=1) < draws).sum(axis=1), len(classes) - 1)]
    likeliest = np.argsort(-mean, axis=1, kind="stable")[:, :2]
    order = np.tile([0, 1], (len(made), 1)) if len(classes) == 2 else likeliest
    rows = np.arange(len(made))
    columns = {
        "class_1": np.asarray(classes)[order[:, 0]],
        "class_2": np.asarray(classes)[order[:, 1]],
        "mean_probability": mean[rows, order[:, 0]],
        "variance": made.agreement.variance,
        "mutual_information": made.agreement.mutual_information,
        "target_r": made.target[rows, order[:, 0]],
    }
    return ambiguous_set(train, made.images, hard, soft, columns, name)


def companion_card(
    train: ImageSet, classes: tuple[int, ...], made: Companion, count: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """A JSON-able description of a companion set."""
    entropy = -(made.mean * np.log2(np.maximum(made.mean, 1e-300))).sum(axis=1)
    notes = []
    if len(made) < count:
        notes.append(
            f"{len(made)} images instead of {count}: of {made.drawn:,} images {_spelt(made.passed, made.drawn)}."
        )
    return {
        "generator": "AmbiGAN",
        "settings": settings,
        "train": train.describe(),
        "images": len(made),
        "classes": [train.class_names[label] for label in classes],
        "label_entropy_bits": float(entropy.mean()),
        "acd": made.acd,
        "acd_before_rejection": made.raw_acd,
        "member_variance": float(made.agreement.variance.mean()),
        "mutual_information": float(made.agreement.mutual_information.mean()),
        "drawn": made.drawn,
        "shares": {name: number / made.drawn for name, number in made.passed.items()},
        "notes": notes,
    }


def _within(values: Floats, largest: float | None) -> NDArray[np.bool_]:
    return np.ones(len(values), dtype=bool) if largest is None else np.asarray(values <= largest)


def _contrast(images: NDArray[np.float32]) -> Floats:
    """Standard deviation (n,) of the pixels of each image."""
    return np.asarray(images.reshape(len(images), -1).std(axis=1, dtype=np.float64))


def _spelt(passed: dict[str, int], drawn: int) -> str:
    words = {"on_target": "were on target", "agreed": "were agreed on", "realistic": "looked real"}
    return ", ".join(f"{passed[name] / drawn:.0%} {text}" for name, text in words.items())
