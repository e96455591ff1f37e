"""The contract of a supervisor: a number for every prediction, larger = more suspicious, everywhere.

A supervisor implements `_score`, and if it learns from nominal data `_fit`, or `_statistics` and `_learn`, by which
it can be fitted from parts of the data. The public `fit` and `score` are final and own the checks. It may add
`_score_few`, a quicker way for a few images, and `_graph`, the score as a torch graph; `check_supervisor` compares
them. Parameters live in `__init__` and are stored untouched under their own names; what `fit` learns ends in an
underscore. That is all `save` and `load` need: one safetensors file, never a pickle.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.learner import Learner
from secondguess.contracts.merging import Sums
from secondguess.engine.shared import fingerprint_of
from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation
from secondguess.model.observer import Observer
from secondguess.progress import Advance, Progress, Silent

if TYPE_CHECKING:
    import torch
    from torch import nn

    from secondguess.supervisors.graph import Tensors

    ScoreGraph = Callable[[Tensors], torch.Tensor]

__all__ = ["Supervisor"]


class Supervisor(Observer):
    """Scores how suspicious each prediction is.

    Attributes:
        name: by which it is known in the registry, in reports and in gates; lower case with underscores.
        family: the heading under which it is listed; the name of its module if left out.
        expensive: whether it takes so long that an audit leaves it out unless asked for.
        shared: supervisors with the same word here share what is expensive, such as the members of an ensemble; the
            cost measured for the first of them is then the cost of each.
        requires_fit: whether `fit` must be called before `score`.
    """

    noun: ClassVar[str] = "supervisor"
    family: ClassVar[str] = ""
    expensive: ClassVar[bool] = False
    shared: ClassVar[str] = ""
    _advance: Advance = staticmethod(lambda done, total: None)  # `_fit` calls it now and then if it works for seconds

    @final
    def fit(
        self,
        observation: Observation,
        labels: NDArray[np.int64] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from an observation of nominal (training) images.

        Args:
            observation: of n images; must hold what `needs` says.
            labels: (n,) true labels, for the few supervisors that use them, -1 = unknown; those of the observation
                where left out.
            progress: where to report; silent by default.
        """
        self._check(observation)
        labels = observation.labels if labels is None else np.asarray(labels)
        if labels is not None and len(labels) != len(observation):
            raise UserError(
                f"{len(observation)} images were observed, but {len(labels)} labels were given to fit {self.name!r}."
            )
        self._forget()
        with (progress or Silent()).task(f"Fitting {self.name}", 1) as advance:
            self._advance = advance
            try:
                self._fit(observation, labels)
            finally:
                del self._advance
            advance(1, 1)
        self.fitted_classes_ = observation.num_classes
        return self

    @final
    def score(self, observation: Observation) -> NDArray[np.float64]:
        """The suspicion of each prediction, (n,) float64; larger = more suspicious, never NaN."""
        return self._scored(observation, self._score)

    @final
    def score_few(self, observation: Observation) -> NDArray[np.float64]:
        """The same as `score`, to about four digits, in the way that is quickest for a few images."""
        return self._scored(observation, self._score_few)

    @final
    def graph(self) -> nn.Module:
        """The score as a torch module from `secondguess.supervisors.graph.Tensors` to scores (n,) in double precision.

        Raises:
            UserError: if this supervisor has none.
        """
        from secondguess.supervisors.graph import Graph

        self._check_fitted()
        found = self._graph() if self.has_graph() else None
        if found is None:
            raise UserError(
                f"The supervisor {self.name!r} has no graph, so it cannot be exported; choose another, or add _graph()."
            )
        from torch import nn

        return found if isinstance(found, nn.Module) else Graph(found)

    @classmethod
    def has_graph(cls) -> bool:
        """Whether supervisors of this class have a graph."""
        return cls._graph is not Supervisor._graph

    def _scored(self, observation: Observation, score: Callable[[Observation], Any]) -> NDArray[np.float64]:
        self._check_fitted()
        self._check(observation)
        known = getattr(self, "fitted_classes_", None)
        if known is not None and not observation.classes_are_known and observation.num_classes < known:
            observation = observation.replace(class_names=[str(k) for k in range(known)])
        if self.requires_fit and known is not None and known != observation.num_classes:
            raise UserError(
                f"The supervisor {self.name!r} was fitted on {known} classes, but this observation has "
                f"{observation.num_classes}."
            )
        scores = np.asarray(score(observation), dtype=np.float64)
        if scores.shape != (len(observation),):
            raise ValueError(f"{self.name}: _score returned shape {scores.shape} for {len(observation)} images")
        if np.isnan(scores).any():
            raise ValueError(f"{self.name}: _score returned NaN for {int(np.isnan(scores).sum())} images")
        return scores

    @classmethod
    def merges(cls) -> bool:
        """Whether supervisors of this class can be fitted from parts; see `secondguess.supervisors.fit_in_shards`."""
        return cls._fit is Supervisor._fit

    @final
    def statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Any:
        """What some of the training images contribute, to be merged with what others do; see `_statistics`."""
        self._check(observation)
        return self._statistics(observation, labels)

    @final
    def learn(self, merged: Any, classes: int) -> bool:
        """Learn from the statistics of all training images; whether those of another round are needed."""
        if self._learn(merged):
            return True
        self.fitted_classes_ = classes
        return False

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        """Learn; store what was learnt in attributes that end in an underscore.

        One that can learn from merged statistics implements `_statistics` and `_learn` and leaves this alone.

        Args:
            observation: of n images.
            labels: (n,), -1 = unknown; None where there are none.
        """
        known = labels if labels is not None and (labels >= 0).any() else None
        while self._learn(self._statistics(observation, known)):
            pass

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Any:
        """What these images contribute, given what is learnt already: a `secondguess.contracts.merging.Mergeable`.

        The labels are None where those of no image are known, neither here nor in another part.
        """
        return Sums({})

    def _learn(self, merged: Any) -> bool:
        """Learn from the merged statistics of all images; True for another round with what is learnt until now."""
        return False

    @abstractmethod
    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        """The scores (n,) of an observation that is known to hold what `needs` says."""

    def _score_few(self, observation: Observation) -> NDArray[np.floating[Any]]:
        """As `_score`, in a way that is quicker for a few images."""
        return self._score(observation)

    def _graph(self) -> ScoreGraph | None:
        """The score as a torch module or function from `Tensors` to (n,); None where there is none. See `graph`."""
        return None

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "fitted_classes_")

    @property
    def fingerprint(self) -> str:
        """The digest of its code, its parameters and what it has learnt: what its scores depend on."""
        return fingerprint_of(self)

    def clone(self, **changes: Any) -> Self:
        """An unfitted copy, with some parameters changed; the two share nothing."""
        return super().clone(**copy.deepcopy(self.params() | changes))

    def _written(self, parameter: str, value: Any) -> str:
        if parameter != "layers":
            return super()._written(parameter, value)
        chosen = [value] if isinstance(value, str | Trace) else list(value)
        return "@" + "+".join(one.layer if isinstance(one, Trace) else one for one in chosen)

    def _check_fitted(self) -> None:
        if self.requires_fit and not self.is_fitted:
            raise UserError(f"The supervisor {self.name!r} must see nominal data first; call fit(observation).")

    def _check(self, observation: Observation) -> None:
        """Raise a `UserError` unless there are images and all that is needed was observed."""
        if len(observation) == 0:
            raise UserError(f"The supervisor {self.name!r} was given an empty observation; it has no images.")
        self._check_needs(self.needs, observation)

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.supervisors.registry import get

        return get(name)

    @classmethod
    def _maker(cls) -> str:
        return repr(cls.name)

    @classmethod
    def _refusal(cls, value: Any) -> str:
        hint = " (a dataclass)" if is_dataclass(value) else ""
        return (
            f"A value of type {type(value).__name__}{hint} cannot be saved; parameters are numbers, texts, lists and "
            "traces, and what is learnt may be arrays and dictionaries of arrays too."
        )
