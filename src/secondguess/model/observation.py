"""What is recorded of a classifier on a set of images, together with what is known about the images.

An observation is made in one pass, or of arrays that were recorded elsewhere. `Needs` says what to record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.given import (
    as_array,
    as_whole,
    blocks_of,
    check_logits,
    check_probabilities,
    converted,
    split_traces,
)
from secondguess.model.needs import Trace
from secondguess.model.outputs import to_probabilities

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource

__all__ = ["Observation", "are_numbers", "shown_classes"]

ROWS = ("probabilities", "logits", "samples", "labels", "predictions")  # arguments with one row per image
VALUES = ("probabilities", "logits", "samples")  # those with a number for each class


class Observation:
    """What was recorded of a classifier on n images, and their labels. Immutable; arrays may be memory-mapped.

    `classifier.observe(images)` makes one. Arrays that come from elsewhere make one too:
    `Observation(probabilities=p, traces={"penultimate": a}, labels=y)`; at least one of probabilities, logits and
    predictions is needed.

    Args:
        probabilities: (n, K), rows sum to one; the softmax of the logits where only those are given.
        logits: (n, K) float32, or None where the model gives probabilities only.
        traces: one (n, d) float32 array by `Trace`; or the raw output (n, ...) of a layer by the layer's name, which
            is then reduced as requested.
        samples: (n, S, K) float32 probabilities of S passes with dropout, or None.
        images: the n images: an `ImageSet`, whose labels, ids and columns belong to the observation, or an image
            source, or None.
        labels: (n,) int64, -1 where unknown; those of the image set where there is one.
        class_names: K names; those of the image set, or `"0"`, `"1"`, ..., where none are given.
        predictions: (n,) predicted classes, where probabilities and logits were not recorded.
        columns: further arrays (n,) by name, such as what other models predict; those of the image set where there is
            one.
        checked: whether the numbers in probabilities, logits and samples are known to be valid, probabilities as
            `to_probabilities` makes them, and need not be looked at.

    Attributes:
        logits: (n, K), or None.
        traces: by `Trace`.
        samples: (n, S, K), or None.
    """

    logits: NDArray[np.float32] | None
    traces: Mapping[Trace, NDArray[np.float32]]
    samples: NDArray[np.float32] | None
    _probabilities: NDArray[Any] | None  # as they were given
    _rough: bool  # whether they are still to be brought to float64 and to rows that sum to one
    _predictions: NDArray[np.int64] | None
    _labels: NDArray[np.int64] | None
    _outputs: Mapping[str, NDArray[np.float32]]
    _images: ImageSet | ImageSource | None
    _names: tuple[str, ...]
    _columns: Mapping[str, NDArray[Any]]

    def __init__(
        self,
        probabilities: Any = None,
        logits: Any = None,
        traces: Mapping[Trace, Any] | Mapping[str, Any] | None = None,
        samples: Any = None,
        images: ImageSet | ImageSource | None = None,
        labels: Any = None,
        class_names: Sequence[str] = (),
        predictions: Any = None,
        columns: Mapping[str, Any] | None = None,
        *,
        checked: bool = False,
    ) -> None:
        given = {
            "probabilities": probabilities,
            "logits": logits,
            "traces": traces,
            "samples": samples,
            "images": images,
            "labels": labels,
            "class_names": class_names,
            "predictions": predictions,
            "columns": columns,
        }
        self._hold(given, () if checked else VALUES)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"An observation does not change; use replace({name}=...) to make another one.")

    def __len__(self) -> int:
        return len(self._first)

    def __repr__(self) -> str:
        seen = ["predictions"] if self._probabilities is None and self.logits is None else ["probabilities"]
        seen += ["logits"] if self.logits is not None else []
        seen += [f"trace {trace}" for trace in sorted(self.traces)]
        seen += [f"{self.samples.shape[1]} dropout samples"] if self.samples is not None else []
        return f"Observation({len(self)} images, {self.num_classes} classes: {', '.join(seen)})"

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(n, K) float64 between 0 and 1, rows sum to one; the array that was given where it is such a one already."""
        if self._probabilities is not None:
            return converted(self._probabilities) if self._rough else self._probabilities
        if self.logits is None:
            raise UserError(
                "This observation holds predictions but neither probabilities nor logits, which are needed here; "
                "give them too: Observation(probabilities=..., traces=...)."
            )
        return to_probabilities(self.logits, "logits")[0]

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The predicted class of each image, (n,): the most probable one; ties go to the lowest index."""
        if self._predictions is not None:
            return self._predictions
        return self._most_probable()

    @cached_property
    def confidences(self) -> NDArray[np.float64]:
        """The probability of the predicted class, (n,)."""
        return self._of_rows(lambda rows: rows.max(axis=1))

    @cached_property
    def num_classes(self) -> int:
        """K; at least that many where `classes_are_known` is False: one more than the largest class that occurs."""
        if (width := self._width) is not None:
            return width
        if names := self._names or _names_of(self._images):
            return len(names)
        seen = [self.predictions] if self.labels is None else [self.predictions, self.labels]
        return 1 + max(1, *(int(classes.max(initial=0)) for classes in seen))

    @property
    def classes_are_known(self) -> bool:
        """Whether K is known: not where there are predictions and neither other outputs nor class names."""
        return self._width is not None or bool(self._names or _names_of(self._images))

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The K names: the classifier's, or the data's where the classifier has none."""
        theirs = _names_of(self._images)
        if len(theirs) == self.num_classes and (not self._names or are_numbers(self._names)):
            return theirs
        return self._names or _numbers(self.num_classes)

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """The true class of each image, (n,), -1 where unknown; None where no label is known at all.

        Raises:
            UserError: where the images are labelled with other classes than the model's.
        """
        labels = self._labels if self._labels is not None else getattr(self._images, "labels", None)
        if labels is None or (labels < 0).all():
            return None
        self.check_classes()
        return labels

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, (n,); a `UserError` where a label is unknown."""
        return np.asarray(self.predictions == self.require_labels("This"))

    @cached_property
    def images(self) -> ImageSet | None:
        """The n images with all that is known about them, or None where only arrays were given."""
        from secondguess.images import ImageSet

        if self._images is None or isinstance(self._images, ImageSet):
            return self._images
        labels = np.full(len(self), -1, dtype=np.int64) if self._labels is None else self._labels
        return ImageSet(self._images, labels, self.class_names)

    @property
    def name(self) -> str:
        """What to call the images in messages and reports."""
        return str(getattr(self._images, "name", "images"))

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Further arrays (n,) by name: the image set's, and those given beside it."""
        return {**getattr(self._images, "columns", {}), **self._columns}

    @property
    def pixels(self) -> ImageSource | None:
        """The pixels of the n images, or None where only arrays were given."""
        images: Any = self._images
        return getattr(images, "images", images)

    def trace(self, trace: Trace | str) -> NDArray[np.float32]:
        """The (n, d) activations of a layer, by `Trace` or by the name of the layer if that is unambiguous."""
        if isinstance(trace, Trace):
            if trace not in self.traces and trace.layer in self._outputs:
                return trace.apply(self._outputs[trace.layer])
            matches = [trace] if trace in self.traces else []
        else:
            matches = [known for known in self.traces if known.layer == trace]
        if len(matches) != 1:
            seen = ", ".join(str(known) for known in sorted(self.traces)) or "no traces at all"
            problem = "more than one trace" if matches else "no trace"
            raise UserError(
                f"This observation holds {problem} of {str(trace)!r} (it has: {seen}); "
                "ask for it with observe(images, Needs(traces={Trace(layer, reduce)}))."
            )
        return self.traces[matches[0]]

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Observation:
        """The observation of some of the images, by positions, mask or slice, in the order of `indices`."""
        given = self._given()
        rows = {name: given[name][indices] for name in ROWS if given[name] is not None}
        parts = {name: {key: array[indices] for key, array in given[name].items()} for name in ("traces", "columns")}
        return self._with(rows | parts | {"images": self._some_images(np.arange(len(self))[indices])})

    def replace(self, **changes: Any) -> Observation:
        """The same observation with other values for some arguments; labels come with `images`."""
        if changes.get("images") is not None:
            changes = {"labels": None} | changes
        if {"probabilities", "logits"} & changes.keys():
            changes = {"predictions": None} | changes
        return self._with(changes, unknown=changes.keys())

    def require_labels(self, who: str) -> NDArray[np.int64]:
        """The labels (n,); a `UserError` if one is unknown, or if the images have other classes than the model."""
        labels = self.labels
        unknown = len(self) if labels is None else int((labels < 0).sum())
        if labels is None or unknown:
            where = "" if self._images is None else f" in {self.name!r}"
            raise UserError(
                f"{who} needs the label of every image, but {unknown} of the {len(self)}{where} are "
                "unknown; leave those images out with images.take(images.labels >= 0)."
            )
        return labels

    def require_images(self, who: str) -> ImageSet:
        """The images; a `UserError` where only arrays were given."""
        if self.images is None:
            raise UserError(
                f"{who} needs the images, which this observation does not hold; make it with "
                "classifier.observe(images), or give Observation(..., images=images)."
            )
        return self.images

    def check_classes(self) -> None:
        """Raise a `UserError` unless the classifier and the image set agree on the classes and their order."""
        theirs = _names_of(self._images)
        if not theirs:  # nothing to agree with; `num_classes` may have to look at the labels
            return
        ours = self._names or _numbers(self.num_classes)
        if theirs != ours and (len(theirs) != len(ours) or not are_numbers(ours)):
            raise UserError(
                f"The classifier knows the classes {shown_classes(ours)}, but the set {self.name!r} has "
                f"{shown_classes(theirs)}; the model and the data must agree on the classes and their order."
            )

    @property
    def _first(self) -> NDArray[Any]:
        """The array that says how many images there are."""
        for array in (self._probabilities, self.logits, self._predictions):
            if array is not None:
                return array
        raise UserError(
            "An observation needs probabilities (n, K), logits (n, K) or predictions (n,), and none of them was given."
        )

    @property
    def _width(self) -> int | None:
        """K by the arrays that have a number for each class; None where there is none of them."""
        for array in (self._probabilities, self.logits, self.samples):
            if array is not None:
                return int(array.shape[-1])
        return None

    def _hold(self, given: Mapping[str, Any], unknown: Collection[str], *, rough: bool = False) -> None:
        """Take these arguments; of probabilities, logits and samples, the numbers are looked at where `unknown`."""
        outputs, reduced = split_traces(given["traces"] or {})
        labels, predictions = given["labels"], given["predictions"]
        vars(self).update(
            _probabilities=as_array(given["probabilities"]),
            _rough=rough,
            logits=as_array(given["logits"]),
            traces=reduced,
            samples=as_array(given["samples"]),
            _outputs=outputs,
            _images=given["images"],
            _labels=None if labels is None else as_whole(labels, "labels"),
            _names=tuple(given["class_names"]),
            _predictions=None if predictions is None else as_whole(predictions, "predictions"),
            _columns={name: as_array(values) for name, values in (given["columns"] or {}).items()},
        )
        self._check()
        self._check_values(unknown)
        self._check_predictions()

    def _with(self, changes: Mapping[str, Any], unknown: Collection[str] = ()) -> Observation:
        """The same observation with other arguments; see `_hold`."""
        given = self._given()
        if strange := changes.keys() - given.keys():
            raise TypeError(f"An observation has no {', '.join(sorted(strange))}.")
        made = object.__new__(Observation)
        made._hold({**given, **changes}, unknown, rough=self._rough)
        return made

    def _most_probable(self) -> NDArray[np.int64]:
        return self._of_rows(lambda rows: rows.argmax(axis=1)).astype(np.int64)

    def _of_rows(self, measure: Callable[[NDArray[np.float64]], NDArray[Any]]) -> NDArray[Any]:
        """A number for each row of probabilities, (n,); all of them are not converted at once for that alone."""
        if self._probabilities is None or not self._rough or not len(self) or "probabilities" in vars(self):
            return np.asarray(measure(self.probabilities))
        return np.concatenate(
            [measure(converted(self._probabilities[rows])) for rows in blocks_of(self._probabilities)]
        )

    def _given(self) -> dict[str, Any]:
        """The arguments that make this observation."""
        reduced = {trace: array for trace, array in self.traces.items() if trace.layer not in self._outputs}
        return {
            "probabilities": self._probabilities,
            "logits": self.logits,
            "traces": {**self._outputs, **reduced},
            "samples": self.samples,
            "images": self._images,
            "labels": self._labels,
            "class_names": self._names,
            "predictions": self._predictions,
            "columns": self._columns,
        }

    def _some_images(self, rows: NDArray[np.int64]) -> ImageSet | ImageSource | None:
        from secondguess.images import ImageSet
        from secondguess.images.sources import ViewSource

        if self._images is None or len(rows) == 0:  # an image set cannot be empty
            return None
        return self._images.take(rows) if isinstance(self._images, ImageSet) else ViewSource(self._images, rows)

    def _check(self) -> None:
        """Raise a `UserError` unless everything is about the same n images and K classes."""
        n = len(self._first)
        if self._images is not None and len(self._images) != n:
            raise UserError(
                f"{n} images were observed, but the set {self.name!r} has {len(self._images)}; "
                "give the observation of exactly these images."
            )
        for name, array, axes in (
            ("probabilities", self._probabilities, 2),
            ("logits", self.logits, 2),
            ("samples", self.samples, 3),
            ("predictions", self._predictions, 1),
            ("labels", self._labels, 1),
            *((f"values of {name!r}", values, 1) for name, values in self._columns.items()),
        ):
            if array is not None and (array.ndim != axes or len(array) != n):
                raise UserError(f"The {name} have the shape {array.shape}; {axes} axes with {n} rows are needed.")
        for trace, array in self.traces.items():
            if array.ndim != 2 or len(array) != n:
                raise UserError(f"The trace {trace} has the shape {array.shape}; (n, d) with {n} rows is needed.")
        self._check_width()
        theirs = getattr(self._images, "labels", None)
        if self._labels is not None and theirs is not None and not np.array_equal(self._labels, theirs):
            raise UserError(
                f"The labels given are not those of the set {self.name!r}; give the labels to the set alone."
            )

    def _check_width(self) -> None:
        """Raise a `UserError` unless everything is about the same K classes, two or more."""
        width = self._width
        if width is None:
            return
        given = {"probabilities": self._probabilities, "logits": self.logits, "samples": self.samples}
        for name, array in given.items():
            if array is not None and array.shape[-1] != width:
                first = next(name for name, array in given.items() if array is not None)
                raise UserError(
                    f"The {first} are of {width} classes, but the {name} of {array.shape[-1]}; give what one model "
                    "said of the same classes."
                )
        if width < 2:
            raise UserError(
                f"The outputs have {width} column{'s' * (width != 1)}, but there are two classes or more; where one "
                "number is that of the second of two, give (1 - p, p) for a probability p, or (0, l) for a logit l."
            )
        if self._names and len(self._names) != width:
            raise UserError(f"{len(self._names)} class names were given for {width} classes; give one per class.")

    def _check_values(self, unknown: Collection[str]) -> None:
        """Raise a `UserError` unless the `unknown` ones among probabilities, logits and samples are valid."""
        if "probabilities" in unknown:
            given = self._probabilities
            sound = given is None or check_probabilities(given, "probabilities", "them as such: logits=...")
            vars(self)["_rough"] = not sound
        if "logits" in unknown and self.logits is not None:
            check_logits(self.logits)
        if "samples" in unknown and self.samples is not None:
            check_probabilities(self.samples, "samples", "their softmax")

    def _check_predictions(self) -> None:
        """Raise a `UserError` unless the predictions given are classes, and those that the rest makes most probable."""
        if self._predictions is None:
            return
        if self._predictions.min(initial=0) < 0:
            raise UserError("A prediction is negative; predictions are whole numbers from 0 on, one per image.")
        if self.classes_are_known and self._predictions.max(initial=0) >= self.num_classes:
            raise UserError(f"Class {self._predictions.max()} is predicted, but there are {self.num_classes} classes.")
        if self._first.ndim == 2 and not np.array_equal(self._predictions, self._most_probable()):
            raise UserError(
                "The predictions given are not the most probable classes; leave them out, or the probabilities."
            )


def shown_classes(names: tuple[str, ...], most: int = 5) -> str:
    """The first of these class names and how many there are, for a message."""
    dots = ", ..." if len(names) > most else ""
    return f"({', '.join(names[:most])}{dots}; {len(names)} in all)"


def are_numbers(names: tuple[str, ...]) -> bool:
    """Whether these are the names of classes that have no name."""
    return names == _numbers(len(names))


def _numbers(classes: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(classes))


def _names_of(images: ImageSet | ImageSource | None) -> tuple[str, ...]:
    return getattr(images, "class_names", ())
