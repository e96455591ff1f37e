"""Where the model is confidently wrong: which search would have led a person there with fifty labels?

The labels of the test images are known, so searches can be tried: each asks about one confident prediction after the
other, is given the label, and is measured by what it finds. A repetition sees a random half of the images. How far an
image is from another decision is measured with few questions, by gradients where the model has them: a shortened
attack ranks images much as a long one does, and an audit has to end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, Number
from secondguess.audits.sections.registry import Section, register
from secondguess.model.observation import Observation
from secondguess.planning import Pace, Price
from secondguess.progress import Titled
from secondguess.report import data_uri
from secondguess.search import Distances, Pool, SearchStudy, measure_distances, simulate
from secondguess.search.explain import Explanation, explain_pair
from secondguess.search.picture import search_chart
from secondguess.search.pool import MIN_CONFIDENCE, pixel_features

BUDGET = 50  # labels a search may ask for
CHECKPOINTS = (20, BUDGET)
FEWEST = 2 * BUDGET  # images; a search that asks about more than half of them shows nothing
REPETITIONS = 8
FEW_MISTAKES = 10  # below, differences between searches are mostly noise

# Images whose distance is measured, by the way it is done: as many pixels, and between how many images.
LIMITS = {"gradient": (1_000_000, 200, 1000), "hop_skip_jump": (250_000, FEWEST, 250)}
STEPS = 12  # forwards and back for an image, where gradients are available, about
SEARCHING = 7.0  # seconds that all searches take, about
QUESTIONS, ASKED = 150, 0.6  # to the model about each image, where gradients are unavailable; how many it takes, about

SHOWN = 4  # mistakes of each search
EXPLAINED, SAMPLES = 3, 300
MEASURES = ("sdr", "lift", "matched_lift", "spread")


@register
class ConfidentErrors(Section):
    """Where the model is confidently wrong: which search would have led a person there with fifty labels?"""

    name = "confident_errors"
    title = "Where it is confidently wrong"
    template = "confident_errors.html"

    def price(self, context: Context, pace: Pace) -> Price:
        """The attack on each image, and the searches, whose cost hardly depends on the number of images."""
        attack = _attack(context)
        full = min(_limit(attack, context.test.shape), len(context.test))
        each = STEPS * pace.gradient() if attack == "gradient" else ASKED * QUESTIONS * pace.observing()
        explaining = 2 * EXPLAINED * SAMPLES * pace.observing() if find_spec("captum") else 0.0
        return Price(each, SEARCHING * pace.slowness + explaining, full, FEWEST, "images", within="test")

    def run(self, context: Context) -> Findings:
        """What each search finds, over the labels; the first mistakes of each, and explanations of some."""
        attack = _attack(context)
        rows, eligible = _rows(context, attack)
        about: dict[str, Any] = {
            "images": len(rows),
            "eligible": eligible,
            "fewest": FEWEST,
            "budget": BUDGET,
            "min_confidence": MIN_CONFIDENCE,
        }
        if len(rows) < FEWEST:
            return Findings(view=about)
        labels = context.labels[rows]
        mistakes = int((context.nominal.predictions[rows] != labels).sum())
        if not mistakes:
            return Findings(
                numbers={"confident_errors.mistakes": context.number(0.0)},
                summary=[("Confidently wrong", f"nowhere: {_how_many(len(rows), eligible)} are all right")],
                view=about | {"mistakes": 0},
            )
        distances = _measured(context, rows, attack)
        pool = _pool(context, rows, distances)
        subset = max(len(rows) // 2, FEWEST)
        options: dict[str, Any] = {"budget": BUDGET, "seed": context.seed}
        study = simulate(pool, labels, replications=REPETITIONS, subset=subset, progress=context.progress, **options)
        shown = Titled(context.progress, "With all images")
        whole = simulate(pool, labels, replications=1, subset=len(rows), progress=shown, **options)
        table = [_row(study, method) for method in study.outcomes]
        table.sort(key=lambda row: -float(row["matched_lift"]["pooled"]))
        by_finds = sorted(table, key=lambda row: -float(row["errors"][BUDGET]["mean"]))
        return Findings(
            numbers=_numbers(context, study, table),
            summary=[("Confidently wrong", _words(table, len(rows), eligible, mistakes))],
            view=about
            | {
                "mistakes": mistakes,
                "checkpoints": CHECKPOINTS,
                "few": mistakes < FEW_MISTAKES,
                "study": study,
                "attack": attack,
                "questions": float(distances.queries.mean()),
                "supervisors": len(pool.scores),
                "table": table,
                "by_finds": by_finds,
                "reliable": [row["title"] for row in table if row["matched_lift"]["low"] > 1],
                "best": {name: max(_pooled(row, name) for row in table) for name in ("lift", "matched_lift")},
                "charts": [(study.titles[row["name"]], search_chart(study, row["name"])) for row in table],
                "found": [
                    (study.titles[row["name"]], list(_found(pool, labels, whole, row["name"]))) for row in by_finds
                ],
                "explained": _explained(context, pool, labels, whole, table),
                "can_explain": find_spec("captum") is not None,
            },
        )


def _attack(context: Context) -> str:
    return "gradient" if "gradients" in context.classifier.gives else "hop_skip_jump"


def _rows(context: Context, attack: str) -> tuple[NDArray[np.int64], int]:
    """The test images that are searched, a part if they are many, and of how many: labelled, predicted confidently."""
    rows = np.flatnonzero((context.labels >= 0) & (context.nominal.confidences > MIN_CONFIDENCE))
    limit = context.plan.require("section.confident_errors") or _limit(attack, context.test.shape)
    return np.sort(np.random.default_rng(context.seed).permutation(rows)[:limit]), len(rows)


def _limit(attack: str, shape: tuple[int, int, int]) -> int:
    """The most images (C, H, W) whose distance is measured."""
    pixels, least, most = LIMITS[attack]
    return int(np.clip(pixels // (shape[1] * shape[2]), least, most))


def _measured(context: Context, rows: NDArray[np.int64], attack: str) -> Distances:
    from secondguess.search.attacks import Gradient

    images = context.test.take(rows)
    if attack == "gradient":
        quick = Gradient(classes=3, rounds=1, halvings=6)
        return measure_distances(context.classifier, images, attack=quick, seed=context.seed, progress=context.progress)
    return measure_distances(context.classifier, images, budget=QUESTIONS, seed=context.seed, progress=context.progress)


def _pool(context: Context, rows: NDArray[np.int64], distances: Distances) -> Pool:
    """What the searches know: of the supervisors, the scores that the audit has anyway."""
    images, seen = context.test.take(rows), context.nominal
    return Pool(
        observation=Observation(seen.probabilities[rows], class_names=seen.class_names),
        images=images,
        features=pixel_features(images.images, seed=context.seed),
        eligible=np.ones(len(rows), dtype=bool),
        distances=distances,
        scores={one.name: context.scored(one.name).scores[rows] for one in context.fitted},
    )


def _row(study: SearchStudy, method: str) -> dict[str, Any]:
    """A search in the table: its measures after all labels, and the mistakes it found after some."""
    measured = {metric: study.curve(method, metric).at(BUDGET) for metric in MEASURES}
    found = {queries: study.curve(method, "errors").at(queries) for queries in CHECKPOINTS}
    return {"name": method, "title": study.titles[method], "errors": found, **measured}


def _pooled(row: Mapping[str, Any], measure: str) -> float:
    return float(row[measure]["pooled"])


def _numbers(context: Context, study: SearchStudy, table: Sequence[Mapping[str, Any]]) -> dict[str, Number]:
    """`confident_errors.SEARCH.MEASURE`, and how many mistakes there are to be found."""
    measured = {"mistakes": float(study.pool_errors), "pool_sdr": study.pool_sdr}
    for row in table:
        measured |= {f"{row['name']}.{measure}": _pooled(row, measure) for measure in MEASURES}
        measured |= {f"{row['name']}.errors_at_{queries}": found["mean"] for queries, found in row["errors"].items()}
    return {f"confident_errors.{name}": context.number(value) for name, value in measured.items()}


def _found(pool: Pool, labels: NDArray[np.int64], whole: SearchStudy, method: str) -> Iterator[dict[str, Any]]:
    """The first mistakes that a search finds among all images, with the number of labels that it took."""
    seen = whole.outcomes[method]
    for place in np.flatnonzero(seen.errors[0])[:SHOWN]:
        yield _card(pool, labels, int(seen.queries[0, place])) | {"label": int(place) + 1}


def _card(pool: Pool, labels: NDArray[np.int64], row: int) -> dict[str, Any]:
    names = pool.observation.class_names
    return {
        "uri": data_uri(pool.images.images[row]),
        "id": pool.images.ids[row] if pool.images.ids else None,
        "truth": names[labels[row]],
        "guess": names[pool.predictions[row]],
        "confidence": float(pool.confidence[row]),
    }


def _explained(
    context: Context,
    pool: Pool,
    labels: NDArray[np.int64],
    whole: SearchStudy,
    table: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The first mistakes of the best search beside their counterexamples, and what speaks for each answer."""
    if find_spec("captum") is None or pool.distances is None:
        return []
    best = whole.outcomes[table[0]["name"]]
    rows = [int(row) for row in best.queries[0, best.errors[0]] if not pool.distances.failed[row]]
    classifier = copy.copy(context.classifier)
    classifier.cache = None  # images with hidden parts are never observed again
    cards, shown = [], rows[:EXPLAINED]
    with context.progress.task("Explaining mistakes", len(shown)) as advance:
        for row in shown:
            image, counterexample = pool.images.images[row], pool.distances.counterexamples[row]
            pair = explain_pair(classifier, image, counterexample, samples=SAMPLES, seed=context.seed)
            sides = [_side(pool, one) for one in pair]
            cards.append(_card(pool, labels, row) | {"mae": float(pool.distances.mae[row]), "sides": sides})
            advance(len(cards), len(shown))
    return cards


