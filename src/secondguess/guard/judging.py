"""Judging many images: in shards, on an engine, each into a Parquet file of its own.

    part-00000.parquet, part-00001.parquet, ...     one row for each image, in the order of the images

A part appears by one rename when all its rows are known, with the digest of what they depend on in its metadata: the
guard, the model, how images are resized, and the images. A second run makes the parts that are missing, or that depend
on something else by now. A folder with tables of somebody else under such names is refused. Files of images, archives
and tables count by name, size and time of change, so that nothing is read to find that out; arrays by their pixels.
"""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.contracts.sealed import digest_of, file_digest
from secondguess.engine import Sent, Task, resources_for, run_each
from secondguess.errors import UserError, require
from secondguess.files import atomic_path, make_folder
from secondguess.guard.artefact import CARD
from secondguess.guard.inputs import images_at
from secondguess.images.encoded import StoredSource
from secondguess.images.sources import Source, ViewSource
from secondguess.progress import Progress, Silent
from secondguess.results import Result

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard

__all__ = ["JudgedFiles", "ShardedJudging", "judge_shard"]

SHARD = 2048  # images
KEY = b"secondguess"  # of the metadata
NOT_OURS = b""
LABEL = "Judging"
MOST_VERDICTS = 8  # in a summary


@dataclass(frozen=True)
class Order:
    """What a worker judges with.

    Attributes:
        folder: of the guard, an absolute path.
        digest: of its card, which that of the worker must have.
        model: anything that `Classifier.open` takes, or None for the one in the folder.
        changes: further arguments of `Classifier.open`.
        batch_size: images at a time.
    """

    folder: Path
    digest: str
    model: str | None
    changes: Mapping[str, Any]
    batch_size: int


