"""`audit`: one classifier, section after section, each independent of the others."""

from __future__ import annotations

import copy
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from markupsafe import Markup

from secondguess import stress as stress_room
from secondguess import supervisors as supervisors_room
from secondguess.accuracy.oracles.icos import InputRules
from secondguess.audits.context import STRESS, Context, explain
from secondguess.audits.findings import NotApplicable, SectionResult
from secondguess.audits.gates import Gate, doubtful, judge
from secondguess.audits.planned import plan_audit
from secondguess.audits.predictions import Predictions
from secondguess.audits.result import TEMPLATES, AuditResult
from secondguess.audits.sections import Section, make_all
from secondguess.audits.subject import Images, Subject
from secondguess.audits.votes import Votes, votes_in, with_votes
from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.files import make_folder
from secondguess.guard.protect import Protect, check_protect
from secondguess.images import check_loading
from secondguess.model.agreement import agree
from secondguess.model.cache import Cache
from secondguess.model.determinism import warn_if_random
from secondguess.planning import OutOfTime, recorded_sizes
from secondguess.progress import Progress, attending, shown
from secondguess.report import render
from secondguess.stress import StressSet
from secondguess.stress.ambiguous.choosing import choose_generator
from secondguess.stress.base import GENERATOR
from secondguess.supervisors import Supervisor

__all__ = ["audit"]

OF_VOTES = "human_doubt"  # the section that compares the model with votes of people
AMBIGUOUS = "ambiguous"
SUPERVISOR = "supervisor"  # how the numbers of the section on supervisors begin
UNLABELLED = (
    "The test images have no labels, so that accuracy, calibration, mistakes and risk cannot be measured; put the "
    "images of each class into a folder of its own, or give a file with labels."
)
DEFAULT = "section.html"  # shows the parts of a section that has no template of its own
Named = TypeVar("Named", Supervisor, StressSet, Section)


