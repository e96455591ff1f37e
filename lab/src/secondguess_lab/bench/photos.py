"""How long the commands take on classifiers of photographs, against what they announced.

Each command runs as a user would start it, with nothing but a model and its images, in a fresh folder:

| command  | planned                       | allowed, minutes | seconds counted, opening model and images included |
|----------|-------------------------------|-----------------:|----------------------------------------------------|
| audit    | its own plan                  | 10               | until the report is saved                          |
| guard    | its own plan                  | 5                | until the guard is saved                           |
| estimate | its own plan                  | 3                | until the result is saved                          |
| label    | none, it opens a page         | 0.5              | until there is a first image to ask about          |
| embedded | its own plan                  | 5                | `secondguess audit` alone: a network is trained    |

`ratio` is the real time of what was planned divided by what was planned: 1 is a perfect estimate. `silent` is the
longest time without a report of progress, and after which report it began. `missing` are sections that were not done
and kinds of stress that a guard knows nothing of, `left_out` the parts for which the plan had no time. `cpu` are the
seconds of all cores together: where they are much fewer than the cores times the real seconds, the machine was busy
with other things. `mebibytes` is the most memory that the process had so far, libraries included.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import secondguess as sg
from secondguess.files import make_folder
from secondguess.images import Dataset, ImageSet, conform, load_images
from secondguess.progress import Advance, Progress, Silent, Titled, announce, attended

__all__ = ["COMMANDS", "lines", "run"]

ALLOWED = {"audit": 10.0, "guard": 5.0, "estimate": 3.0, "label": 0.5, "embedded": 5.0}
EMBEDDED = "embedded"
COMMANDS = tuple(name for name in ALLOWED if name != EMBEDDED)  # of a model
TRAIN, TEST, CLASSES = 2000, 500, 10  # images of the stand-in for data of the user's

Opened = Callable[[], tuple[sg.Classifier | None, Dataset | None]]
Outcome = tuple[dict[str, Any] | None, list[str]]


def run(
    models: Sequence[str] = (),
    data: str | None = None,
    commands: Sequence[str] = COMMANDS,
    minutes: float | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run the commands on every model.

    Args:
        models: what `Classifier.open` takes; a ResNet-20 with random weights if there are none.
        data: what `load` takes, with training and test images; photographs with random labels if left out, on which
            times mean what they mean elsewhere, but nothing else does.
        commands: some of `COMMANDS`, and `EMBEDDED`, which needs neither model nor data.
        minutes: that a planned command may take, where that is less than it is allowed by default.
        out: keep what the commands write, in a folder each; nothing is kept if left out.
        progress: where to report.
    """
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    wanted = [(name, opened, one) for name, opened in _models(models, data) for one in commands if one != EMBEDDED]
    wanted += [(EMBEDDED, _nothing, EMBEDDED)] * (EMBEDDED in commands)
    for name, opened, command in wanted:
        allowed = min(ALLOWED[command], minutes or ALLOWED[command])
        shown = Titled(progress or Silent(), command)
        with _workplace(out, f"{name}-{command}") as folder:
            row = _timed(command, opened, allowed, folder, shown)
        counts = row.pop("images") or counts
        rows.append({"model": name, "command": command} | row)
    return {"rows": rows, "images": counts}


def lines(result: dict[str, Any]) -> list[str]:
    """One line for each command and model."""
    shown = [f"{'model':<24}{'command':<10}{'planned':>9}{'took':>9}{'ratio':>7}{'allowed':>9}{'silent':>8}"]
    for row in result["rows"]:
        planned = "" if row["planned"] is None else f"{row['planned']:.0f} s"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        times = f"{planned:>9}{row['seconds']:>7.0f} s{ratio:>7}{row['allowed']:>7.0f} s"
        times += f"{row['silent']['seconds']:>6.1f} s"
        missing = f"  without {', '.join(row['missing'])}" if row["missing"] else ""
        shown.append(f"{row['model']:<24}{row['command']:<10}{times}{missing}")
    return shown


def _models(models: Sequence[str], data: str | None) -> Iterator[tuple[str, Opened]]:
    """The name of each model, and what opens it with its images."""
    if not models:
        yield "resnet20, random", _random
    for model in models:
        yield "/".join(Path(model).parts[-2:]), partial(_opened, model, data)


def _random() -> tuple[sg.Classifier, Dataset]:
    from secondguess_lab.reference import build

    names = [f"class {k}" for k in range(CLASSES)]
    return sg.Classifier(build("resnet20", len(names)), class_names=names), _stand_in()


def _opened(model: str, data: str | None) -> tuple[sg.Classifier, Dataset]:
    classifier = sg.Classifier.open(model)
    return classifier, _stand_in() if data is None else sg.load(data, **classifier.loading)


