"""The accuracy monitor: fitted before the first image of operation arrives, then applied to it.

Images whose labels are known go through the model once, as do shifted copies of the validation images; the oracle and
the estimators learn from them, and every estimator is tried on shifted sets. In operation they are only applied.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.accuracy.base import Estimator, Trial
from secondguess.accuracy.labelled_data import LabelledData, LearntFrom, labelled_images
from secondguess.accuracy.oracles.icos import Icos, InputRules
from secondguess.accuracy.oracles.inspecting import observe_and_inspect
from secondguess.accuracy.passes import OraclePasses
from secondguess.accuracy.recommendation import LEADING, WIDEST, check_widest, recommend
from secondguess.accuracy.registry import make
from secondguess.accuracy.result import EstimateResult, JudgedWrong
from secondguess.accuracy.shifted_copies import ShiftedCopies
from secondguess.accuracy.standard import standard_estimators
from secondguess.accuracy.synthetic_shifts import SyntheticShifts
from secondguess.accuracy.trials import try_estimators
from secondguess.accuracy.watched_folder import WatchedFolder, holds_images
from secondguess.contracts.registry import snake_case
from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.images import ImageSet, as_image_set, check_loading
from secondguess.images.decode import BadImage
from secondguess.metrics import wilson
from secondguess.model.agreement import agree, relabelled
from secondguess.model.classifier import Classifier
from secondguess.model.degenerate import find_degenerate
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.model.shards import goes_to_workers
from secondguess.planning import Plan
from secondguess.progress import Progress, Silent, Titled, at_work

__all__ = ["MAX_TRAIN", "AccuracyMonitor"]

MAX_TRAIN = 10_000  # images that rules are learnt from


@dataclass(frozen=True, eq=False)
class AccuracyMonitor:
    """A fitted oracle and fitted estimators for one model. Made by `fit`.

    Attributes:
        classifier: the model in question.
        training: what rules were learnt from.
        validation: what estimators were calibrated on.
        oracle: fitted on both.
        leading: the estimator that is recommended unless there are rules; it also says whether images look shifted.
        estimators: the others, fitted on the validation images, in the order of the table.
        trust: the trials of each under artificial shifts, by its name.
        notes: what the user should know, one sentence each.
        held_out: whether the validation images were taken from the training images.
        seed: of everything random.
        widest: the widest interval with which a number is recommended.
        loading: how images given by a path are loaded.
        softmax: what is wrong with the probabilities of the validation images as a whole, if anything.
    """

    classifier: Classifier
    training: LearntFrom
    validation: LearntFrom
    oracle: Icos
    leading: SyntheticShifts
    estimators: list[Estimator]
    trust: Mapping[str, tuple[Trial, ...]]
    notes: tuple[str, ...]
    held_out: bool
    seed: int
    widest: float
    loading: Mapping[str, Any]
    softmax: str = ""

    @classmethod
    def fit(
        cls,
        model: Any,
        train: Any,
        validation: Any = None,
        *,
        rules: str | Path | InputRules | None = None,
        estimators: str | Iterable[str | Estimator] = "standard",
        seed: int = 0,
        max_train: int = MAX_TRAIN,
        widest: float = WIDEST,
        plan: Plan | None = None,
        progress: Progress | None = None,
        **loading: Any,
    ) -> AccuracyMonitor:
        """Observe labelled images, fit the oracle and the estimators, and try these on shifts of known effect.

        Args:
            model: a `Classifier`, or anything that `Classifier.open` takes.
            train: labelled images the model was trained on: an `ImageSet`, a data set, or a path or name to load.
            validation: labelled images it was not trained on; a fifth of the training images if left out.
            rules: which labels can occur where, as a file or ready-made.
            estimators: those beside the leading one: `"standard"` for all, or some of them by name or ready-made.
            seed: of everything random.
            max_train: the largest number of training images to learn rules from.
            widest: the widest interval with which a number is recommended.
            plan: how large each part is to be, see `accuracy.planned`; full sizes if left out.
            progress: where to report; silent by default.
            **loading: options of `load` for images given by name; by default as the model takes its images.
        """
        plan, progress, widest = plan or Plan([]), progress or Silent(), check_widest(widest)
        classifier = Classifier.open(model)
        how = classifier.loading | check_loading(loading, cls.fit)
        training = labelled_images(train, "training", how)
        how |= {"size": training.shape[1:], "channels": training.shape[0]}
        checking = None if validation is None else labelled_images(validation, "validation", how)
        classifier, training, checking = agree(classifier, training, checking)
        known = InputRules.load(rules, classifier.class_names) if isinstance(rules, (str, Path)) else rules
        limits: Any = {"max_train": max_train, "seed": seed}
        if (planned := plan.reduced("train")) is not None and planned < max_train:
            limits |= {"max_train": planned, "limit": "minutes"}
        data = LabelledData.of(training, checking, **limits).with_columns_of(known)
        oracle = Icos(known, seed=seed)
        others = _chosen(estimators, oracle, seed)
        needs = _recorded_for(others)
        with plan.doing("validation"):
            watched = Titled(progress, "Observing validation images")
            validated = classifier.observe(data.validation, needs, progress=watched)
        with plan.doing("train"):
            trained = classifier.observe(data.training, needs, progress=Titled(progress, "Observing training images"))
            remarks = _learn_rules(oracle, trained, validated, progress)
        with plan.doing("copies"):
            some: Any = {"most": plan.size("copies"), "needs": needs, "seed": seed, "progress": progress}
            copies = ShiftedCopies.observe(classifier, data.validation, **some)
        with plan.doing("estimators"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # already given for all validation images
            leading = SyntheticShifts(seed=seed)
            with progress.task("Learning estimators", 1 + len(others)) as advance:
                for done, one in enumerate([leading, *others], start=1):
                    one.fit(validated, trained, copies)
                    advance(done, 1 + len(others))
            trust = try_estimators(
                [leading, *others], validated, shifted=copies, training=trained, seed=seed, progress=progress
            )
        degenerate = find_degenerate(validated.probabilities, validated.labels)
        return cls(
            classifier=classifier,
            training=LearntFrom.of(data.training),
            validation=LearntFrom.of(data.validation),
            oracle=oracle,
            leading=leading,
            estimators=others,
            trust=trust,
            notes=(*data.notes, *remarks),
            held_out=data.held_out,
            seed=seed,
            widest=widest,
            loading=how,
            softmax=degenerate.text if degenerate else "",
        )

    def save(self, folder: str | Path) -> Path:
        """Write everything that was learnt into a folder, with the model where it is a file; an older one is replaced.

        Neither the training nor the validation images are written, but estimators keep what they use of each
        validation image.
        """
        from secondguess.accuracy.stored_monitor import write_monitor

        return write_monitor(self, folder)

    @classmethod
    def load(cls, folder: str | Path, model: Any = None, **changes: Any) -> AccuracyMonitor:
        """Read what `save` has written.

        Args:
            folder: of the monitor.
            model: the one it was fitted on, where the folder does not hold it; another one is refused.
            **changes: how the model is run, as for `Classifier.open`.
        """
        from secondguess.accuracy.stored_monitor import read_monitor

        return read_monitor(folder, model, **changes)

    def estimate(self, images: Any, *, progress: Progress | None = None) -> EstimateResult:
        """The accuracy on images without labels.

        Args:
            images: a folder of image files, sorted or not; whatever else `load` takes; an `ImageSet`, a data set, an
                array; or what was observed of them.
            progress: where to report; silent by default.
        """
        operation = self._observe(images, progress or Silent())
        found = operation.require_images("An estimate")
        everybody = [self.leading, *self.estimators]
        estimates = {}
        with (progress or Silent()).task("Estimating the accuracy", len(everybody)) as advance:
            for one in everybody:
                estimates[one.name] = one.estimate(operation).with_trust(self.trust[one.name])
                advance(len(estimates), len(everybody))
        covered = 0.0 if self.oracle.rules is None else self.oracle.rules.coverage(found)
        labels = operation.labels
        known = labels is not None and bool((labels >= 0).all())
        return EstimateResult(
            estimates,
            recommend(estimates, covered=covered, widest=self.widest),
            self.leading.shift(operation, estimates[LEADING]),
            tuple(self._judged(operation)),
            wilson(int(operation.correct.sum()), len(operation)) if known else None,
            (*self.notes, *self._remarks(found), *found.notes),
            self._about(operation, found),
            self._softmax(operation),
        )

    def watch(
        self, folder: str | Path, *, every: float = 5.0, progress: Progress | None = None
    ) -> Iterator[EstimateResult]:
        """Yield the estimate for all images of a folder, again whenever some have been added or removed, without end.

        Files that cannot be read, such as those that are still being written, are left out and tried again.

        Args:
            folder: into which images arrive.
            every: seconds between two scans of the folder.
            progress: where to report; silent by default.
        """
        if _recorded_for(self.estimators).traces:
            raise UserError(
                "SelfChecker needs the inner layers of all images at once, which are not kept of images that arrive "
                "one by one; leave it out, or estimate without watching."
            )
        arriving = self._arriving(Path(folder), skip_bad=True)
        due = False  # whether anything has changed since the last result
        while True:
            try:
                due |= arriving.scan(progress or Silent())
                if due and len(arriving):
                    found = self.estimate(arriving.observation())
                    due = False
                    yield found
            except BadImage:  # a file was taken away or written to while it was read; the result is still due
                arriving.forget_unreadable()
            time.sleep(every)

    def _observe(self, images: Any, progress: Progress) -> Observation:
        if isinstance(images, Observation):
            return images
        needs = _recorded_for(self.estimators)
        if isinstance(images, (str, Path)) and holds_images(Path(images)) and not needs.traces:
            arriving = self._arriving(Path(images), skip_bad=bool(self.loading.get("skip_bad")))
            if self.classifier.engine is not None and goes_to_workers(self.classifier, len(found := arriving.images())):
                return self._observe_there(found, progress)
            arriving.scan(progress)
            return arriving.observation()
        opened = as_image_set(images, self.training.shape, **self.loading)
        images = relabelled(opened, self.classifier.class_names, self.classifier.description.names)
        if goes_to_workers(self.classifier, len(images)):
            return self._observe_there(images, progress)
        return self.classifier.observe(images, needs, progress=progress)

    def _observe_there(self, images: ImageSet, progress: Progress) -> Observation:
        """Observe images on workers, which take of pixels and traces what the oracles judge by."""
        judging = [one for one in self.estimators if isinstance(one, OraclePasses)]
        others = [replace(one.needs, images=False) for one in self.estimators if one not in judging]
        oracles = [self.oracle, *(one.judge for one in judging)]
        return observe_and_inspect(self.classifier, images, oracles, others, progress=progress)

    def _arriving(self, folder: Path, *, skip_bad: bool) -> WatchedFolder:
        return WatchedFolder(folder, self.classifier, self.training, resize=self.loading["resize"], skip_bad=skip_bad)

    def _judged(self, operation: Observation) -> Iterator[JudgedWrong]:
        """The predictions judged wrong, in the order of the images."""
        verdicts, names = self.oracle.judge(operation), operation.class_names
        ids = operation.require_images("An estimate").ids
        for row in np.flatnonzero(verdicts.judged_wrong):
            advice = int(verdicts.advice[row])
            yield JudgedWrong(
                image=ids[row] if ids else f"image {row}",
                predicted=names[operation.predictions[row]],
                confidence=float(operation.confidences[row]),
                advice=names[advice] if advice >= 0 else None,
                reason=str(verdicts.reasons[row]),
            )

    def _softmax(self, operation: Observation) -> str:
        """What is wrong with the probabilities as a whole, of the validation images or of these."""
        found = None if self.softmax else find_degenerate(operation.probabilities)
        return found.text if found else self.softmax

    def _remarks(self, images: ImageSet) -> Iterator[str]:
        if images.content_fingerprint == self.validation.content_fingerprint:
            yield "These are the validation images themselves, whose labels every method has learnt from."
        if self.oracle.rules is not None:
            yield f"The rules say something about {self.oracle.rules.coverage(images):.1%} of the images."

    def _about(self, operation: Observation, images: ImageSet) -> dict[str, Any]:
        contributions = self.oracle.contributions(operation)
        return {
            "model": {"name": self.classifier.name, "fingerprint": self.classifier.fingerprint},
            "seed": self.seed,
            "versions": versions(),
            "training": self.training.card(),
            "validation": self.validation.card() | {"held_out_of_training": self.held_out},
            "operation": LearntFrom.of(images).card() | {"skipped": list(images.skipped)},
            "oracle": {
                "name": self.oracle.name,
                "rules": self.oracle.rules is not None,
                "pixel_rules": len(self.oracle.pixel_rules),
                "contributions": [
                    {"kind": one.kind, "violations": one.violations, "credited": one.credited} for one in contributions
                ],
            },
        }


def _learn_rules(oracle: Icos, training: Observation, validation: Observation, progress: Progress) -> list[str]:
    """Fit the oracle; return what it has to say about that."""
    with at_work(progress, "Learning rules"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UserWarning)
        oracle.fit(training, validation)
    return [str(one.message) for one in heard]


def _recorded_for(estimators: Iterable[Estimator]) -> Needs:
    """What must be recorded for estimators besides probabilities; the pixels are at hand in any case."""
    return replace(Needs.union(estimators), images=False)


def _chosen(wanted: str | Iterable[str | Estimator], oracle: Icos, seed: int) -> list[Estimator]:
    """The estimators that are wanted: by the names of the table, by those of the registry, or ready-made."""
    known = {one.name: one for one in standard_estimators(oracle.rules, [oracle], seed=seed)}
    chosen: list[Estimator] = []
    for one in [wanted] if isinstance(wanted, str) else wanted:
        if isinstance(one, Estimator):
            chosen.append(one)
        elif one == "standard":
            chosen += known.values()
        else:
            chosen.append(known.get(snake_case(one)) or make(one, seed=seed))
    return [one for one in chosen if one.name != LEADING]
