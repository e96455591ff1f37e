"""Explanations of predictions: superpixel LIME of an image and of its counterexample, and the prototype of a class.

LIME (Ribeiro, Singh, Guestrin, KDD 2016) hides superpixels at random, z in {0, 1}^S with 0 = hidden, asks the
classifier for the probability f(z) of a class, and fits a linear model to the answers near the image:

    w = argmin over w, b of  sum_z k(z) (f(z) - w·z - b)² + λ |w|²,    k(z)² = exp(-D(z)² / σ²),
    D(z) = 1 - cos(z, 1) = 1 - sqrt(sum z / S),    σ = 0.25, λ = 1 as in the authors' code.

w_s > 0: superpixel s speaks for the class. The sampling and the fit are captum's; all it needs is the classifier's
answers, so it works on a black box. A hidden superpixel takes its mean colour, as in the authors' code.

Bennette, Maurer and Sisti (IJCNN 2020) show such explanations of an error and of its counterexample side by side,
with the prototype of the class: the image of that prediction that is farthest from any other decision.

Departure: superpixels are clusters of k-means on colour and position, without a step that makes each connected; the
counterexample is explained on those of its image, so that the two can be compared one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require

if TYPE_CHECKING:
    from markupsafe import Markup

    from secondguess.model.classifier import Classifier

__all__ = ["Explanation", "explain", "explain_pair", "figure", "prototype", "superpixels"]

Floats = NDArray[np.float64]
Image = NDArray[np.float32]

SEGMENTS = 40  # superpixels per image, unless it is too small
SMALLEST = 12  # pixels that a superpixel has at least, on average
SAMPLES = 500
WIDTH, RIDGE = 0.25, 1.0  # σ and λ
NEARNESS = 1.0  # of position against colour: a neighbouring superpixel is as far as black from white
FOR, AGAINST = (0.09, 0.62, 0.55), (0.88, 0.42, 0.12)  # teal and orange: distinct with any colour vision


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which parts of an image speak for a class, according to a classifier.

    Attributes:
        image: (C, H, W) float32 in [0, 1].
        segments: (H, W) int64, the superpixel that each pixel belongs to, 0..S-1.
        weights: (S,) how much the probability of the class rises when a superpixel is shown.
        target: the class.
        probability: of the class, given the whole image.
    """

    image: Image
    segments: NDArray[np.int64]
    weights: Floats
    target: int
    probability: float

    def overlay(self, strength: float = 0.75) -> Image:
        """The image (3, H, W) in grey, with what speaks for the class in teal and what speaks against it in orange."""
        grey = np.broadcast_to(self.image[:3].mean(axis=0), (3, *self.segments.shape))
        share = self.weights / max(float(np.abs(self.weights).max()), 1e-12)
        painted = share[self.segments]
        colour = np.where(painted[None] > 0, np.reshape(FOR, (3, 1, 1)), np.reshape(AGAINST, (3, 1, 1)))
        alpha = strength * np.abs(painted)
        return np.clip((1 - alpha) * grey + alpha * colour, 0, 1).astype(np.float32)


