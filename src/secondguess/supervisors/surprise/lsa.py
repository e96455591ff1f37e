"""Likelihood-based surprise adequacy: how improbable a trace is among the training traces of its predicted class.

    LSA(x) = -log f_c(at(x)),    f_c a Gaussian kernel density of the traces of the training images predicted as c

after Kim, Feldt and Yoo (ICSE 2019), refined by Weiss, Chakraborty and Tonella (DeepTest 2021). Only neurons that vary
are used; the rules differ between implementations and are named here after what they do:

| features  | keeps                                                                     | origin   |
|-----------|---------------------------------------------------------------------------|----------|
| union     | neurons whose variance reaches `var_threshold` in every class             | sadl     |
| per_class | for each class, those whose variance reaches it there                     |          |
| top       | for each class, the `max_features` (300) of largest variance               | dnn-tip  |
| all       | all of them                                                               |          |

`LSA(features="union", compat="scipy")` has the values of sadl and of surprise-adequacy, `LSA(features="top",
compat="scipy")` those of dnn-tip's per-class LSA where that is finite.

Deliberate departures: directions without variance are dropped instead of failing (see `_whitening`); the density is
never left in the linear domain, where it underflows to an infinite surprise; a class without variance (a single row)
does not take part in `union`, since it would remove every neuron; where `union` removes all neurons, each class keeps
its own.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._classes import by_group, class_rows, one_of, same_width
from secondguess.supervisors.surprise._density import Bandwidth, Density, check_bandwidth, crew_on
from secondguess.supervisors.surprise._whitening import Rows, moments
from secondguess.supervisors.surprise._workers import Crew
from secondguess.supervisors.surprise.sampling import share_of, uniform

__all__ = ["LSA"]

Features = Literal["union", "per_class", "top", "all"]
TOP = 300  # neurons kept by dnn-tip
FEWEST = 2  # sampled traces of a class; one alone has no density


@register
class LSA(TraceSupervisor):
    """Suspicious = the activations are improbable among those of training images with the same prediction.

    Score: -log of a Gaussian kernel density of the training traces of the predicted class (Kim, Feldt and Yoo, ICSE
    2019). It may be negative. An image whose class was predicted for fewer than two different training traces scores
    +inf, with a warning.

    Cost: one row of a matrix product with the training traces of a class, and one exponential for each of them. Holds
        the whitened training traces, up to
    `memory_limit`; what does not fit is whitened again in every call of `score`.

    Good at: inputs whose activations differ in kind from anything seen (shifted, corrupted, adversarial). Bad at:
    ambiguous images, which lie among the training traces; in hundreds of dimensions kernels are as wide as the class,
    and `mdsa` says nearly the same for less.

    Args:
        layers: whose traces are used.
        bandwidth: `"scott"`, `"silverman"`, or a constant factor on the standard deviations.
        per_class: one density for each predicted class; otherwise a single one.
        features: which neurons are used, see the table of this module.
        var_threshold: smallest population variance of a neuron that `union` and `per_class` keep (1e-5 in sadl).
        max_features: how many neurons of largest variance are kept of those; None for all (`top`: 300).
        subsampling: share of the training traces to use (a float up to 1), or how many (an integer); every class keeps
            two at least.
        rtol: share of the largest variance below which a direction counts as noise.
        compat: `"scipy"` keeps every direction, as the original implementations do, and refuses singular classes.
        seed: of the subsampling.
        memory_limit: the most bytes of whitened traces and whitening matrices that are held.
        device: where densities are computed.
    """

    name = "lsa"

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        bandwidth: Bandwidth = "scott",
        per_class: bool = True,
        features: Features = "union",
        var_threshold: float = 1e-5,
        max_features: int | None = None,
        subsampling: float | int = 1.0,
        rtol: float = 1e-10,
        compat: Literal["scipy"] | None = None,
        seed: int = 0,
        memory_limit: int = 300 << 20,
        device: str = "auto",
    ) -> None:
        super().__init__(layers)
        check_bandwidth(bandwidth)
        one_of("features", features, ("union", "per_class", "top", "all"))
        one_of("compat", compat, (None, "scipy"))
        if max_features is not None and (not isinstance(max_features, (int, np.integer)) or max_features < 1):
            raise UserError(f"max_features must be a whole number of neurons or None, not {max_features!r}.")
        share_of(subsampling, 1)
        self.bandwidth = bandwidth
        self.per_class = per_class
        self.features = features
        self.var_threshold = var_threshold
        self.max_features = max_features
        self.subsampling = subsampling
        self.rtol = rtol
        self.compat = compat
        self.seed = seed
        self.memory_limit = memory_limit
        self.device = device
        self._known_rows: dict[int, NDArray[np.int64]] | None = None
        self._densities: dict[int, Density] | None = None

    def ranks(self) -> dict[int, int]:
        """The dimension in which the training traces of each class vary; of class 0 alone if not `per_class`."""
        return {label: density.rank for label in self._rows if (density := self._density(label))}

    def state(self) -> dict[str, Any]:
        """What `fit` has learnt; training traces that were not sampled are left out."""
        state = super().state()
        if "classes_" in state and (state["classes_"] < 0).any():
            used = state["classes_"] >= 0
            state |= {name: state[name][used] for name in ("traces_", "classes_")}
        return state

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        classes = self._groups(observation)
        self.traces_ = self._matrix(observation)
        self.classes_ = np.full(len(classes), -1, dtype=np.int64)
        sampled = uniform(classes, share_of(self.subsampling, len(classes)), seed=self.seed, fewest=FEWEST)
        self.classes_[sampled] = classes[sampled]
        self._known_rows = None
        self.kept_ = self._kept_neurons()
        self._densities = self._ready()

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        matrix = same_width(self._matrix(observation), self.traces_.shape[1], self.name)
        with crew_on(pick_device(self.device)) as crew:
            measure = partial(_surprise, crew=crew)
            return by_group(matrix, self._groups(observation), self._density, measure, self.name)

    def _groups(self, observation: Observation) -> NDArray[np.int64]:
        return observation.predictions if self.per_class else np.zeros(len(observation), dtype=np.int64)

    @property
    def _rows(self) -> dict[int, NDArray[np.int64]]:
        """The training rows of each class; found again after loading."""
        if self._known_rows is None:
            self._known_rows = {label: rows for label, rows in class_rows(self.classes_).items() if label >= 0}
        return self._known_rows

    def _columns(self, label: int) -> NDArray[np.int64] | None:
        kept = self.kept_[list(self._rows).index(label)]
        return None if kept.all() else np.flatnonzero(kept)

    def _density(self, label: int) -> Density | None:
        """The density of a class: held, made for this occasion, or None if the class was never predicted."""
        if self._densities is None:
            self._densities = self._ready()
        if label not in self._rows:
            return None
        return self._densities.get(label) or self._made(label)

    def _made(self, label: int) -> Density:
        source = Rows(self.traces_, self._rows[label], self._columns(label))
        density = Density(self.bandwidth, rtol=self.rtol, compat=self.compat, device=self.device)
        return density.fit(source, hold=False)

    def _ready(self) -> dict[int, Density]:
        """The densities that fit into the limit: first their whitening, then the whitened rows."""
        ready: dict[int, Density] = {}
        left = self.memory_limit
        for (label, rows), width in zip(self._rows.items(), self.kept_.sum(axis=1).tolist(), strict=True):
            if 8 * width * (min(width, len(rows)) + 1) <= left:
                ready[label] = self._made(label)
                left -= ready[label].nbytes
        for density in ready.values():
            size = 4 * density.count * (density.rank + 1)
            if size <= left:
                density.hold()
                left -= size
        return ready

    def _kept_neurons(self) -> NDArray[np.bool_]:
        """Which neurons each class uses, (classes, d)."""
        variances = np.stack([moments(Rows(self.traces_, rows))[1] for rows in self._rows.values()])
        varying = variances.any(axis=1)
        kept = np.ones_like(variances, dtype=bool)
        limit = self.max_features
        if self.features == "top":
            limit = limit or TOP
        elif self.features != "all" and varying.any():
            kept = variances >= self.var_threshold
            common = kept[varying].all(axis=0)
            if self.features == "union" and common.any():
                kept[:] = common
                variances[:] = variances[varying].mean(axis=0)
            elif self.features == "union":
                warnings.warn(
                    f"No neuron has a variance of {self.var_threshold:g} in every class, so each class keeps those "
                    "that have it there; features='per_class' says so.",
                    stacklevel=4,
                )
            kept[~kept.any(axis=1)] = True  # the rank rule has the last word on a class that hardly varies
        return kept if limit is None else kept & _among_the_largest(np.where(kept, variances, -1.0), limit)


def _surprise(density: Density, source: Rows, crew: Crew) -> NDArray[np.float64]:
    return -density.log_density(Rows(source.matrix, source.rows, density.columns), crew)


def _among_the_largest(values: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which values of each row are among its `count` largest; ties go to the lowest index."""
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    chosen = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen
