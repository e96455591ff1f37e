"""One pass of a classifier over a set of images: what is recorded, what the cache already holds, and its keys there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.parallel import read_ahead
from secondguess.model.backends.base import digest
from secondguess.model.determinism import compare
from secondguess.model.needs import Needs
from secondguess.model.outputs import as_matrix, naming
from secondguess.model.recording import SCORE, Item, Sinks, sample_chunk
from secondguess.progress import Advance, Progress

if TYPE_CHECKING:
    from secondguess.images import ImageSource
    from secondguess.model.classifier import Classifier
    from secondguess.model.orders import Scorer
    from secondguess.model.shards import Shards

__all__ = ["Pass"]

WARNINGS = "warnings"
NOISE, CANARIES = 2, 30  # images whose answers are part of what a cached array depends on


class Pass:
    """A pass over images; `run` makes it.

    Args:
        classifier: the system under test.
        source: the n images.
        needs: what to record.
        seed: of the dropout samples.
        ids: what the images are called, or None where they have only their positions.
        start: the position of the first image in the set, where the images are a part of one.
        scorers: who score the images on the workers of an engine, by fingerprint.

    Attributes:
        warnings: what scorers warned of, by fingerprint.
    """

    def __init__(
        self,
        classifier: Classifier,
        source: ImageSource,
        needs: Needs,
        seed: int,
        ids: Sequence[str] | None = None,
        *,
        start: int = 0,
        scorers: Mapping[str, Scorer] | None = None,
    ) -> None:
        self._classifier, self._source, self._ids, self._start = classifier, source, ids, start
        self._scorers, self.warnings = scorers or {}, dict[str, list[str]]()
        self._first: NDArray[np.float64] | None = None  # the answer to the first images, where it was asked for before
        located = classifier.locate(needs.traces, tuple(source.shape))
        self._items = [
            Item("probabilities"),
            *([Item("logits")] if needs.logits else []),
            *(Item("trace", layer, trace) for trace, layer in located.items()),
            *([Item("samples", count=needs.samples, seed=seed)] if needs.samples else []),
            *(Item(SCORE, who, count=one.needs.samples, seed=seed) for who, one in self._scorers.items()),
        ]

    def run(self, label: str, progress: Progress) -> dict[Item, NDArray[Any]]:
        """What was needed, from the cache where it is there, under the items that say what it is.

        Args:
            label: of the progress.
            progress: where to report the images done.
        """
        cache = self._classifier.cache
        found = {item: cache.get(self._keys[item]) for item in self._items} if cache else {}
        seen = {item: array for item, array in found.items() if array is not None}
        self.warnings = {
            item.layer: said for item in seen if item.what == SCORE and (said := self._warned_before(item))
        }
        missing = [item for item in self._items if item not in seen]
        steps = len(self._source) * _passes(missing)
        with progress.task(label, steps) as advance:
            if missing:
                seen |= self._record(missing, advance)
                if self._first is not None and self._items[0] in missing:
                    compare(self._classifier, self._first, seen[self._items[0]][: len(self._first)])
            else:
                advance(steps, steps)
        return seen

    def _record(self, items: Sequence[Item], advance: Advance) -> dict[Item, NDArray[Any]]:
        """One deterministic pass, and one with dropout if samples are wanted; what fails leaves nothing behind."""
        classifier, source = self._classifier, self._source
        sinks = Sinks(classifier.cache, self._keys, len(source), classifier.memory_limit)
        plain = [item for item in items if item.what != "samples"]
        sampled = [item for item in items if item.what == "samples"]
        steps, done = len(source) * _passes(items), 0
        shards = self._shards(items)
        try:
            if shards is not None:
                for rows, values_of in shards.run():
                    for item, values in values_of.items():
                        sinks.write(item, rows, values)
                    done += (rows.stop - rows.start) * _passes(items)
                    advance(done, steps)
                sinks.forget([item for item in items if item.what == SCORE and item.layer in shards.failed])
                self._keep_warnings(shards.warnings)
                seen = sinks.keep()
                shards.forget()
                return seen
            for rows, images in read_ahead(source, classifier.pass_rows(source.shape)) if plain else ():
                with naming(self._ids, rows.start if self._ids else self._start + rows.start):
                    values_of = self._observe_batch(images, plain)
                for item, values in values_of.items():
                    sinks.write(item, rows, values)
                done += rows.stop - rows.start
                advance(done, steps)
            for item in sampled:
                chunk = sample_chunk(source.shape)
                for start in range(0, len(source), chunk):
                    rows = slice(start, min(start + chunk, len(source)))
                    sinks.write(item, rows, self._sample(source[rows], item, self._start + start))
                    done += (rows.stop - rows.start) * item.count
                    advance(done, steps)
            return sinks.keep()
        except BaseException:
            sinks.drop()
            raise

    def _shards(self, items: Sequence[Item]) -> Shards | None:
        """The shards of this pass, where it is worth an engine's while."""
        classifier, source = self._classifier, self._source
        from secondguess.model.shards import Shards, goes_to_workers

        if not goes_to_workers(classifier, len(source)):
            return None
        if classifier.output_kind == "auto":
            self._canary()
        keys = [self._keys[item] for item in items] if classifier.cache is not None else []
        scorers = {item.layer: self._scorers[item.layer] for item in items if item.what == SCORE}
        return Shards(classifier, source, self._ids, items, keys, scorers)

    def _keep_warnings(self, said: Mapping[str, list[str]]) -> None:
        """Remember what scorers warned of, beside their scores in the cache."""
        self.warnings |= {who: messages for who, messages in said.items() if messages}
        cache = self._classifier.cache
        if cache is None:
            return
        for item in self._items:
            if item.what == SCORE and said.get(item.layer):
                text = np.frombuffer(json.dumps(said[item.layer]).encode(), dtype=np.uint8)
                draft = cache.draft(self._keys[item] | {"of": WARNINGS}, text.shape, text.dtype)
                draft.array[:] = text
                draft.keep()

    def _warned_before(self, item: Item) -> list[str]:
        """What a scorer warned of when its scores were made that the cache holds."""
        cache = self._classifier.cache
        text = None if cache is None else cache.get(self._keys[item] | {"of": WARNINGS})
        return [] if text is None else list(json.loads(text.tobytes()))

    def _observe_batch(self, images: NDArray[np.float32], items: Sequence[Item]) -> dict[Item, NDArray[Any]]:
        """One pass over a batch of images (n, C, H, W) in [0, 1]: the values of `items`, dropout samples left out."""
        classifier = self._classifier
        layers = list(dict.fromkeys(item.layer for item in items if item.trace))
        raw, activations = classifier.backend.forward(classifier.normalised(images), layers)
        probabilities, logits = classifier.read(raw, len(images))
        values: dict[Item, NDArray[Any]] = {}
        for item in items:
            if item.trace:
                layer = classifier.checked(item.layer, activations[item.layer], len(images))
                values[item] = item.trace.apply(layer)
            elif item.what == "logits":
                if logits is None:
                    classifier.check(Needs(logits=True))
                values[item] = logits  # type: ignore[assignment]
            elif item.what == "probabilities":
                values[item] = probabilities
        return values

    def _sample(self, images: NDArray[np.float32], item: Item, start: int) -> NDArray[np.float32]:
        classifier = self._classifier
        entropy = np.random.SeedSequence([item.seed, start]).generate_state(1, np.uint64)[0]
        raw = classifier.backend.sample(classifier.normalised(images), item.count, int(entropy >> np.uint64(1)))
        probabilities, _ = classifier.read(raw.reshape(len(images) * item.count, -1), len(images) * item.count)
        return probabilities.reshape(len(images), item.count, -1).astype(np.float32)

    @cached_property
    def _keys(self) -> Mapping[Item, dict[str, Any]]:
        """What each array depends on: model, images, item, and how the model answers a fixed picture right now."""
        classifier, source = self._classifier, self._source
        if classifier.cache is None:
            return {}
        fingerprint = classifier.fingerprint
        if fingerprint is None:
            raise UserError(
                "A callable cannot be recognised again, so its answers cannot be cached; "
                "give it a version (Classifier(..., version='v3')) or leave the cache out."
            )
        with naming(self._ids, -NOISE):
            canary, convention = self._canary()
        base = {
            "model": fingerprint,
            "canary": canary,
            "output": convention,
            "device": str(getattr(classifier.backend, "device", "cpu")),
            "data": source.fingerprint,
            "images": len(source),
        }
        return {item: base | item.key() for item in self._items}

    def _canary(self) -> tuple[str, str]:
        """The answer to two fixed noise images and to the first real ones, right now, and how it is read.

        It detects what a digest of the weights cannot, such as an edited helper function. It also decides, before any
        key is made, whether the model returns logits or probabilities, so that what is cached says how it was read.
        """
        classifier, source = self._classifier, self._source
        noise = np.random.default_rng(0).random((NOISE, *source.shape), dtype=np.float32)
        images = np.concatenate([noise, source[: min(CANARIES, len(source))]])
        raw = as_matrix(classifier.backend.forward(classifier.normalised(images))[0], len(images))
        convention = classifier.convention(raw[NOISE:])
        self._first, _ = classifier.read(raw[NOISE:], len(raw) - NOISE)
        return digest(np.round(raw.astype(np.float64), 3).tobytes()), convention


def _passes(items: Sequence[Item]) -> int:
    """How often each image goes through the model: once, and once for every sample; as once if all is known."""
    plain = any(item.what != "samples" for item in items)
    return plain + sum(item.count for item in items if item.what == "samples") or 1
