"""Which kind of anomaly an image is, from the scores of the supervisors, how it looks, and mild changes of it.

With v the scores of the supervisors, a few features of `supervisors.pixel_features` and those of `consistency`, and the
medians and spreads of nominal images,

    f = asinh((v - median) / spread)
    P(kind | anomaly) = softmax((W [f, |f|] + b) / temperature)

The absolute values are there because an image may be too blurred or too noisy, and is spoilt either way. W and b
minimise the cross-entropy of stress images with a penalty on W, all kinds weighing the same. The features are those of
how a picture was made: its noise, and how much of it is flat or clipped. Others (sharpness, colour, the spectrum) tell
sorts that were met from other kinds, and mislead about corruptions that were not: measured in
`lab/experiments/photo_features.py`, with the numbers in docs/evidence/guard.md. How far the answer moves when the image
is mirrored is used where nominal images keep their answer; `consistency` says why.

Bias and temperature make the probabilities honest about what has not been met: each sort of stress image (a corruption,
an attack, a source of invalid images) is left out in turn, of a kind with a single sort some images, the others are
learnt from, and both are chosen for the smallest cross-entropy of what was left out, all sorts of a kind weighing the
same. Of what was left out it is also recorded how often each name was right, by the probability that it was given. A
name is as sure as the mean of its probability and that record: kinds that are often mistaken for each other, such as a
corruption and an image of no class, then need a higher probability to be named alone. Only images that raise an alarm
count, since others are never named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.consistency import FINEST, MEASURED
from secondguess.guard.panel import LARGEST, Panel, spread_of, turns_of
from secondguess.guard.protect import Answers
from secondguess.guard.verdicts import MISTAKEN, OF_STRESS, Kind
from secondguess.supervisors.pixel_features import FEATURES, features_of

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["LOOKS", "Examined", "Naming", "fit_naming", "learn_names", "looks_of"]

Floats = NDArray[np.float64]

PENALTY = 0.3  # the inverse strength of the penalty on the weights
TIED = 0.01  # the strength of the penalty on what is added to the bias
TURNS = 5  # in which sorts are left out
LOOKS = ("noise", "colour_noise", "flat", "clipped")  # the features that are used beside the scores
PLACES = [FEATURES.index(name) for name in LOOKS]
COLDEST, HOTTEST, SHIFT = 0.5, 10.0, 3.0  # the range of temperatures, and of what is added to the bias
GRID = np.linspace(0, 1, 101)  # the probabilities at which the record of names is kept


def looks_of(images: ImageSource | NDArray[np.floating], rows: NDArray[np.int64] | None = None) -> Floats:
    """How images, or those at `rows`, look to a naming, (n, len(LOOKS)); a few are read at a time."""
    return features_of(images, rows)[:, PLACES]


@dataclass(frozen=True, eq=False)
class Examined:
    """Images of one kind of anomaly, as a naming sees them.

    Attributes:
        scores: (n, m) of the supervisors.
        looks: (n, q) as `looks_of` has them, then the features of each change of `consistency` that is used.
        sorts: (n,) of which sort each image is; None where there is one.
        alarms: (n,) which of them raise an alarm; None for all.
    """

    scores: Floats
    looks: Floats
    sorts: NDArray[Any] | None = None
    alarms: NDArray[np.bool_] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Examined]) -> Examined:
        """Several sets as one; all of them have sorts."""
        scores, looks = (np.concatenate([getattr(one, name) for one in parts]) for name in ("scores", "looks"))
        return cls(scores, looks, np.concatenate([one.sorts for one in parts if one.sorts is not None]))

    def take(self, rows: NDArray[Any]) -> Examined:
        """Some of the images."""
        sorts, alarms = (None if one is None else one[rows] for one in (self.sorts, self.alarms))
        return Examined(self.scores[rows], self.looks[rows], sorts, alarms)

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
        record: (t, len(GRID)) how often each name was right, by the probability that it was given.
        temperature: of the probabilities.
        changes: of `consistency`, whose features are the last of the looks.
    """

    anomalies: tuple[Kind, ...]
    centre: Floats
    spread: Floats
    weights: Floats
    bias: Floats
    record: Floats
    temperature: float
    changes: tuple[str, ...] = ()

    def chances(self, values: Floats) -> Floats:
        """The probabilities (n, t) of each kind, given that there is an anomaly.

        Args:
            values: (n, m + q), the scores of the supervisors, never NaN, `looks_of` the images and the features of
                their changes side by side.
        """
        return _softmax(
            _logits(_features(values, self.centre, self.spread), self.weights, self.bias) / self.temperature
        )

    def sureness(self, chances: Floats) -> Floats:
        """How sure the likeliest kind is, (n,), from the probabilities (n, t)."""
        first, given = chances.argmax(axis=1), chances.max(axis=1)
        earned = np.empty_like(given)
        for kind, record in enumerate(self.record):
            earned[first == kind] = np.interp(given[first == kind], GRID, record)
        return (given + earned) / 2

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file must hold."""
        return {one.name: value for one in fields(self) if isinstance(value := getattr(self, one.name), np.ndarray)}

    def card(self) -> dict[str, Any]:
        """The rest, as JSON."""
        return {"anomalies": list(self.anomalies), "temperature": self.temperature, "changes": list(self.changes)}

    @classmethod
    def restored(cls, card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Naming:
        """The opposite of `card` and `arrays`.

        Guards of format 4 knew no changes, and the first of them kept no record: they take a probability as it is.
        """
        kinds = {"anomalies": tuple(card["anomalies"]), "changes": tuple(card.get("changes", ()))}
        return cls(**{"record": np.tile(GRID, (len(card["anomalies"]), 1)), **card, **kinds, **arrays})


def fit_naming(nominal: Examined, anomalies: Mapping[Kind, Examined], changes: Sequence[str] = ()) -> Naming | None:
    """Learn to tell kinds of anomaly apart; None where there are fewer than two.

    Args:
        nominal: nominal images, for the scale of scores and looks.
        anomalies: images of each kind.
        changes: of `consistency`, whose features are the last of the looks.
    """
    if len(anomalies) < 2:
        return None
    usual = _limited(nominal.values)
    centre, spread = np.median(usual, axis=0), spread_of(usual)
    if changes:
        own = spread[-len(MEASURED) * len(changes) :]
        np.maximum(own, FINEST, out=own)
    rows = np.concatenate([_features(one.values, centre, spread) for one in anomalies.values()])
    turns = np.concatenate([turns_of(one.sorts, len(one.scores), TURNS, 0) for one in anomalies.values()])
    kinds = np.repeat(np.arange(len(anomalies)), [len(one.scores) for one in anomalies.values()])
    weights, bias = _logistic(rows, kinds)
    unmet, logits = _unmet(rows, kinds, turns)
    shares = np.concatenate([_shares(one) for one in anomalies.values()])[unmet]
    temperature, added = _recalibrated(logits, kinds[unmet], shares)
    record = _record(_softmax(logits / temperature + added), kinds[unmet], shares)
    learnt = weights, bias + temperature * added, record, temperature
    return Naming(tuple(anomalies), centre, spread, *learnt, tuple(changes))


def learn_names(
    panel: Panel,
    false_alarms: float,
    nominal: Examined,
    answers: Answers,
    stress: Mapping[str, Examined],
    changes: Sequence[str] = (),
) -> Naming | None:
    """Learn to tell apart the kinds that a panel knows; None where it knows one, or where there are no stress images.

    What an image is does not depend on the answer: all images of a kind are learnt from, whatever an alarm is for.

    Args:
        panel: which raises the alarms.
        false_alarms: the share of nominal images, answered rightly, that may raise one.
        nominal: nominal images; those that are answered wrongly are of the kind `mistaken`.
        answers: to them.
        stress: the images of each kind of stress set.
        changes: of `consistency`, whose features are the last of the looks.
    """
    known = {OF_STRESS[kind]: one for kind, one in stress.items()} | {MISTAKEN: nominal.take(answers.wrong)}
    if not stress or not all(kind in known for kind in panel.anomalies):
        return None
    usual = nominal.take(~answers.wrong)
    limit = np.quantile(panel.combine(usual.scores)[0], 1 - false_alarms)

    def alarming(one: Examined) -> Examined:
        return replace(one, alarms=panel.combine(one.scores)[0] > limit) if len(one.scores) else one

    return fit_naming(usual, {kind: alarming(known[kind]) for kind in panel.anomalies}, changes)


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


def _softmax(logits: Floats) -> Floats:
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _unmet(rows: Floats, kinds: NDArray[np.int64], turns: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Which images (u,) can be left out, and what is then said of them, (u, t)."""
    t = int(kinds.max()) + 1
    left_out = [turns == number for number in np.unique(turns)]
    left_out = [out for out in left_out if len(np.unique(kinds[~out])) == t]
    logits = [_logits(rows[out], *_logistic(rows[~out], kinds[~out])) for out in left_out]
    places = [np.flatnonzero(out) for out in left_out]
    return np.concatenate([*places, np.empty(0, dtype=np.int64)]), np.concatenate([*logits, np.empty((0, t))])