@attending
def audit(
    model: Any = None,
    data: Images | None = None,
    *,
    test: Images | None = None,
    train: Images | None = None,
    supervisors: str | Iterable[str | Supervisor] = "standard",
    stress: str | Iterable[str | StressSet] = ("ambiguous", "corrupted", "adversarial", "invalid"),
    ambiguous: str = "auto",
    gates: str | Iterable[str | Gate] = (),
    sections: str | Iterable[str | Section] = "all",
    minutes: float | None = 10.0,
    plan: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    architecture: str | None = None,
    epochs: int | None = None,
    max_test: int | None = None,
    protect: Protect = "both",
    votes: Votes | None = None,
    rules: str | Path | InputRules | None = None,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: Progress | None = None,
    command: str = "",
    **loading: Any,
) -> AuditResult:
    """Audit a classifier: accuracy, calibration, supervisors on stress sets, images to inspect.

    Args:
        model: anything that `Classifier.open` takes: a `model.toml`, an `.onnx` or `.pt2` file, a torch module, any
            callable. Without one, an architecture of the zoo is trained on the training split of `data`.
        data: test and training images together: a `Dataset`, or a name or path that `load` takes. An `ImageSet` is the
            test set.
        test: the test images, instead of `data`; labelled ones show more.
        train: the images that the model was trained on, for supervisors that learn from them.
        supervisors: names or ready-made supervisors; `"standard"` are all but the expensive ones, `"all"` are all.
            Several of one name are told apart by their parameters, as in `dsa:subsampling=0.3`.
        stress: names of stress sets, or ready-made ones; `"invalid:FOLDER"` takes your own images of no class, `"none"`
            leaves them out.
        ambiguous: how the stress set `"ambiguous"` is made: `"ambiguess"`, `"flow"`, `"blend"`, `"none"`, or `"auto"`,
            which is what suits the images.
        gates: conditions such as `"supervisor.entropy.invalid.auroc>=0.8"`.
        sections: names of sections, or ready-made ones, in the order of the report; `"all"` are all of them.
        minutes: that the audit may take, the training of a model and the opening of files not counted: it is planned
            before it begins, from timing the model on a few images, and what does not fit is made smaller or left out.
            None does everything at full size, however long that takes; stress sets are made of at most 100,000 test
            images in any case. What is given ready-made, or with its size as in
            `"autoencoder:epochs=10"`, has that size.
        plan: an `audit.json`, or its content, whose sizes are taken instead; so that the same numbers come out on any
            machine.
        architecture: what to train without a model; by default a small network that suits the size of the images.
        epochs: of that training, instead of the number in the recipe of its paper.
        max_test: the largest number of test images to use, drawn at random.
        protect: what an alarm is for: `"errors"` of the model, `"novelty"` of the image, or `"both"`.
        votes: of people on the test images, counts (n, K), or a file with them; see `secondguess.audits.votes`.
        rules: which labels can occur where, as a TOML or JSON file or ready-made, for estimates of the accuracy without
            labels; see docs/accuracy.md.
        seed: of everything random.
        device: where to compute, unless `model` is a `Classifier`, which has its own.
        folder: where to work and to write `report.html`, `audit.json`, `predictions.npz` and `junit.xml`. Observations,
            trained models and generators are kept there too, so that a second audit reuses them and an interrupted one
            goes on. Without it the audit works in a temporary folder that is removed at the end; `result.save(folder)`
            writes the four files.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        command: how the audit was started, for the record.
        **loading: options of `load` for images given by name; `size` and `channels` default to what the model takes.

    Returns:
        The findings. An interrupt (Ctrl-C) ends the audit early, with what was found until then.

    Raises:
        UserError: the model cannot take the test images, or something given is unknown or contradicts itself.
    """
    loading = check_loading(loading, audit)
    conditions = [gates] if isinstance(gates, str) else gates
    parsed = [gate if isinstance(gate, Gate) else Gate.parse(gate) for gate in conditions]
    check_protect(protect)
    if max_test is not None and max_test < 1:
        raise UserError(f"max_test is {max_test}; an audit takes at least one test image.")
    chosen = _distinct("section", make_all(sections))
    for sentence in doubtful(parsed, [SUPERVISOR, *(one.name for one in chosen if one.name != f"{SUPERVISOR}s")]):
        warnings.warn(sentence, stacklevel=3)
    supervisors = supervisors if isinstance(supervisors, str) else list(supervisors)
    stress = stress if isinstance(stress, str) else list(stress)
    compared = _distinct("supervisor", supervisors_room.make_all(supervisors))
    stressing = _distinct("stress set", stress_room.make_all(stress))
    if votes is None and sections == "all":
        chosen = [one for one in chosen if one.name != OF_VOTES]
    bare_sets = _bare(stress_room.make_all, stress)
    given = _given("supervisor", compared, _bare(supervisors_room.make_all, supervisors))
    given |= _given("stress", stressing, bare_sets) | ({"test"} if max_test else set())
    progress = shown(progress)
    with _workplace(folder) as work:
        if model is None:
            if test is not None or train is not None:
                raise UserError("Test or training images were given without a model; give the model, or data to train.")
            training: Any = {"epochs": epochs, "seed": seed, "device": device, "progress": progress}
            subject = Subject.trained(architecture, data, folder=work / "model", **training, loading=loading)
        else:
            subject = Subject.opened(model, data, test, train, device, loading)
        data = subject.data
        tested = data.test if votes is None else with_votes(data.test, votes)
        few = tested.head(max_test, seed=seed) if max_test and max_test < len(tested) else tested
        # A copy: the audit gives its classifier a cache, and the user's own stays as it is.
        classifier, images, training_images = agree(copy.copy(subject.classifier), few, data.train)
        if not images.is_labelled:
            warnings.warn(UNLABELLED, stacklevel=3)
        kept = work / STRESS / GENERATOR
        generator, note = choose_generator(ambiguous, training_images, device=classifier.device, folder=kept)
        by_name = [one for one, bare in zip(stressing, bare_sets, strict=True) if bare and one.name == AMBIGUOUS]
        sets = [generator if one in by_name else one for one in stressing]
        context = Context(
            classifier=classifier,
            test=images,
            train=training_images,
            supervisors=compared,
            stress=[one for one in sets if one is not None],
            folder=make_folder(work),
            seed=seed,
            protect=protect,
            votes=votes_in(images, tested.class_names),
            rules=InputRules.load(rules, images.class_names) if isinstance(rules, (str, Path)) else rules,
            progress=progress,
            ambiguous_note=note if by_name else "",
        )
        sizes = None if plan is None else recorded_sizes(plan)
        result = _audited(context, chosen, command, minutes, given, sizes)
    result.gates = [judge(gate, result.numbers) for gate in parsed]
    if folder is not None:
        result.save(folder)
    return result