def superpixels(image: Image, count: int = SEGMENTS, *, seed: int = 0) -> NDArray[np.int64]:
    """Cut an image into parts of similar colour that lie together.

    Args:
        image: (C, H, W) in [0, 1].
        count: how many parts at most; a small image has fewer.
        seed: of the k-means.

    Returns:
        (H, W) numbers 0..S-1 of the parts.
    """
    from sklearn.cluster import KMeans

    if count < 1:
        raise UserError(f"An image cannot be cut into {count} parts; give at least 1.")
    channels, height, width = image.shape
    count = max(1, min(count, height * width // SMALLEST))
    side = np.sqrt(height * width / count)
    rows, columns = np.mgrid[0:height, 0:width]
    position = np.stack([rows, columns]).reshape(2, -1) * (NEARNESS / side)
    colour = image.reshape(channels, -1) / np.sqrt(channels)
    points = np.concatenate([colour, position]).T.astype(np.float64)
    found = KMeans(count, n_init=1, random_state=seed).fit_predict(points)
    return np.unique(found, return_inverse=True)[1].reshape(height, width).astype(np.int64)


def explain(
    classifier: Classifier,
    image: Image,
    target: int | None = None,
    *,
    segments: NDArray[np.int64] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Explanation:
    """Explain why a classifier gives an image a class, by LIME on superpixels.

    Args:
        classifier: any; its probabilities are all that is used.
        image: (C, H, W) in [0, 1].
        target: the class to explain; the predicted one if left out.
        segments: (H, W) the superpixels; those of `superpixels` if left out.
        samples: how many images with hidden parts are put to the classifier, in batches of its own size.
        seed: of the superpixels and of what is hidden. The same seed hides the same, whatever the batch size.
    """
    lime = require("captum.attr", "explain")
    linear = require("captum._utils.models.linear_model", "explain")
    import torch

    if samples < 1:
        raise UserError(f"{samples} samples were asked for; give at least 1, and hundreds for a clear picture.")
    answer = classifier.predict(image[None])[0]
    target = int(answer.argmax()) if target is None else target
    if not 0 <= target < len(answer):
        raise UserError(f"Class {target} is to be explained, but the classes are numbered 0..{len(answer) - 1}.")
    segments = superpixels(image, seed=seed) if segments is None else segments
    generator = torch.Generator().manual_seed(seed)

    def shown(original: Any, num_interp_features: int, **_: Any) -> Any:
        return torch.randint(0, 2, (1, num_interp_features), generator=generator)

    def probabilities(images: Any) -> Any:
        return torch.tensor(classifier.predict(images.numpy()))

    explainer = lime.Lime(probabilities, linear.SkLearnRidge(alpha=RIDGE), _nearness, shown)
    weights = explainer.attribute(
        torch.from_numpy(image[None].copy()),
        baselines=torch.from_numpy(_flattened(image, segments)[None]),
        target=target,
        feature_mask=torch.from_numpy(segments[None, None]),
        n_samples=samples,
        perturbations_per_eval=min(classifier.batch_size, samples),
        return_input_shape=False,
    )
    found = weights.numpy().astype(np.float64).reshape(-1)
    return Explanation(image, segments, found, target, float(answer[target]))


def explain_pair(
    classifier: Classifier, image: Image, counterexample: Image, *, samples: int = SAMPLES, seed: int = 0
) -> tuple[Explanation, Explanation]:
    """Explain an image and its counterexample, each for the class that it is given, on the same superpixels."""
    first = explain(classifier, image, samples=samples, seed=seed)
    return first, explain(classifier, counterexample, segments=first.segments, samples=samples, seed=seed)


def prototype(predictions: NDArray[np.int64], distances: Floats, target: int) -> int | None:
    """The most typical image of a class: of those predicted so, the one with the largest distance.

    Args:
        predictions: (n,) predicted classes.
        distances: (n,) from any other decision; those that are not finite do not count.
        target: the class.

    Returns:
        Its position, or None where no distance of an image of that prediction is known.
    """
    rows = np.flatnonzero((predictions == target) & np.isfinite(distances))
    return int(rows[np.argmax(distances[rows])]) if len(rows) else None


def figure(explanations: Sequence[Explanation], titles: Sequence[str], label: str) -> Markup:
    """Images above their explanations, as inline SVG for a report.

    Args:
        explanations: one per column.
        titles: what stands above each column.
        label: what a screen reader says.
    """
    from secondguess.report.figures import canvas, to_svg

    count = len(explanations)
    if not count or len(titles) != count:
        raise UserError(f"{count} explanations and {len(titles)} titles were given; give one title for each.")
    with canvas(1.9 * count, 4.0, nrows=2, ncols=count, squeeze=False) as (drawing, axes):
        for column, (one, title) in enumerate(zip(explanations, titles, strict=True)):
            plain = np.broadcast_to(one.image[:3], (3, *one.segments.shape))
            for row, picture in enumerate((plain, one.overlay())):
                axes[row, column].imshow(np.moveaxis(picture, 0, -1), vmin=0, vmax=1, interpolation="nearest")
                axes[row, column].set_axis_off()
            axes[0, column].set_title(title)
        return to_svg(drawing, label)


def _nearness(original: Any, perturbed: Any, shown: Any, **_: Any) -> float:
    """k(z), how much an image with hidden parts counts."""
    distance = 1 - float(shown.float().mean()) ** 0.5
    return float(np.sqrt(np.exp(-(distance**2) / WIDTH**2)))


def _flattened(image: Image, segments: NDArray[np.int64]) -> Image:
    """The image with every superpixel in its mean colour."""
    flat = segments.reshape(-1)
    counts = np.bincount(flat)
    means = np.stack([np.bincount(flat, channel.reshape(-1)) / counts for channel in image])
    return means[:, segments].astype(np.float32)
