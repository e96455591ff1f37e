"""The hubris benchmark: one row for each model, with the controls without which the number misleads.

Hubris on ambiguous images alone cannot tell a model that recognises ambiguity from one that is unsure of everything,
nor overconfidence from mere lack of calibration. So each row has, beside the model's scores on the companion set,

* its **accuracy** on real images of the same classes;
* the same scores after **temperature scaling**: one number, fitted on real images, that no ambiguous image was needed
  for. What scaling corrects was a matter of calibration;
* both on **clean** images: a model that is as humble on clear images as on ambiguous ones has seen no difference;
* the **response curve** of its answers against the dial, where the images have one;

and models are compared in pairs that are **matched** in accuracy, on the same images: an under-trained model is humble
for the wrong reason.

The task is the companion's. Between two classes, real images are those of the two, and answers are restricted to both
and renormalised. Where each image has its own pair, real images are those of all classes, and the answers to them are
restricted to their two likeliest classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.hubris.companion import CompanionSet, restricted
from secondguess.hubris.response import Response, response_curve
from secondguess.hubris.scores import Scores, score
from secondguess.hubris.table import HubrisTable, Matched, ModelRow
from secondguess.images import ImageSet
from secondguess.metrics import bootstrap, compare_hubris, wilson
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, Silent, Titled

__all__ = ["benchmark", "measure"]

Floats = NDArray[np.float64]

FEWEST = 4  # labelled real images: two to fit a temperature, two to see what it does
_SMALLEST = np.finfo(np.float64).tiny


def benchmark(
    models: Sequence[Classifier],
    test: ImageSet,
    companion: CompanionSet,
    *,
    validation: ImageSet | None = None,
    resamples: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> HubrisTable:
    """Run the benchmark.

    Args:
        models: the classifiers to compare, each under its own name.
        test: labelled real images that no model was trained on.
        companion: ambiguous images.
        validation: labelled real images to fit the temperatures on; without them, half of the test images are used,
            and clean scores are those of the other half.
        resamples: how many bootstrap resamples each interval takes.
        seed: of the split and the resamples.
        progress: where to report.
    """
    if not models:
        raise UserError("No model was given; give at least one.")
    if len({one.name for one in models}) < len(models):
        raise UserError("Two models have the same name; give each a name of its own.")
    rows = []
    for one in models:
        seen, real = (_probabilities(one, part, progress) for part in (companion.images, test))
        held = None if validation is None else (_probabilities(one, validation, progress), validation.labels)
        rows.append(
            measure(seen, companion, real, test.labels, name=one.name, held_out=held, resamples=resamples, seed=seed)
        )
    about = {
        "companion": {"name": companion.images.name, "images": len(companion), "data": companion.images.fingerprint},
        "classes": None if companion.classes is None else list(companion.classes),
        "reference": companion.source,
        "real": {"name": test.name, "images": len(rows[0].right), "data": test.fingerprint},
        "seed": seed,
    }
    return HubrisTable(tuple(rows), tuple(_matched(rows, companion.dial, resamples, seed)), about)


def measure(
    seen: Floats,
    companion: CompanionSet,
    real: Floats,
    labels: NDArray[np.int64],
    *,
    name: str = "model",
    held_out: tuple[Floats, NDArray[np.int64]] | None = None,
    resamples: int = 500,
    seed: int = 0,
) -> ModelRow:
    """Make the row of one model from its probabilities.

    Args:
        seen: (n, K) its probabilities for the ambiguous images.
        companion: those images.
        real: (m, K) its probabilities for real images.
        labels: (m,) their classes; negative for unknown.
        name: of the model.
        held_out: probabilities and labels of further real images, to fit the temperature on.
        resamples: how many bootstrap resamples each interval takes.
        seed: of the split and the resamples.
    """
    from secondguess.training.temperature import apply_temperature  # brings torch

    logits, mass = restricted(seen, companion.outputs(seen.shape[1]))
    known, truth = _task(companion, real, labels)
    right = known.argmax(axis=1) == truth
    order = np.random.default_rng(seed).permutation(len(truth))
    fit, use = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    if held_out is None:
        temperature, notes = _temperature(known[fit], truth[fit])
    else:
        (temperature, notes), use = _temperature(*_task(companion, *held_out)), np.arange(len(truth))
    if seen.shape[1] == 2 and right.mean() < 0.5:
        notes += ("Most real images are misclassified: a model of two classes gives the class named first first.",)
    clean = known[use] if known.shape[1] == 2 else np.sort(known[use], axis=1)[:, :-3:-1]

    def scores(two: Floats, t: float, dial: Floats | None) -> tuple[Floats, Scores]:
        p = apply_temperature(two, t)[:, 0]
        return p, score(p, dial, resamples=resamples, seed=seed)

    answers, ambiguous = scores(logits, 1.0, companion.dial)
    scaled, ambiguous_scaled = scores(logits, temperature, companion.dial)
    return ModelRow(
        model=name,
        accuracy=wilson(int(right.sum()), len(right)),
        ambiguous=ambiguous,
        ambiguous_scaled=ambiguous_scaled,
        clean=scores(clean, 1.0, None)[1],
        clean_scaled=scores(clean, temperature, None)[1],
        temperature=temperature,
        mass=float(mass.mean()),
        response=_response(companion.dial, answers, resamples, seed),
        response_scaled=_response(companion.dial, scaled, resamples, seed),
        answers=answers,
        scaled=scaled,
        right=right,
        notes=notes,
    )


def _probabilities(classifier: Classifier, images: ImageSet, progress: Progress | None) -> Floats:
    titled = Titled(progress or Silent(), f"{classifier.name} observes {images.name}")
    return classifier.observe(images, progress=titled).probabilities


def _task(companion: CompanionSet, real: Floats, labels: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Logits (m, 2) and which of the two classes, of real images of two classes; else (m, K) and labels of all."""
    classes = companion.classes
    rows = np.flatnonzero(labels >= 0 if classes is None else np.isin(labels, classes))
    if len(rows) < FEWEST:
        what = "with a known label" if classes is None else f"of the classes {classes[0]} and {classes[1]}"
        raise UserError(f"There are {len(rows)} real images {what}; at least {FEWEST} are needed.")
    if classes is None:
        if labels.max() >= real.shape[1]:
            raise UserError(f"The labels go up to {labels.max()}, but the model has {real.shape[1]} outputs.")
        return np.log(np.maximum(real[rows], _SMALLEST)), labels[rows]
    pairs = np.repeat(companion.outputs(real.shape[1])[:1], len(rows), axis=0)
    return restricted(real[rows], pairs)[0], np.asarray(labels[rows] == classes[1], dtype=np.int64)