@contextmanager
def _workplace(folder: str | Path | None) -> Iterator[Path]:
    """The folder to work in: the user's, which is made when something is written, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with TemporaryDirectory(prefix="secondguess-audit-", ignore_cleanup_errors=True) as temporary:
        yield Path(temporary)


def _audited(
    context: Context,
    sections: Sequence[Section],
    command: str,
    minutes: float | None,
    given: AbstractSet[str],
    sizes: Mapping[str, int] | None,
) -> AuditResult:
    """Plan, then run the sections; an interrupt skips the rest of them."""
    if context.classifier.cache is None and context.classifier.fingerprint is not None:
        context.classifier.cache = Cache(context.folder / "cache")
    context.scores_wanted = any(one.reads_scores for one in sections)
    result = AuditResult(_about(context, command))
    began = time.perf_counter()
    try:
        context.follow(plan_audit(context, sections, minutes, given=given, sizes=sizes))
        # A model that cannot take these images is the user's mistake, not a failed section.
        result.softmax = context.softmax
        warn_if_random(context.classifier, context.test)
        result.about["model"]["repeatable"] = context.classifier.is_repeatable
    except KeyboardInterrupt:
        result.interrupted = True
    found: dict[str, SectionResult] = {}
    for section in sorted(sections, key=lambda one: one.last):
        try:
            if not result.interrupted:
                found[section.name] = _run_section(section, context)
        except KeyboardInterrupt:
            result.interrupted = True
    interrupted = [SectionResult(one.name, one.title, "skipped", reason="Interrupted.") for one in sections]
    result.sections = [found.get(one.name, one) for one in interrupted]
    result.about["seconds"] = round(time.perf_counter() - began, 3)
    result.about["data"]["test"] = context.test.describe()
    result.about["stress"] = [one.name for one in context.stress]  # a cheaper generator may have stepped in
    result.about["plan"] = context.plan.to_dict()
    result.predictions = Predictions.of(context)
    return result


def _run_section(section: Section, context: Context) -> SectionResult:
    began = time.perf_counter()
    try:
        with context.plan.doing(f"section.{section.name}"):
            context.plan.require(f"section.{section.name}")
            findings = section.run(context)
        html = Markup(render(section.template or DEFAULT, _folders(section), view=findings.view, findings=findings))
    except (NotApplicable, OutOfTime) as reason:
        return SectionResult(section.name, section.title, "skipped", time.perf_counter() - began, str(reason))
    except Exception as error:
        return SectionResult(section.name, section.title, "failed", time.perf_counter() - began, explain(error))
    return SectionResult(section.name, section.title, "done", time.perf_counter() - began, "", findings, html)


def _folders(section: Section) -> list[Path]:
    """Where a section's template lies: beside its module, which may belong to another package."""
    file = getattr(sys.modules.get(type(section).__module__), "__file__", None)
    own = [Path(file).parent] if file else []
    return [*own, TEMPLATES]


def _bare(make_all: Callable[[Any], list[Any]], which: str | Iterable[Any]) -> list[bool]:
    """Which of the objects were given by nothing but a name, and not ready-made or with parameters."""
    specs = [which] if isinstance(which, str) else list(which)
    return [isinstance(spec, str) and "=" not in spec for spec in specs for _ in make_all([spec])]


def _given(noun: str, made: Sequence[Named], bare: Sequence[bool]) -> set[str]:
    """The parts of the plan whose size was given."""
    return {f"{noun}.{one.name}" for one, named in zip(made, bare, strict=True) if not named}


def _distinct(kind: str, made: list[Named]) -> list[Named]:
    """Refuse two of one name, whose numbers would have the same names."""
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
            "repeatable": None,  # not tried yet
        },
        "supervisors": [supervisor.name for supervisor in context.supervisors],
        "stress": [one.name for one in context.stress],
    }
