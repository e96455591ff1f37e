"""What workers of an engine are told: the model that they open, and what they do with their images.

A worker opens the model once and keeps it. It is given the description of the model, or the module itself where that
lives in memory only.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import digest_of
from secondguess.engine import Sent, Shared
from secondguess.engine.shared import pickled
from secondguess.errors import UserError
from secondguess.model.description import Description
from secondguess.model.needs import Needs
from secondguess.model.recording import Item

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.model.observation import Observation

__all__ = ["Order", "Scorer", "opened", "order_of", "sent_classifier", "shared_order"]

MOST_OPEN = 2  # models in a process: one that is attacked, and one that judges


class Scorer(Protocol):
    """What gives each image a number: a fitted supervisor."""

    @property
    def name(self) -> str:
        """By which its scores are known."""

    @property
    def needs(self) -> Needs:
        """What must have been observed."""

    @property
    def fingerprint(self) -> str:
        """The digest of all that its scores depend on."""

    def score(self, observation: Observation) -> NDArray[np.float64]:
        """One number for each image, (n,), or several, (n, m); they do not depend on the other images."""


@dataclass(frozen=True)
class Order:
    """What a worker is to do with its images.

    Attributes:
        model: the description of the model, or the torch module itself, pickled: it goes with every shard, but is
            pickled and unpickled only once.
        how: further arguments of `Classifier.open`. How the output is read is among them: the first images of the whole
            set decide it, and not those of a shard.
        fingerprint: of the classifier, which that of the worker must have.
        needs: what to record.
        items: the arrays that are wanted of it.
        seed: of dropout samples.
        scorers: who score it, by the fingerprint that their items name.
    """

    model: Any
    how: dict[str, Any]
    fingerprint: str | None
    needs: Needs
    items: tuple[Item, ...]
    seed: int
    scorers: Mapping[str, Scorer] = field(default_factory=dict)


def sent_classifier(classifier: Classifier, images: ImageSet, needs: Needs | None = None) -> Shared:
    """A classifier on its way to workers, which `opened` makes of it again.

    Args:
        classifier: the system under test.
        images: of which the first decide how its output is read, where it does not say so itself.
        needs: what is to be observed there.
    """
    if classifier.output_kind == "auto":
        classifier.observe(images.head(min(len(images), classifier.batch_size)))
    depends = needs and (needs.logits, sorted(needs.traces), needs.samples, needs.images)
    return shared_order(order_of(classifier, (Item("probabilities"),), needs), depends)


def shared_order(order: Order, depends: Any) -> Shared:
    """An order on its way to workers, which keep it under all that it depends on."""
    what = order.fingerprint, order.how, order.items, order.seed, depends
    model = b""
    if order.fingerprint is None:  # a callable that is imported is known by its place alone
        model = order.model if isinstance(order.model, bytes) else repr(order.model).encode()
    return Shared(order, digest_of(repr(what).encode() + model))


def order_of(
    classifier: Classifier,
    items: tuple[Item, ...],
    needs: Needs | None = None,
    scorers: Mapping[str, Scorer] | None = None,
) -> Order:
    """The order to record these items, and to score with these; what else is needed follows from both."""
    known = classifier.description
    how = {"output_kind": classifier.output_kind, "batch_size": classifier.batch_size, "device": classifier.device}
    if known.path is not None or known.source is not None:
        model: Any = known.placed()
    else:
        module = getattr(classifier.backend, "module", None)
        model = None if module is None else pickled(module)
        how = {name: value for name, value in known.to_dict().items() if name not in ("weights", "folder")} | how
    if model is None:
        raise UserError(
            f"{classifier.name} is a function of this process, which no worker of an engine can call; give a model "
            "that can be opened (a model.toml, an .onnx or .pt2 file, package.module:make_model), or no engine."
        )
    needs = needs or Needs(
        logits=any(item.what == "logits" for item in items),
        traces=frozenset(item.trace for item in items if item.trace),
        samples=max(item.count for item in items),
    )
    needs = Needs.union([needs, *(scorers or {}).values()])
    return Order(model, how, classifier.fingerprint, needs, items, max(item.seed for item in items), scorers or {})


_open: dict[str, Classifier] = {}  # the models that this process has opened last


def opened(order: Sent) -> Classifier:
    """The classifier of an order, opened at its first shard in this process; orders of one model share it."""
    wanted: Order = order.value
    place = wanted.model if isinstance(wanted.model, Description) else ""
    key = order.fingerprint if wanted.fingerprint is None else repr((wanted.fingerprint, wanted.how, place))
    if key not in _open:
        from secondguess.model.classifier import Classifier

        model, described = wanted.model, isinstance(wanted.model, Description)
        if not described:
            model = pickle.loads(model)  # noqa: S301 - sent by the process that runs the command
        classifier = Classifier.open(model, **wanted.how)
        if described and classifier.fingerprint != wanted.fingerprint:
            raise UserError(
                f"The worker on {platform.node()} opens another model at {model.path or model.source} "
                "than this process; put the same files there."
            )
        while len(_open) >= MOST_OPEN:
            del _open[next(iter(_open))]
        _open[key] = classifier
    return _open[key]
