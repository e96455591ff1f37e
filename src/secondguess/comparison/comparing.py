"""`compare`: has it become worse?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secondguess.audits import AuditResult, Gate
from secondguess.audits.gates import judge
from secondguess.audits.predictions import NOMINAL
from secondguess.audits.subject import Images, as_dataset
from secondguess.comparison.flips import find_flips
from secondguess.comparison.measures import measure
from secondguess.comparison.pairing import match
from secondguess.comparison.result import DATA, Comparison
from secondguess.comparison.sides import Side, is_audit, open_audit, run_audit, told_apart
from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.images import ImageSet, check_loading
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, shown
from secondguess.stress import StressSet
from secondguess.supervisors import Supervisor

__all__ = ["compare"]

PICTURES = 12  # of each sort of flips
SUPERVISORS, STRESS = ("max_softmax", "entropy"), ("corrupted", "invalid")


def compare(
    before: AuditResult | str | os.PathLike[str] | Any,
    after: AuditResult | str | os.PathLike[str] | Any,
    data: Images | None = None,
    *,
    test: Images | None = None,
    train: Images | None = None,
    supervisors: str | Iterable[str | Supervisor] = SUPERVISORS,
    stress: str | Iterable[str | StressSet] = STRESS,
    no_worse_than: float | None = None,
    gates: Iterable[str | Gate] = (),
    minutes: float | None = 10.0,
    max_test: int | None = None,
    seed: int = 0,
    device: str = "auto",
    opening: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    command: str = "",
    **loading: Any,
) -> Comparison:
    """Compare two audits, or two models, image by image: what has become better, what worse, and which images.

    Args:
        before: an audit: its result, its folder or its `audit.json`, with `predictions.npz` beside it. Or a model:
            anything that `Classifier.open` takes, which is then asked about the test images.
        after: the other one.
        data: test and training images together, as for `audit`: needed for models; for audits their test images, to
            show those whose answer has changed.
        test: the test images, instead of `data`.
        train: the images that models were trained on, for supervisors that learn from them.
        supervisors: names or ready-made ones that models are tried with; audits bring their own.
        stress: names of stress sets, or ready-made ones, for models.
        no_worse_than: percentage points of accuracy that may be lost; a gate `change.accuracy.test>=...`.
        gates: further conditions, such as `"change.accuracy.test.low>=-1%"`, `"flips.negative<=5"` or `"worse<=0"`.
        minutes: that each model may take.
        max_test: the largest number of test images to ask models about.
        seed: of everything random.
        device: where to compute, unless a model is a `Classifier`.
        opening: options of `Classifier.open` for the models.
        folder: where to write `compare.html`, `compare.json`, `compare.md` and `junit.xml`.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        command: how the comparison was started, for the record.
        **loading: options of `load` for images given by name.

    Raises:
        UserError: an audit has no answers to compare, or something given is unknown or contradicts itself.
    """
    loading = check_loading(loading, compare)
    parsed = [gate if isinstance(gate, Gate) else Gate.parse(gate) for gate in gates]
    if no_worse_than is not None:
        parsed.insert(0, Gate("change.accuracy.test", ">=", -_points(no_worse_than) / 100))
    began = time.perf_counter()
    sides: list[Side] = []
    for given in (before, after):
        if is_audit(given):
            sides.append(open_audit(given))
            continue
        if isinstance(given, str | Path) and "/" in str(given) and not Path(given).exists():
            raise UserError(f"There is no {given}; give an audit.json, the folder of an audit, or a model.")
        if data is None and test is None:
            raise UserError(
                f"{_called(given)} is no audit and is taken for a model, but there are no images to try it on; give an "
                "audit.json or the folder of an audit, or images with `test`."
            )
        plan = sides[0].about if sides and sides[0].about.get("plan") else None
        options: Any = {"supervisors": supervisors, "stress": stress, "seed": seed, "max_test": max_test}
        options |= {"minutes": minutes, "plan": plan, "progress": shown(progress)}
        model = (
            given if isinstance(given, Classifier) else Classifier.open(given, **{"device": device, **(opening or {})})
        )
        sides.append(run_audit(model, data, test, train, loading=loading, **options))
    old, new = told_apart(sides[0], sides[1], (before, after))
    names, pairs = match(old.predictions, new.predictions)
    images = _images(sides, data, test, loading)
    negative, positive = find_flips(pairs[NOMINAL], names, images, PICTURES)
    about: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command or None,
        "seed": seed,
        "versions": versions(),
    }
    result = Comparison(about, old, new, pairs, measure(names, pairs, seed), negative, positive)
    result.gates = [judge(gate, result.numbers, "comparison", DATA) for gate in parsed]
    about["seconds"] = round(time.perf_counter() - began, 3)
    if folder is not None:
        result.save(folder)
    return result


def _images(sides: list[Side], data: Images | None, test: Images | None, loading: dict[str, Any]) -> ImageSet | None:
    """The test images, where they are at hand: those that models were asked about, or that were given to be shown."""
    known = sides[1].images or sides[0].images
    if known is not None or (data is None and test is None):
        return known
    channels, *size = sides[1].about["data"]["test"]["shape"]
    return as_dataset(data, test, None, {"size": tuple(size), "channels": channels} | loading).test


def _points(number: float) -> float:
    if not 0 <= number <= 100:
        raise UserError(f"{number!r} percentage points of accuracy may be lost; give a number from 0 to 100.")
    return number


def _called(given: Any) -> str:
    return str(given) if isinstance(given, (str, os.PathLike)) else f"A {type(given).__name__}"