def _temperature(logits: Floats, labels: NDArray[np.int64]) -> tuple[float, tuple[str, ...]]:
    """The temperature, or 1 where the real images do not determine one."""
    from secondguess.training.temperature import fit_temperature

    if (logits.argmax(axis=1) == labels).all():
        note = f"It is never wrong on the {len(labels)} real images for its temperature, so that none can be fitted."
        return 1.0, (note,)
    return fit_temperature(logits, labels), ()


def _response(dial: Floats | None, answers: Floats, resamples: int, seed: int) -> Response | None:
    return None if dial is None else response_curve(dial, answers, resamples=min(resamples, 200), seed=seed)


def _matched(rows: Sequence[ModelRow], dial: Floats | None, resamples: int, seed: int) -> Iterator[Matched]:
    """Compare models whose accuracies on the same images do not differ significantly."""
    options: dict[str, Any] = {"resamples": resamples, "seed": seed}
    for one, other in combinations(rows, 2):
        gain = one.right.astype(np.float64) - other.right
        accuracy = bootstrap(np.mean, gain, **options)
        if accuracy.low <= 0 <= accuracy.high:
            plain = compare_hubris(one.answers, other.answers, dial, **options).difference
            scaled = compare_hubris(one.scaled, other.scaled, dial, **options).difference
            yield Matched(one.model, other.model, accuracy, plain, scaled)
