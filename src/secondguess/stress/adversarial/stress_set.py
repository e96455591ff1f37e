"""Adversarial images at the smallest size that works.

As in Weiss, García Gómez, Tonella, "Generating and detecting true ambiguity" (EMSE 2023): the nominal images, in an
order drawn by the seed, are cut into equal blocks, one for each attack; each image gets the smallest L-infinity change
of a fixed grid at which the classifier errs. An image that is wrong from the start counts as fooled by a change of 0;
one that withstands every size is kept as it is and marked.

Departures, all towards what the paper says where its code does something else: attacks see logits rather than a softmax
that is taken for logits (`legacy=True` brings that back), and every image ends up in the set, where the code lost nine
in ten.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.registry import snake_case, unknown
from secondguess.contracts.sealed import digest_of
from secondguess.engine import Sent, Task, resources_for
from secondguess.errors import UserError
from secondguess.images.scratch import scratch
from secondguess.images.sources import ViewSource
from secondguess.planning.price import Price
from secondguess.progress import Advance
from secondguess.stress.adversarial.search import REASON_LENGTH, Floats, Ints, SmallestChange
from secondguess.stress.base import Given, StressSet, changed
from secondguess.stress.registry import register

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.planning import Pace

__all__ = ["ATTACKS", "PAPER_GRID", "Adversarial"]

Attacked = tuple[str, Ints, dict[str, Any]]  # the attack, the positions that it had, and what came of it

ATTACKS = ("fgsm", "pgd", "bim", "deepfool")
PAPER_GRID = (0, 0.0002, 0.0005, 0.0008, 0.001, 0.0015, 0.002, 0.003, 0.01, 0.1, 0.3, 0.5, 1)

# A fixed size rather than the classifier's batch size, on which the last bits of a gradient may depend.
CHUNK = 256
WAYS = {"fgsm": 1, "bim": 10, "pgd": 40, "deepfool": 5}  # passes for one size
PASSES = 85  # forwards and back for an image, the mean of the four attacks: most images are fooled by a small change
TRANSFERRED = 110  # steps of the training of a surrogate that an attack on it takes for an image, about
SHORTEST = 0.25  # of the training of a surrogate, however few images are attacked
BY_NAME = 300  # images of a set requested by name: an attack costs hundreds of forward passes per image
CHUNK_VALUES = 2**22  # pixels and channels of all images in a chunk: 27 colour images of 224x224


@register
class Adversarial(StressSet):
    """Each nominal image is changed by one attack; the attacks share the images equally, at random.

    The `columns` of the set are `attack`, `epsilon` (the size of the change; 0 where the classifier was wrong already,
    NaN where nothing worked), `success`, `mode` (`white-box` or `transfer`), `source_index` (the place among the
    nominal images) and `reason` (why an image could not be attacked at all, else empty). Labels are the true ones; an
    image without a label is attacked against the class that the classifier predicts.

    Args:
        attacks: some of `fgsm`, `pgd`, `bim` and `deepfool`.
        epsilons: the sizes to try, for pixels in [0, 1].
        surrogate: a differentiable classifier of the same classes, to be attacked in place of the classifier. One
            without gradients (an ONNX file, a callable) gets a small network, trained to answer as it does, if none is
            given. Success is always judged by the classifier itself.
        surrogate_images: what that network learns from, labelled or not; the training images, or else the nominal ones,
            if left out.
        limit: the largest number of images to attack, drawn at random; an attack costs hundreds of forward passes per
            image.
        legacy: hand the attacks the softmax as if it were logits, as the paper's code does.
        chunk_size: images attacked at once, which bounds the memory; 256, and fewer of large images, if left out.
        surrogate_epochs: passes of the surrogate over its images, if one is trained.
    """

    kind = "adversarial"
    name = "adversarial"
    groups = "attack"
    dial, least = "limit", 60

    def __init__(
        self,
        attacks: Sequence[str] = ATTACKS,
        *,
        epsilons: Sequence[float] = PAPER_GRID,
        surrogate: Classifier | None = None,
        surrogate_images: ImageSet | None = None,
        legacy: bool = False,
        chunk_size: int | None = None,
        limit: int | None = None,
        surrogate_epochs: int = 20,
    ) -> None:
        self.attacks = tuple(map(snake_case, attacks))
        self.epsilons = tuple(epsilons)
        self.surrogate = surrogate
        self.surrogate_images = surrogate_images
        self.legacy = legacy
        self.chunk_size = chunk_size
        self.limit = limit
        self.surrogate_epochs = surrogate_epochs
        self.name = "adversarial" if self.attacks == ATTACKS else "_".join(["adversarial", *self.attacks])
        _check(self.attacks, self.epsilons, chunk_size)

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is one attack; by name, only some of the images are attacked."""
        return {"limit": BY_NAME} | ({"attacks": [detail]} if detail else {})

    def price(self, pace: Pace, given: Given) -> Price:
        """The passes of the attacks for each image; the training of a surrogate goes with the images attacked."""
        from secondguess.stress.adversarial.attacks import require_foolbox

        require_foolbox()  # what cannot be done takes no time
        full = min(self.limit or len(given.nominal), len(given.nominal))
        if self.surrogate is not None or "gradients" in pace.classifier.gives:
            return Price(PASSES * pace.gradient(), 0.0, full, self.least, "images")
        from secondguess.stress.adversarial.surrogate import pace_of_surrogate

        learnt_from = len(self.surrogate_images or given.train or given.nominal)
        step = pace_of_surrogate(pace, given.nominal.shape)
        training = self.surrogate_epochs * learnt_from * step
        fixed = SHORTEST * training + learnt_from * pace.observing()
        return Price(TRANSFERRED * step + (1 - SHORTEST) * training / full, fixed, full, self.least, "images")

    def turned(self, size: int | None) -> Self:
        """Fewer images, and a surrogate that is trained for a shorter time in proportion, but not below a quarter."""
        fewer = super().turned(size)
        if fewer is self or self.limit is None or size is None:
            return fewer
        share = max(SHORTEST, min(1.0, size / self.limit))
        return fewer.clone(surrogate_epochs=max(1, round(share * self.surrogate_epochs)))

    def prepared(self, given: Given) -> Self:
        """The same set with its surrogate, where the classifier needs one: several sets can share what was trained."""
        judge, chunk = self._judge(given)
        surrogate = self._surrogate(judge, given.nominal, given, chunk)
        return self if surrogate is None else self.clone(surrogate=surrogate)

    def _make(self, given: Given) -> ImageSet:
        judge, chunk = self._judge(given)
        taken = np.arange(len(given.nominal))
        if self.limit is not None and self.limit < len(taken):
            taken = np.sort(np.random.default_rng([given.seed, 2]).choice(taken, self.limit, replace=False))
        nominal = given.nominal.take(taken)
        surrogate = self._surrogate(judge, nominal, given, chunk)
        images: Floats = scratch((len(nominal), *nominal.shape), np.float32, given.folder)
        columns: dict[str, NDArray[Any]] = {
            "attack": np.full(len(nominal), "", dtype=f"U{max(map(len, ATTACKS))}"),
            "epsilon": np.full(len(nominal), np.nan),
            "success": np.zeros(len(nominal), dtype=bool),
            "mode": np.full(len(nominal), "transfer" if surrogate else "white-box"),
            "source_index": taken,
            "reason": np.full(len(nominal), "", dtype=f"U{REASON_LENGTH}"),
        }
        attack = self._attack_here if given.engine == "local" else self._attack_in_shards
        for name, rows, found in attack(judge, surrogate, replace(given, nominal=nominal), chunk):
            images[rows] = found["images"]
            columns["attack"][rows], columns["reason"][rows] = name, found["reasons"]
            columns["epsilon"][rows], columns["success"][rows] = found["epsilon"], found["success"]
        if (columns["reason"] != "").all():
            raise UserError(f"None of the {len(nominal)} images could be attacked: {columns['reason'][0]}")
        return self._assembled(nominal, images, columns, surrogate)

    def _judge(self, given: Given) -> tuple[Classifier, int]:
        """The classifier that is to be fooled, and how many images it gets at once."""
        if given.classifier is None:
            raise UserError(
                f"The stress set {self.name!r} attacks a classifier, but none was given; "
                "call make(nominal, classifier=classifier)."
            )
        from secondguess.stress.adversarial.attacks import require_foolbox

        require_foolbox()  # before anything is trained
        chunk = self.chunk_size or max(1, min(CHUNK, CHUNK_VALUES // int(np.prod(given.nominal.shape))))
        judge = copy.copy(given.classifier)
        judge.cache, judge.batch_size = None, chunk  # discarded candidates must not fill the cache on disk
        return judge, chunk

    def _attack_here(
        self, judge: Classifier, surrogate: Classifier | None, given: Given, chunk: int
    ) -> Iterator[Attacked]:
        nominal, done = given.nominal, 0
        with given.progress.task("Attacking images", len(nominal)) as advance:
            for name, rows in self._chunks(len(nominal), given.seed, chunk):
                meter = _Meter(advance, done, len(rows), len(nominal), WAYS[name] * len(self._sizes()))
                some = nominal.images[rows], nominal.labels[rows], rows
                how: dict[str, Any] = {"legacy": self.legacy, "seed": given.seed, "meter": meter}
                yield name, rows, smallest_changes(name, judge, surrogate, some, self._sizes(), **how)
                done += len(rows)
                advance(done, len(nominal))

    def _attack_in_shards(
        self, judge: Classifier, surrogate: Classifier | None, given: Given, chunk: int
    ) -> Iterator[Attacked]:
        """The same on an engine, a shard for each chunk."""
        from secondguess.model.orders import sent_classifier

        nominal, chunks = given.nominal, list(self._chunks(len(given.nominal), given.seed, chunk))
        models = [None if one is None else sent_classifier(one, nominal) for one in (judge, surrogate)]
        how = {"sizes": self._sizes(), "legacy": self.legacy, "judge": models[0], "surrogate": models[1]}
        needed = resources_for(*(one.device for one in (judge, surrogate) if one is not None))
        tasks = []
        for name, rows in chunks:
            some = ViewSource(nominal.images, rows), nominal.labels[rows], rows
            sent = Sent(some, digest_of(nominal.fingerprint.encode() + rows.tobytes()))
            tasks.append(Task(attack_shard, how | {"name": name, "images": sent}, given.seed, needed))
        for place, found in given.in_shards(tasks, "Attacking images"):
            yield *chunks[place], found

    def _surrogate(self, judge: Classifier, nominal: ImageSet, given: Given, chunk: int) -> Classifier | None:
        """What is attacked in place of the classifier, or None to attack the classifier itself."""
        if self.surrogate is None:
            if "gradients" in judge.gives:
                return None
            from secondguess.stress.adversarial.surrogate import train_surrogate

            images = self.surrogate_images or given.train or nominal
            how: dict[str, Any] = {"epochs": self.surrogate_epochs, "seed": given.seed, "chunk": chunk}
            return train_surrogate(judge, images, **how, progress=given.progress)
        classes = self.surrogate.predict(nominal.head(1)).shape[1]
        if nominal.class_names and classes != nominal.num_classes:
            raise UserError(
                f"The surrogate {self.surrogate.name} tells {classes} classes apart, but the images have "
                f"{nominal.num_classes}; give a surrogate of the same classes."
            )
        return self.surrogate

    def _chunks(self, count: int, seed: int, chunk: int) -> Iterator[tuple[str, Ints]]:
        """Yield an attack and the positions that it gets, a chunk at a time."""
        order = np.random.default_rng(seed).permutation(count)
        for name, block in zip(self.attacks, np.array_split(order, len(self.attacks)), strict=True):
            rows = np.sort(block)
            for start in range(0, len(rows), chunk):
                yield name, rows[start : start + chunk]

    def _sizes(self) -> list[float]:
        """The sizes above 0; the unchanged image, size 0, is always evaluated."""
        return sorted({float(epsilon) for epsilon in self.epsilons if epsilon > 0})

    def _assembled(
        self, nominal: ImageSet, images: Floats, columns: dict[str, NDArray[Any]], surrogate: Classifier | None
    ) -> ImageSet:
        made = changed(nominal, images, self.name, columns)
        failed = int((columns["reason"] != "").sum())
        withstood = int((~columns["success"]).sum()) - failed
        notes = [
            (withstood, f"{withstood} of {len(made)} images withstood every attack and are unchanged."),
            (failed, f"{failed} of {len(made)} images could not be attacked and are unchanged; see 'reason'."),
            (surrogate, f"The attacks used {surrogate.name if surrogate else ''}, not the classifier."),
        ]
        return replace(made, notes=tuple(note for applies, note in notes if applies))


def attack_shard(
    *, name: str, judge: Sent, surrogate: Sent | None, images: Sent, sizes: list[float], legacy: bool, seed: int
) -> dict[str, Any]:
    """What a worker does: attack its images."""
    from secondguess.model.orders import opened

    source, labels, rows = images.value
    models = opened(judge), None if surrogate is None else opened(surrogate)
    return smallest_changes(name, *models, (source[:], labels, rows), sizes, legacy=legacy, seed=seed)


def smallest_changes(
    name: str,
    judge: Classifier,
    surrogate: Classifier | None,
    some: tuple[Floats, Ints, Ints],
    sizes: list[float],
    *,
    legacy: bool,
    seed: int,
    meter: _Meter | None = None,
) -> dict[str, Any]:
    """Attack images, given with their labels and their positions in the whole set.

    Returns:
        `images` (m, C, H, W), `epsilon`, `success` and `reasons`, as `SmallestChange` has them.
    """
    from secondguess.stress.adversarial.attacks import open_attack

    model, heard = (surrogate or judge).differentiable(), meter.passed if meter else (lambda: None)
    attack = open_attack(name, model, seed=seed, transfer=surrogate is not None, legacy=legacy, heard=heard)
    search = SmallestChange(attack, partial(_classes, judge), *some)
    search.run(sizes, meter.settled if meter else None)
    return {name: getattr(search, name) for name in ("images", "epsilon", "success", "reasons")}


def _classes(judge: Classifier, images: Floats) -> Ints:
    """The classes (m,) that the classifier predicts for images (m, C, H, W)."""
    from secondguess.images import ImageSet

    return judge.predict(ImageSet.from_arrays(images, layout="NCHW")).argmax(axis=1)


def _check(attacks: tuple[str, ...], epsilons: tuple[float, ...], chunk_size: int | None) -> None:
    for name in attacks:
        if name not in ATTACKS:
            raise unknown("attack", name, ATTACKS)
    if not attacks or len(set(attacks)) < len(attacks):
        raise UserError(f"Each attack is named once, and at least one; {', '.join(attacks) or 'none'} was given.")
    if not epsilons or not all(0 <= epsilon <= 1 for epsilon in epsilons):
        raise UserError(f"The sizes of attacks lie between 0 and 1, the range of a pixel; {epsilons} was given.")
    if chunk_size is not None and chunk_size < 1:
        raise UserError(f"The chunk size is {chunk_size}; it must be at least 1.")


class _Meter:
    """Reports the images of one chunk as part of all of them, within each size by the passes that were made.

    Args:
        advance: where to report.
        before: images that were done before.
        images: of the chunk.
        total: all images.
        passes: that an image takes which withstands every size.
    """

    def __init__(self, advance: Advance, before: int, images: int, total: int, passes: int) -> None:
        self._advance, self._before, self._images, self._total = advance, before, images, total
        self._passes, self._made, self._settled, self._shown = passes, 0, 0, 0

    def settled(self, images: int) -> None:
        """So many images are done."""
        self._settled = images
        self._show()

    def passed(self) -> None:
        """One pass over those that are not done."""
        self._made += 1
        self._show()

    def _show(self) -> None:
        under_way = (self._images - self._settled) * min(1.0, self._made / self._passes)
        self._shown = max(self._shown, int(self._settled + under_way))
        self._advance(self._before + self._shown, self._total)
