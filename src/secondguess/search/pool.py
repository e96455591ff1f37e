"""The pool of a search: images, the classifier's predictions, and what is known of each image without a label.

Features are those of the papers: every pixel brought to mean 0 and variance 1, then the first five principal
components. Departure: both are learnt from at most 4,000 of the images, fewer where these have more than 16,000 pixels
and channels, drawn by a fixed seed, and applied to all, so that a large set of large images is never in memory at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.model.agreement import in_order
from secondguess.model.needs import PENULTIMATE, Needs, Trace
from secondguess.model.observation import Observation
from secondguess.progress import Progress
from secondguess.search._observing import observe_answered

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource
    from secondguess.model.classifier import Classifier
    from secondguess.search.distance import Distances
    from secondguess.supervisors import Supervisor

__all__ = ["Pool", "pixel_features"]

Floats = NDArray[np.float64]
Made = TypeVar("Made")

MIN_CONFIDENCE = 0.65  # of the papers on unknown unknowns, for two classes
COMPONENTS = 5  # of the paper, for all three of its data sets
LEARNT_FROM, LEARNT_BYTES = 4000, 1 << 27  # images that features are learnt from, and their pixels
AT_ONCE, AT_ONCE_BYTES = 500, 1 << 26  # images read at a time, and their pixels


@dataclass(frozen=True, eq=False)
class Pool:
    """n images, of which some may be asked about.

    Attributes:
        observation: what the classifier says about the n images.
        images: the n images, with labels in the order of the model's classes; a search never reads them.
        features: (n, d) where each image lies, for clusters, coverage and spread.
        eligible: (n,) which of the images may be asked about.
        distances: how far each of the n images is from another decision, or None where that was not measured.
        scores: (n,) suspicion by the name of the supervisor.
        unanswered: how many images the classifier had no usable answer to (NaN or an error); none of them may be asked
            about.
    """

    observation: Observation
    images: ImageSet
    features: Floats
    eligible: NDArray[np.bool_]
    distances: Distances | None = None
    scores: Mapping[str, Floats] = field(default_factory=dict)
    unanswered: int = 0
    _memory: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.observation)
        lengths = {
            "images": len(self.images),
            "rows of features": len(self.features),
            "marks of what may be asked about": len(self.eligible),
            "distances": n if self.distances is None else len(self.distances.mae),
        } | {f"scores of {name!r}": len(values) for name, values in self.scores.items()}
        for what, length in lengths.items():
            if length != n:
                raise UserError(f"{n} images were observed, but {length} {what} were given; give one for each image.")
        features = np.asarray(self.features, dtype=np.float64)
        if features.ndim != 2 or not np.isfinite(features).all():
            raise UserError(f"The features have shape {features.shape} or are not all finite; give (n, d) numbers.")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "eligible", np.asarray(self.eligible, dtype=bool))

    @classmethod
    def of(
        cls,
        classifier: Classifier,
        images: ImageSet,
        *,
        critical: int | str | None = None,
        min_confidence: float = MIN_CONFIDENCE,
        distances: Distances | None = None,
        supervisors: Sequence[Supervisor] = (),
        features: Literal["pixels", "penultimate"] | ArrayLike = "pixels",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Pool:
        """Observe the images once and gather what a search needs.

        An image to which the classifier has no usable answer (NaN, infinity, an error) stops nothing, as long as others
        are answered: it keeps its position, may not be asked about, is counted in `unanswered`, and a warning says so.
        The model is then asked about all images again, to find out which these are.

        Args:
            classifier: the system under test.
            images: n images; labels are not needed.
            critical: number or name of the class whose predictions are in question; None for all classes.
            min_confidence: images with a confidence greater than this (not equal) may be asked about; 0 admits all.
            distances: of the n images, from `measure_distances`.
            supervisors: fitted supervisors whose scores the adaptive search may learn from.
            features: `"pixels"` as in the papers, `"penultimate"` for the activations that the last layer is fed, or an
                array (n, d).
            seed: of what the supervisors draw, and of the images that pixel features are learnt from.
            progress: where to report the images that the classifier has observed.
        """
        images = in_order(images, classifier.class_names, classifier.description.names)
        if not 0 <= min_confidence < 1:
            raise UserError(
                f"The confidence must exceed {min_confidence}, which is not in [0, 1); the papers take 0.65."
            )
        needs = Needs.union(supervisors)
        trace = Trace(PENULTIMATE, "grid")
        if isinstance(features, str) and features == "penultimate":
            needs |= Needs(traces=frozenset({trace}))
        seen, answered = observe_answered(classifier, images, needs, seed=seed, progress=progress)
        eligible = answered & (seen.confidences > min_confidence)
        if critical is not None:
            eligible &= seen.predictions == _class_number(critical, seen.class_names)
        if unanswered := int((~answered).sum()):
            warnings.warn(
                f"The model had no usable answer (NaN or an error) to {unanswered:,} of {len(images):,} images; these "
                "are left out.",
                stacklevel=2,
            )
        return cls(
            observation=seen,
            images=images,
            features=_features(features, seen, trace, images.images, seed),
            eligible=eligible,
            distances=distances,
            scores={one.name: one.score(seen) for one in supervisors},
            unanswered=unanswered,
        )

    def __len__(self) -> int:
        """The number of images n, whether they may be asked about or not."""
        return len(self.observation)

    @property
    def size(self) -> int:
        """How many images may be asked about."""
        return int(self.eligible.sum())

    @property
    def rows(self) -> NDArray[np.int64]:
        """(size,) the positions of the images that may be asked about, ascending."""
        return np.flatnonzero(self.eligible)

    @property
    def predictions(self) -> NDArray[np.int64]:
        """(n,) the predicted classes."""
        return self.observation.predictions

    @property
    def confidence(self) -> Floats:
        """(n,) the probability of the predicted class."""
        return self.observation.confidences

    def only(self, rows: NDArray[np.int64]) -> Pool:
        """The same images, of which only those at the positions `rows` may be asked about, if they could be before."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[rows] = True
        return replace(self, eligible=self.eligible & chosen)

    def narrowed(self) -> Pool:
        """The pool of only those images that may be asked about: n becomes `size`, and positions are counted anew.

        Distances cost many queries to the model, so they are best measured on `pool.narrowed().images`.
        """
        rows = self.rows
        if len(rows) == 0:
            raise UserError(
                f"None of the {len(self)} images may be asked about; lower min_confidence or change critical."
            )
        distances = self.distances
        if distances is not None:
            columns = {one.name: getattr(distances, one.name) for one in fields(distances)}
            taken: dict[str, Any] = {
                name: values[rows] for name, values in columns.items() if isinstance(values, np.ndarray)
            }
            distances = replace(distances, **taken)
        return replace(
            self,
            observation=self.observation.take(rows),
            images=self.images.take(rows),
            features=self.features[rows],
            eligible=np.ones(len(rows), dtype=bool),
            distances=distances,
            scores={name: values[rows] for name, values in self.scores.items()},
        )

    def with_distances(self, distances: Distances) -> Pool:
        """The same pool, with the distances of its n images."""
        return replace(self, distances=distances)

    def without_pixels(self) -> Pool:
        """The same pool with images of a single pixel: enough for a simulation, and quick to send to a worker."""
        from secondguess.images import ImageSet

        blank = np.zeros((len(self), 1, 1, 1), dtype=np.uint8)
        distances = self.distances
        if distances is not None:
            distances = replace(distances, counterexamples=blank.astype(np.float32))
        seen = Observation(self.observation.probabilities, class_names=self.observation.class_names)
        return replace(self, observation=seen, images=ImageSet.from_arrays(blank, layout="NCHW"), distances=distances)

    def errors(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which predictions that may be asked about are wrong, given labels of all n images; see `wrong`."""
        truth, rows = np.asarray(labels), self.rows
        if len(truth) != len(self):
            raise UserError(f"{len(truth)} labels were given for a pool of {len(self)} images; give one for each.")
        found = np.zeros(len(self), dtype=bool)
        found[rows] = wrong(self.predictions[rows], truth[rows], self.observation.num_classes)
        return found

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        """Cache what several searches on one pool share: `make()` is called at the first call with this key."""
        if key not in self._memory:
            self._memory[key] = make()
        made: Made = self._memory[key]
        return made


def wrong(predictions: NDArray[np.int64], labels: ArrayLike, num_classes: int) -> NDArray[np.bool_]:
    """Which predictions are errors.

    Args:
        predictions: (m,) predicted classes.
        labels: (m,) integers: an error is a label that differs; or (m, K) soft: an error is a prediction with no share
            in the label, so that a row of zeros ("none of the classes") makes every prediction an error.
        num_classes: K.
    """
    truth = np.asarray(labels)
    if truth.dtype.kind in "iu" and truth.shape == predictions.shape:
        if truth.size and (truth.min() < 0 or truth.max() >= num_classes):
            raise UserError(
                f"The labels run from {truth.min()} to {truth.max()}, but with {num_classes} classes a label is "
                f"0..{num_classes - 1}; skip an image whose label is unknown."
            )
        return np.asarray(truth != predictions)
    if truth.dtype.kind == "f" and truth.shape == (len(predictions), num_classes):
        if not ((truth >= 0).all() and np.isfinite(truth).all()):
            raise UserError("The soft labels hold negative or infinite numbers; give shares of the classes.")
        return np.asarray(truth[np.arange(len(predictions)), predictions] == 0)
    raise UserError(
        f"Labels of dtype {truth.dtype} and shape {truth.shape} were given for {len(predictions)} images; give "
        f"integers ({len(predictions)},) or soft labels as floats ({len(predictions)}, {num_classes})."
    )


def pixel_features(images: ImageSource, components: int = COMPONENTS, seed: int = 0) -> Floats:
    """The features of the papers: pixels standardised one by one, then their principal components.

    Args:
        images: n images.
        components: how many; fewer where there are fewer images or pixels.
        seed: which images it is learnt from, if there are more than 4,000 or than 128 MiB of them.

    Returns:
        (n, components).
    """
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    n, image_bytes = len(images), 4 * int(np.prod(images.shape))
    most = min(LEARNT_FROM, max(2 * components, LEARNT_BYTES // image_bytes))
    at_once = min(AT_ONCE, max(1, AT_ONCE_BYTES // image_bytes))
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:most])
    learnt_from = np.concatenate([_flat(images, part) for part in _parts(chosen, at_once)])
    scaler = StandardScaler(copy=False).fit(learnt_from)  # in place: these may be the largest arrays of an audit
    components = min(components, *learnt_from.shape)
    pca = PCA(components, copy=False, random_state=seed).fit(scaler.transform(learnt_from))
    parts = _parts(np.arange(n), at_once)
    return np.concatenate([pca.transform(scaler.transform(_flat(images, part))) for part in parts]).astype(np.float64)


def _parts(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Parts of about the same length, at most `size`."""
    return np.array_split(rows, -(-len(rows) // size))


def _flat(images: ImageSource, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    return images[rows].reshape(len(rows), -1)


def _features(given: Any, seen: Observation, trace: Trace, images: ImageSource, seed: int) -> Floats:
    if not isinstance(given, str):
        return np.asarray(given, dtype=np.float64)
    if given == "pixels":
        return pixel_features(images, seed=seed)
    if given == "penultimate":
        return np.asarray(seen.trace(trace), dtype=np.float64)
    raise UserError(f"There are no features called {given!r}; give 'pixels', 'penultimate' or an array (n, d).")


def _class_number(critical: int | str, names: tuple[str, ...]) -> int:
    """The number of the critical class; a text is a name first and a number only if no class is called so."""
    if isinstance(critical, str):
        if critical in names:
            return names.index(critical)
        if not critical.isdecimal():
            raise UserError(f"There is no class {critical!r}; the classes are {', '.join(names)}.")
    number = int(critical)
    if not 0 <= number < len(names):
        raise UserError(f"The critical class is {number}, but the classes are numbered 0..{len(names) - 1}.")
    return number
