"""What the sections of an audit share: the classifier, the images, and all observations made so far.

One pass over each set of images feeds all sections: the context asks for the union of what all supervisors need, and on
the training images for what those need that learn. It times them too: fitting and scoring happen only here. Where the
classifier has an engine, its workers score in the same pass, so that supervisors are fitted before images are observed,
and what only supervisors need of them stays on the workers.
"""

from __future__ import annotations

import copy
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos import InputRules
from secondguess.audits.cost import Cost
from secondguess.audits.findings import NotApplicable, Number
from secondguess.contracts.sealed import digest_of
from secondguess.engine.shared import travels
from secondguess.errors import UserError
from secondguess.guard.protect import Protect
from secondguess.images import ImageSet
from secondguess.metrics import Interval
from secondguess.model.classifier import Classifier
from secondguess.model.degenerate import Degenerate, find_degenerate
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.model.shards import goes_to_workers, observe_and_score
from secondguess.planning import OutOfTime, Pace, Plan
from secondguess.progress import Progress, Silent, Titled
from secondguess.stress import Given, StressSet
from secondguess.stress.ambiguous.choosing import BLENDS, cheaper_generator
from secondguess.supervisors import Supervisor

__all__ = ["NOMINAL", "STRESS", "Context", "Scored", "explain", "learns"]

NOMINAL = "nominal"  # the set of test images
STRESS = "stress"  # folder, in that of the audit
FEW = 8  # images on which a supervisor is tried
TELLING = 16  # images that tell whether a model returns logits
STRESSED = 100_000  # test images of which a stress set is made at most: a share is known to a third of a point by then


