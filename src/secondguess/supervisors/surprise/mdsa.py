"""Mahalanobis-distance-based surprise adequacy: how many standard deviations a trace lies from the mean of its class.

    MDSA(x) = sqrt( (at(x) - m_c)^T S_c^-1 (at(x) - m_c) )

m_c and S_c are mean and covariance of the traces of the training images predicted as c; after Kim, Ju, Feldt and Yoo
(ESEC/FSE 2020). `mdsa_global` takes one mean and one covariance for all classes.

With fewer training traces than neurons, or not many more, S_c says more about the sample than about the class: it has
no variance at all in the directions where an unknown input differs most. There S_c is shrunk towards a multiple of the
identity,

    (1 - a) S_c + a l I,      l = trace(S_c) / d,

with the share a of Ledoit and Wolf (2004).

Traces are centred in double precision, directions in which they hardly vary are computed so, and directions in which
they do not vary are dropped (see `_whitening`); with a mean in float32 or rounding noise among the directions,
distances on softmax layers and on layers with dead neurons are noise. `compat="dnn-tip"` returns what dnn-tip computes
from float64 traces: the squared distance, a covariance divided by n, and every direction above the rounding noise of
float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import ByKey
from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, TraceSupervisor, side_by_side
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._classes import by_group, class_rows, one_of, same_width
from secondguess.supervisors.surprise._moments import Moments
from secondguess.supervisors.surprise._prepared import COARSE, Prepared, packed, prepare
from secondguess.supervisors.surprise._whitening import RTOL, Rows, Whitening, pack, unpack
from secondguess.supervisors.surprise._workers import workers

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["MDSA", "Gaussian", "GlobalMDSA", "mahalanobis"]

SMALL = 1 << 20  # numbers for which threads cost more than they save
_ONE_CLASS = np.zeros(1, dtype=np.int64)
Measure = Callable[["Gaussian", Rows], NDArray[np.float64]]


@dataclass(frozen=True)
class Gaussian:
    """The Gaussian of a class.

    Attributes:
        whitening: mean and covariance S.
        shrinkage: the share a of the identity, 0 for none.
        level: the variance l by which the identity is multiplied.
    """

    whitening: Whitening
    shrinkage: float
    level: float

    @property
    def rank(self) -> int:
        """The dimension in which the training traces vary."""
        return self.whitening.rank

    def distances(self, source: Rows) -> NDArray[np.float64]:
        """Squared distances (n,) of rows; +inf where a row is not finite."""
        return self._shrunk(source) if self.shrinkage > 0 else mahalanobis(self.whitening, source)

    def _shrunk(self, source: Rows) -> NDArray[np.float64]:
        """|x - m|^2 / (a l) for all directions, less what the directions of larger variance are charged too much."""
        values, floor = self.whitening.eigenvalues, self.shrinkage * self.level
        excess = values * (1 / floor - 1 / ((1 - self.shrinkage) * values + floor))
        squares = np.empty(len(source))
        for part, block in source.blocks():
            block -= self.whitening.mean
            whole = np.einsum("ij,ij->i", block, block) / floor
            squares[part] = whole - np.square(block @ self.whitening.factor) @ excess
        squares[np.isnan(squares)] = np.inf
        return np.maximum(squares, 0.0)


def mahalanobis(whitening: Whitening, source: Rows) -> NDArray[np.float64]:
    """Squared Mahalanobis distances (n,) of rows, to about 1e-6; +inf where a row is not finite."""
    import torch

    squares = np.empty(len(source))
    sturdy = whitening.sturdy if source.width >= COARSE else 0
    mean, factor = torch.from_numpy(whitening.mean), torch.from_numpy(whitening.factor)
    coarse, fine = factor[:, :sturdy].float(), factor[:, sturdy:]
    for part, block in source.blocks():
        centred = torch.from_numpy(block).sub_(mean)
        square = torch.linalg.vector_norm(centred.float() @ coarse, dim=1).double().square_()
        if sturdy < whitening.rank:
            square += torch.linalg.vector_norm(centred @ fine, dim=1).square_()
        squares[part] = square.numpy()
    squares[np.isnan(squares)] = np.inf
    return squares


@register
class MDSA(TraceSupervisor):
    """Suspicious = many standard deviations away from the training traces with the same prediction.

    Score: the Mahalanobis distance to the mean of the predicted class (Kim, Ju, Feldt and Yoo, ESEC/FSE 2020). Where
    there is no shrinkage, a trace off the subspace in which the training traces of the class vary is not detected;
    `residuals` measures it. An image whose class was predicted for fewer than two different training traces scores
    +inf, with a warning.

    Cost: one product of the trace with a matrix of d x rank numbers per image. Fitting takes one eigenvalue
        decomposition per class, and the result 8 d rank bytes per class.

    Good at: corrupted, shifted and invalid inputs, at little cost. Bad at: ambiguous images, and classes with
    several modes, which a single Gaussian covers too generously (see `mmdsa`).

    Args:
        layers: whose traces are used.
        per_class: one mean and covariance for each predicted class; otherwise a single one.
        squared: return the squared distance.
        ddof: the covariance is divided by n - ddof.
        rtol: share of the largest variance below which a direction counts as noise.
        shrinkage: the share of the identity in the covariance, from 0 to 1; `"auto"` takes that of Ledoit and Wolf for
            classes with fewer training traces than twice the neurons, and 0 for others.
        compat: `"dnn-tip"` overrides the four above, see this module.
    """

    name = "mdsa"
    factors_: NDArray[np.float64]
    _ready: tuple[NDArray[np.float64], tuple[tuple[Trace, ...], dict[int, Prepared]]] | None = None
    means_: NDArray[np.float64]
    ranks_: NDArray[np.int64]

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        per_class: bool = True,
        squared: bool = False,
        ddof: int = 1,
        rtol: float = RTOL,
        shrinkage: float | Literal["auto"] = "auto",
        compat: Literal["dnn-tip"] | None = None,
    ) -> None:
        super().__init__(layers)
        if shrinkage != "auto" and not 0 <= shrinkage <= 1:
            raise UserError(f"shrinkage must be 'auto' or a share from 0 to 1, not {shrinkage!r}.")
        one_of("compat", compat, (None, "dnn-tip"))
        one_of("ddof", ddof, (0, 1))
        self.per_class = per_class
        self.squared = squared
        self.ddof = ddof
        self.rtol = rtol
        self.shrinkage = shrinkage
        self.compat = compat

    def ranks(self) -> dict[int, int]:
        """The dimension in which the training traces of each class vary; of class 0 alone if not `per_class`."""
        return dict(zip(self.classes_.tolist(), self.ranks_.tolist(), strict=True))

    def residuals(self, observation: Observation) -> NDArray[np.float64]:
        """How far each trace lies off the subspace in which its class varies (n,), in the units of the trace."""
        return self._by_class(observation, off_subspace)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> ByKey[Moments]:
        matrix = self._matrix(observation)
        groups = class_rows(self._groups(observation))
        return ByKey({label: Moments.of(Rows(matrix, rows)) for label, rows in groups.items()})

    def _learn(self, merged: ByKey[Moments]) -> bool:
        classes = list(merged.parts.values())
        width = classes[0].means.shape[1]
        rtol = width * float(np.finfo(np.float64).eps) if self.compat else self.rtol
        self.classes_ = np.array(list(merged.parts), dtype=np.int64)
        learnt = (one.whitened(ddof=0 if self.compat else self.ddof, rtol=rtol) for one in classes)
        for name, value in pack(learnt, room=sum(width * min(one.count, width) for one in classes)).items():
            setattr(self, name, value)
        self.shrinkages_ = np.array([0.0 if self.compat else self._share(one) for one in classes])
        return False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        squares = self._by_class(observation, Gaussian.distances)
        return squares if self.squared or self.compat else np.sqrt(squares)

    def _score_few(self, observation: Observation) -> NDArray[np.float64]:
        traces, ready = self._prepared()
        matrix = side_by_side(observation, traces)
        classes = observation.predictions if self.per_class else _ONE_CLASS
        if matrix.size > SMALL or matrix.shape[1] != self.means_.shape[1] or not ready.keys() >= set(classes.tolist()):
            return self._score(observation)  # which says what is wrong
        if len(matrix) == 1:
            squares = np.array([ready[int(classes[0])].square(matrix[0])])
        else:
            squares = np.empty(len(matrix))
            groups = class_rows(classes).items() if self.per_class else [(0, slice(None))]
            with np.errstate(invalid="ignore", over="ignore"):  # a trace that is not finite is infinitely far away
                for label, rows in groups:
                    squares[rows] = ready[label].squares(matrix[rows])
        return squares if self.squared or self.compat else np.sqrt(squares)

    def _graph(self) -> ScoreGraph:
        import torch

        from secondguess.supervisors.graph import TraceGraph

        (traces, ready), per_class, squared = self._prepared(), self.per_class, self.squared or self.compat is not None

        def squares(x: torch.Tensor, label: int, constants: Mapping[str, torch.Tensor]) -> torch.Tensor:
            centred = x - constants[f"mean{label}"]
            fine, coarse = centred @ constants[f"fine{label}"], centred.float() @ constants[f"coarse{label}"]
            found, whole = fine.square().sum(1) + coarse.double().square().sum(1), ready[label].whole
            return (whole * centred.square().sum(1) - found).clamp_min(0) if whole else found

        def distances(x: torch.Tensor, seen: Tensors, **constants: torch.Tensor) -> torch.Tensor:
            found = torch.full_like(x[:, 0], torch.inf)
            for label in ready:  # each class measures the images that were predicted as it, and no others
                rows = (seen.predictions == label).nonzero()[:, 0] if per_class else None
                if rows is None:
                    found = squares(x, label, constants)
                else:
                    found = found.scatter(0, rows, squares(x[rows], label, constants))
            return found if squared else found.sqrt()

        constants: dict[str, NDArray[Any]] = {}
        for label, one in ready.items():
            constants |= {f"mean{label}": one.mean, f"fine{label}": one.fine.T, f"coarse{label}": one.coarse.T}
        return TraceGraph(traces, distances, **constants)

    def _prepared(self) -> tuple[tuple[Trace, ...], dict[int, Prepared]]:
        """The traces, and each class that varies, prepared for few images; found out when it is first needed."""
        if self._ready is None or self._ready[0] is not self.factors_:
            whitenings = unpack(self.state())
            gaussians = zip(self.classes_.tolist(), whitenings, self.shrinkages_.tolist(), strict=True)
            known = {label: prepare(one, share) for label, one, share in gaussians if one.rank}
            self._ready = self.factors_, (self.traces, packed(known))
        return self._ready[1]

    def _share(self, moments: Moments) -> float:
        if self.shrinkage != "auto":
            return self.shrinkage
        if moments.rows is None or moments.count < 2:
            return 0.0
        from sklearn.covariance import ledoit_wolf_shrinkage

        return float(ledoit_wolf_shrinkage(moments.rows))

    def _groups(self, observation: Observation) -> NDArray[np.int64]:
        return observation.predictions if self.per_class else np.zeros(len(observation), dtype=np.int64)

    def _by_class(self, observation: Observation, measure: Measure) -> NDArray[np.float64]:
        matrix = same_width(self._matrix(observation), self.means_.shape[1], self.name)
        width = matrix.shape[1]
        known = {
            label: Gaussian(whitening, float(share), float(whitening.eigenvalues.sum()) / width)
            for label, whitening, share in zip(
                self.classes_.tolist(), unpack(self.state()), self.shrinkages_, strict=True
            )
        }
        with workers(1 if matrix.size < SMALL else None) as crew:
            return by_group(matrix, self._groups(observation), known.get, measure, self.name, run=crew.run)


def off_subspace(gaussian: Gaussian, source: Rows) -> NDArray[np.float64]:
    """Distances (n,) of rows from the subspace in which a class varies."""
    return np.concatenate([gaussian.whitening.residual(block) for _, block in source.blocks()])


@register
class GlobalMDSA(MDSA):
    """Suspicious = many standard deviations away from the training traces as a whole, whatever the prediction.

    Score, cost and parameters are those of `mdsa` with one Gaussian for all classes, which is what dnn-tip's plain
    `MDSA` is. Good at: inputs unlike any class, also where a class has few training images. Bad at: inputs that
    resemble another class than the predicted one; a single Gaussian over all classes covers the space between them.
    """

    name = "mdsa_global"

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        squared: bool = False,
        ddof: int = 1,
        rtol: float = RTOL,
        shrinkage: float | Literal["auto"] = "auto",
        compat: Literal["dnn-tip"] | None = None,
    ) -> None:
        super().__init__(
            layers, per_class=False, squared=squared, ddof=ddof, rtol=rtol, shrinkage=shrinkage, compat=compat
        )
