"""The plan of fitting a guard: what observing, fitting and making stress sets cost here, and how large each may be.

| part            | size                                                                | where there is little time |
|-----------------|---------------------------------------------------------------------|----------------------------|
| nominal         | images that teach the panel and set the threshold                   | shortened last             |
| train           | training images that supervisors are fitted on                      | shortened last             |
| supervisor.NAME | its `dial`, or none                                                 | shortened, then left out   |
| stress.KIND     | images, half of them to learn from, or the `dial` of the generator  | shortened, then left out   |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from secondguess.guard.consistency import CHANGES
from secondguess.guard.fitting import Parts
from secondguess.guard.stress_split import StressMaker
from secondguess.guard.unfinished import Unfinished
from secondguess.model.classifier import Classifier
from secondguess.planning import Pace, Part, Plan, Price
from secondguess.progress import Progress
from secondguess.supervisors import SupervisorSet
from secondguess.supervisors.pricing import parts_of_fits

__all__ = ["plan_guard"]

FEWEST_TRAIN = 1000  # images
FEWEST_NOMINAL = 2000  # images: a thousand still promise any rate of false alarms that people ask for
PANEL = 8e-4  # seconds for an image that the panel learns from, about


def plan_guard(
    classifier: Classifier,
    supervisors: SupervisorSet,
    parts: Parts,
    stress: StressMaker | None,
    minutes: float | None,
    *,
    names: bool = False,
    given: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    unfinished: Unfinished,
    progress: Progress,
) -> Plan:
    """Time the model and the supervisors on a few images, and size the parts of the fit.

    Args:
        classifier: the system under test.
        supervisors: not fitted.
        parts: the images, the training images in full.
        stress: makes the stress sets; None where none are made.
        minutes: that the fit may take; None for full sizes.
        names: whether kinds of anomaly will be named: then the model is asked about changed images, too.
        given: labels of supervisors whose parameters were given.
        sizes: of parts, by name, from a plan that is to be repeated.
        unfinished: where the plan of an interrupted fit is kept.
        progress: where to report.
    """
    if minutes is None and not sizes:
        return Plan([])
    if unfinished.plan is not None and (kept := Plan.kept(unfinished.plan, unfinished.key, minutes)) is not None:
        return kept
    return Plan.drawn_up(
        _parts(classifier, supervisors, parts, stress, names),
        3 + len(supervisors.supervisors) + (0 if stress is None else len(stress.kinds)),
        minutes,
        fixed={f"supervisor.{label}" for label in given},
        sizes=sizes,
        path=unfinished.plan,
        key=unfinished.key,
        progress=progress,
    )


def _parts(
    classifier: Classifier, supervisors: SupervisorSet, parts: Parts, stress: StressMaker | None, names: bool
) -> Iterator[Part]:
    pace = Pace(classifier, parts.learn)
    observing = pace.passing(supervisors.needs)
    asking = len(CHANGES) * pace.passing() if names else 0.0  # as much as that, if every change is of use
    images: Any = {"unit": "images", "essential": True}
    nominal = len(parts.learn) + len(parts.calibrate)
    looking = observing + asking / 2  # about those that teach, one half of them
    looks = Price(looking, full=nominal, least=FEWEST_NOMINAL, **images)
    yield Part("nominal", "observe the nominal images", looks)
    train = Price(observing, full=len(parts.train), least=FEWEST_TRAIN, **images)
    yield Part("train", "observe the training images", train)
    learners = {label: one for label, one in supervisors.by_label.items() if one.requires_fit and not one.is_fitted}
    for label, part in zip(
        learners, parts_of_fits([*learners.values()], supervisors.needs, parts.train, pace), strict=True
    ):
        yield replace(part, name=f"supervisor.{label}", does=f"fit {label}")
    if stress is not None:
        for kind in stress.kinds:
            yield Part(f"stress.{kind}", f"{kind} images", stress.price(kind, pace, observing + asking))
        learning = {"nominal": pace.slowness * 5 * PANEL / 2}
        yield Part("panel", "put the panel together", Price(beside=learning, essential=True))
