"""ICOS, the image classification oracle surrogate: three kinds of likely invariants, checked in order.

    input data      which labels can occur where             (`input_rules.py`; only if rules are given)
    training data   properties of the images of a class         (`pixel_rules.py`)
    algorithm       which probabilities go with failures     (`forest.py`)

A prediction is judged wrong if it violates any of them; the first that it violates is named in the verdict. Everything
else passes, including predictions to which no rule applies.

Source: Guerriero, Lyu, Pietrantuono and Russo, "Assessing operational accuracy of CNN-based image classifiers using an
oracle surrogate", 2023. The modules say where they depart from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.base import Oracle, Verdicts
from secondguess.accuracy.oracles.icos._trees import Tree
from secondguess.accuracy.oracles.icos.drawing import draw_rule
from secondguess.accuracy.oracles.icos.features import Features, cell_for, feature_matrix, feature_name
from secondguess.accuracy.oracles.icos.forest import grow_forest, votes
from secondguess.accuracy.oracles.icos.input_rules import InputRules
from secondguess.accuracy.oracles.icos.pixel_rules import PixelRule, PixelRules, choose_support, grow
from secondguess.accuracy.oracles.registry import register
from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation

__all__ = ["Contribution", "Icos", "Violations"]

KINDS = ("input data", "training data", "algorithm")
MAJORITY = 0.5


@dataclass(frozen=True)
class Contribution:
    """The contribution of one kind of invariant to the verdicts.

    Attributes:
        kind: "input data", "training data" or "algorithm".
        violations: how many predictions violate it.
        credited: how many of these violate no kind that comes before it.
        caught: how many of the credited ones are really wrong; None where labels are unknown.
    """

    kind: str
    violations: int
    credited: int
    caught: int | None


@dataclass(frozen=True, eq=False)
class Violations:
    """All invariants that n predictions violate, not only the first.

    Attributes:
        partition: int64 (n,), the partition whose labels exclude the prediction, or -1.
        rule: int64 (n,), the pixel rule that contradicts the prediction, or -1.
        votes: float64 (n,), the share of trees that say the prediction is wrong.
    """

    partition: NDArray[np.int64]
    rule: NDArray[np.int64]
    votes: NDArray[np.float64]

    @property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """Which predictions violate each kind of invariant, (n,) each, in order."""
        found = (self.partition >= 0, self.rule >= 0, self.votes > MAJORITY)
        return dict(zip(KINDS, found, strict=True))


# By the observation they were grown from, and by features, fewest records and seed.
_GROWN: WeakKeyDictionary[Observation, dict[tuple[str, int, int], Tree]] = WeakKeyDictionary()


@register
class Icos(Oracle):
    """Judges predictions by rules on the input, on the training data and on the algorithm's probabilities.

    Args:
        rules: which labels can occur where; without them this kind of invariant is left out.
        confidence: C, the least confidence of a pixel rule.
        support: S, which the support of a pixel rule must exceed, or "auto": chosen on the validation images.
        min_records: the fewest training images on either side of a split.
        features: what the pixel rules use: "auto", the side of square cells in pixels, or a `Trace`.
        trees: in the forest.
        balanced: whether the forest gives failures and successes the same weight.
        seed: of the tree and the forest.

    Attributes:
        support_: S, as given or as chosen.
    """

    name = "icos"

    def __init__(
        self,
        rules: InputRules | None = None,
        *,
        confidence: float = 0.99,  # the paper's C
        support: int | Literal["auto"] = "auto",
        min_records: int = 5,  # KNIME's setting in the paper
        features: Features = "auto",
        trees: int = 100,  # the paper's
        balanced: bool = False,
        seed: int = 0,
    ) -> None:
        self.rules = rules
        self.confidence = confidence
        self.support = support
        self.min_records = min_records
        self.features = features
        self.trees = trees
        self.balanced = balanced
        self.seed = seed

    @property
    def needs(self) -> Needs:
        """Probabilities, and the layer that the rules use if there is one."""
        return Needs(traces=frozenset({self.features})) if isinstance(self.features, Trace) else Needs()

    def _fit(self, training: Observation, validation: Observation) -> None:
        if not 0 <= self.confidence <= 1:
            raise UserError(f"The confidence of a rule is between 0 and 1, not {self.confidence}.")
        if self.support != "auto" and (not isinstance(self.support, int) or self.support < 0):
            raise UserError(f"The support of a rule is 'auto' or a number of images, 0 or more, not {self.support!r}.")
        if self.rules is not None:
            self.rules.allowed(training.class_names)
        shape = _shape_of(training)
        if shape != _shape_of(validation):
            raise UserError(_other_shape("validation", validation, shape))
        labels = training.require_labels("Learning rules")
        self.shape_ = list(shape)
        self.tree_ = self._grown(training, labels)
        seen = feature_matrix(validation, self.features)
        self.support_ = (
            choose_support(self.tree_, seen, self.confidence) if self.support == "auto" else int(self.support)
        )
        self.forest_ = grow_forest(
            validation.probabilities,
            ~validation.correct,
            trees=self.trees,
            balanced=self.balanced,
            seed=self.seed,
        )

    def _grown(self, training: Observation, labels: NDArray[np.int64]) -> Tree:
        """The tree of these training images; copies that are fitted on the same ones, fold after fold, share it."""
        known = _GROWN.setdefault(training, {})
        key = (repr(self.features), self.min_records, self.seed)
        if key not in known:
            values, classes = feature_matrix(training, self.features), len(training.class_names)
            known[key] = grow(values, labels, classes, min_records=self.min_records, seed=self.seed)
        return known[key]

    def _judge(self, operation: Observation) -> Verdicts:
        found = self._violations(operation)
        masks = list(found.masks.values())
        reasons = np.full(len(operation), "", dtype=object)
        advice = np.full(len(operation), -1, dtype=np.int64)
        for tell, mask in reversed(
            list(zip((self._input_reasons, self._training_reasons, self._algorithm_reasons), masks, strict=True))
        ):
            rows = np.flatnonzero(mask)
            reasons[rows], advice[rows] = tell(operation, found, rows)
        return Verdicts.make(np.any(masks, axis=0), reasons, advice)

    def inspect(self, seen: Observation) -> NDArray[np.int64]:
        """The pixel rule that contradicts each prediction, or -1, (n, 1): all that it takes of the pixels."""
        violated = self.pixel_rules.violated(feature_matrix(seen, self.features), seen.predictions)
        return np.asarray(violated).reshape(-1, 1)

    def violations(self, operation: Observation) -> Violations:
        """All invariants that the predictions violate."""
        self._ready(operation)
        return self._violations(operation)

    def contributions(self, operation: Observation) -> list[Contribution]:
        """What each kind of invariant contributes to the verdicts, in the order in which they are checked."""
        known = operation.labels is not None and bool((operation.labels >= 0).all())
        before = np.zeros(len(operation), dtype=bool)
        found: list[Contribution] = []
        for kind, mask in self.violations(operation).masks.items():
            credited = mask & ~before
            caught = int((credited & ~operation.correct).sum()) if known else None
            found.append(Contribution(kind, int(mask.sum()), int(credited.sum()), caught))
            before |= mask
        return found

    @property
    def pixel_rules(self) -> PixelRules:
        """The training-data invariants that were kept, surest first."""
        if not self.is_fitted:
            raise UserError("There are no rules yet; call fit(training, validation) first.")
        return PixelRules(self.tree_, self.confidence, self.support_)

    def describe(self, number: int | None = None) -> str:
        """A pixel rule in words, or all of them, one per line."""
        rules = self.pixel_rules
        if number is not None:
            return self._text(rules[number])
        return "\n".join(f"{k}: {self._text(rule)}" for k, rule in enumerate(rules))

    def draw(self, number: int, image: NDArray[np.float32]) -> NDArray[np.uint8]:
        """A pixel rule over an image (C, H, W): a picture (h, w, 3), green = must be dark, red = must be bright."""
        if isinstance(self.features, Trace):
            raise UserError("Rules about the layers of a model cannot be drawn over an image; describe them instead.")
        rule = self.pixel_rules[number]
        if image.shape != self._shape:
            raise UserError(f"The rule is about images of shape {self._shape}, but this one is {image.shape}.")
        return draw_rule(rule, image, cell_for(self.features, self._shape))

    def _text(self, rule: PixelRule) -> str:
        return rule.describe(self.class_names_, lambda feature: feature_name(feature, self.features, self._shape))

    @property
    def _shape(self) -> tuple[int, int, int]:
        channels, height, width = self.shape_
        return channels, height, width

    def _violations(self, operation: Observation) -> Violations:
        if _shape_of(operation) != self._shape:
            raise UserError(_other_shape("operation", operation, self._shape))
        nowhere = np.full(len(operation), -1, dtype=np.int64)
        return Violations(
            nowhere if self.rules is None else self.rules.violated(operation),
            self._inspected(operation)[:, 0],
            votes(self.forest_, operation.probabilities),
        )

    def _input_reasons(self, operation: Observation, found: Violations, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        """Why predictions violate input rules, and the likeliest class that their partition allows."""
        if self.rules is None or len(rows) == 0:
            return [], []
        names, table = operation.class_names, self.rules.allowed(operation.class_names)
        allowed = table[found.partition[rows]]
        advice = np.where(allowed, operation.probabilities[rows], -1).argmax(axis=1)
        places = [
            f"cannot occur in {partition.name!r}, which allows {_listed([names[k] for k in np.flatnonzero(row)])}"
            for partition, row in zip(self.rules.partitions, table, strict=True)
        ]
        broken = zip(operation.predictions[rows], found.partition[rows], strict=True)
        return [f"input data: {names[predicted]!r} {places[where]}" for predicted, where in broken], advice

    def _training_reasons(self, operation: Observation, found: Violations, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        """Why predictions violate pixel rules, and the class that the rule says."""
        fired, rules = found.rule[rows], self.pixel_rules
        texts = {number: f"training data: rule {number}: {self._text(rules[number])}" for number in np.unique(fired)}
        return [texts[number] for number in fired], rules.labels[fired]

    def _algorithm_reasons(self, operation: Observation, found: Violations, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        """Why the forest judges predictions wrong; it gives no advice."""
        trees = len(self.forest_["root"])
        counts = np.rint(found.votes[rows] * trees).astype(int)
        reasons = [f"algorithm: {count} of {trees} trees take these probabilities for a failure's" for count in counts]
        return reasons, np.full(len(rows), -1)


def _listed(names: list[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _shape_of(seen: Observation) -> tuple[int, int, int]:
    return seen.require_images("The oracle 'icos'").shape


def _other_shape(what: str, seen: Observation, shape: tuple[int, ...]) -> str:
    return (
        f"The rules are about images of shape {tuple(shape)}, but the {what} images are "
        f"{_shape_of(seen)}; load them in the same size."
    )
