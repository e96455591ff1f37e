"""Input-data invariants: which labels can occur where, from knowledge of the domain.

The images in operation fall into partitions: by a metadata column (which camera took it), by their ids (in which folder
it arrived), or by a function of the image itself. In each, some labels can occur and no others: a prediction outside
them is wrong for certain, as long as the partition is right. An image in no partition is not judged.

The same rules as a file, TOML or JSON, and in Python:

    classes = ["bus", "car", "ship"]       # optional: the names of all classes, or how many there are
    column = "camera"                      # optional: for the partitions that do not name one

    [[partition]]                          rules = InputRules([
    name = "road"                              Partition("road", ["bus", "car"], values=["north", "south"],
    values = ["north", "south"]                          column="camera"),
    labels = ["bus", "car"]

    [[partition]]                              Partition("river", ["ship"], ids=["harbour/*"])])
    name = "river"
    ids = ["harbour/*"]
    labels = ["ship"]

`values` are the column's (or `function`'s, given as `package.module:name`); without them the partition's name is the
value. A label in quotes is a class by name, a whole number is a class by its place, from 0; a number that is also the
name of another class is refused.

Source: Guerriero, Lyu, Pietrantuono and Russo, "Assessing operational accuracy of CNN-based image classifiers using an
oracle surrogate", 2023. There, the partition of an image is simulated from its true label: `InputRules.simulate` does
that, and `InputRules.example` has the partitions of the paper.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos._rule_files import Place, line_of, read_tables
from secondguess.accuracy.oracles.icos.partitions import (
    Function,
    Partition,
    class_number,
    content_problems,
    form_problems,
    read_names,
    read_partition,
)
from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.model.observation import Observation

__all__ = ["InputRules", "Partition"]

EXAMPLES = Path(__file__).parent / "examples"
BATCH = 1024


@dataclass(frozen=True)
class InputRules:
    """Partitions of the input, with the labels that can occur in each.

    Attributes:
        partitions: in the order in which they are checked.
        class_names: the names of all classes, against which the labels are checked; () if not known yet.
    """

    partitions: Sequence[Partition]
    class_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", tuple(self.partitions))
        object.__setattr__(self, "class_names", tuple(self.class_names))
        for _, problem in content_problems(self.partitions, self.class_names):
            raise UserError(f"These rules cannot be used: {_sentence(problem)}")

    @classmethod
    def load(cls, path: str | Path, class_names: Sequence[str] = ()) -> InputRules:
        """Read a rule file; a mistake in it is an error that names the line, the partition and the label.

        Args:
            path: of a `.toml` or `.json` file.
            class_names: the names that the classifier knows, against which the labels are checked.
        """
        path = Path(path)
        tables, text = read_tables(path)

        def complain(place: Place, problem: str) -> UserError:
            return UserError(f"{path}, line {line_of(path, text, place)}: {_sentence(problem)}")

        for place, problem in form_problems(tables):
            raise complain(place, problem)
        own = read_names(tables.get("classes", ()))
        counted = isinstance(tables.get("classes"), int)
        if class_names and own and (len(class_names) != len(own) if counted else tuple(class_names) != own):
            raise complain(("classes",), f"these {len(own)} classes are not the {len(class_names)} of the classifier")
        partitions = [read_partition(table, tables) for table in tables["partition"]]
        for place, problem in content_problems(partitions, tuple(class_names) or own):
            raise complain(place, problem)
        return cls(partitions, tuple(class_names) or own)

    @classmethod
    def example(cls, name: str) -> InputRules:
        """A partitioning of the paper: mnist, cifar10, imagenet10 or cifar100, followed by _fine or _equal."""
        known = sorted(file.stem for file in EXAMPLES.glob("*.toml"))
        if name not in known:
            raise UserError(f"There are no example rules called {name!r}; there are: {', '.join(known)}.")
        return cls.load(EXAMPLES / f"{name}.toml")

    def allowed(self, class_names: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each class can occur in each partition, (P, K); an unknown label is an error."""
        replace(self, class_names=tuple(class_names))
        table = np.zeros((len(self.partitions), len(class_names)), dtype=bool)
        for row, partition in zip(table, self.partitions, strict=True):
            for label in partition.labels:
                row[class_number(label, class_names)] = True
        return table

    def members(self, images: ImageSet) -> NDArray[np.bool_]:
        """Whether each image belongs to each partition, (n, P)."""
        seen: dict[Any, NDArray[np.str_]] = {}
        table = np.zeros((len(images), len(self.partitions)), dtype=bool)
        for k, partition in enumerate(self.partitions):
            source = partition.column or partition.function
            if source not in seen:
                seen[source] = _looked_up(partition, images)
            distinct, places = np.unique(seen[source], return_inverse=True)
            if partition.ids:
                hit = [any(fnmatchcase(str(one), pattern) for pattern in partition.keys) for one in distinct]
                table[:, k] = np.array(hit)[places]
            else:
                table[:, k] = np.isin(distinct, partition.keys)[places]
        return table

    def violated(self, seen: Observation) -> NDArray[np.int64]:
        """The first partition whose labels exclude the prediction, (n,); -1 where there is none."""
        forbidden = ~self.allowed(seen.class_names)[:, seen.predictions].T
        broken = self.members(seen.require_images("The rules")) & forbidden
        return np.where(broken.any(axis=1), broken.argmax(axis=1), -1).astype(np.int64)

    def filled(self, images: ImageSet) -> ImageSet:
        """The images with empty entries for columns and ids that they lack: rules then do not apply to them."""
        wanted = {one.column for one in self.partitions if one.column}
        nothing = {name: np.full(len(images), "") for name in wanted - images.columns.keys()}
        return replace(images, columns={**images.columns, **nothing}, ids=images.ids or ("",) * len(images))

    def coverage(self, images: ImageSet) -> float:
        """The share of images that are in a partition: the rules do not apply to the others."""
        return float(self.members(images).any(axis=1).mean())

    def simulate(self, images: ImageSet) -> ImageSet:
        """The images with the partitions' column filled in from their true labels, for studies.

        In operation the column must come from elsewhere: where the label is known, no oracle is needed.
        """
        columns = {partition.column for partition in self.partitions}
        column = next(iter(columns))
        table = self.allowed(images.class_names)
        if len(columns) != 1 or column is None or (table.sum(axis=0) != 1).any():
            raise UserError(
                "Partitions can be simulated if all of them use one column and every class is in exactly one of them."
            )
        if (images.labels < 0).any():
            raise UserError(f"Partitions can be simulated from labels only, but {images.name!r} has unknown ones.")
        values = np.array([partition.keys[0] for partition in self.partitions])
        return replace(images, columns={**images.columns, column: values[table.argmax(axis=0)][images.labels]})

    def as_dict(self) -> dict[str, Any]:
        """The rules as JSON can hold them; functions must be named, not given."""
        if unnamed := [one.name for one in self.partitions if callable(one.function)]:
            raise UserError(
                f"The partition {unnamed[0]!r} uses a function object, which cannot be saved; "
                "name it instead, as 'package.module:name'."
            )
        partitions = [
            {key: value if isinstance(value, str) else list(value) for key, value in vars(one).items() if value}
            for one in self.partitions
        ]
        return {"classes": list(self.class_names), "partition": partitions}

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Self:
        """The opposite of `as_dict`."""
        return cls([read_partition(table, {}) for table in tables["partition"]], tuple(tables["classes"]))


def _sentence(problem: str) -> str:
    return problem if problem.endswith("?") else f"{problem}."


def _looked_up(partition: Partition, images: ImageSet) -> NDArray[np.str_]:
    """The values that decide membership, one text per image."""
    if partition.column is not None:
        if partition.column not in images.columns:
            known = ", ".join(images.columns) or "none"
            raise UserError(
                f"The rules use the column {partition.column!r}, which the set {images.name!r} does not have "
                f"(its columns: {known})."
            )
        return np.asarray(images.columns[partition.column]).astype(str)
    if partition.function is not None:
        function = _imported(partition.function) if isinstance(partition.function, str) else partition.function
        values = np.concatenate([np.asarray(function(batch)).reshape(-1) for batch, _ in images.batches(BATCH)])
        if len(values) != len(images):
            raise UserError(f"{partition.source} gave {len(values)} values for {len(images)} images; one each is due.")
        return values.astype(str)
    if images.ids is None:
        raise UserError(f"The rules use the ids of the images, but the set {images.name!r} has none.")
    return np.array(images.ids)


def _imported(name: str) -> Function:
    module, _, attribute = name.partition(":")
    try:
        function: Function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"The function {name!r} of the rules cannot be imported: {error}.") from error
    return function
