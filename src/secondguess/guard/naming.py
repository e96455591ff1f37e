"""Which kind of anomaly an image is, from the scores of the supervisors and from how it looks.

With v the scores of the supervisors and a few features of `supervisors.pixel_features`, and the medians and spreads of
nominal images,

    f = asinh((v - median) / spread)
    P(kind | anomaly) = softmax((W [f, |f|] + b) / temperature)

The absolute values are there because an image may be too blurred or too noisy, and is spoilt either way. W and b
minimise the cross-entropy of stress images with a penalty on W, all kinds weighing the same. The features are those of
how a picture was made: its noise, and how much of it is flat or clipped. Others (brightness, colour, the spectrum) tell
the corruptions that were met from other kinds, and mislead about corruptions that were not.

The temperature makes the probabilities honest about what has not been met: each sort of stress image (a corruption, an
attack, a source of invalid images) is left out in turn, of a kind with a single sort some images, the others are learnt
from, and the temperature is the one with the smallest Brier score of what was left out. The cross-entropy in its place
would make all names vague for the sake of the one sort that is surely mistaken for another kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.panel import LARGEST, spread_of, turns_of
from secondguess.guard.protect import Answers
from secondguess.guard.verdicts import MISTAKEN, OF_STRESS, Kind
from secondguess.supervisors.pixel_features import FEATURES, features_of, pixel_features

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["LOOKS", "Examined", "Naming", "fit_naming", "learn_names", "looks_of"]

Floats = NDArray[np.float64]

PENALTY = 0.3  # the inverse strength of the penalty on the weights
TURNS = 5  # in which sorts are left out
LOOKS = ("noise", "colour_noise", "flat", "clipped")  # the features that are used beside the scores
PLACES = [FEATURES.index(name) for name in LOOKS]
COLDEST, HOTTEST = 0.5, 10.0  # temperatures


def looks_of(images: ImageSource) -> Floats:
    """How images look to a naming, (n, len(LOOKS))."""
    return features_of(images)[:, PLACES]


@dataclass(frozen=True, eq=False)
class Examined:
    """Images of one kind of anomaly, as a naming sees them.

    Attributes:
        scores: (n, m) of the supervisors.
        looks: (n, q) as `looks_of` has them.
        sorts: (n,) of which sort each image is; None where there is one.
    """

    scores: Floats
    looks: Floats
    sorts: NDArray[Any] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Examined]) -> Examined:
        """Several sets as one; all of them have sorts."""
        scores, looks = (np.concatenate([getattr(one, name) for one in parts]) for name in ("scores", "looks"))
        return cls(scores, looks, np.concatenate([one.sorts for one in parts if one.sorts is not None]))

    def take(self, rows: NDArray[Any]) -> Examined:
        """Some of the images."""
        return Examined(self.scores[rows], self.looks[rows], None if self.sorts is None else self.sorts[rows])

    @property
    def values(self) -> Floats:
        """Scores and looks side by side, (n, m + q)."""
        return np.hstack([self.scores, self.looks])


@dataclass(frozen=True, eq=False)
class Naming:
    """What tells the t kinds of anomaly apart.

    Attributes:
        anomalies: the t kinds.
        centre: (m + q,) medians of scores and looks of nominal images.
        spread: (m + q,) their spreads.
        weights: (2 (m + q), t).
        bias: (t,).
        temperature: of the probabilities.
    """

    anomalies: tuple[Kind, ...]
    centre: Floats
    spread: Floats
    weights: Floats
    bias: Floats
    temperature: float

    def chances(self, scores: Floats, images: NDArray[np.floating]) -> Floats:
        """The probabilities (n, t) of each kind, given that there is an anomaly.

        Args:
            scores: (n, m) of the supervisors, never NaN.
            images: (n, C, H, W) in [0, 1].
        """
        return self.chances_of(np.hstack([scores, pixel_features(images)[:, PLACES]]))

    def chances_of(self, values: Floats) -> Floats:
        """The same from scores and looks side by side, (n, m + q)."""
        logits = _logits(_features(values, self.centre, self.spread), self.weights, self.bias) / self.temperature
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file must hold."""
        return {one.name: value for one in fields(self) if isinstance(value := getattr(self, one.name), np.ndarray)}

    def card(self) -> dict[str, Any]:
        """The rest, as JSON."""
        return {"anomalies": list(self.anomalies), "temperature": self.temperature}

    @classmethod
    def restored(cls, card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Naming:
        """The opposite of `card` and `arrays`."""
        return cls(**{**card, "anomalies": tuple(card["anomalies"]), **arrays})


def fit_naming(nominal: Examined, anomalies: Mapping[Kind, Examined]) -> Naming | None:
    """Learn to tell kinds of anomaly apart; None where there are fewer than two.

    Args:
        nominal: nominal images, for the scale of scores and looks.
        anomalies: images of each kind.
    """
    if len(anomalies) < 2:
        return None
    usual = _limited(nominal.values)
    centre, spread = np.median(usual, axis=0), spread_of(usual)
    rows = np.concatenate([_features(one.values, centre, spread) for one in anomalies.values()])
    turns = np.concatenate([turns_of(one.sorts, len(one.scores), TURNS, 0) for one in anomalies.values()])
    kinds = np.repeat(np.arange(len(anomalies)), [len(one.scores) for one in anomalies.values()])
    weights, bias = _logistic(rows, kinds)
    return Naming(tuple(anomalies), centre, spread, weights, bias, _temperature(rows, kinds, turns))


def learn_names(
    kinds: Sequence[Kind], nominal: Examined, answers: Answers, stress: Mapping[str, Examined]
) -> Naming | None:
    """Learn to tell apart the kinds that a panel knows; None where it knows one, or where there are no stress images.

    What an image is does not depend on the answer: all images of a kind are learnt from, whatever an alarm is for.

    Args:
        kinds: the kinds of the panel.
        nominal: nominal images; those that are answered wrongly are of the kind `mistaken`.
        answers: to them.
        stress: the images of each kind of stress set.
    """
    known = {OF_STRESS[kind]: one for kind, one in stress.items()} | {MISTAKEN: nominal.take(answers.wrong)}
    if not stress or not all(kind in known for kind in kinds):
        return None
    return fit_naming(nominal.take(~answers.wrong), {kind: known[kind] for kind in kinds})


def _limited(values: Floats) -> Floats:
    return np.clip(values, -LARGEST, LARGEST)


def _features(values: Floats, centre: Floats, spread: Floats) -> Floats:
    scaled = np.arcsinh((_limited(values) - centre) / spread)
    return np.hstack([scaled, np.abs(scaled)])


def _logistic(rows: Floats, kinds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Weights (f, t) and bias (t,) of a multinomial logistic regression in which all kinds weigh the same."""
    from sklearn.linear_model import LogisticRegression

    mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
    model = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=200)
    model.fit((rows - mean) / deviation, kinds)
    weights, bias = model.coef_.T, model.intercept_
    if weights.shape[1] == 1:  # scikit-learn has a single output for two kinds
        weights, bias = np.hstack([-weights, weights]) / 2, np.array([-bias[0], bias[0]]) / 2
    weights = weights / deviation[:, None]
    return weights, bias - mean @ weights


def _logits(rows: Floats, weights: Floats, bias: Floats) -> Floats:
    return np.asarray(rows @ weights + bias)


def _temperature(rows: Floats, kinds: NDArray[np.int64], turns: NDArray[np.int64]) -> float:
    """With which the kinds of images that were left out have the smallest Brier score, all kinds weighing the same."""
    from scipy.optimize import minimize_scalar
    from scipy.special import softmax

    numbers = [one for one in np.unique(turns) if len(np.unique(kinds[turns != one])) == kinds.max() + 1]
    if not numbers:
        return 1.0
    logits = np.concatenate(
        [_logits(rows[turns == one], *_logistic(rows[turns != one], kinds[turns != one])) for one in numbers]
    )
    truth = np.concatenate([kinds[turns == one] for one in numbers])
    share, wanted = 1 / np.bincount(truth, minlength=logits.shape[1])[truth], np.eye(logits.shape[1])[truth]

    def score(log_temperature: float) -> float:
        errors = np.square(softmax(logits / np.exp(log_temperature), axis=1) - wanted).sum(axis=1)
        return float(share @ errors)

    best = minimize_scalar(score, bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded")
    return float(np.exp(best.x))
