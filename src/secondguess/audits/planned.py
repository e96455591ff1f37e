"""The plan of an audit: what each stress set, supervisor and section costs here, and how large each may be.

| part            | size                                              | where there is little time           |
|-----------------|---------------------------------------------------|--------------------------------------|
| test            | test images                                       | shortened last                       |
| train           | training images that supervisors are fitted on    | shortened last                       |
| samples         | passes with dropout for an image                  | shortened                            |
| stress.NAME     | the `dial` of the set, or the images it is made of | shortened, then left out last        |
| supervisor.NAME | the `dial` of the supervisor, or none             | shortened if it can be, then left out |
| section.NAME    | what the section says, or none                    | shortened; left out if it alone is too much |

Stress sets are what an audit is about: one is left out before supervisors only where it alone takes a quarter of the
time. A section is left out only where its least size takes more than a minute and more than a fifth of the time. What
is given ready-made or with its parameter, as in `autoencoder:epochs=10`, has the size that was given. Samples with
dropout are drawn where test images and stress sets are observed, whose parts take their time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from secondguess import __version__
from secondguess.audits.context import Context, learns
from secondguess.audits.sections import Section
from secondguess.audits.sections.supervisors import Supervisors, price_of_row
from secondguess.contracts.sealed import digest_of
from secondguess.model.passes import CANARIES, NOISE
from secondguess.planning import Pace, Part, Plan, Price
from secondguess.stress.pricing import price_of_set
from secondguess.supervisors.pricing import parts_of_fits

__all__ = ["plan_audit"]

PLAN = "cache/plan.json"  # in the folder of the audit
FEWEST_TEST, FEWEST_TRAIN = 500, 1000  # images
TOO_MUCH, LONG = 0.2, 60.0  # share of the time, and seconds, beyond which a section may be left out


def plan_audit(
    context: Context,
    sections: Sequence[Section],
    minutes: float | None,
    *,
    given: AbstractSet[str] = frozenset(),
    sizes: Mapping[str, int] | None = None,
) -> Plan:
    """Time the model, the supervisors and the stress sets on a few images, and size the parts of an audit.

    Args:
        context: that has not observed anything yet.
        sections: of the audit.
        minutes: that it may take; None for full sizes.
        given: parts whose size was given with a parameter and stays as it is.
        sizes: of parts, by name, from a plan that is to be repeated.
    """
    if minutes is None and not sizes:
        return Plan([])
    path, key = context.folder / PLAN, _key(context, sections, minutes, sizes)
    if key is not None and (kept := Plan.kept(path, key, minutes)) is not None:
        return kept
    learners = sum(map(learns, context.supervisors))
    return Plan.drawn_up(
        _parts(context, sections, minutes),
        2 + learners + len(context.stress) + len(sections),
        minutes,
        fixed=given,
        sizes=sizes,
        path=path if key else None,
        key=key or "",
        progress=context.progress,
    )


def _key(
    context: Context, sections: Sequence[Section], minutes: float | None, sizes: Mapping[str, int] | None
) -> str | None:
    """What a plan depends on; None where the model cannot be recognised again."""
    model, train = context.classifier.fingerprint, context.train
    if model is None:
        return None
    settings = [repr(one) for one in (*context.supervisors, *context.stress, *sections)]
    images = [context.test.fingerprint, train and train.fingerprint]
    parts = [__version__, model, images, settings, context.seed, minutes, sizes]
    return digest_of(json.dumps(parts, sort_keys=True).encode())


def _parts(context: Context, sections: Sequence[Section], minutes: float | None) -> Iterator[Part]:
    pace = context.pace
    wanted, test, train = context.needs(context.supervisors), len(context.test), context.train
    observing = pace.passing(wanted)
    # What is kept of a set is found again by what the model says about some images of it.
    known = observing * (NOISE + CANARIES) if context.classifier.cache is not None else 0.0
    images: Any = {"unit": "images", "essential": True}
    yield Part("test", "observe the test images", Price(observing, known, test, FEWEST_TEST, **images))
    learners = [one for one in context.supervisors if learns(one)]
    if train is not None and learners:
        needs = context.needs(learners)
        price = Price(pace.passing(needs), known, len(train), FEWEST_TRAIN, **images)
        yield Part("train", "observe the training images", price)
        compared = any(section.name == Supervisors.name for section in sections)
        row = price_of_row(context, pace) if compared else Price()
        for part in parts_of_fits(learners, needs, train, pace):
            price = replace(part.price, fixed=part.price.fixed + row.fixed, beside={"test": row.each})
            yield replace(part, price=price)
    if wanted.samples:
        least = min(one.least for one in context.supervisors if one.needs.samples)
        passes = (1 + len(context.stress)) * pace.sampling()
        yield Part("samples", "dropout samples", Price(passes, 0.0, wanted.samples, least, "samples", per="test"))
    for one in context.stress:
        price = price_of_set(one, pace, context.given(context.test), observing, of="test")
        yield Part(f"stress.{one.name}", f"{one.name} images", replace(price, fixed=price.fixed + known, core=True))
    for section in sections:
        yield Part(f"section.{section.name}", section.title, _section(section, context, pace, minutes))


def _section(section: Section, context: Context, pace: Pace, minutes: float | None) -> Price:
    try:
        price = section.price(context, pace)
    except Exception:  # the reason is given when the section runs
        return Price(required=True)
    least = price.seconds(price.least, {"test": min(len(context.test), FEWEST_TEST)})
    too_much = minutes is not None and least > max(LONG, TOO_MUCH * 60 * minutes)
    return replace(price, required=not too_much)
