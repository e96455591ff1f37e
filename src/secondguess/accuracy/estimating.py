"""`estimate`: the accuracy of a model on images without labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.accuracy.labelled_data import HELD_OUT, labelled_images
from secondguess.accuracy.monitor import MAX_TRAIN, AccuracyMonitor
from secondguess.accuracy.oracles.icos import InputRules
from secondguess.accuracy.planned import plan_estimate
from secondguess.accuracy.recommendation import WIDEST, check_widest
from secondguess.accuracy.referees import as_referee
from secondguess.accuracy.standard import further_estimators
from secondguess.accuracy.watched_folder import check_images, count_images, holds_images
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, as_image_set, check_loading, load
from secondguess.model.agreement import agree
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation
from secondguess.planning import Plan, recorded_sizes
from secondguess.progress import Progress, attending, shown

if TYPE_CHECKING:
    from secondguess.accuracy.base import Estimator
    from secondguess.accuracy.result import EstimateResult

__all__ = ["estimate", "watch"]


@attending
def estimate(
    model: Any,
    images: Any,
    *,
    like: Any = None,
    train: Any = None,
    validation: Any = None,
    rules: str | Path | InputRules | None = None,
    estimators: str | Iterable[str | Estimator] = "standard",
    referees: Sequence[Any] = (),
    selfchecker: bool = False,
    seed: int = 0,
    max_train: int = MAX_TRAIN,
    widest: float = WIDEST,
    minutes: float | None = 3.0,
    plan: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **loading: Any,
) -> EstimateResult:
    """Estimate the accuracy of a model on images without labels, and name the predictions that are probably wrong.

    The result is one number with an interval, or the reason why there is none, and says whether the images differ from
    the validation images in their classes or their appearance. Every method is tried on shifted validation images.

    Args:
        model: a `Classifier`, or anything that `Classifier.open` takes.
        images: a folder into which images arrive, sorted or not; whatever else `load` takes; an `ImageSet`, a data set
            or an array. Labels that happen to be known are ignored.
        like: a data set of the same kind with labels. Its training images are `train`; its validation images, or else
            its test images, are `validation`.
        train: labelled images the model was trained on, instead of `like`.
        validation: labelled images it was not trained on; a fifth of the training images if left out.
        rules: which labels can occur where, as a TOML or JSON file or ready-made; see docs/accuracy.md.
        estimators: those beside the leading one: `"standard"` for all, or some of them by name or ready-made.
        referees: other models for the same classes, trained apart: how often one agrees is an estimate, and the
            majority of two or more with the model in question is another (cross-referencing).
        selfchecker: whether SelfChecker's verdicts are estimates, too: do the inner layers infer what the model says?
        seed: of everything random.
        max_train: the largest number of training images to learn rules from.
        widest: the widest interval with which a number is recommended.
        minutes: that it may take: it is planned before it begins, from timing the model on a few images, and what does
            not fit is made smaller. None does everything at full size.
        plan: an `estimate.json`, whose sizes are taken instead.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        **loading: options of `load` for images given by name; by default as the model takes its images.
    """
    loading = check_loading(loading, estimate)
    learning: dict[str, Any] = {"seed": seed, "max_train": max_train, "widest": check_widest(widest)}
    arriving = isinstance(images, (str, Path)) and holds_images(Path(images))
    prepared = _Prepared.of(model, images, like, train, validation, rules, loading)
    others = [as_referee(one, prepared.classifier) for one in referees]
    if arriving:
        prepared.check_folder(images)
    elif not isinstance(images, Observation):  # a mistyped name is refused before the work begins
        images = as_image_set(images, prepared.training.shape, **prepared.loading)
    count = count_images(Path(images)) if arriving else len(images)
    learning["estimators"] = [*_listed(estimators), *further_estimators(others, selfchecker=selfchecker, seed=seed)]
    sizes: Any = {"minutes": minutes, "plan": plan, "models": 1 + len(others)}
    monitor, kept, watched = prepared.learn(learning, count, shown(progress), **sizes)
    with kept.doing("images"):
        found = monitor.estimate(images, progress=watched)
    return replace(found, about={**found.about, "plan": kept.to_dict()})


def watch(
    model: Any,
    folder: str | Path,
    *,
    like: Any = None,
    train: Any = None,
    validation: Any = None,
    rules: str | Path | InputRules | None = None,
    estimators: str | Iterable[str | Estimator] = "standard",
    every: float = 5.0,
    seed: int = 0,
    max_train: int = MAX_TRAIN,
    widest: float = WIDEST,
    minutes: float | None = 3.0,
    plan: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **loading: Any,
) -> Iterator[EstimateResult]:
    """Estimate repeatedly, whenever images have been added to a folder or removed.

    The estimators are fitted when this is called; the iterator of results does not end. Referees and SelfChecker cannot
    take part: of images that have arrived only the model's answers are kept.

    Args:
        model: as in `estimate`.
        folder: into which images arrive.
        like: as in `estimate`.
        train: as in `estimate`.
        validation: as in `estimate`.
        rules: as in `estimate`.
        estimators: as in `estimate`.
        every: seconds between two scans of the folder.
        seed: as in `estimate`.
        max_train: as in `estimate`.
        widest: as in `estimate`.
        minutes: that fitting may take, as in `estimate`.
        plan: as in `estimate`.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        **loading: as in `estimate`.
    """
    if not Path(folder).is_dir():
        raise UserError(f"There is no folder {folder} for images to arrive in.")
    for name in ("referees", "selfchecker"):
        if loading.pop(name, None):
            raise UserError(
                f"`{name}` was given, but referees and SelfChecker look at the images themselves, and of images that "
                "arrive one by one only the model's answers are kept; leave it out, or use `estimate`."
            )
    loading, progress = check_loading(loading, watch), shown(progress)
    learning: dict[str, Any] = {"seed": seed, "max_train": max_train, "widest": check_widest(widest)}
    prepared = _Prepared.of(model, folder, like, train, validation, rules, loading)
    prepared.refuse_columns(folder)
    learning["estimators"] = _listed(estimators)
    monitor, _, _ = prepared.learn(learning, 0, progress, minutes=minutes, plan=plan)
    return monitor.watch(folder, every=every, progress=progress)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A model with its labelled images, opened but not fitted on yet."""

    classifier: Classifier
    training: ImageSet
    validation: ImageSet | None
    rules: InputRules | None
    loading: Mapping[str, Any]

    @classmethod
    def of(
        cls, model: Any, images: Any, like: Any, train: Any, validation: Any, rules: Any, loading: Mapping[str, Any]
    ) -> _Prepared:
        classifier = Classifier.open(model)
        how = classifier.loading | dict(loading)
        train, validation = _parts(like, train, validation, images, how)
        classifier, training, _ = agree(classifier, labelled_images(train, "training", how))
        known = InputRules.load(rules, classifier.class_names) if isinstance(rules, (str, Path)) else rules
        how |= {"size": training.shape[1:], "channels": training.shape[0]}
        checking = None if validation is None else labelled_images(validation, "validation", how)
        return cls(classifier, training, checking, known, how)

    def learn(
        self,
        learning: Mapping[str, Any],
        images: int,
        progress: Progress,
        *,
        minutes: float | None,
        plan: Any,
        models: int = 1,
    ) -> tuple[AccuracyMonitor, Plan, Progress]:
        """Plan how large each part is to be and learn from the labelled images.

        Args:
            learning: the further arguments of `AccuracyMonitor.fit`.
            images: how many are of unknown accuracy.
            progress: where to report.
            minutes: that it may take, the observation of these images included.
            plan: an `estimate.json` whose sizes are taken instead, or None.
            models: that look at these images.

        Returns:
            The monitor, the plan, and the progress to go on with, which knows the plan.
        """
        sizes = None if plan is None else recorded_sizes(plan)
        held_out = 0 if self.validation is not None else round(HELD_OUT * len(self.training))
        train = min(learning["max_train"], len(self.training) - held_out)
        counts = train, len(self.validation or ()) or held_out, images
        known: Any = {"sizes": sizes, "models": models, "progress": progress}
        kept = plan_estimate(self.classifier, self.training, counts, minutes, **known)
        watched = kept.watched(progress)
        options = {**self.loading, "rules": self.rules, **learning, "plan": kept, "progress": watched}
        return AccuracyMonitor.fit(self.classifier, self.training, self.validation, **options), kept, watched

    def check_folder(self, folder: str | Path) -> None:
        """Name what cannot be read in a folder of images, and rules that cannot be applied to it, before the work."""
        self.refuse_columns(folder)
        if not self.loading.get("skip_bad"):
            check_images(Path(folder))

    def refuse_columns(self, folder: str | Path) -> None:
        """Files in a folder have paths but no metadata: said before anything is learnt."""
        for one in self.rules.partitions if self.rules is not None else ():
            if one.column is not None:
                raise UserError(
                    f"The partition {one.name!r} of the rules uses the column {one.column!r}, but image files in "
                    f"the folder {folder} have no columns; give it ids instead, patterns for their paths within the "
                    'folder, as in ids = ["camera1/*"].'
                )


def _listed(estimators: str | Iterable[str | Estimator]) -> list[str | Estimator]:
    return [estimators] if isinstance(estimators, str) else list(estimators)


def _parts(like: Any, train: Any, validation: Any, images: Any, loading: Any) -> tuple[Any, Any]:
    """What to learn from, and what to calibrate on."""
    if like is None and train is None:
        raise UserError(
            "There are no labelled images to learn from; give a data set of the same kind as `like`, or `train`."
        )
    if like is None:
        return train, validation
    if train is not None or validation is not None:
        raise UserError("Give labelled images as `like`, or as `train` and `validation`, not both.")
    data = load(like, **loading) if isinstance(like, (str, Path)) else like
    if isinstance(data, ImageSet):
        return data, None
    if not isinstance(data, Dataset):
        raise UserError(f"`like` is a {type(data).__name__}; give a data set, or a path or name to load.")
    if data.train is None:
        return data.test, None
    other = data.validation or data.test
    return data.train, None if other is images or not other.is_labelled else other
