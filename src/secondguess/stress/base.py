"""The contract of a stress set: test images that a classifier should not take at face value, with their provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from numpy.typing import NDArray

from secondguess.contracts.learner import Learner
from secondguess.contracts.saving import Writable
from secondguess.errors import UserError
from secondguess.model.agreement import in_order
from secondguess.progress import Progress, Silent

if TYPE_CHECKING:
    from secondguess.engine import Task
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.planning import Pace, Price

__all__ = ["GENERATOR", "Given", "Kind", "StressSet", "changed"]

Kind = Literal["ambiguous", "corrupted", "adversarial", "invalid"]
GENERATOR = "generator"  # folder, in that of a stress set


@dataclass(frozen=True)
class Given:
    """What a stress set is made of.

    Attributes:
        nominal: images the classifier is made for; never empty.
        train: the images it was trained on, if available; generators learn from these and never from `nominal`.
        classifier: used by attacks only.
        seed: same seed, same images.
        progress: where to report.
        device: where to compute.
        folder: where a set may keep results that are expensive to compute; None keeps nothing.
        engine: where a set that can be made in shards is made, as `secondguess.engine.open_engine` takes it.
    """

    nominal: ImageSet
    train: ImageSet | None = None
    classifier: Classifier | None = None
    seed: int = 0
    progress: Progress = field(default_factory=Silent)
    device: str = "auto"
    folder: Path | None = None
    engine: str = "local"

    @property
    def generator(self) -> Path | None:
        """Where a set keeps what it was made with: autoencoders, or a trained flow; None keeps nothing."""
        return None if self.folder is None else self.folder / GENERATOR

    def in_shards(self, tasks: Sequence[Task], label: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """What tasks return, with their places, as they end; an interrupted run goes on with those that are missing."""
        from secondguess.engine import Ledger, run_each

        ledger = None if self.folder is None else Ledger(self.folder / "shards")
        for place, entry in run_each(tasks, ledger, self.engine, progress=self.progress, label=label):
            yield place, entry.result
        if ledger is not None:
            ledger.forget(tasks)


class StressSet(Learner):
    """Makes one kind of stressful images out of nominal ones.

    What it learns it learns while it makes images, so `save` writes its parameters only.

    Attributes:
        kind: what is wrong with the images: their truth is ambiguous, they are corrupted, they were attacked, or
            they belong to no class at all.
        name: by which the set is known in the registry; an object may add what tells it apart in reports and gates.
        expensive: whether it takes so long that `make_all("standard")` leaves it out.
        groups: the column that says of which sort an image is, if the set mixes several; reports are broken down by it.
        least: the smallest value of its `dial`, or number of images where it has none, that is still useful.
    """

    noun: ClassVar[str] = "stress set"
    requires_fit: ClassVar[bool] = False
    kind: ClassVar[Kind]
    expensive: ClassVar[bool] = False
    groups: ClassVar[str] = ""
    least: ClassVar[int] = 200

    def price(self, pace: Pace, given: Given) -> Price | None:
        """What it costs to make, by the value of its `dial`; None to have the making of a few images timed.

        Args:
            pace: how fast the classifier answers here.
            given: what the set will be made of.
        """
        return None

    @property
    def is_fitted(self) -> bool:
        """True: nothing is learnt before images are made."""
        return True

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """The parameters of a set that is made by its name, and by what follows it in `NAME:DETAIL`; "" if nothing."""
        if detail:
            raise UserError(
                f"{detail!r} follows {cls.name!r}, but nothing may follow the name of this stress set but parameters, "
                f"as in '{cls.name}:PARAMETER=VALUE'."
            )
        return {}

    @final
    def make(
        self,
        nominal: ImageSet,
        *,
        train: ImageSet | None = None,
        classifier: Classifier | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        device: str = "auto",
        folder: Path | None = None,
        engine: str = "local",
    ) -> ImageSet:
        """The stress images.

        Args:
            nominal: images the classifier is made for; their shape and class names carry over, the latter in the order
                of the classifier's where one is given.
            train: the images it was trained on, for generators that learn.
            classifier: used by attacks only.
            seed: same seed, same images.
            progress: where to report.
            device: where generators compute.
            folder: where a set may keep results that are expensive to compute.
            engine: where a set that can be made in shards (`corrupted`, `adversarial`) is made: `"local:N"` for N
                processes, `"dask://host:port"`, `"ray"` or `"ray://host:port"`; the images are the same.

        Returns:
            A set whose `columns` say where each image comes from. Labels are -1 where no class is right.
        """
        if len(nominal) == 0:
            raise UserError(f"The stress set {self.name!r} cannot be made from an empty set of images.")
        if classifier is not None:  # an attack on a label that means another class would be none
            names, mapping = classifier.class_names, classifier.description.names
            nominal = in_order(nominal, names, mapping)
            train = None if train is None else in_order(train, names, mapping)
        return self._make(Given(nominal, train, classifier, seed, progress or Silent(), device, folder, engine))

    @abstractmethod
    def _make(self, given: Given) -> ImageSet:
        """The images."""

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.stress.registry import get

        return get(name)

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        return {"a_path": Writable(Path, str, Path)}


def changed(nominal: ImageSet, images: NDArray[Any], name: str, columns: dict[str, NDArray[Any]]) -> ImageSet:
    """Nominal images with other pixels (n, C, H, W): labels and ids stay, metadata columns are the stress set's own."""
    from secondguess.images import ImageSet

    return ImageSet.from_arrays(
        images,
        nominal.labels,
        class_names=nominal.class_names,
        soft_labels=nominal.soft_labels,
        name=f"{nominal.name}, {name}",
        layout="NCHW",
        is_ambiguous=nominal.is_ambiguous,
        ids=nominal.ids,
        columns=columns,
    )
