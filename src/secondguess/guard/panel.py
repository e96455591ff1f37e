"""A panel of supervisors: one statistic for each prediction, and the kind of anomaly that it resembles.

From the scores s (m,) of an image, with the medians and spreads of nominal scores, come the features

    f_j = asinh((s_j - median_j) / spread_j)

(linear near the middle, logarithmic far out, so that a score of 10^9 is no more than a large one) and a small network
with one hidden layer gives the logits of `nominal` and of each kind of anomaly. It has learnt them from nominal images
and from stress sets, all kinds weighing the same. The statistic of the image is

    T = w_0 [log P(anomaly) - log P(nominal) + max(0, -log(m min_j p_j))] + sum_j w_j (-log p_j)

with p_j the conformal p-value of supervisor j among the nominal images, interpolated between them so that rounding does
not move it by a whole rank (of equal nominal scores it counts as the last one). The first part is what the panel has
learnt. The second is Bonferroni's rule in logarithms, for anomalies that no stress set resembles. It is added, and no
larger than log((r + 1) / m) for r nominal images: a network that is sure of a nominal image outweighs it where one
supervisor alone has never seen such a score and all others find nothing. A guard that must not miss that takes
`rule="bonferroni"`. The third lets single supervisors speak for themselves, where they see more of a kind than
the network does; the weights are such that no kind is neglected (`weighing`). A network is better on what it has learnt
from than on anything else, so the weights are found with what others say that have not met an image: each sort of
anomaly (a corruption, an attack, a source of invalid images) is left out in turn, and so are parts of the nominal
images.

The false-alarm rate does not depend on any of this: T is one more score, and its threshold is calibrated on
nominal images that neither the supervisors nor the panel have seen (`thresholds`). `rule` replaces T by a plain
combination of the p-values (`combining`), for a guard without stress sets.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import mul
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.combining import RULES
from secondguess.guard.verdicts import SUSPICIOUS, Kind
from secondguess.guard.weighing import weigh

__all__ = ["LARGEST", "Panel", "Rule", "fit_panel", "spread_of", "turns_of"]

Rule = Literal["learnt", "bonferroni", "harmonic", "cauchy"]
Floats = NDArray[np.float64]

HIDDEN, PENALTY, EPOCHS, RATE, BATCH = 64, 0.1, 60, 3e-3, 256
HELD_OUT = 0.2  # of the examples, for the temperature
TURNS = 3  # in which sorts are left out, for the weights
REFERENCES = 5000  # nominal images that are kept for the supervisors' own p-values
LARGEST = 1e30  # what an infinite score counts as
SMALLEST = 1e-290  # what is smaller counts as 0: a saturated softmax leaves differences that cannot be divided by
COLDEST = 0.05  # the lowest temperature: kinds that were never confused in the check would ask for 0


@dataclass(frozen=True, eq=False)
class Panel:
    """What has been learnt from the scores of m supervisors.

    Attributes:
        rule: how scores become one statistic.
        anomalies: the t kinds of anomaly that are distinguished.
        references: (r, m) nominal scores, each column sorted.
        centre: (m,) their medians.
        spread: (m,) their spreads.
        weights_in: (m, h) of the network, its features standardised by what they were in training; empty without one.
        bias_in: (h,).
        weights_out: (h, 1 + t); `nominal` comes first.
        bias_out: (1 + t,).
        temperature: of the probabilities of the anomalies.
        novelty: whether a score like no nominal one is a reason for an alarm by itself.
        shares: (1 + m,) the weights of the network and of each supervisor; empty where the network decides alone.
    """

    rule: Rule
    anomalies: tuple[Kind, ...]
    references: Floats
    centre: Floats
    spread: Floats
    weights_in: Floats
    bias_in: Floats
    weights_out: Floats
    bias_out: Floats
    temperature: float = 1.0
    novelty: bool = True
    shares: Floats = field(default_factory=lambda: np.zeros(0))

    def combine(self, scores: Floats) -> tuple[Floats, Floats]:
        """The statistics (n,) and the probabilities (n, t) of each kind of anomaly, given that there is one.

        Args:
            scores: (n, m) of the supervisors, never NaN.
        """
        if self.rule != "learnt":
            ones = np.full((len(scores), len(self.anomalies)), 1 / len(self.anomalies))
            return -np.log(RULES[self.rule](self.p_values(scores))), ones
        if len(scores) == 1:
            return self._combine_one(scores[0].tolist())
        limited = _limited(scores)
        logits = self._logits(limited)
        top = logits[:, 1:].max(axis=1, keepdims=True)
        kinds = logits[:, 1:] - top
        odds = np.log(np.exp(kinds).sum(axis=1)) + (top - logits)[:, 0]
        chances = np.exp(kinds / self.temperature)
        if self.novelty or len(self.shares):
            surprises = self._surprises(limited)
            if self.novelty:
                odds = odds + np.maximum(0.0, surprises.max(axis=1) - math.log(surprises.shape[1]))
            if len(self.shares):
                odds = self.shares[0] * odds + surprises @ self.shares[1:]
        return odds, chances / chances.sum(axis=1, keepdims=True)

    def _combine_one(self, scores: Sequence[float]) -> tuple[Floats, Floats]:
        """The same for one image, in plain numbers: for so few, the overhead of NumPy exceeds the computation."""
        limited = [min(max(score, -LARGEST), LARGEST) if abs(score) >= SMALLEST else 0.0 for score in scores]
        features = [math.asinh((s - c) / w) for s, (c, w) in zip(limited, self._scales, strict=True)]
        hidden = np.array(features) @ self.weights_in + self.bias_in
        np.maximum(hidden, 0.0, out=hidden)
        nominal, *kinds = (hidden @ self.weights_out + self.bias_out).tolist()
        top = max(kinds)
        odds = math.log(sum(math.exp(kind - top) for kind in kinds)) + top - nominal
        chances = [math.exp((kind - top) / self.temperature) for kind in kinds]
        if self.novelty or len(self.shares):
            r, m = self.references.shape
            ranks = [_rank(score, own) for score, own in zip(limited, self._lists, strict=True)]
            if self.novelty:
                odds += max(0.0, -math.log(m * (1 + r - max(ranks)) / (r + 1)))
            if len(self.shares):
                own_share, *shares = self._share_list
                surprises = (-math.log((1 + r - rank) / (r + 1)) for rank in ranks)
                odds = own_share * odds + sum(map(mul, shares, surprises))
        total = sum(chances)
        return np.array([odds]), np.array([[chance / total for chance in chances]])

    def p_values(self, scores: Floats) -> Floats:
        """The conformal p-value (n, m) of each score among the references."""
        r = len(self.references)
        below = np.empty(scores.shape)
        for column, (values, own) in enumerate(zip(_limited(scores).T, self._columns, strict=True)):
            below[:, column] = own.searchsorted(values)
        return (1 + r - below) / (r + 1)

    @cached_property
    def _columns(self) -> list[Floats]:
        """The references of each supervisor, lying together: a search through every m-th number is slow."""
        return list(np.ascontiguousarray(self.references.T))

    @cached_property
    def _lists(self) -> list[list[float]]:
        """The same as lists, for one image."""
        return [own.tolist() for own in self._columns]

    @cached_property
    def _scales(self) -> list[tuple[float, float]]:
        """Median and spread of each supervisor, for one image."""
        return list(zip(self.centre.tolist(), self.spread.tolist(), strict=True))

    @cached_property
    def _ranks(self) -> Floats:
        return np.arange(1.0, len(self.references) + 1)

    @cached_property
    def _share_list(self) -> list[float]:
        return [float(share) for share in self.shares]

    def _surprises(self, limited: Floats) -> Floats:
        """-log p (n, m) of each supervisor, with p interpolated between the references."""
        r = len(self.references)
        ranks = np.empty(limited.shape)
        for column, (values, own) in enumerate(zip(limited.T, self._columns, strict=True)):
            ranks[:, column] = np.interp(values, own, self._ranks, left=0.0)
        return np.asarray(-np.log((1 + r - ranks) / (r + 1)))

    def evidence(self, scores: Floats) -> Floats:
        """What the network and each supervisor say, (n, 1 + m), before they are weighed; the first is the network."""
        network = replace(self, shares=np.zeros(0)).combine(scores)[0]
        return np.column_stack([network, self._surprises(_limited(scores))])

    def _logits(self, limited: Floats) -> Floats:
        hidden = _features(limited, self.centre, self.spread) @ self.weights_in + self.bias_in
        np.maximum(hidden, 0.0, out=hidden)
        return np.asarray(hidden @ self.weights_out + self.bias_out)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file must hold."""
        arrays = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}

    def card(self) -> dict[str, Any]:
        """The rest, as JSON."""
        return {
            "rule": self.rule,
            "anomalies": list(self.anomalies),
            "temperature": self.temperature,
            "novelty": self.novelty,
        }

    @classmethod
    def restored(cls, card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Panel:
        """The opposite of `card` and `arrays`."""
        return cls(**{**card, "anomalies": tuple(card["anomalies"]), **arrays})


def fit_panel(
    nominal: Floats,
    anomalies: Mapping[Kind, Floats],
    *,
    sorts: Mapping[Kind, NDArray[Any]] | None = None,
    harmless: Floats | None = None,
    rule: Rule = "learnt",
    seed: int = 0,
) -> Panel:
    """Learn from the scores of nominal images and of images of each kind of anomaly.

    Args:
        nominal: (n, m) scores of images that the supervisors were not fitted on.
        anomalies: (k, m) scores for each kind; none of them for a plain rule.
        sorts: (k,) of which sort each image of a kind is, for kinds that have several.
        harmless: (h, m) scores of strange images that are to raise no alarm; with them, novelty is no reason for one.
        rule: `"learnt"`, or the plain rule to take.
        seed: of the network's training.
    """
    if rule != "learnt" and rule not in RULES:
        raise UserError(f"There is no rule {rule!r} for a panel; there is learnt, {', '.join(RULES)}.")
    if rule == "learnt" and not anomalies:
        raise UserError("A panel learns from stress sets, but there are none; give some, or take rule='bonferroni'.")
    finite = _finite(nominal)
    kept = np.random.default_rng([seed, 0]).permutation(len(finite))[:REFERENCES]
    centre, spread = np.median(finite, axis=0), spread_of(finite)
    plain = Panel(
        rule=rule,
        anomalies=tuple(anomalies) or (SUSPICIOUS,),
        references=np.sort(finite[kept], axis=0),
        centre=centre,
        spread=spread,
        weights_in=np.zeros((finite.shape[1], 0)),
        bias_in=np.zeros(0),
        weights_out=np.zeros((0, 0)),
        bias_out=np.zeros(0),
        novelty=harmless is None,
    )
    if rule != "learnt":
        return plain
    groups = [finite if harmless is None else np.concatenate([finite, _limited(harmless)])]
    groups += [_limited(one) for one in anomalies.values()]
    known = [None, *((sorts or {}).get(kind) for kind in anomalies)]
    turns = [turns_of(own, len(one), TURNS, seed) for own, one in zip(known, groups, strict=True)]
    quiet, *kinds = _unmet(plain, groups, turns, seed)
    return replace(plain, **_train(plain, groups, seed), shares=weigh(quiet, kinds, seed=seed))


def turns_of(sorts: NDArray[Any] | None, n: int, turns: int, seed: int) -> NDArray[np.int64]:
    """In which turn each of n images is left out, (n,): sort by sort, or at random where there is one sort."""
    if sorts is None or len(np.unique(sorts)) < 2:
        return np.random.default_rng([seed, 3]).permutation(n) % turns
    return np.asarray(np.unique(sorts, return_inverse=True)[1] % turns).astype(np.int64)


def _unmet(plain: Panel, groups: Sequence[Floats], turns: Sequence[NDArray[np.int64]], seed: int) -> list[Floats]:
    """The evidence (n, 1 + m) about the images of each group, by networks that have not met them or their sort."""
    evidence = [np.empty((len(group), 1 + group.shape[1])) for group in groups]
    for number in range(TURNS):
        met = [group[turn != number] for group, turn in zip(groups, turns, strict=True)]
        enough = [part if len(part) > 1 else group for part, group in zip(met, groups, strict=True)]
        panel = replace(plain, **_train(plain, enough, seed))
        for group, turn, found in zip(groups, turns, evidence, strict=True):
            if (turn == number).any():
                found[turn == number] = panel.evidence(group[turn == number])
    return evidence


def _features(limited: Floats, centre: Floats, spread: Floats) -> Floats:
    return np.arcsinh((limited - centre) / spread)


def _rank(score: float, ordered: list[float]) -> float:
    """How many of the ordered numbers are at most `score`, interpolated between them: what `np.interp` gives."""
    below = bisect_right(ordered, score)
    if below in (0, len(ordered)):
        return float(below)
    low, high = ordered[below - 1], ordered[below]
    return (score - low) * (1.0 / (high - low)) + below


def _limited(scores: Floats) -> Floats:
    limited = np.minimum(np.maximum(scores, -LARGEST), LARGEST)
    limited[np.abs(limited) < SMALLEST] = 0.0
    return limited


def _train(plain: Panel, scores: Sequence[Floats], seed: int) -> dict[str, Any]:
    """The network and its temperature, from the scores (k, m) of nominal images and of each kind of anomaly."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    from secondguess.training import fit_temperature

    groups = [_features(one, plain.centre, plain.spread) for one in scores]
    rng = np.random.default_rng([seed, 1])
    learn, check = zip(*(_parted(group, rng) for group in groups), strict=True)
    features, kinds = _balanced(learn, rng)
    mean, deviation = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    network = MLPClassifier(
        (HIDDEN,),
        alpha=PENALTY,
        learning_rate_init=RATE,
        max_iter=EPOCHS,
        batch_size=min(BATCH, len(features)),
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of epochs is meant
        network.fit((features - mean) / deviation, kinds)
    (first, last), (bias, bias_out) = network.coefs_, network.intercepts_
    if len(groups) == 2:  # scikit-learn has a single output for two classes
        last, bias_out = np.hstack([np.zeros_like(last), last]), np.array([0.0, bias_out[0]])
    weights = first / deviation[:, None]
    found = {"weights_in": weights, "bias_in": bias - mean @ weights, "weights_out": last, "bias_out": bias_out}
    stress, labels = _balanced(check[1:], rng)
    hidden = np.maximum(stress @ found["weights_in"] + found["bias_in"], 0.0)
    logits = (hidden @ last + bias_out)[:, 1:]
    return found | {"temperature": max(COLDEST, fit_temperature(logits, labels)) if len(groups) > 2 else 1.0}


def _parted(rows: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Most of the rows to learn from, and some to check on; at least one each."""
    order = rng.permutation(len(rows))
    cut = min(len(rows) - 1, max(1, round((1 - HELD_OUT) * len(rows))))
    return rows[order[:cut]], rows[order[cut:]]


def _balanced(groups: Sequence[Floats], rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Rows of all groups, equally many of each by repeating the smaller ones, and the group of each."""
    size = max(map(len, groups))
    rows = [group[np.resize(rng.permutation(len(group)), size)] for group in groups]
    return np.concatenate(rows), np.repeat(np.arange(len(groups)), size)


def spread_of(scores: Floats) -> Floats:
    """A spread (m,) that is the standard deviation of normal scores and is robust to a few outliers; never 0."""
    low, high = np.quantile(scores, [0.1, 0.9], axis=0)
    spread = (high - low) / 2.563
    deviation = scores.std(axis=0)
    spread = np.where(spread > 0, spread, deviation)
    return np.where(spread > 0, spread, 1.0)


def _finite(scores: Floats) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 2 or len(array) < 2:
        raise UserError(
            f"Scores of shape {array.shape} were given to a panel; give at least two rows, (images, scores)."
        )
    return _limited(array)
