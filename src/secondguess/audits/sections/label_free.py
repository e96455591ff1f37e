"""Label-free estimates of the accuracy against the truth, and what the rules of ICOS add.

In operation the labels are unknown. Here they are known, so the estimators can be tested: half of the labelled test
images is their validation set, and they judge the other half and every stress set that has labels without seeing these.
The number that `estimate` would recommend, or its reason to give none, stands before the table of methods.
The oracle behind two of them is ICOS, with input rules where the audit was given some; its pixel rules come from the
training images, and those that contradict a prediction are drawn over the image.
"""

from __future__ import annotations

import base64
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess._text import listed
from secondguess.accuracy import (
    Estimate,
    Estimator,
    RulesAndConfidence,
    ShiftedCopies,
    SyntheticShifts,
    recommend,
    standard_estimators,
)
from secondguess.accuracy.oracles.icos import Contribution, Icos, to_png
from secondguess.accuracy.oracles.icos.features import feature_matrix
from secondguess.accuracy.planned import FEWEST_COPIES, price_of_copies, price_of_estimators, price_of_rules
from secondguess.accuracy.shifted_copies import most_copies
from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable, Number
from secondguess.audits.sections.registry import Section, register
from secondguess.images import ImageSet
from secondguess.metrics import Interval, wilson
from secondguess.metrics.verdict_confusion import VerdictConfusion, verdict_confusion
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.planning import Pace, Price
from secondguess.progress import at_work
from secondguess.report import data_uri

PART = "section.label_free"  # of the plan
BASELINES = ("validation_accuracy", "average_confidence")
FEWEST = 20  # labelled test images; half of fewer would be no validation set
MOST_TRAINING = 10_000  # images that pixel rules are learnt from
MOST_JUDGED = 10_000  # validation images, and images of each set: more cost much and hardly narrow the intervals
FOLDS = 2
SHOWN, SIMILAR = 6, 4


