"""Adversarial distance: how far must an image be moved until a black-box classifier decides otherwise?

For an image x, a search for the x' nearest to it that the classifier gives another class. Three numbers say how far
away that is, over all d pixels and channels of images in [0, 1]:

    MAE = (1/d) Σ |x'_i - x_i|,    L2 = sqrt(Σ (x'_i - x_i)²),    L∞ = max |x'_i - x_i|

A search finds an upper bound of the true distance. MAE, in its logarithm, is what Bennette, Maurer & Sisti (*Harnessing
Adversarial Distances to Discover High-Confidence Errors*, IJCNN 2020) rank images by. Whether x' still shows what x
shows, and what the truth is, plays no part: the question is how robust the answer of the classifier is.

Images do not influence each other, so where the classifier has an engine they are measured in shards on its workers.

Departures from their measurement: the default attack spends 1,000 queries per image instead of about 22,000; an image
for which no x' is found has the distance infinity and is marked; many images are attacked at once, and none influences
another. Where the model has no answer to a changed image (NaN, an error), that is no other decision; it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.archives import load_npz
from secondguess.contracts.sealed import digest_of
from secondguess.engine import Sent, Shared, Task, resources_for, run_each
from secondguess.errors import UserError
from secondguess.files import atomic_path
from secondguess.images import ImageSet, ImageSource
from secondguess.images.sources import ViewSource
from secondguess.model.orders import opened, sent_classifier
from secondguess.progress import Advance, Progress, Silent

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier
    from secondguess.search.attacks import Attack
    from secondguess.search.attacks.checkpoint import Results
    from secondguess.search.attacks.decisions import Decisions
    from secondguess.search.attacks.starts import Starts

__all__ = ["Distances", "measure_distances"]

SHARDS = 64  # of the images to measure, each of which asks hundreds of questions
SMALLEST, LARGEST = 16, 256  # images of a shard: enough for a batch of probes, few enough to begin anew


@dataclass(frozen=True, eq=False)
class Distances:
    """How far n images are from another decision.

    Attributes:
        mae: (n,) float64 mean absolute change of a pixel; infinity where no counterexample was found.
        l2: (n,) float64 Euclidean length of the change.
        linf: (n,) float64 largest change of a pixel.
        queries: (n,) int64 questions put to the model for each image, the first and the last included; 0 where the
            image was not to be measured.
        failed: (n,) bool, where no image with another decision was found.
        counterexamples: (n, C, H, W) float32 in [0, 1], the nearest images decided otherwise; the image itself where
            failed, zeros where the image was not to be measured. It may be mapped from a file.
        counterexample_predictions: (n,) int64 the model's predictions for them; -1 where there is no usable answer.
        start_queries: questions about images that are not measured: those in `starts`, and the rest of the set.
        unusable: (n,) int64 how many of the `queries` had no answer that can be used; all 0 if left out.
    """

    mae: NDArray[np.float64]
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    queries: NDArray[np.int64]
    failed: NDArray[np.bool_]
    counterexamples: NDArray[np.float32]
    counterexample_predictions: NDArray[np.int64]
    start_queries: int = 0
    unusable: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.unusable.size:
            object.__setattr__(self, "unusable", np.zeros(len(self.mae), dtype=np.int64))

    def __len__(self) -> int:
        """The number of images n."""
        return len(self.mae)

    @property
    def log_mae(self) -> NDArray[np.float64]:
        """(n,) float64 natural logarithm of the MAE; infinity where failed."""
        return np.log(np.maximum(self.mae, np.finfo(np.float64).tiny))

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file, atomically."""
        arrays = {one.name: np.asarray(getattr(self, one.name)) for one in fields(self)}
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Distances:
        """Read what `save` wrote."""
        try:
            known = {one.name for one in fields(cls)}
            arrays: dict[str, Any] = {name: array for name, array in load_npz(Path(path)).items() if name in known}
            return cls(**arrays | {"start_queries": int(arrays["start_queries"])})
        except FileNotFoundError as error:
            raise UserError(f"There are no distances at {path}.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} does not hold distances that `Distances.save` wrote ({error}).") from error


def checked_attack(classifier: Classifier, attack: str | Attack, budget: int | None) -> tuple[Attack, int | None]:
    """The attack and its budget, the usual one if left out; refused where the model or the budget do not allow it."""
    from secondguess.search.attacks import open_attack

    chosen = open_attack(attack)
    budget = chosen.usual_budget if budget is None else budget
    if budget is not None and budget < chosen.least_queries:
        raise UserError(
            f"A budget of {budget} queries per image was given; {chosen.name} needs at least {chosen.least_queries}."
        )
    if chosen.needs_gradients and "gradients" not in classifier.gives:
        raise UserError(
            f"The {chosen.name} attack needs gradients, but {classifier.name} gives decisions only; "
            "take the attack hop_skip_jump."
        )
    return chosen, budget


def measure_distances(
    classifier: Classifier,
    images: Any,
    *,
    attack: str | Attack = "hop_skip_jump",
    budget: int | None = None,
    seed: int = 0,
    rows: NDArray[np.int64] | None = None,
    starts: Any = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    batch_size: int | None = None,
) -> Distances:
    """Search for the nearest image with another decision, for every image of a set.

    What is found for an image does not depend on the batch size, nor on the other images, except that they are where it
    starts from (up to the rounding of the model itself, whose answer to an image may depend on the batch it is in).
    Workers of the classifier's engine measure a few images each; these begin anew if the call is interrupted, while
    finished ones are found in the checkpoint, by a call with another engine or none, too.

    Args:
        classifier: the model; its decisions are all that is used, except by the gradient attack.
        images: an `ImageSet`, an image source, or an array (n, C, H, W) in [0, 1].
        attack: `"hop_skip_jump"`, `"boundary"`, `"gradient"`, or one of the attack objects of
            `secondguess.search.attacks` with parameters of its own.
        budget: the most questions that may be put to the model for an image; left out, 1,000 for `"hop_skip_jump"`,
            while the other attacks end by themselves.
        seed: of all that is random.
        rows: positions of the images to measure, all if left out; the others are classified once, as starting points.
        starts: images to start from, besides the set itself; needed where all images of the set have one decision.
        checkpoint: a folder in which the state is saved regularly; the same call continues from there.
        progress: where to report to.
        batch_size: images per forward pass; the classifier's own if left out.

    Raises:
        UserError: if the budget is too small, the folder holds another measurement, or the model answers none of the
            images, or at some time nothing any more.
    """
    import torch

    from secondguess.model.backends.base import digest
    from secondguess.search.attacks.checkpoint import Results
    from secondguess.search.attacks.decisions import Decisions
    from secondguess.search.attacks.engine import AttackRun
    from secondguess.search.attacks.starts import Starts

    chosen, budget = checked_attack(classifier, attack, budget)
    size = classifier.batch_size if batch_size is None else batch_size
    if size < 1:
        raise UserError(f"The batch size is {size}; it must be at least 1.")
    source, others = classifier.source(images), None if starts is None else classifier.source(starts)
    if others is not None and others.shape != source.shape:
        raise UserError(f"The images have the shape {source.shape}, but the starts {others.shape}; they must be alike.")
    wanted = _wanted(rows, len(source))
    settings: dict[str, Any] = {**chosen.settings(), "budget": budget, "seed": seed}
    if checkpoint is not None:
        settings |= {"model": classifier.fingerprint, "images": source.fingerprint}
        settings |= {"starts": None if others is None else others.fingerprint}
        settings |= {"rows": None if wanted.all() else digest(wanted.tobytes())}
    results = Results(wanted, source.shape, None if checkpoint is None else Path(checkpoint), settings)
    decide = Decisions(classifier, len(source), budget=budget, batch_size=size)
    known = results.known()
    if known is None:
        known = {"images": _answers(source, decide), "starts": np.zeros(0, dtype=np.int64)}
        if others is not None:
            known["starts"] = first_answers(classifier, others, size)
        results.keep_known(known)
    else:
        answers = torch.from_numpy(known["images"]).to(decide.device)
        decide.charge(torch.arange(len(answers), device=decide.device), answers)  # they were charged before
    pool = Starts.choose(source, known["images"], seed)
    if others is not None:
        pool = pool.joined(Starts.choose(others, known["starts"], seed))
    with (progress or Silent()).task("Measuring distances", len(source)) as advance:
        if classifier.engine is None or int((~results.arrays["done"]).sum()) <= SMALLEST:
            AttackRun(chosen, source, decide, results, seed).run(known["images"], pool, advance)
        else:
            how = chosen, budget, size, seed
            _measure_in_shards(classifier, source, known["images"], pool, results, how, advance)
    arrays = {name: array for name, array in results.arrays.items() if name != "done"}
    not_measured = len(known["starts"]) + int((~wanted).sum())
    return Distances(**arrays, counterexamples=results.counterexamples, start_queries=not_measured)