@dataclass(frozen=True, eq=False)
class ShardedJudging:
    """Many images that are to be judged.

    Attributes:
        tasks: one for each shard, in the order of the images.
        engine: as `secondguess.engine.open_engine` takes it.
        progress: where to report the shards done.
    """

    tasks: list[Task]
    engine: str = "local"
    progress: Progress = field(default_factory=Silent)

    @classmethod
    def of(
        cls,
        guard: Guard,
        folder: str | Path,
        places: Sequence[str],
        *,
        model: str | None = None,
        changes: Mapping[str, Any] | None = None,
        resize: str | None = None,
        skip_bad: bool = False,
        engine: str = "local",
        progress: Progress | None = None,
    ) -> ShardedJudging:
        """Cut what lies at several places into shards.

        Args:
            guard: loaded from `folder`.
            folder: from which workers load it, too.
            places: image files, folders, or anything else that `load` takes.
            model: where it is not the one in the folder: what `Classifier.open` takes, as a text.
            changes: further arguments of `Classifier.open`, such as `device`.
            resize: how images are resized; by default as those that the guard was fitted on.
            skip_bad: leave out images that cannot be read, with a warning that names them.
            engine: as `secondguess.engine.open_engine` takes it.
            progress: where to report the shards done.
        """
        path = Path(folder).absolute()
        place = str(Path(model).absolute()) if model is not None and Path(model).exists() else model
        order = Order(path, file_digest(path / CARD), place, dict(changes or {}), guard.classifier.batch_size)
        what = digest_of(repr((order.digest, guard.classifier.fingerprint, order.changes, resize)).encode())
        tasks = [
            _task(Sent(order, what), names, source, start, resources_for(guard.classifier.device))
            for names, source in images_at(guard, places, resize, skip_bad=skip_bad)
            for start in range(0, len(source), SHARD)
        ]
        return cls(tasks, engine, progress or Silent())

    def rows(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield for every image, in order, its row (name and `Judgement.to_dict`) and a line for a person."""
        made: dict[int, Any] = {}
        following = 0
        for number, entry in run_each(self.tasks, None, self.engine, progress=self.progress, label=LABEL):
            made[number] = zip(entry.result["rows"], entry.result["lines"], strict=True)
            while following in made:  # shards end in any order
                yield from made.pop(following)
                following += 1

    def write(self, folder: str | Path) -> JudgedFiles:
        """Write the rows of each shard into a file of the folder, those apart that are there already."""
        out = make_folder(folder)
        there = {path: _key_of(path) for path in out.glob("part-*.parquet")}
        if foreign := sorted(path.name for path, key in there.items() if key == NOT_OURS):
            raise UserError(f"{out} holds tables of somebody else ({foreign[0]}); name a folder of its own.")
        parts = [out / f"part-{number:05}.parquet" for number in range(len(self.tasks))]
        made = [there.get(part) == task.key.encode() for part, task in zip(parts, self.tasks, strict=True)]
        waiting = [number for number, ready in enumerate(made) if not ready]
        tasks = [self.tasks[number] for number in waiting]
        for turn, entry in run_each(tasks, None, self.engine, progress=self.progress, label=LABEL):
            number = waiting[turn]
            _write(parts[number], entry.result["rows"], self.tasks[number].key)
        for other, key in there.items():
            if key is not None and other not in parts:  # of more images than there are now
                other.unlink()
        return JudgedFiles(out, parts)


@dataclass(frozen=True)
class JudgedFiles(Result):
    """Judgements in Parquet files.

    Attributes:
        folder: that they are in.
        parts: the files, in the order of the images.
    """

    folder: Path
    parts: list[Path]

    @cached_property
    def verdicts(self) -> Counter[str]:
        """How many images have which verdict."""
        parquet = require("pyarrow.parquet", "hub")
        columns = (parquet.read_table(part, columns=["verdict"]).column(0).to_pylist() for part in self.parts)
        return Counter(" or ".join(kinds) for column in columns for kinds in column)

    def summary(self) -> str:
        """How many images have which verdict, and where the judgements are."""
        images = sum(self.verdicts.values())
        said = ", ".join(f"{count:,} {verdict}" for verdict, count in self.verdicts.most_common(MOST_VERDICTS))
        return f"{images:,} images: {said}.\nThe judgements are in {self.folder}, {len(self.parts)} Parquet files."

    def to_dict(self) -> dict[str, Any]:
        """The folder, its files and the verdicts, as JSON can hold them."""
        parts = [part.name for part in self.parts]
        return {"folder": str(self.folder), "parts": parts, "verdicts": dict(self.verdicts.most_common())}

    def save(self, folder: str | Path) -> Path:
        """Copy the files into a folder."""
        there = make_folder(folder)
        for part in self.parts:
            if part.parent.resolve() != there.resolve():
                shutil.copy(part, there / part.name)
        return there


def judge_shard(*, order: Sent, images: Sent, seed: int) -> dict[str, Any]:
    """What a worker does: the rows of a shard; `seed` is where it begins."""
    names, source = images.value
    guard, size = _opened(order), order.value.batch_size
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for start in range(0, len(source), size):
        some = slice(start, min(start + size, len(source)))
        judged = guard.judge(source[some])
        for name, one in zip(names[some], judged, strict=True):
            rows.append({"image": name, **one.to_dict()})
            lines.append(f"{name}: {one}")
    return {"rows": rows, "lines": lines}


def _task(order: Sent, names: Sequence[str], source: Any, start: int, resources: Mapping[str, float]) -> Task:
    rows = np.arange(start, min(start + SHARD, len(source)))
    part = ViewSource(source, rows)
    some = list(names[start : start + SHARD])
    images = Sent((some, part), digest_of(repr((some, _identity(part))).encode()))
    return Task(judge_shard, {"order": order, "images": images}, start, resources)


def _identity(view: ViewSource) -> Any:
    """What tells the images of a shard from others, beside their names and positions."""
    part: Source = view.part(np.arange(len(view)))
    if isinstance(part, StoredSource):
        return part.stamps()
    return view.fingerprint


def _key_of(part: Path) -> bytes | None:
    """What a table depends on, `NOT_OURS` of one that this module has not written, None of what is no table."""
    parquet, arrow = require("pyarrow.parquet", "hub"), require("pyarrow", "hub")
    try:
        return bytes((parquet.read_schema(part).metadata or {}).get(KEY, NOT_OURS))
    except (arrow.ArrowException, OSError):
        return None


def _write(part: Path, rows: list[dict[str, Any]], key: str) -> None:
    arrow, parquet = require("pyarrow", "hub"), require("pyarrow.parquet", "hub")
    text, number = arrow.string(), arrow.float64()
    schema = arrow.schema(
        {
            "image": text,
            "prediction": arrow.int64(),
            "class_name": text,
            "probabilities": arrow.list_(number),
            "p_value": number,
            "verdict": arrow.list_(text),
            "action": text,
            "evidence": arrow.map_(text, number),
            "anomalies": arrow.map_(text, number),
        },
        metadata={KEY: key},
    )
    plain = [row | {name: list(row[name].items()) for name in ("evidence", "anomalies")} for row in rows]
    with atomic_path(part) as temporary:
        parquet.write_table(arrow.Table.from_pylist(plain, schema=schema), temporary)


_open: dict[str, Guard] = {}  # the guard that this process has opened last, by the fingerprint of its order


def _opened(order: Sent) -> Guard:
    """The guard of an order, loaded at its first shard in this process."""
    if order.fingerprint not in _open:
        from secondguess.guard.guard import Guard

        wanted: Order = order.value
        try:
            same = file_digest(wanted.folder / CARD) == wanted.digest
        except OSError:
            same = False
        if not same:
            raise UserError(
                f"The worker on {platform.node()} has no such guard in {wanted.folder}; put the folder there, too."
            )
        _open.clear()
        _open[order.fingerprint] = Guard.load(wanted.folder, wanted.model, **wanted.changes)
    return _open[order.fingerprint]
