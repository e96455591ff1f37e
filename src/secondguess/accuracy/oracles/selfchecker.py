"""SelfChecker: whether the inner layers agree with the output.

For each layer and each class k, the activations of the training images of class k have a kernel density (Gaussian, full
covariance, Scott's bandwidth). The class a layer infers for an image is that of the largest density. For images that
the model puts into class c, an alarm is raised if at least as many of the layers chosen for c infer another class as
infer c. The layers of c are chosen on the validation images: of all subsets, the one with the best F1 in telling wrong
from right predictions; of equals the largest.

The advice for an alarm is the class t with the highest w(c, t) s(t): s is the share of layers that infer t, among those
whose plurality is t most often on alarmed validation images predicted c whose label is t; of m such images a share a.
w(c, c) = m a / A with A the alarms on c, and w(c, t) = m a / (A - those among them whose prediction is right).

Source: Xiao, Beschastnikh, Rosenblum, Sun, Elbaum, Lin and Dong, "Self-checking deep neural networks in deployment",
ICSE 2021, and its code.

Departures. Logarithms of densities are compared, which do not underflow. Neurons that vary over the training set but
not within a class make a density singular: all classes of a layer get a ridge of `RIDGE` times the layer's mean
variance, as noise on the training traces. A layer with more neurons than half the smallest class has images, or than
`components`, is projected onto as many principal components, for a covariance to exist and a density to mean something:
the code has no such limit, because it averages over positions and so meets no layer of thousands. Beyond `EXHAUSTIVE`
layers subsets are searched with a beam. Where a class has no failure in the validation set, all its layers are used.
`boost=True` withdraws an alarm whose advice is the prediction itself; the published evaluation does so only if the
label says that this is right, which is impossible in operation. Its second set of advice, for images without an alarm,
is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.base import RIGHT, WRONG, Oracle, Verdicts
from secondguess.accuracy.oracles.registry import register
from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.supervisors.surprise._density import Density

__all__ = ["SelfChecker", "best_alarm_layers", "plurality", "subsets"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

AUTO = ("25%", "50%", "75%", "penultimate")
RIDGE = 1e-6
EXHAUSTIVE = 12
BEAM = 64
CHUNK = 1 << 22  # votes counted at once


@register
class SelfChecker(Oracle):
    """Judges a prediction wrong if the chosen layers do not infer it.

    Args:
        layers: names of layers, or traces where the reduction matters; convolutions are averaged over positions.
            `"auto"`: a quarter, a half and three quarters of the way through the model, and the penultimate layer. The
            authors take all activations: `[layer.name for layer in classifier.layers()]`.
        output: whether the probabilities are one more layer.
        var_threshold: neurons with less variance over all training images are left out (the authors' default).
        boost: whether an alarm is withdrawn if the advice is the prediction itself.
        components: to how many principal components wider layers are reduced, such as 512 for the flattened output of a
            convolution; None leaves them as wide as the smallest class allows.
        seed: of the noise that stands for a ridge.
        device: where densities are computed.
    """

    name = "selfchecker"

    def __init__(
        self,
        layers: str | Trace | Sequence[str | Trace] = "auto",
        output: bool = True,
        var_threshold: float = 1e-5,
        boost: bool = False,
        components: int | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.layers = layers
        self.output = output
        self.var_threshold = var_threshold
        self.boost = boost
        self.components = components
        self.seed = seed
        self.device = device
        self._densities: dict[tuple[int, int], Density] = {}

    @property
    def needs(self) -> Needs:
        """The traces of the layers."""
        return Needs(traces=frozenset(self._traces()))

    def inspect(self, seen: Observation) -> Ints:
        """What the layers infer, see `infer`: all that it takes of the traces."""
        return self.infer(seen)

    def infer(self, seen: Observation) -> Ints:
        """The class that each layer infers for each image, (n, L); the output is the last, if it is one."""
        return np.stack(
            [self._inferred(number, values) for number, values in enumerate(self._matrices(seen))],
            axis=1,
        )

    def _fit(self, training: Observation, validation: Observation) -> None:
        if self.components is not None and self.components < 1:
            raise UserError(
                f"SelfChecker was given components={self.components}; give 1 or more, or None for no limit."
            )
        self._densities = {}
        self.labels_ = training.require_labels(f"Fitting the oracle {self.name!r}")
        self.columns_: dict[str, Ints] = {}
        self.projections_: dict[str, NDArray[np.float64]] = {}
        self.features_: dict[str, NDArray[np.float32]] = {}
        for number, values in enumerate(self._matrices(training)):
            self._learn_layer(number, values)
        self.classes_ = len(training.class_names)
        votes = self.infer(validation)
        self._choose_alarms(votes, validation)
        self._choose_advice(votes, validation)

    def _judge(self, operation: Observation) -> Verdicts:
        votes = self._inspected(operation)
        alarm = self._alarms(votes, operation.predictions)
        advice = np.full(len(operation), -1, dtype=np.int64)
        rows = np.flatnonzero(alarm)
        advice[rows] = self._advise(votes[rows], operation.predictions[rows])
        withdrawn = advice == operation.predictions
        advice[withdrawn] = -1
        if self.boost:
            alarm &= ~withdrawn
        return Verdicts.make(np.where(alarm, WRONG, RIGHT), self._reasons(votes, operation, alarm), advice)

    def _traces(self) -> list[Trace]:
        chosen: Any = AUTO if self.layers == "auto" else self.layers
        single = [chosen] if isinstance(chosen, str | Trace) else list(chosen)
        if not single and not self.output:
            raise UserError("SelfChecker was given no layer; name at least one, or leave output=True.")
        return [one if isinstance(one, Trace) else Trace(one, "mean") for one in single]

    def _matrices(self, observation: Observation) -> Iterator[NDArray[Any]]:
        yield from (observation.trace(trace) for trace in self._traces())
        if self.output:
            yield observation.probabilities

    def _learn_layer(self, number: int, values: NDArray[Any]) -> None:
        key = str(number)
        variances = np.var(values, axis=0, dtype=np.float64)
        kept = np.flatnonzero(variances >= self.var_threshold)
        self.columns_[key] = kept if len(kept) else np.flatnonzero(variances == variances.max())
        features = values[:, self.columns_[key]].astype(np.float64)
        most = max(1, int(np.bincount(self.labels_)[np.unique(self.labels_)].min()) // 2)
        most = min(most, self.components or most)
        if features.shape[1] > most:
            self.projections_[key] = _principal(features, most)
            features = features @ self.projections_[key]
        ridge = RIDGE * features.var(axis=0).mean()
        noise = np.random.default_rng([self.seed, number]).standard_normal(features.shape)
        self.features_[key] = (features + np.sqrt(ridge) * noise).astype(np.float32)

    def _inferred(self, number: int, values: NDArray[Any]) -> Ints:
        key = str(number)
        if values.shape[1] <= self.columns_[key].max():
            raise UserError(
                f"SelfChecker was fitted on wider traces than these {values.shape[1]} neurons of layer {number + 1}; "
                "observe the same layers of the same model."
            )
        features = values[:, self.columns_[key]].astype(np.float64)
        if key in self.projections_:
            features = features @ self.projections_[key]
        best, inferred = np.full(len(features), -np.inf), np.full(len(features), -1, dtype=np.int64)
        for label in range(int(self.labels_.max()) + 1):
            density = self._density(number, label)
            if density is not None:
                found = density.log_density(features)
                better = found > best
                best[better], inferred[better] = found[better], label
        return inferred

    def _density(self, number: int, label: int) -> Density | None:
        """The density of a class in a layer, made when it is first needed; None where the class has too few images."""
        from secondguess.supervisors.surprise._density import Density

        rows = np.flatnonzero(self.labels_ == label)
        if len(rows) < 2:
            return None
        if (number, label) not in self._densities:
            density = Density("scott", device=self.device)
            self._densities[number, label] = density.fit(self.features_[str(number)][rows])
        return self._densities[number, label]

    def _choose_alarms(self, votes: Ints, validation: Observation) -> None:
        self.alarm_layers_ = np.ones((self.classes_, votes.shape[1]), dtype=bool)
        disagrees, wrong = votes != validation.predictions[:, None], ~validation.correct
        for label in range(self.classes_):
            rows = validation.predictions == label
            if wrong[rows].any():
                self.alarm_layers_[label] = best_alarm_layers(disagrees[rows], wrong[rows])
        if not wrong.any():
            warnings.warn(
                "No prediction on the validation images is wrong, so SelfChecker could not choose layers and uses all.",
                stacklevel=4,
            )

    def _choose_advice(self, votes: Ints, validation: Observation) -> None:
        self.advice_layers_ = np.zeros((self.classes_, self.classes_, votes.shape[1]), dtype=bool)
        self.advice_weights_ = np.zeros((self.classes_, self.classes_))
        predictions, labels = validation.predictions, validation.require_labels("Choosing layers")
        alarm = self._alarms(votes, predictions)
        for label in np.unique(predictions[alarm]):
            mine = alarm & (predictions == label)
            wrong = int((labels[mine] != label).sum())
            for target in np.unique(labels[mine]):
                rows = mine & (labels == target)
                chosen, share = _best_advice_layers(votes[rows], int(target), self.classes_)
                among = int(mine.sum()) if target == label else wrong
                self.advice_layers_[label, target] = chosen
                # A pair that was met but never recognised is not impossible.
                self.advice_weights_[label, target] = rows.sum() * share / among or 1 / self.classes_

    def _alarms(self, votes: Ints, predictions: Ints) -> Bools:
        used = self.alarm_layers_[predictions]
        disagree = ((votes != predictions[:, None]) & used).sum(axis=1)
        return np.asarray(2 * disagree >= used.sum(axis=1))

    def _advise(self, votes: Ints, predictions: Ints) -> Ints:
        """The advice for each alarm, (m,); -1 where nothing is known."""
        scores = np.zeros((len(votes), self.classes_))
        for target in range(self.classes_):
            used = self.advice_layers_[predictions, target]
            share = ((votes == target) & used).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
            scores[:, target] = self.advice_weights_[predictions, target] * share
        return np.where(scores.max(axis=1, initial=0) > 0, scores.argmax(axis=1), -1)

    def _reasons(self, votes: Ints, seen: Observation, alarm: Bools) -> NDArray[np.object_]:
        reasons = np.full(len(votes), "", dtype=object)
        names = [trace.layer for trace in self._traces()] + ["output"] * self.output
        classes = seen.class_names
        for row in np.flatnonzero(alarm):
            label = seen.predictions[row]
            used = np.flatnonzero(self.alarm_layers_[label])
            others = [layer for layer in used if votes[row, layer] != label]
            votes_text = ", ".join(
                f"{names[layer]} infers {classes[votes[row, layer]] if votes[row, layer] >= 0 else 'nothing'}"
                for layer in others
            )
            reasons[row] = f"{len(others)} of {len(used)} layers disagree with {classes[label]}: {votes_text}"
        return reasons


def _principal(features: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """The directions (d, most) in which features (n, d) vary most, the first first."""
    from scipy.linalg import eigh

    width = features.shape[1]
    _, directions = eigh(np.cov(features, rowvar=False), subset_by_index=[width - most, width - 1], overwrite_a=True)
    return np.ascontiguousarray(directions[:, ::-1])


def subsets(layers: int) -> Bools:
    """All non-empty subsets of the layers, (2^L - 1, L), by size, then lexicographically by their members."""
    numbers = np.arange(1, 1 << layers)
    masks = (numbers[:, None] >> np.arange(layers)[::-1]) & 1 == 1
    return np.asarray(masks[np.lexsort((-numbers, masks.sum(axis=1)))])


def best_alarm_layers(disagrees: Bools, wrong: Bools) -> Bools:
    """The layers (L,) whose majority tells wrong predictions best, by F1; of equals the last in the order of `subsets`.

    Args:
        disagrees: (n, L) whether each layer infers something else than the prediction.
        wrong: (n,) whether the prediction is wrong.
    """
    layers = disagrees.shape[1]
    if layers <= EXHAUSTIVE:
        masks = subsets(layers)
        return np.asarray(masks[_last_best(_f1(disagrees, wrong, masks))])
    beam = np.eye(layers, dtype=bool)
    best, score = beam[0], -1.0
    while len(beam):
        scores = _f1(disagrees, wrong, beam)
        if scores.max() >= score:
            best, score = beam[_last_best(scores)], float(scores.max())
        kept = beam[np.argsort(-scores, kind="stable")[:BEAM]]
        grown = (kept[:, None, :] | np.eye(layers, dtype=bool)).reshape(-1, layers)
        beam = np.unique(grown[grown.sum(axis=1) > kept[0].sum()], axis=0)
    return best


def plurality(votes: Ints, masks: Bools, classes: int) -> Ints:
    """The class inferred by most layers of each subset, (n, S); ties go to the lowest class.

    Args:
        votes: (n, L) the class each layer infers; -1 counts for none.
        masks: (S, L).
        classes: K.
    """
    hot = (votes[:, :, None] == np.arange(classes)).astype(np.float32)
    winners = np.empty((len(votes), len(masks)), dtype=np.int64)
    weights = masks.astype(np.float32)
    step = max(1, CHUNK // (len(masks) * classes))
    for start in range(0, len(votes), step):
        part = slice(start, start + step)
        winners[part] = np.einsum("nlk,sl->nsk", hot[part], weights, optimize=True).argmax(axis=2)
    return winners


def _best_advice_layers(votes: Ints, target: int, classes: int) -> tuple[Bools, float]:
    """The layers whose plurality is `target` most often, and how often."""
    layers = votes.shape[1]
    masks = subsets(layers) if layers <= EXHAUSTIVE else _runs(layers)
    hits = (plurality(votes, masks, classes) == target).mean(axis=0)
    best = _last_best(hits)
    return masks[best], float(hits[best])


def _runs(layers: int) -> Bools:
    """Runs of consecutive layers, by length: the candidates where all subsets would be too many."""
    starts, stops = np.triu_indices(layers)
    places = np.arange(layers)
    masks = (places >= starts[:, None]) & (places <= stops[:, None])
    return np.asarray(masks[np.argsort(stops - starts, kind="stable")])


def _f1(disagrees: Bools, wrong: Bools, masks: Bools) -> NDArray[np.float64]:
    """F1 of the alarm of each subset, (S,); 0 where there is nothing to find."""
    counts = disagrees.astype(np.float32) @ masks.T.astype(np.float32)
    alarm = 2 * counts >= masks.sum(axis=1)
    found = (alarm & wrong[:, None]).sum(axis=0)
    total = alarm.sum(axis=0) + int(wrong.sum())
    return np.asarray(np.divide(2.0 * found, total, out=np.zeros(len(masks)), where=total > 0))


def _last_best(scores: NDArray[np.float64]) -> int:
    return len(scores) - 1 - int(scores[::-1].argmax())