def _shares(one: Examined) -> Floats:
    """How much each image of a kind weighs, (n,): all sorts the same, and only images that raise an alarm."""
    counted = np.ones(len(one.scores), dtype=bool) if one.alarms is None else one.alarms
    codes = np.zeros(len(counted), dtype=int) if one.sorts is None else np.unique(one.sorts, return_inverse=True)[1]
    shares = np.where(counted, 1 / np.maximum(np.bincount(codes[counted], minlength=len(counted) + 1), 1)[codes], 0.0)
    return shares / max(shares.sum(), 1e-300)


def _recalibrated(logits: Floats, kinds: NDArray[np.int64], shares: Floats) -> tuple[float, Floats]:
    """The temperature, and what is added to the bias (t,), with the smallest cross-entropy of images left out."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    t, total = logits.shape[1], shares.sum()
    if not total:
        return 1.0, np.zeros(t)

    def loss(values: Floats) -> float:
        spoken = log_softmax(logits / np.exp(values[0]) + values[1:], axis=1)[np.arange(len(kinds)), kinds]
        return float(-(shares @ spoken) / total + TIED * np.square(values[1:]).sum())

    bounds = [(np.log(COLDEST), np.log(HOTTEST)), *[(-SHIFT, SHIFT)] * t]
    best = minimize(loss, np.r_[np.log(2.0), np.zeros(t)], method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(best[0])), best[1:]


def _record(chances: Floats, kinds: NDArray[np.int64], shares: Floats) -> Floats:
    """How often each name is right, (t, len(GRID)), by its probability: never less often for a higher one."""
    from sklearn.isotonic import IsotonicRegression

    first, given = chances.argmax(axis=1), chances.max(axis=1)
    record = np.zeros((chances.shape[1], len(GRID)))  # a name that was never given has earned nothing
    for kind, own in enumerate(record):
        mine = (first == kind) & (shares > 0)
        if mine.any():
            model = IsotonicRegression(out_of_bounds="clip")
            own[:] = model.fit(given[mine], kinds[mine] == kind, sample_weight=shares[mine]).predict(GRID)
    return record if len(chances) else np.tile(GRID, (chances.shape[1], 1))
