"""A session that observes a few images at a time quickly.

    with classifier.session(supervisor.needs) as session:
        session.observe(image).probabilities

`Classifier.observe` determines for every set of images its form, the content of the cache, and the layers; a session
does so once. The observations are the same.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.batches import as_batch
from secondguess.images.fitting import check_resize
from secondguess.images.sources import ArraySource
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.model.outputs import NotFinite, as_matrix

if TYPE_CHECKING:
    from secondguess.model.backends.base import Recorder
    from secondguess.model.classifier import Classifier

__all__ = ["Session"]

Shape = tuple[int, int, int]
Array = NDArray[Any]


class Session:
    """Observes images of one shape with a classifier; made by `Classifier.session`.

    Several threads may use it at the same time. A torch module is observed as it was when the session was opened:
    weights that change later, and its training mode, do not matter. Dropout samples are of the module as it is, and so
    is everything else where a module cannot be copied (it may hold a lock, say).

    Args:
        classifier: the system under test.
        needs: what to record.
        shape: (C, H, W) of the images; that of the first images if left out.

    Attributes:
        layers: the backend's name for the layer of each trace; once the shape is known.
    """

    layers: dict[Trace, str]

    def __init__(self, classifier: Classifier, needs: Needs, shape: Shape | None = None) -> None:
        classifier.check(needs, "The session")
        self.classifier, self.needs, self.shape = classifier, needs, shape
        # Computed once: `normalised` checks mean and std for every image.
        self._plain = not classifier.mean.any() and bool((classifier.std == 1).all())
        self._resize = check_resize(classifier.description.resize)
        self._opening = threading.Lock()
        self._recorder: Recorder | None = None
        self._closed = False
        if shape is not None:
            self._open(shape)

    def observe(self, images: Any) -> Observation:
        """Observe images in any form that `secondguess.images.as_batch` takes."""
        batch = self._batch(images)
        classifier, needs = self.classifier, self.needs
        if needs.samples:
            return classifier.observe(ArraySource(batch, "NCHW"), needs)
        raws: list[Array] = []
        traces: dict[Trace, list[Array]] = defaultdict(list)
        for raw, activations, rows in self._passes(batch):
            raws.append(raw)
            for trace, layer in self.layers.items():  # reduced at once: whole layers of many images are large
                traces[trace].append(trace.apply(classifier.checked(layer, activations[layer], rows)))
        probabilities, logits = classifier.read(_joined(raws), len(batch))
        if needs.logits and logits is None:
            classifier.check(Needs(logits=True), "The session")
        return Observation(
            probabilities=probabilities,
            logits=logits if needs.logits else None,
            traces={trace: _joined(parts) for trace, parts in traces.items()},
            images=ArraySource(batch, "NCHW") if needs.images else None,
            class_names=classifier.class_names,
            checked=True,
        )

    def predict(self, images: Any) -> NDArray[np.float64]:
        """The probabilities (n, K) of images alone, whatever else the session observes."""
        batch = self._batch(images)
        return self.classifier.read(_joined([raw for raw, _, _ in self._passes(batch)]), len(batch))[0]

    def close(self) -> None:
        """Release what the session holds; it cannot be used any more."""
        self._closed = True
        if self._recorder is not None:
            self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def batch(self, images: Any) -> NDArray[np.float32]:
        """The images as the classifier takes them, (n, C, H, W) in [0, 1]; what `observe` begins with."""
        return as_batch(images, self.shape or self.classifier.input_shape, self._resize, who=self.classifier.name)

    def _batch(self, images: Any) -> NDArray[np.float32]:
        if self._closed:
            raise UserError("This session is closed; open another with classifier.session(needs).")
        return self.batch(images)

    def _passes(self, batch: Array) -> Iterator[tuple[Array, Mapping[str, Array], int]]:
        """The raw output of the model, what its layers gave, and of how many images, pass by pass."""
        recorder = self._recorder or self._open((batch.shape[1], batch.shape[2], batch.shape[3]))
        fed = batch if self._plain else self.classifier.normalised(batch)
        size = 1 if len(fed) == 1 else self.classifier.pass_rows(fed.shape[1:])  # one image alone is in a hurry
        for start in range(0, max(1, len(fed)), size):
            part = fed[start : start + size]
            raw, activations = recorder(part)
            if len(fed) > size:  # to be joined with others
                try:
                    raw = as_matrix(raw, len(part))
                except NotFinite as error:
                    raise NotFinite(error.rows + start, len(fed)) from None
            yield raw, activations, len(part)

    def _open(self, shape: Shape) -> Recorder:
        """Find the layers and prepare the model."""
        with self._opening:
            if self._recorder is None:
                self.layers = self.classifier.locate(self.needs.traces, shape)
                self.shape = shape
                self._recorder = self.classifier.backend.recorder(list(dict.fromkeys(self.layers.values())), shape)
            return self._recorder


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