def _nothing() -> tuple[None, None]:
    return None, None


@contextmanager
def _workplace(out: Path | None, name: str) -> Iterator[Path]:
    """A fresh folder."""
    if out is not None:
        yield make_folder(out / name.replace("/", "-"))
        return
    with TemporaryDirectory(prefix="secondguess-bench-") as folder:
        yield Path(folder)


def _timed(command: str, opened: Opened, minutes: float, folder: Path, progress: Progress) -> dict[str, Any]:
    heard = _Listening(progress)
    began, worked = time.perf_counter(), time.process_time()
    with attended(heard) as attentive:  # as the commands are, which open model and images themselves
        classifier, images = opened()
        plan, missing = _RUN[command](classifier, images, minutes, folder, attentive)
    seconds = time.perf_counter() - began
    heard.hear("the end")
    planned = None if plan is None else plan["planned_seconds"]
    return {
        "planned": planned,
        "seconds": round(seconds, 2),
        "cpu": round(time.process_time() - worked, 2),
        "mebibytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "ratio": None if not planned or plan is None else round(plan["seconds"] / planned, 3),
        "allowed": 60 * minutes,
        "silent": {"seconds": round(heard.longest, 2), "after": heard.after},
        "missing": missing,
        "left_out": [] if plan is None else [part["name"] for part in plan.get("parts", ()) if not part["size"]],
        "images": None if images is None else {"train": len(images.train or ()), "test": len(images.test)},
        "plan": plan,
    }


class _Listening:
    """Another progress, and the longest time between two reports to it."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._last, self._said = progress, time.perf_counter(), "the beginning"
        self.longest, self.after = 0.0, ""

    def hear(self, said: str) -> None:
        """Something is reported now."""
        now = time.perf_counter()
        if now - self._last > self.longest:
            self.longest, self.after = now - self._last, self._said
        self._last, self._said = now, said

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Begin the task, and listen to it."""
        self.hear(f"{label}: begun")
        with self._progress.task(label, total) as advance:

            def heard(done: int, total: int) -> None:
                self.hear(f"{label}: {done} of {total}")
                advance(done, total)

            yield heard
        self.hear(f"{label}: done")

    def say(self, text: str) -> None:
        """Pass it on."""
        self.hear(text.partition("\n")[0])
        announce(self._progress, text)


def _audit(classifier: Any, images: Any, minutes: float, folder: Path, progress: Progress) -> Outcome:
    subject = () if classifier is None else (classifier, images)
    found = sg.audit(*subject, minutes=minutes, folder=folder, progress=progress)
    return found.about["plan"], [one.name for one in found.sections if one.status != "done"]


def _guard(classifier: Any, images: Any, minutes: float, folder: Path, progress: Progress) -> Outcome:
    options: Any = {"minutes": minutes, "folder": folder, "progress": progress}
    guard = sg.Guard().fit(classifier, images.train, images.test, **options)
    guard.save(folder / "guard")
    kinds = {"ambiguous", "corrupted", "adversarial", "invalid"}
    return guard.record["plan"], sorted(kinds - set(guard.record["stress"]))


def _estimate(classifier: Any, images: Any, minutes: float, folder: Path, progress: Progress) -> Outcome:
    options: Any = {"minutes": minutes, "progress": progress}
    found = sg.estimate(classifier, images.test, train=images.train, **options)
    found.save(folder)
    return found.about["plan"], []


def _label(classifier: Any, images: Any, minutes: float, folder: Path, progress: Progress) -> Outcome:
    options: Any = {"minutes": 10, "behind": True, "min_confidence": 0}  # a network with random weights is never sure
    found = sg.find_errors(classifier, images.test, folder=folder, progress=progress, **options)
    try:
        found.ask(1)
    finally:
        found.close()
    return None, []


_RUN: dict[str, Callable[[Any, Any, float, Path, Progress], Outcome]] = {
    "embedded": _audit,
    "audit": _audit,
    "guard": _guard,
    "estimate": _estimate,
    "label": _label,
}


def _stand_in() -> Dataset:
    """Photographs of 32 pixels with random labels."""
    photos = conform(load_images("photos"), (3, 32, 32))
    rng = np.random.default_rng(0)
    pixels = photos.images[np.sort(rng.integers(len(photos), size=TRAIN + TEST))]
    pixels = np.clip(pixels + rng.normal(0, 0.02, pixels.shape), 0, 1).astype(np.float32)  # no two are equal
    labels = rng.integers(CLASSES, size=TRAIN + TEST)
    names = [f"class {k}" for k in range(CLASSES)]
    both = ImageSet.from_arrays(pixels, labels, class_names=names, layout="NCHW", name="photographs")
    return Dataset("photographs", both.take(np.arange(TRAIN)), both.take(np.arange(TRAIN, TRAIN + TEST)))