@register
class LabelFree(Section):
    """Label-free estimates of the accuracy against the truth, and what the rules of ICOS add."""

    name = "label_free"
    title = "Accuracy without labels"
    template = "label_free.html"
    reads_scores = False

    def price(self, context: Context, pace: Pace) -> Price:
        """By the training images: rules are learnt from them, and as large a share of the copies is made."""
        if context.train is None:
            return Price()
        rules = price_of_rules(pace, min(len(context.train), MOST_TRAINING))
        copies = price_of_copies(pace, len(context.test) // 2, cached=context.classifier.cache is not None)
        sizes = [rules.least, rules.full]
        line = Price.line(sizes, [copies.seconds(_share(copies.full, size, rules.full)) for size in sizes])
        fixed = line.fixed + price_of_estimators(pace, len(context.test), trials=False).fixed
        return replace(rules, each=rules.each + line.each, fixed=fixed)

    def run(self, context: Context) -> Findings:
        """Estimates and errors on each set, what each kind of invariant contributes, images with the violated rule."""
        training = _training(context)
        validation, sets = _split(context)
        with at_work(context.progress, "Learning rules"), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            oracle = Icos(context.rules, seed=context.seed).fit(training, validation)
        leading, *others = _fitted(context, oracle, training, validation)
        truths = {name: wilson(int(one.correct.sum()), len(one)) for name, one in sets.items()}
        rows: list[dict[str, Any]] = []
        with context.progress.task("Estimating the accuracy", 1 + len(others)) as advance:
            for estimator in (leading, *others):
                rows.append(_row(estimator, sets, truths))
                advance(len(rows), 1 + len(others))
        judged = {name: verdict_confusion(oracle.judge(one).wrong, one.correct) for name, one in sets.items()}
        baseline = next(row for row in rows if row["name"] == "validation_accuracy")
        answers = {
            name: _answer(oracle, one, {row["name"]: row["estimates"][name] for row in rows})
            for name, one in sets.items()
        }
        off = {name: one.value - truths[name].value for name, one in answers.items()}
        return Findings(
            numbers=_numbers(context, truths, rows, judged),
            summary=[(self.title, _in_words(answers, off, baseline["off"]))],
            view={
                "validation": len(validation),
                "training": len(training),
                "truths": truths,
                "rows": rows,
                "closest": {name: min(abs(row["off"][name]) for row in rows) for name in sets},
                "leading": rows[0],
                "baseline": baseline,
                "answers": answers,
                "shifts": {name: leading.shift(sets[name], one) for name, one in rows[0]["estimates"].items()},
                "baselines": BASELINES,
                "rules": len(oracle.pixel_rules),
                "partitions": len(context.rules.partitions) if context.rules else 0,
                "contributions": {name: _contributions(oracle, one) for name, one in sets.items()},
                "judged": judged,
                "examples": _examples(oracle, sets, training),
                "remarks": [str(one.message) for one in heard],
            },
        )


def _training(context: Context) -> Observation:
    if context.train is None or not context.train.is_labelled:
        raise NotApplicable(
            "Rules about the images of a class are learnt from labelled training images; give them with train."
        )
    most = context.plan.require(PART) or MOST_TRAINING
    images = context.train.take(context.train.labels >= 0).head(most, seed=context.seed)
    return context.observe(images, "training images", Needs())


def _split(context: Context) -> tuple[Observation, dict[str, Observation]]:
    """The validation images, and the sets to judge by name: the other test images, and stress sets with labels."""
    known = np.flatnonzero(context.labels >= 0)
    if len(known) < FEWEST:
        raise NotApplicable(
            f"There are {len(known)} labelled test images; at least {FEWEST} are needed, half of them for validation."
        )
    rng = np.random.default_rng(context.seed)
    order = rng.permutation(known)[: 2 * MOST_JUDGED]
    validation, operation = (np.sort(half) for half in np.array_split(order, 2))
    nominal = _with_rules(context, context.nominal)
    sets = {"nominal": nominal.take(operation)}
    for name, (images, observation) in context.stressed.items():
        rows = np.flatnonzero(images.labels >= 0)
        sources = context.made_of[name]
        if len(rows) and np.array_equal(images.labels, context.test.labels[sources]):
            # Made of test images one by one: those of the validation images are left out.
            rows = np.flatnonzero(np.isin(sources, operation))
        elif len(rows) > MOST_JUDGED:
            rows = np.sort(rng.choice(rows, MOST_JUDGED, replace=False))
        if len(rows):
            sets[name] = _with_rules(context, observation).take(rows)
    return nominal.take(validation), sets


def _with_rules(context: Context, seen: Observation) -> Observation:
    """What was seen, of images that rules can be asked about; they do not apply where these lack what they refer to."""
    if context.rules is None:
        return seen
    return seen.replace(images=context.rules.filled(seen.require_images("The rules")))


def _answer(oracle: Icos, seen: Observation, estimates: Mapping[str, Estimate]) -> Estimate:
    """What `estimate` would report."""
    covered = 0.0 if oracle.rules is None else oracle.rules.coverage(seen.require_images("The rules"))
    return recommend(estimates, covered=covered)


def _fitted(
    context: Context, oracle: Icos, training: Observation, validation: Observation
) -> tuple[SyntheticShifts, *tuple[Estimator, ...]]:
    """All estimators, the leading one first; without rules, one of them would be the average confidence once more."""
    images = validation.require_images("Shifting the validation images")
    how: Any = {"most": _most_copies(context, images), "seed": context.seed, "progress": context.progress}
    copies = ShiftedCopies.observe(context.classifier, images, **how)
    listed = standard_estimators(context.rules, [oracle], folds=FOLDS, seed=context.seed)
    others = [one for one in listed if context.rules is not None or not isinstance(one, RulesAndConfidence)]
    leading = SyntheticShifts(seed=context.seed)
    with context.progress.task("Fitting estimators of accuracy", len(others)) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the warnings were already given for the whole validation set
        leading.fit(validation, training, copies)
        for done, one in enumerate(others, start=1):
            one.fit(validation, training)
            advance(done, len(others))
    return leading, *others


def _most_copies(context: Context, images: ImageSet) -> int | None:
    """How many images are copied for each shift, where the plan says that it is not all of the usual number."""
    size, part = context.plan.reduced(PART), context.plan.part(PART)
    if size is None or part is None:
        return None
    return _share(most_copies(images.shape), size, part.price.full)


def _share(copies: int, size: int, full: int) -> int:
    """As many of the copies as `size` is of the full size, but not too few."""
    return max(min(copies, FEWEST_COPIES), copies * size // full)


def _in_words(answers: Mapping[str, Estimate], off: Mapping[str, float], unmoved: Mapping[str, float]) -> str:
    """How far off the recommended numbers are, and for which images there is none."""
    given = [name for name, one in answers.items() if not one.withheld]
    silent = [name for name in answers if name not in given]
    without = f"; for {listed(silent)} images it cannot be said" if silent else ""
    if not given:
        return f"cannot be said for {listed(silent)} images"
    ours, theirs = (100 * np.mean([abs(each[name]) for name in given]) for each in (off, unmoved))
    return (
        f"off by {ours:.1f} points on average over {listed(given)} images, where validation accuracy, which sees no "
        f"change, is off by {theirs:.1f}{without}"
    )


def _row(estimator: Estimator, sets: Mapping[str, Observation], truths: Mapping[str, Interval]) -> dict[str, Any]:
    """The estimate of a method for each set, its error, and its mean absolute error."""
    found = {name: estimator.estimate(seen) for name, seen in sets.items()}
    off = {name: one.value - truths[name].value for name, one in found.items()}
    return {
        "name": estimator.name,
        "about": (inspect.getdoc(estimator) or "").partition("\n")[0],
        "estimates": found,
        "off": off,
        "mean": float(np.mean([abs(one) for one in off.values()])),
    }


def _numbers(
    context: Context,
    truths: Mapping[str, Interval],
    rows: Sequence[Mapping[str, Any]],
    judged: Mapping[str, VerdictConfusion],
) -> dict[str, Number]:
    """`label_free.SET.truth`, `label_free.SET.METHOD.estimate` and `.error`, and how well ICOS finds mistakes."""
    numbers = {f"label_free.mean.{row['name']}.error": context.number(row["mean"]) for row in rows}
    for name in truths:
        measured: dict[str, Interval | float] = {"truth": truths[name]}
        for row in rows:
            measured[f"{row['name']}.estimate"] = row["estimates"][name].interval
            measured[f"{row['name']}.error"] = abs(row["off"][name])
        measured |= {f"icos.{rate}": getattr(judged[name], rate) for rate in ("tpr", "fpr", "f1")}
        images = context.test if name == "nominal" else context.stressed[name][0]
        numbers |= {f"label_free.{name}.{key}": context.number(value, images) for key, value in measured.items()}
    return numbers


def _contributions(oracle: Icos, seen: Observation) -> dict[str, Contribution]:
    """What each kind of invariant finds."""
    return {one.kind: one for one in oracle.contributions(seen) if oracle.rules is not None or one.kind != "input data"}


def _examples(oracle: Icos, sets: Mapping[str, Observation], training: Observation) -> list[dict[str, Any]]:
    """Images whose prediction a pixel rule contradicts: the rule is right first, then the simplest rules."""
    found = [
        (name, int(row), int(rule))
        for name, seen in sets.items()
        for row, rule in enumerate(oracle.violations(seen).rule)
        if rule >= 0
    ]
    rules = oracle.pixel_rules
    questions = {rule: len({*rules[rule].above, *rules[rule].up_to}) for _, _, rule in found}
    labels = {name: one.require_labels("Showing examples") for name, one in sets.items()}
    hits = {(name, row): labels[name][row] == rules.labels[rule] for name, row, rule in found}
    found.sort(key=lambda one: (not hits[one[:2]], one[0] != "nominal", questions[one[2]]))
    matching = rules.matching(feature_matrix(training, oracle.features))
    return [_example(oracle, name, sets[name], row, rule, training, matching) for name, row, rule in _varied(found)]


def _varied(found: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The first few, a new rule each as long as there are some."""
    first: dict[int, tuple[str, int, int]] = {}
    for one in found:
        first.setdefault(one[2], one)
    others = [one for one in found if one not in first.values()]
    return [*first.values(), *others][:SHOWN]


def _example(
    oracle: Icos,
    name: str,
    seen: Observation,
    row: int,
    rule: int,
    training: Observation,
    matching: NDArray[np.int64],
) -> dict[str, Any]:
    names, said = seen.class_names, oracle.pixel_rules[rule]
    image = seen.require_images("Showing examples").images[row]
    alike = [int(k) for k in np.flatnonzero((matching == rule) & (training.labels == said.label))[:SIMILAR]]
    drawn = base64.b64encode(to_png(oracle.draw(rule, image))).decode("ascii")
    return {
        "set": name,
        "uri": f"data:image/png;base64,{drawn}",
        "guess": names[seen.predictions[row]],
        "confidence": float(seen.confidences[row]),
        "truth": names[seen.require_labels("Showing examples")[row]],
        "right": bool(seen.correct[row]),
        "rule": names[said.label],
        "support": said.support,
        "share": said.confidence,
        "text": oracle.describe(rule),
        "alike": [data_uri(training.require_images("Showing examples").images[k]) for k in alike],
    }
