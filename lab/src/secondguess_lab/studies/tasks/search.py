"""Searches for confident errors of biased networks: Figures 3 to 7 of Bennette, Maurer and Sisti (2020).

A network is trained without the dark, or the bright, part of one class, and calibrated by temperature scaling on a
tenth of the training images that it did not see. The pool is all test images that it predicts with a confidence above
.65; of each, the distance to another decision is measured by an attack that sees decisions only, and again by
gradients. Then every search looks for errors in random parts of the pool, whose labels are known
(`secondguess.search.simulate`).

Departures from the paper: the images it left out were chosen by people and are not published, so brightness chooses
them; distances come from the attack named in the settings, by default not the Boundary Attack; several networks instead
of one, as the random parts of one pool overlap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from secondguess import zoo
from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.search import Distances, Pool, SearchStudy, measure_distances, simulate
from secondguess.search.adversarial_distance import residuals
from secondguess.search.pool import MIN_CONFIDENCE
from secondguess.supervisors import make_all as make_supervisors
from secondguess.training import fit_temperature, train
from secondguess_lab.studies.tasks.opening import opened, training_images

__all__ = [
    "METHODS",
    "SUBJECTS",
    "Method",
    "Subject",
    "biased",
    "brightness",
    "calibrated",
    "hunt",
    "make_pool",
    "search_pool",
]

FITTED = 0.9  # of the training images; the others choose the temperature
BLOCK = 5000  # images looked at a time
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of red, green and blue (ITU-R BT.601)
QUARTILES = (0.25, 0.5, 0.75)
ALL = "all classes"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """What is wrong with the training images, and whose predictions are in question.

    Attributes:
        architecture: of the network, in the zoo.
        biased: number or name of the class of which images are left out.
        share: how many of its images.
        dark: whether the darkest are left out, or the brightest.
        middle: whether the brightness is that of the middle of an image, half its height and width, or of all of it.
        critical: classes whose predictions are searched, one after the other; None for all classes together.
    """

    architecture: str
    biased: int | str
    share: float
    dark: bool
    middle: bool
    critical: tuple[str | None, ...]


@dataclass(frozen=True)
class Method:
    """A search, with what it is given.

    Attributes:
        search: its name in `secondguess.search`.
        params: that differ from its defaults.
        sees: "all"; "no scores" for a pool without scores of supervisors; "gradient" for distances by gradients.
    """

    search: str
    params: Mapping[str, Any] = field(default_factory=dict)
    sees: Literal["all", "no scores", "gradient"] = "all"


SUBJECTS = {
    "cats_dogs": Subject("cats_dogs_cnn", "cat", share=0.3, dark=True, middle=True, critical=("dog", "cat")),
    "mnist": Subject("simple_cnn", 3, share=0.6, dark=False, middle=False, critical=(None,)),
    "fashion_mnist": Subject("simple_cnn", 6, share=0.6, dark=False, middle=False, critical=(None,)),
}
METHODS = {
    "random": Method("random"),
    "low_confidence": Method("low_confidence"),
    "adversarial_distance": Method("adversarial_distance"),
    "adversarial_distance_raw": Method("adversarial_distance", {"log": False}),
    "bandit": Method("bandit"),
    "bandit_published": Method("bandit", {"variant": "published", "elbow": "published"}),
    "coverage": Method("coverage"),
    "coverage_published": Method("coverage", {"variant": "bw_published", "elbow": "published"}),
    "facility": Method("facility"),
    "adaptive": Method("adaptive"),
    "adaptive_without_scores": Method("adaptive", sees="no scores"),
    "adversarial_distance_gradient": Method("adversarial_distance", sees="gradient"),
}


def hunt(
    *,
    data: TaskData,
    name: str,
    epochs: int,
    limit: int,
    attack: str,
    queries: int,
    supervisors: Sequence[str],
    methods: Sequence[str],
    replications: int,
    subset: int,
    budget: int,
    seed: int,
) -> dict[str, Any]:
    """Train a biased network and let searches look for its errors: one row for every critical class.

    Args:
        data: the images.
        name: which of `SUBJECTS` they are.
        epochs: of the network; 0 for its recipe's.
        limit: test images at most; 0 for all.
        attack: that measures distances.
        queries: of the attack, an image; 0 for the attack's own number.
        supervisors: whose scores the adaptive search may learn from.
        methods: which of `METHODS` are compared.
        replications: how many parts of the pool are drawn.
        subset: images of a part.
        budget: queries of a search.
        seed: of the network, its distances and its supervisors.
    """
    subject = SUBJECTS[name]
    training, test = biased(opened(data), subject)
    model, fitting, about = calibrated(training, subject.architecture, seed=seed, epochs=epochs)
    classifier = Classifier(model, class_names=training.class_names, batch_size=4096)
    pool, gradient, more = make_pool(
        classifier,
        fitting,
        test.head(limit, seed=0) if limit else test,
        supervisors=supervisors,
        attack=attack,
        queries=queries,
        by_gradient=any(METHODS[method].sees == "gradient" for method in methods),
        seed=seed,
    )
    rows = search_pool(
        pool,
        pool.images.labels,
        gradient,
        subject.critical,
        methods=methods,
        replications=replications,
        subset=subset,
        budget=budget,
    )
    found = [{"data": name, "model": seed, "about": about | more} | row for row in rows]
    if not found:
        raise UserError(
            f"The network {seed} for {name} makes no error above the confidence {MIN_CONFIDENCE}, so nothing "
            "can be found; train it for fewer epochs."
        )
    return {"rows": found}


def biased(data: Dataset, subject: Subject) -> tuple[ImageSet, ImageSet]:
    """The training images without those that the subject leaves out, and the test images."""
    training, names = training_images(data), data.class_names
    needed = dict.fromkeys(one for one in (subject.biased, *subject.critical) if one is not None)
    missing = [str(one) for one in needed if (one not in names if isinstance(one, str) else one >= len(names))]
    if missing:
        raise UserError(
            f"The data {data.name!r} have the classes {', '.join(names)}, but not {', '.join(missing)}; give data with "
            "what is to be searched."
        )
    number = names.index(subject.biased) if isinstance(subject.biased, str) else subject.biased
    mine = training.labels == number
    if not mine.any():
        raise UserError(f"The data {data.name!r} have no training images of the class {names[number]}; add some.")
    light = brightness(training, middle=subject.middle)
    left_out = light < np.quantile(light[mine], subject.share)
    if not subject.dark:
        left_out = light > np.quantile(light[mine], 1 - subject.share)
    return training.take(~(mine & left_out)), data.test


def brightness(images: ImageSet, *, middle: bool) -> Floats:
    """(n,) mean luma in [0, 1], of the middle half of an image's height and width or of all of it."""
    channels, height, width = images.shape
    weights = LUMA if channels == len(LUMA) else np.full(channels, 1 / channels, dtype=np.float32)
    rows, columns = (slice(side // 4, side - side // 4) if middle else slice(None) for side in (height, width))
    means = [pixels[:, :, rows, columns].mean(axis=(2, 3)) @ weights for pixels, _ in images.batches(BLOCK)]
    return np.concatenate(means).astype(np.float64)


def calibrated(
    training: ImageSet, architecture: str, *, seed: int, epochs: int = 0
) -> tuple[torch.nn.Module, ImageSet, dict[str, Any]]:
    """A network trained by its recipe, its logits divided by the temperature that suits the held-out tenth.

    Returns:
        The network, the images that it was trained on, and what is known of it.
    """
    fitting, held_out = training.split(FITTED, seed=seed)
    model = zoo.make(architecture, num_classes=training.num_classes, input_shape=training.shape, seed=seed)
    recipe = zoo.get(architecture).recipe.as_kwargs() | ({"epochs": epochs} if epochs else {})
    recipe["validation"] = (held_out.materialise(), held_out.labels)
    history = train(model, fitting.materialise(), fitting.labels, seed=seed, **recipe)
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000)
    seen = classifier.observe(held_out, Needs(logits=True))
    temperature = fit_temperature(np.asarray(seen.logits), held_out.labels)
    with torch.no_grad():
        for parameter in model.get_submodule("logits").parameters():
            parameter.div_(temperature)
    return model, fitting, {"temperature": temperature, "validation": history.rows[-1]}


def make_pool(
    classifier: Classifier,
    fitting: ImageSet,
    test: ImageSet,
    *,
    supervisors: Sequence[str],
    attack: str,
    queries: int,
    by_gradient: bool = True,
    seed: int,
) -> tuple[Pool, Distances | None, dict[str, Any]]:
    """All test images above the threshold, with distances by the attack.

    Args:
        classifier: the network.
        fitting: labelled images that the supervisors learn from.
        test: the images to search, with labels.
        supervisors: whose scores the pool shall have.
        attack: that measures distances.
        queries: of the attack, an image; 0 for the attack's own number.
        by_gradient: whether distances are measured by gradients too.
        seed: of whatever is drawn.

    Returns:
        The pool, its distances by gradients, and what was measured on the way.
    """
    watching = make_supervisors(list(supervisors)) if supervisors else []
    learnt = classifier.observe(fitting, Needs.union(watching))
    for one in watching:
        one.fit(learnt, fitting.labels)
    whole = Pool.of(classifier, test, min_confidence=MIN_CONFIDENCE, supervisors=watching, seed=seed)
    pool = whole.narrowed()
    began = time.perf_counter()
    distances = measure_distances(classifier, pool.images, attack=attack, budget=queries or None, seed=seed)
    about = {
        "test_accuracy": float((whole.predictions == test.labels).mean()),
        "attack_seconds": time.perf_counter() - began,
        "median_mae": _median_mae(distances),
        "failed": int(distances.failed.sum()),
        "queries_per_image": float(distances.queries.mean()),
    }
    gradient = None
    if by_gradient:
        began = time.perf_counter()
        gradient = measure_distances(classifier, pool.images, attack="gradient", seed=seed)
        about |= {
            "gradient_seconds": time.perf_counter() - began,
            "median_mae_gradient": _median_mae(gradient),
        }
    return pool.with_distances(distances), gradient, about


def search_pool(
    pool: Pool,
    labels: NDArray[np.int64],
    gradient: Distances | None,
    criticals: Sequence[str | None],
    *,
    methods: Sequence[str] = tuple(METHODS),
    replications: int,
    subset: int,
    budget: int,
    seed: int = 0,
    jobs: int = -1,
    curves: bool = False,
) -> Iterator[dict[str, Any]]:
    """Let searches look for errors: a row for every critical class with an error to find.

    Args:
        pool: what may be asked about, with distances.
        labels: (n,) of the pool.
        gradient: the distances by gradients; None if no method sees them.
        criticals: names of the classes whose predictions are in question; None for all classes.
        methods: which of `METHODS`.
        replications: how many parts of the pool are drawn.
        subset: images of a part.
        budget: queries of a search.
        seed: of the draws.
        jobs: processes, which change no result; -1 for as many as there are cores.
        curves: whether the rows hold every point of every curve.
    """
    drawn = {"budget": budget, "replications": replications, "subset": subset, "seed": seed, "jobs": jobs}
    for critical in criticals:
        mine = replace(pool, eligible=pool.eligible & _predicted(pool, critical))
        if not mine.errors(labels).any():
            continue
        began = time.perf_counter()
        found = _simulated(mine, labels, gradient, methods, drawn)
        yield {
            "critical": critical or ALL,
            "seconds": time.perf_counter() - began,
            "spearman_residuals": None if gradient is None else _agreement(mine, gradient),
            "study": found.to_dict(curves=curves),
            "confidence_quartiles": {
                method: np.quantile(seen.confidence, QUARTILES).tolist() for method, seen in found.outcomes.items()
            },
        }


def _median_mae(distances: Distances) -> float | None:
    """Of the images for which the attack succeeded; None if there are none."""
    return None if distances.failed.all() else float(np.median(distances.mae[~distances.failed]))


def _predicted(pool: Pool, critical: str | None) -> NDArray[np.bool_]:
    if critical is None:
        return np.ones(len(pool), dtype=bool)
    return np.asarray(pool.predictions == pool.observation.class_names.index(critical))


def _simulated(
    pool: Pool,
    labels: NDArray[np.int64],
    gradient: Distances | None,
    methods: Sequence[str],
    drawn: Mapping[str, Any],
) -> SearchStudy:
    """All methods on the same parts of the pool, each with what it may see."""
    worlds = {
        "all": pool,
        "no scores": replace(pool, scores={}),
        "gradient": replace(pool, distances=gradient, scores={}),
    }
    studies = []
    for sees, world in worlds.items():
        mine = {name: METHODS[name] for name in methods if METHODS[name].sees == sees}
        if mine:
            named = {name: (one.search, one.params) for name, one in mine.items()}
            studies.append(simulate(world, labels, named, **drawn))  # the same seed draws the same parts
    together = {name: seen for one in studies for name, seen in one.outcomes.items()}
    titles = {name: title for one in studies for name, title in one.titles.items()}
    return replace(
        studies[0],
        outcomes={name: together[name] for name in methods},
        titles={name: titles[name] for name in methods},
    )


def _agreement(pool: Pool, gradient: Distances) -> float | None:
    """Spearman's correlation of the residuals of both distances; None where either is the same for all images."""
    from scipy.stats import spearmanr

    ours, theirs = residuals(pool), residuals(pool.with_distances(gradient))
    both = np.isfinite(ours) & np.isfinite(theirs)
    if both.sum() < 2 or np.ptp(ours[both]) == 0 or np.ptp(theirs[both]) == 0:
        return None
    return float(spearmanr(ours[both], theirs[both]).statistic)