def explain(error: Exception) -> str:
    """What went wrong, in one line: the sentence of a `UserError`, or what helps to report a defect."""
    if isinstance(error, UserError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


@dataclass(frozen=True)
class Scored:
    """A supervisor's scores (n,) on one set of images and what they cost.

    Attributes:
        scores: larger = more suspicious.
        seconds: for scoring alone, the forward pass not counted.
    """

    scores: NDArray[np.float64]
    seconds: float


@dataclass
class Context:
    """An audit in progress.

    Attributes:
        classifier: the system under test.
        test: nominal images, labelled.
        train: what the classifier was trained on, for supervisors that learn; may be None.
        supervisors: those under comparison.
        stress: stress sets to make of the test images.
        folder: where the audit works; nothing is written anywhere else.
        seed: of everything random.
        false_alarms: the share of nominal images that an alarm threshold may hit.
        protect: what an alarm is for.
        votes: (n, K) of people on the test images; None where there are none.
        rules: which labels can occur where; None where nothing is known.
        progress: where to report.
        plan: how large each part is to be.
        unusable_supervisors: why some supervisors could not be used, by name.
        failed_stress: why some stress sets could not be made, by name.
        warnings: what supervisors warned of while they were fitted or scored, by name.
        ambiguous_note: why ambiguous images are no better than they are; "" where they are as good as they get.
        made_of: positions of the test images that each stress set was made of, by name.
        scores_wanted: whether a section reads scores; where none does, workers do not score.
    """

    classifier: Classifier
    test: ImageSet
    train: ImageSet | None
    supervisors: list[Supervisor]
    stress: list[StressSet]
    folder: Path
    seed: int = 0
    false_alarms: float = 0.05
    protect: Protect = "both"
    votes: NDArray[np.float64] | None = None
    rules: InputRules | None = None
    progress: Progress = field(default_factory=Silent)
    plan: Plan = field(default_factory=lambda: Plan([]))
    unusable_supervisors: dict[str, str] = field(default_factory=dict)
    failed_stress: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    ambiguous_note: str = ""
    made_of: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    scores_wanted: bool = True
    _scored: dict[tuple[str, str], Scored] = field(default_factory=dict, repr=False)
    _fitting: dict[str, float] = field(default_factory=dict, repr=False)

    def follow(self, plan: Plan) -> None:
        """Keep to a plan: as many test images and dropout samples as it says, and an end for what takes too long."""
        self.plan, self.progress = plan, plan.watched(self.progress)
        if (rows := self._some(plan.reduced("test"))).size < len(self.test):
            self.test = self.test.take(rows)
            self.votes = None if self.votes is None else self.votes[rows]
        samples = plan.shared_out("samples", ["test", *(f"stress.{one.name}" for one in self.stress)])
        for place, one in enumerate(self.supervisors):
            if samples and one.needs.samples > samples and one.dial:
                self.supervisors[place] = one.turned(samples)
            elif samples == 0 and one.needs.samples:
                self.unusable_supervisors[one.name] = _sentence(plan, "samples")
        self.supervisors = [one for one in self.supervisors if one.name not in self.unusable_supervisors]

    @cached_property
    def pace(self) -> Pace:
        """How fast the classifier answers; each way of asking is timed once, for the plan and for `cost`."""
        return Pace(self.classifier, self.test)

    @cached_property
    def nominal(self) -> Observation:
        """The test images as the classifier sees them."""
        with self.plan.doing("test"):
            return self._seen(self.test, "test images", NOMINAL)

    @cached_property
    def softmax(self) -> Degenerate | None:
        """What is wrong with the probabilities of the test images as a whole, or None."""
        return find_degenerate(self.nominal.probabilities, self.test.labels)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The true labels of the test images (n,)."""
        if not self.test.is_labelled:
            raise NotApplicable(
                "The test images have no labels, so accuracy and calibration cannot be measured; give labelled ones, "
                "a folder with one folder for each class for instance."
            )
        return self.test.labels

    @cached_property
    def stressed(self) -> dict[str, tuple[ImageSet, Observation]]:
        """Every stress set by name: its images, and their observation.

        A set that cannot be made is left out, with its reason in `failed_stress`.
        """
        made: dict[str, tuple[ImageSet, Observation]] = {}
        for place, one in enumerate(self.stress):
            try:
                try:
                    rows, images, seen = self._stressed(place, f"stress.{one.name}")
                except OutOfTime as error:
                    if (cheaper := cheaper_generator(one)) is None:
                        raise
                    one = self.stress[place] = cheaper
                    self.ambiguous_note = f"{BLENDS}: {error}"
                    rows, images, seen = self._stressed(place, "")
                made[one.name], self.made_of[one.name] = (images, seen), rows
            except Exception as error:  # a failing generator must not stop the report
                self.failed_stress[one.name] = explain(error)
        return made

    def _stressed(self, place: int, part: str) -> tuple[NDArray[np.int64], ImageSet, Observation]:
        """One stress set: the test images it was made of, its images, and their observation."""
        one = self.stress[place]
        with self.plan.doing(part):
            size = self.plan.reduced(part)
            if one.dial:
                one = self.stress[place] = one.turned(size)
            most = STRESSED if size is None else min(size, STRESSED)
            rows = np.arange(len(self.test)) if one.dial else self._some(most)
            given = self.given(self.test.take(rows) if len(rows) < len(self.test) else self.test)
            images = one.make(**vars(given))
            return rows, images, self._seen(images, f"{one.name} images", one.name)

    def given(self, nominal: ImageSet) -> Given:
        """What a stress set of these images is made of."""
        device, folder = self.classifier.device, self.folder / STRESS
        engine = self.classifier.engine or "local"
        return Given(nominal, self.train, self.classifier, self.seed, self.progress, device, folder, engine)

    def _some(self, size: int | None) -> NDArray[np.int64]:
        """The positions of so many test images, drawn at random; of all of them where nothing limits the number."""
        if size is None or size >= len(self.test):
            return np.arange(len(self.test))
        return np.sort(np.random.default_rng([self.seed, 3]).choice(len(self.test), size, replace=False))

    @cached_property
    def fitted(self) -> list[Supervisor]:
        """The supervisors that can be used with this classifier, fitted on the training images where they learn."""
        usable: list[Supervisor] = []
        for supervisor in self.supervisors:
            try:
                self._informed.check(supervisor.needs, f"The supervisor {supervisor.name!r}")
                part = f"supervisor.{supervisor.name}"
                with self._listening(supervisor.name):
                    if learns(supervisor):
                        if not self.plan.leaves_out(part):
                            _ = self._training  # its time is not that of the fit, and may change the size of that
                        size = self.plan.reduced(part)
                        with self.plan.doing(part):
                            supervisor = self._fitted(supervisor.turned(size))
                    supervisor.score(self._few)  # one that cannot score must not cost the others
                usable.append(supervisor)
            except Exception as error:
                self.unusable_supervisors[supervisor.name] = explain(error)
        if not usable:
            raise UserError("None of the supervisors can be used: " + " ".join(self.unusable_supervisors.values()))
        return usable

    def scored(self, supervisor: str, name: str = NOMINAL) -> Scored:
        """A supervisor's scores on a set of images: `nominal` for the test images, or the name of a stress set."""
        images, seen = (self.test, self.nominal) if name == NOMINAL else self.stressed[name]
        if (supervisor, name) not in self._scored:
            judge = next(one for one in self.fitted if one.name == supervisor)
            if self._scores_there(images):  # it could not score there, or could not be sent
                seen = self.observe(images, f"{name} images", judge.needs)
            with self._listening(supervisor):
                began = time.perf_counter()
                scores = judge.score(seen)
                self._scored[supervisor, name] = Scored(scores, time.perf_counter() - began)
        return self._scored[supervisor, name]

    def known_scores(self, name: str = NOMINAL) -> dict[str, NDArray[np.float64]]:
        """The scores on a set of images that were computed until now, by supervisor."""
        return {supervisor: one.scores for (supervisor, which), one in self._scored.items() if which == name}

    def cost(self, supervisor: str) -> Cost:
        """What a supervisor costs, measured on the test images; what several share is charged to each."""
        judge = next(one for one in self.fitted if one.name == supervisor)
        sharing = [one.name for one in self.fitted if one is judge or (judge.shared and one.shared == judge.shared)]
        seconds = max(self.scored(name).seconds for name in sharing)
        fitting = max((self._fitting[name] for name in sharing if name in self._fitting), default=None)
        return Cost(fitting, 1e6 * self.pace.extra(judge.needs), 1e6 * seconds / len(self.nominal))

    def observe(self, images: ImageSet, label: str, needs: Needs | None = None) -> Observation:
        """Observe images, with everything that the supervisors need, or with `needs`."""
        wanted = self.needs(self.supervisors) if needs is None else needs
        titled = Titled(self.progress, f"Observing {label}")
        return self.classifier.observe(images, wanted, seed=self.seed, progress=titled)

    def _seen(self, images: ImageSet, label: str, name: str) -> Observation:
        """The observation of a set of images, which workers score too where that is worth their while."""
        if not self._scores_there(images):
            return self.observe(images, label)
        scorers = [one for one in self._usable if travels(one)]
        back = Needs(logits=self.needs(self.supervisors).logits)  # calibration reads logits where there are some
        titled = Titled(self.progress, f"Observing {label}")
        found = observe_and_score(self.classifier, images, scorers, back, seed=self.seed, progress=titled)
        for one, scores in found.scores.items():
            self._scored[one, name] = Scored(scores, found.seconds[one])
        for one, messages in found.warnings.items():
            self._remark(one, messages)
        return found.observation

    def _scores_there(self, images: ImageSet) -> bool:
        """Whether workers score a set of images."""
        return self.scores_wanted and goes_to_workers(self.classifier, len(images)) and bool(self._usable)

    @cached_property
    def _usable(self) -> list[Supervisor]:
        """The fitted supervisors; none where that is an error, which is that of the sections that ask for them."""
        try:
            return self.fitted
        except UserError:
            return []

    @cached_property
    def _few(self) -> Observation:
        """The first test images, with all that supervisors need; not by way of `nominal`, which may need these."""
        if not goes_to_workers(self.classifier, len(self.test)):
            return self.nominal.take(slice(0, FEW))
        return self.observe(self.test.take(np.arange(min(FEW, len(self.test)))), "the first test images")

    def number(self, measured: Interval | float, *several: ImageSet | None, images: ImageSet | None = None) -> Number:
        """A number measured on one set of images or on several together (the test images if left out)."""
        prints = [one.fingerprint for one in (*several, images) if one is not None] or [self.test.fingerprint]
        return Number.of(measured, prints[0] if len(prints) == 1 else digest_of("".join(prints).encode()), self.seed)

    def _fitted(self, supervisor: Supervisor) -> Supervisor:
        labels = None if self.train is None else self._learnt_from.labels
        began = time.perf_counter()
        fitted = supervisor.clone().fit(self._training, labels, progress=self.progress)
        self._fitting[supervisor.name] = time.perf_counter() - began
        return fitted

    @contextmanager
    def _listening(self, supervisor: str) -> Iterator[None]:
        """Collect a supervisor's warnings to the user for the report; other warnings pass through."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for one in caught:
            if issubclass(one.category, UserWarning):
                self._remark(supervisor, [str(one.message)])
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    def _remark(self, supervisor: str, messages: Sequence[str]) -> None:
        said = self.warnings.setdefault(supervisor, []) if messages else []
        said += [message for message in messages if message not in said]

    def needs(self, supervisors: Sequence[Supervisor]) -> Needs:
        """What these supervisors need together, those left out that need what the classifier does not give."""
        gives = self._informed.gives
        return Needs.union(one for one in supervisors if one.needs.abilities <= gives)

    @cached_property
    def _informed(self) -> Classifier:
        """The classifier, knowing whether its model returns logits; only an observation past the cache shows it."""
        if not any(one.needs.logits for one in self.supervisors):
            return self.classifier
        informed = copy.copy(self.classifier)
        informed.cache = None
        informed.observe(self.test.head(min(informed.batch_size, TELLING)))
        return informed

    @cached_property
    def _learnt_from(self) -> ImageSet:
        if self.train is None:
            raise UserError("This needs the images the model was trained on; give them with train.")
        return self.train.head(self.plan.size("train") or len(self.train), seed=self.seed)

    @cached_property
    def _training(self) -> Observation:
        needs = self.needs([one for one in self.supervisors if learns(one)])
        with self.plan.doing("train"):
            return self.observe(self._learnt_from, "training images", needs)


def learns(supervisor: Supervisor) -> bool:
    """Whether a supervisor has still to be fitted."""
    return supervisor.requires_fit and not supervisor.is_fitted


def _sentence(plan: Plan, name: str) -> str:
    try:
        plan.require(name)
    except OutOfTime as reason:
        return str(reason)
    return ""
