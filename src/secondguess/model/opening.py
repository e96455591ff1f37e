"""`Classifier.open`: from anything that describes a model to a classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.model.backends import open_backend
from secondguess.model.classifier import Classifier
from secondguess.model.description import Description
from secondguess.model.description_fields import FIELDS, check_names
from secondguess.model.libraries import described_by_itself

__all__ = ["open_classifier"]

RUNNING = ("batch_size", "device", "cache", "version", "memory_limit", "engine")
READ_BY_BACKEND = ("path", "source", "folder", "weights", "output")  # a new one is needed where these change


def open_classifier(what: Any, **changes: Any) -> Classifier:
    """Implementation of `Classifier.open`, where the arguments are described."""
    if isinstance(what, Classifier) and not changes:
        return what
    check_names(changes, [*FIELDS, *RUNNING], "Classifier.open has no argument")
    running = {name: changes.pop(name) for name in RUNNING if name in changes}
    if isinstance(what, Classifier):
        return _reopened(what, changes, running)
    if isinstance(what, Description):
        description = what.changed(**changes)
    elif isinstance(what, (str, Path)) and Path(what).suffix.lower() == ".toml":
        description = Description.read(what).changed(**changes)
    else:
        what, known = described_by_itself(what)
        description = Description.of(what, **known | changes)
    model = description.path or description.source or what
    backend = open_backend(
        model,
        weights=description.weights,
        device=running.get("device", "auto"),
        identity=running.pop("version", None),
        output=description.output,
        folder=description.folder,
        network=description.network,
    )
    if isinstance(model, (str, Path)):
        name = Path(model).name
    else:
        name = getattr(model, "__name__", None) or type(model).__name__
    return _made(description, backend, description.name or name, running)


def _reopened(classifier: Classifier, changes: dict[str, Any], running: dict[str, Any]) -> Classifier:
    """The same model, fed or read in another way."""
    if fixed := [name for name in (*changes, *running) if name in (*READ_BY_BACKEND, "device", "version")]:
        raise UserError(f"The model is open already, so its {fixed[0]} cannot be changed; open it anew.")
    kept = {"batch_size": classifier.batch_size, "device": classifier.device, "memory_limit": classifier.memory_limit}
    kept |= {"engine": classifier.engine}
    if classifier.cache is not None:
        kept["cache"] = classifier.cache.path
    description = classifier.description.changed(**changes)
    return _made(description, classifier.backend, description.name or classifier.name, kept | running)


def _made(description: Description, backend: Any, name: str, running: dict[str, Any]) -> Classifier:
    shape = None
    if description.size is not None and description.channels is not None:
        shape = (description.channels, *description.size)
    if shape is not None and backend.input_shape not in (None, shape):
        raise UserError(
            f"{name} takes images of shape {backend.input_shape} (channels, height, width), but it is described with "
            f"{shape}; leave size and channels out."
        )
    classifier = Classifier(
        backend,
        class_names=description.classes,
        input_shape=shape,
        mean=description.mean,
        std=description.std,
        output_kind=description.output_kind,
        layers=description.layers,
        resize=description.resize,
        name=name,
        **running,
    )
    classifier.description = description
    return classifier
