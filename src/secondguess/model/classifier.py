"""The system under test: a model with everything needed to feed it images and to read its answer.

`Classifier` owns normalisation, batch size, device and the question whether the model's output is logits or
probabilities. `observe()` makes one pass over a set of images and returns an `Observation` with what was requested.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.agreement import in_order
from secondguess.model.backends import Layer, open_backend
from secondguess.model.backends.base import digest
from secondguess.model.cache import Cache
from secondguess.model.description import Description
from secondguess.model.description_fields import PRESENT, OutputKind
from secondguess.model.needs import ADVICE, PENULTIMATE, Needs, Trace
from secondguess.model.noise import with_noise
from secondguess.model.observation import Observation, shown_classes
from secondguess.model.outputs import Convention, as_matrix, detect, restricted, to_probabilities
from secondguess.model.passes import Pass
from secondguess.model.recording import Item
from secondguess.progress import Progress, Silent

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource
    from secondguess.model.backends.differentiable import Differentiable
    from secondguess.model.session import Session

__all__ = ["Classifier"]

FEWEST = 8  # images of a pass, however large they are


class Classifier:
    """A model under test.

    Args:
        model: a `torch.nn.Module`, any callable `images -> (n, K)`, the path of an `.onnx` or `.pt2` file, `zoo:NAME`,
            or `package.module:make_model`.
        weights: a `.safetensors` file to fill a torch module with.
        class_names: K names; `"0"`, `"1"`, ... if left out.
        input_shape: (C, H, W), where the model does not state it and `layers()` is called before any image was
            observed.
        mean: subtracted from the images in [0, 1], one number or one per channel; the model's own normalisation.
        std: what the difference is divided by; `std=1/255` feeds a model that wants pixels from 0 to 255.
        output_kind: `"logits"`, `"probabilities"`, or `"auto"`: found out on the first batch and checked on all others.
        output: name or number of the output with the class scores, where the model has several.
        layers: layers that traces mean, by the name of the trace, such as `{"penultimate": "avgpool"}`.
        resize: how images of other proportions are to be loaded: `"stretch"`, `"crop"` or `"pad"`.
        batch_size: images per forward pass, at most; torch takes fewer large ones at once on a processor.
        device: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:N"` or `"mps"`.
        cache: a folder in which observations are kept; a second run with the same model and images is then free.
        name: for reports.
        version: identifies a callable for the cache; torch modules and files are identified by their content.
        memory_limit: the most bytes that `observe()` holds in memory when there is no cache folder to map files from.
        engine: where to observe more than a few images, in shards: `"local:N"` for N processes of this machine,
            `"dask://host:port"`, `"ray"` or `"ray://host:port"`; in this process if left out. The numbers are the same.

    Attributes:
        gives: what can be requested: a subset of probabilities, logits, traces, dropout, gradients.
        mean: (1,) or (C,), subtracted from the images.
        std: (1,) or (C,), what the difference is divided by.
        description: what a `model.toml` says of it.
        is_repeatable: whether it gave the same answer twice, or None as long as nobody has tried.
    """

    def __init__(
        self,
        model: Any,
        *,
        weights: str | Path | None = None,
        class_names: Sequence[str] | None = None,
        input_shape: tuple[int, int, int] | None = None,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        output_kind: OutputKind = "auto",
        output: int | str | None = None,
        layers: Mapping[str, str] | None = None,
        resize: str = "stretch",
        batch_size: int = 256,
        device: str = "auto",
        cache: str | Path | None = None,
        name: str | None = None,
        version: str | None = None,
        memory_limit: int = 4 << 30,
        engine: str | None = None,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"The batch size is {batch_size}; it must be at least 1.")
        self.device = device
        self.mean, self.std = _per_channel(mean, "mean"), _per_channel(std, "std")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and (self.std != 0).all()):
            raise UserError("mean and std must be finite and std must not be 0.")
        self.description = Description.of(
            model,
            weights=weights,
            classes=tuple(map(str, class_names or ())),
            size=input_shape and input_shape[1:],
            channels=input_shape and input_shape[0],
            mean=mean,
            std=std,
            resize=resize,
            output_kind=output_kind,
            output=output,
            layers=layers or {},
        )
        network = self.description.network
        how: Any = {"weights": weights, "device": device, "identity": version, "output": output, "network": network}
        self.backend = open_backend(model, **how)
        self.name = name or (Path(model).name if isinstance(model, (str, Path)) else _name_of(model))
        self.input_shape = input_shape or self.backend.input_shape
        self.batch_size = batch_size
        self.cache = Cache(cache) if cache is not None else None
        self.memory_limit = memory_limit
        self.engine = None if engine in (None, "local") else engine
        self._convention: Convention | None = None if output_kind == "auto" else output_kind
        self.is_repeatable: bool | None = None
        self._seen_shape: tuple[int, int, int] | None = None
        self._resolved: dict[tuple[str, tuple[int, ...]], str] = {}

    @classmethod
    def open(cls, what: Any, **changes: Any) -> Classifier:
        """Open a model by anything that describes it.

        Args:
            what: a `model.toml`, an `.onnx` or `.pt2` file, `zoo:NAME`, `package.module:make_model`, a torch module, a
                callable, a `Description`, or a `Classifier`, which is returned as it is.
            changes: what differs from the description, by the names of its fields (`mean`, `classes`, ...), and how to
                run the model: `batch_size`, `device`, `cache`, `version`, `memory_limit`, `engine`.
        """
        from secondguess.model.opening import open_classifier

        return open_classifier(what, **changes)

    def with_classes(self, names: Sequence[str]) -> Classifier:
        """The same classifier whose classes have these names; this one stays as it is."""
        named = copy.copy(self)
        named.description = self.description.changed(classes=tuple(names))
        return named

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the model's order, of those that are kept; () where they are not known."""
        known = self.description
        return tuple(name for name in known.classes if name in known.keep or known.keep in ((), PRESENT))

    def keeping(self, names: Sequence[str]) -> Classifier:
        """The same classifier, whose softmax is restricted to these classes; this one stays as it is."""
        kept = copy.copy(self)
        kept.description = self.description.changed(keep=tuple(names))
        return kept

    @property
    def loading(self) -> dict[str, Any]:
        """How images are loaded for this model: the arguments `size`, `channels` and `resize` of `secondguess.load`."""
        known, shape = self.description, self.input_shape
        return {
            "size": known.size or (shape and shape[1:]),
            "channels": known.channels or (shape and shape[0]),
            "resize": known.resize,
        }

    def __repr__(self) -> str:
        return f"Classifier({self.name}: {self.backend.kind.lower()}, gives {', '.join(sorted(self.gives))})"

    @property
    def gives(self) -> frozenset[str]:
        """What this classifier provides."""
        logits = frozenset() if self._convention == "probabilities" else frozenset({"logits"})
        return self.backend.gives | logits

    @property
    def fingerprint(self) -> str | None:
        """A digest of weights, structure and normalisation; None for a callable without a version."""
        identity = self.backend.identity()
        if identity is None:
            return None
        known = self.description
        rest = [repr((known.output, sorted(known.layers.items())))] if known.output is not None or known.layers else []
        rest += [repr(self.kept)] if self.kept is not None else []
        return digest(identity, repr(self.mean.tolist()), repr(self.std.tolist()), *rest)

    def layers(self) -> list[Layer]:
        """The layers that can be traced, in the order in which they run, with their shapes."""
        return self.backend.layers(self._probe(self._known_shape()))

    def check(self, needs: Needs, who: str = "This request") -> None:
        """Raise a `UserError` that names both sides if something is needed that the classifier cannot give."""
        lacking = sorted(needs.abilities - self.gives)
        if lacking:
            raise UserError(
                f"{who} needs {', '.join(lacking)}, but {self.name} ({self.backend.kind.lower()}) gives "
                f"{', '.join(sorted(self.gives))} only; {ADVICE[lacking[0]]}."
            )

    def predict(self, images: Any) -> NDArray[np.float64]:
        """Probabilities (n, K) of the images."""
        return self.observe(images).probabilities

    def differentiable(self) -> Differentiable:
        """The model as a torch module from pixels (n, C, H, W) in [0, 1] to logits (n, K), for attacks.

        It normalises by itself, runs in eval mode, and lets gradients reach the pixels but not the weights. Images must
        be on its `device`.
        """
        from secondguess.model.backends.differentiable import Differentiable

        self.check(Needs(gradients=True), "Following gradients")
        device = getattr(self.backend, "device", "cpu")
        run = self.backend.differentiable
        return Differentiable(run, self.mean, self.std, self._convention, device, self.kept).eval()

    def observe(
        self,
        images: Any,
        needs: Needs | None = None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Observation:
        """Observe a set of images in one pass and record what is needed.

        Args:
            images: an `ImageSet`, whose ids, columns and labels go with the observation, the labels in the order of
                the model's class names; or one image or several in any form that `secondguess.images.as_batch` takes.
            needs: what to record; probabilities alone if left out.
            seed: of the dropout samples. Sample s of an image depends on the seed, s and the image's place in the set,
                not on the batch size nor on how many samples are asked for.
            progress: where to report the images done.
        """
        from secondguess.images import ImageSet

        needs = needs or Needs()
        self.check(needs)
        source = self.source(images)
        label = f"Observing {images.name if isinstance(images, ImageSet) else 'images'}"
        ids = images.ids if isinstance(images, ImageSet) else None
        self._seen_shape = (source.shape[0], source.shape[1], source.shape[2])
        seen = Pass(self, source, needs, seed, ids).run(label, progress or Silent())
        return self.observation(images if isinstance(images, ImageSet) else source, seen)

    def session(self, needs: Needs | None = None, shape: tuple[int, int, int] | None = None) -> Session:
        """Open a session that observes a few images at a time quickly.

        Args:
            needs: what to record; probabilities alone if left out.
            shape: (C, H, W) of the images; what the model takes, or the first images have, if left out.
        """
        from secondguess.model.session import Session

        return Session(self, needs or Needs(), shape or self.input_shape)

    # What follows is for callers that feed the model themselves: a session, an export.

    def locate(self, traces: Iterable[Trace], shape: tuple[int, ...]) -> dict[Trace, str]:
        """The name under which the backend knows the layer of each trace, for images (C, H, W)."""
        return {trace: self._resolve(trace, shape) for trace in sorted(traces)}

    def normalised(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Images (n, C, H, W) in [0, 1] normalised as the model expects them."""
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, images.shape[1]):
                raise UserError(
                    f"{name} has {len(numbers)} numbers, but the images have {images.shape[1]} channels; where the "
                    f"model takes {len(numbers)}, say --channels {len(numbers)}, or channels in its model.toml."
                )
        if not self.mean.any() and (self.std == 1).all():
            return images
        mean, std = self.mean.reshape(-1, 1, 1), self.std.reshape(-1, 1, 1)
        return ((images - mean) / std).astype(np.float32, copy=False)

    def read(self, raw: NDArray[Any], count: int) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """The model's output for `count` images as probabilities (n, K) and, if it gives such, logits (n, K)."""
        raw = as_matrix(raw, count)
        probabilities, logits = to_probabilities(raw, self.convention(raw))
        kept = self.kept
        if kept is None:
            return probabilities, logits
        if probabilities.shape[1] != len(self.description.classes):
            raise UserError(
                f"{self.name} gives {probabilities.shape[1]} classes, but {len(self.description.classes)} class names "
                "were given, so that it is not known which are to be kept."
            )
        return restricted(probabilities, logits, kept)

    def pass_rows(self, shape: tuple[int, ...]) -> int:
        """How many images (C, H, W) go through the model at once."""
        values = self.backend.values
        return self.batch_size if values is None else min(self.batch_size, max(FEWEST, values // math.prod(shape)))

    @property
    def kept(self) -> list[int] | None:
        """The places of the classes that are kept; None where all are."""
        known = self.description
        if known.keep in ((), PRESENT):
            return None
        if not known.classes:
            raise UserError(f"{self.name} is to keep the class {known.keep[0]!r}, but its classes have no names.")
        return [place for place, name in enumerate(known.classes) if name in known.keep]

    @property
    def output_kind(self) -> OutputKind:
        """How the model's output is read; `"auto"` as long as no image has decided it."""
        return self._convention or "auto"

    def convention(self, raw: NDArray[Any]) -> Convention:
        """How the model's output is read; where that is not known yet, these values (n, K) decide it for good.

        A few rows of logits may look like probabilities; where they do, noise is asked about, too.
        """
        if self._convention is None:
            self._convention = detect(with_noise(self, raw, self.input_shape or self._seen_shape))
        return self._convention

    def settle(self, kind: OutputKind) -> None:
        """Read the output as this kind, as long as nothing else has decided it."""
        if self._convention is None and kind != "auto":
            self._convention = kind

    def checked(self, layer: str, values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """What a layer gave for `count` images, if that is one row per image; else a `UserError`."""
        if len(values) != count:
            raise UserError(
                f"The layer {layer!r} gives an array of shape {values.shape} for {count} images, not a row per image; "
                "trace another layer (classifier.layers() lists them)."
            )
        return values

    def observation(self, images: ImageSet | ImageSource, seen: Mapping[Item, NDArray[Any]]) -> Observation:
        """The observation of images, of what a pass has recorded of them."""
        from secondguess.images import ImageSet

        if isinstance(images, ImageSet):
            images = in_order(images, self.class_names, self.description.names)
        by_what = {item.what: array for item, array in seen.items()}
        probabilities = by_what["probabilities"]
        if self.class_names and len(self.class_names) != probabilities.shape[1]:
            outputs = probabilities.shape[1]
            raise UserError(
                f"{self.name} gives {outputs} classes, but {len(self.class_names)} class names were given "
                f"{shown_classes(self.class_names)}; name the model's {outputs}, in the order of its outputs, with "
                "--classes or in its model.toml: the images may be of some of them only."
            )
        return Observation(
            probabilities=probabilities,
            logits=by_what.get("logits"),
            traces={item.trace: array for item, array in seen.items() if item.trace},
            samples=by_what.get("samples"),
            images=images,
            class_names=self.class_names,
            checked=True,
        )

    def source(self, images: Any) -> ImageSource:
        """The images as a source, in any form that `observe` takes, if the model takes their shape."""
        from secondguess.images import as_source
        from secondguess.images.fitting import check_resize

        return as_source(images, self.input_shape, check_resize(self.description.resize), who=self.name)

    def _resolve(self, trace: Trace, shape: tuple[int, ...]) -> str:
        """The name under which the backend knows the layer of a trace."""
        trace = replace(trace, layer=self.description.layers.get(trace.layer, trace.layer))
        if trace.layer != PENULTIMATE and not trace.layer.endswith("%"):
            return trace.layer
        if (trace.layer, shape) not in self._resolved:
            probe = self._probe(shape)
            if trace.layer == PENULTIMATE:
                self._resolved[trace.layer, shape] = self.backend.penultimate(probe)
            else:
                self._resolved[trace.layer, shape] = trace.pick([layer.name for layer in self.backend.layers(probe)])
        return self._resolved[trace.layer, shape]

    def _probe(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return self.normalised(np.zeros((1, *shape), dtype=np.float32))

    def _known_shape(self) -> tuple[int, int, int]:
        shape = self.input_shape or self._seen_shape
        if shape is None:
            raise UserError(
                "The model does not say which images it takes; give Classifier(..., input_shape=(C, H, W)), "
                "or observe some images first."
            )
        return shape


def _per_channel(value: float | Sequence[float], name: str) -> NDArray[np.float32]:
    try:
        return np.atleast_1d(np.asarray(value, dtype=np.float32)).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be one number or one per channel, not {value!r}.") from error


def _name_of(model: Any) -> str:
    return getattr(model, "__name__", None) or type(model).__name__
