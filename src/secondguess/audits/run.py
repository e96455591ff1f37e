"""Run an audit: section after section, none of which can take the others down."""

from __future__ import annotations

import copy
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup

from secondguess import stress as stress_room
from secondguess import supervisors as supervisors_room
from secondguess._files import make_folder
from secondguess._versions import versions
from secondguess.audits.context import Context, explain
from secondguess.audits.findings import NotApplicable, SectionResult
from secondguess.audits.gates import Gate, judge
from secondguess.audits.result import TEMPLATES, AuditResult
from secondguess.audits.sections import SECTIONS, Section
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.cache import Cache
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, Silent
from secondguess.report import render
from secondguess.stress import StressSet
from secondguess.supervisors import Supervisor

__all__ = ["run_audit"]

Named = TypeVar("Named", Supervisor, StressSet)


def run_audit(
    classifier: Classifier,
    test: ImageSet,
    *,
    train: ImageSet | None = None,
    out: str | Path = "out/audit",
    supervisors: str | Iterable[str | Supervisor] = "standard",
    stress: str | Iterable[str | StressSet] = ("ambiguous", "corrupted", "adversarial", "invalid"),
    gates: Iterable[str | Gate] = (),
    seed: int = 0,
    command: str = "",
    progress: Progress | None = None,
    sections: Sequence[Section] = SECTIONS,
) -> AuditResult:
    """Audit a classifier and write `report.html`, `audit.json` and `junit.xml`.

    Args:
        classifier: the system under test.
        test: nominal images; labelled ones show more.
        train: the images it was trained on, for supervisors that learn from them.
        out: the folder for the results and for the cache; nothing is written anywhere else.
        supervisors: names or ready-made supervisors; `"standard"` are all but the expensive ones, `"all"` are all.
        stress: names of stress sets, or ready-made ones.
        gates: conditions such as `"supervisor.entropy.invalid.auroc>=0.8"`.
        seed: of everything random.
        command: how the audit was started, for the record.
        progress: where to report; silent if left out.
        sections: what to do; all of it if left out.

    Returns:
        The findings. An interrupt (Ctrl-C) ends the audit early, with what was found until then.

    Raises:
        UserError: the model cannot look at the test images at all, or names were given twice or are unknown.
    """
    parsed = [gate if isinstance(gate, Gate) else Gate.parse(gate) for gate in gates]
    context = Context(
        classifier=_agreeing(classifier, test, train),
        test=test,
        train=train,
        supervisors=_distinct("supervisor", supervisors_room.make(supervisors)),
        stress=_distinct("stress set", stress_room.make(stress)),
        out=make_folder(out),
        seed=seed,
        progress=progress or Silent(),
    )
    if context.classifier.cache is None and context.classifier.fingerprint is not None:
        context.classifier.cache = Cache(context.out / "cache")
    result = AuditResult(context.out, _about(context, command))
    began = time.perf_counter()
    try:
        _ = context.nominal  # a model that cannot look at these images is the user's mistake, not a failed section
    except KeyboardInterrupt:
        result.interrupted = True
    for section in sections:
        if result.interrupted:
            result.sections.append(SectionResult(section.NAME, section.TITLE, "skipped", reason="Interrupted."))
            continue
        try:
            result.sections.append(_run_section(section, context))
        except KeyboardInterrupt:
            result.interrupted = True
            result.sections.append(SectionResult(section.NAME, section.TITLE, "skipped", reason="Interrupted."))
    result.verdicts = [judge(gate, result.numbers) for gate in parsed]
    result.about["seconds"] = round(time.perf_counter() - began, 3)
    result.write()
    return result


def _run_section(section: Section, context: Context) -> SectionResult:
    began = time.perf_counter()
    try:
        findings = section.run(context)
        html = Markup(render(f"{section.NAME}.html", _folders(section), view=findings.view))
    except NotApplicable as reason:
        return SectionResult(section.NAME, section.TITLE, "skipped", time.perf_counter() - began, str(reason))
    except Exception as error:
        return SectionResult(section.NAME, section.TITLE, "failed", time.perf_counter() - began, explain(error))
    return SectionResult(section.NAME, section.TITLE, "done", time.perf_counter() - began, "", findings, html)


def _folders(section: Section) -> list[Path]:
    """Where a section's template lies: beside its module, which may be somebody else's."""
    module = sys.modules.get(getattr(section, "__name__", ""))
    own = [Path(module.__file__).parent] if module is not None and module.__file__ else []
    return [*own, TEMPLATES]


def _agreeing(classifier: Classifier, test: ImageSet, train: ImageSet | None) -> Classifier:
    """A copy of the classifier, the user's own stays as it is; without class names it gets those of the data."""
    agreed = copy.copy(classifier)
    for kind, images in (("test", test), ("training", train)):
        if images is None or not images.class_names:
            continue
        agreed.class_names = agreed.class_names or images.class_names
        if agreed.class_names != images.class_names:
            raise UserError(
                f"The model's classes ({', '.join(agreed.class_names[:5])} ...) and those of the {kind} images "
                f"({', '.join(images.class_names[:5])} ...) differ; they must be the same, in the same order."
            )
    return agreed


def _distinct(kind: str, made: list[Named]) -> list[Named]:
    """Refuse two of one name: their numbers could not be told apart."""
    twice = [name for name, count in Counter(one.name for one in made).items() if count > 1]
    if twice:
        raise UserError(
            f"The {kind} {twice[0]!r} was given more than once; leave one out or give it a name of its own."
        )
    return made


def _about(context: Context, command: str) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command or None,
        "seed": context.seed,
        "versions": versions(),
        "data": {
            "test": context.test.describe(),
            "train": context.train.describe() if context.train else None,
        },
        "model": {
            "name": context.classifier.name,
            "kind": context.classifier.backend.kind,
            "fingerprint": context.classifier.fingerprint,
        },
        "supervisors": [supervisor.name for supervisor in context.supervisors],
        "stress": [one.name for one in context.stress],
    }