def _measure_in_shards(
    classifier: Classifier,
    source: ImageSource,
    classes: NDArray[np.int64],
    starts: Starts,
    results: Results,
    how: tuple[Attack, int | None, int, int],
    advance: Advance,
) -> None:
    """Have workers measure the images that are not finished, and record what they find as shards end.

    Args:
        classifier: with an engine.
        source: the n images.
        classes: (n,) what the model decides about them.
        starts: where to begin.
        results: of the images that are finished.
        how: attack, budget, batch size and seed.
        advance: called with the images done and to be done.
    """
    attack, budget, size, seed = how
    model = sent_classifier(classifier, ImageSet(source, np.full(len(source), -1), ()))
    begin = starts.images.numpy(), starts.classes.numpy()
    depends = repr((attack.settings(), budget, size, seed)).encode(), *(one.tobytes() for one in begin)
    order = Shared((attack, budget, size, *begin), digest_of(b"".join(depends)))
    waiting = np.flatnonzero(~results.arrays["done"])
    each = int(np.clip(-(-len(waiting) // SHARDS), SMALLEST, LARGEST))
    shards = [waiting[first : first + each] for first in range(0, len(waiting), each)]
    tasks = [
        Task(
            measure_shard,
            {"model": model, "order": order, "images": Sent((ViewSource(source, rows), rows, classes[rows]), "")},
            seed,
            resources_for(classifier.device),
        )
        for rows in shards
    ]
    measured, total = int(results.wanted.sum()) - len(waiting), int(results.wanted.sum())
    try:
        for place, entry in run_each(tasks, None, classifier.engine or "local", progress=Silent()):
            results.take_over(shards[place], entry.result)
            results.save_finished()
            measured += len(shards[place])
            advance(measured, total)
    finally:
        results.save_finished(now=True)


def measure_shard(*, model: Sent, order: Sent, images: Sent, seed: int) -> dict[str, Any]:
    """What a worker does: attack its images, which are known by their places in the whole set."""
    import torch

    from secondguess.search.attacks.checkpoint import Results
    from secondguess.search.attacks.decisions import Decisions
    from secondguess.search.attacks.engine import AttackRun
    from secondguess.search.attacks.starts import Starts

    attack, budget, size, pixels, decisions = order.value
    source, places, classes = images.value
    decide = Decisions(opened(model), len(source), budget=budget, batch_size=size)
    decide.charge(torch.arange(len(source), device=decide.device), torch.from_numpy(classes).to(decide.device))
    results = Results(np.ones(len(source), dtype=np.bool_), source.shape, None, {})
    starts = Starts(torch.from_numpy(pixels), torch.from_numpy(decisions))
    AttackRun(attack, source, decide, results, seed, places).run(classes, starts, lambda done, total: None)
    return {**results.arrays, "counterexamples": results.counterexamples}


def _wanted(rows: NDArray[np.int64] | None, count: int) -> NDArray[np.bool_]:
    """(n,) which images are to be measured."""
    if rows is None:
        return np.ones(count, dtype=np.bool_)
    wanted = np.zeros(count, dtype=np.bool_)
    try:
        wanted[np.asarray(rows, dtype=np.int64)] = True
    except IndexError as error:
        raise UserError(
            f"Not all of the rows are positions of the {count} images; give numbers in 0..{count - 1}."
        ) from error
    return wanted


def first_answers(classifier: Classifier, source: ImageSource, batch_size: int) -> NDArray[np.int64]:
    """(n,) what the classifier decides about images as they are; -1 where that is NaN, infinity or an error.

    Raises:
        UserError: if it answers none of them, or at some time nothing any more.
    """
    from secondguess.search.attacks.decisions import Decisions

    return _answers(source, Decisions(classifier, len(source), budget=None, batch_size=batch_size))


def _answers(source: ImageSource, decide: Decisions) -> NDArray[np.int64]:
    """(n,) the model's predictions for the unchanged images, one query each; -1 where there is no usable answer."""
    import torch

    parts = []
    for first in range(0, len(source), decide.batch_size):
        pixels = torch.from_numpy(source[first : first + decide.batch_size]).to(decide.device)
        rows = torch.arange(first, first + len(pixels), device=decide.device)
        parts.append(decide.classes(pixels, rows).cpu().numpy())
    answers = np.concatenate(parts)
    if (answers < 0).all():
        raise UserError(
            f"The model returned NaN or infinity for all {len(answers)} images; check its weights and normalisation."
        )
    return answers