def _side(pool: Pool, one: Explanation) -> dict[str, Any]:
    return {
        "uri": data_uri(one.image),
        "overlay": data_uri(one.overlay()),
        "guess": pool.observation.class_names[one.target],
        "confidence": one.probability,
    }


def _how_many(images: int, eligible: int) -> str:
    drawn = f" (drawn from {eligible:,})" if images < eligible else ""
    return f"{images:,} predictions with a confidence above {MIN_CONFIDENCE:.0%}{drawn}"


def _words(table: Sequence[Mapping[str, Any]], images: int, eligible: int, mistakes: int) -> str:
    """For a manager: how many there are, and how to get at them."""
    found = {row["name"]: float(row["errors"][BUDGET]["mean"]) for row in table}
    most, best = max(found, key=lambda name: found[name]), table[0]
    words = (
        f"{mistakes} of {_how_many(images, eligible)} are wrong; "
        f"{BUDGET} labels find {found[most]:.1f} with {most}, "
        f"{BUDGET * mistakes / images:.1f} at random"  # on average: no need to simulate
    )
    if best["matched_lift"]["low"] <= 1:
        return f"{words}, and no search reliably more than the confidences explain"
    return f"{words}; {best['name']} finds {_pooled(best, 'matched_lift'):.1f} times what the confidences explain"
