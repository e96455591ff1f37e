"""An interrupted fit goes on from what is finished; what is kept is checked, and removed at the end."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secondguess import Classifier, Dataset, ImageSet
from secondguess.guard import Guard
from secondguess.guard.unfinished import FOLDER, Unfinished
from secondguess.stress import Adversarial, Corrupted
from secondguess.supervisors import make
from secondguess.supervisors.base import Supervisor


class Stopping:
    """Progress that interrupts when a task begins."""

    def __init__(self, label: str) -> None:
        self.label, self.begun = label, list[str]()

    @contextmanager
    def task(self, label: str, total: int) -> Any:
        self.begun.append(label)
        if label == self.label:
            raise KeyboardInterrupt
        yield lambda done, total: None


def fit(classifier: Classifier, digits: Dataset, folder: Path, progress: Any = None) -> Guard:
    guard = Guard(["entropy", "mdsa", "knn"], false_alarms=0.1)
    return guard.fit(classifier, digits.train, digits.test, ambiguous="blend", folder=folder, progress=progress)


def test_an_interrupted_fit_goes_on(
    classifier: Classifier, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit(classifier, digits, tmp_path / "whole")
    assert not (tmp_path / "whole" / FOLDER).exists(), "removed when done"
    stopped = Stopping("Putting the panel together")
    with pytest.raises(KeyboardInterrupt):
        fit(classifier, digits, tmp_path / "again", stopped)
    assert "Fitting mdsa" in stopped.begun
    kinds = {path.name.partition("-")[0] for path in (tmp_path / "again" / FOLDER).iterdir()}
    assert {"supervisor", "images", "observations", "plan.json"} <= kinds

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it is finished already")

    for kind in (Adversarial, Corrupted):
        monkeypatch.setattr(kind, "_make", never)
    resumed = Stopping("")
    guard = fit(classifier, digits, tmp_path / "again", resumed)
    assert not any(label.startswith(("Fitting", "Timing", "Attacking")) for label in resumed.begun)
    assert guard.report.to_dict() == whole.report.to_dict()
    assert not (tmp_path / "again" / FOLDER).exists()


def test_kept_pieces_are_checked(digits: Dataset, tmp_path: Path) -> None:
    kept, made = Unfinished(tmp_path, ["model"]), []

    def some() -> ImageSet:
        made.append(1)
        pixels, labels = 0.999 * digits.test.head(5).materialise(), digits.test.labels[:5]
        names, columns = digits.test.class_names, {"k": np.arange(5)}
        return ImageSet.from_arrays(pixels, labels, class_names=names, layout="NCHW", columns=columns)

    first, again = (kept.images("corrupted/0", [1], some) for _ in range(2))
    assert len(made) == 1
    assert np.array_equal(first.materialise(), again.materialise()) and np.array_equal(again.columns["k"], np.arange(5))
    assert kept.images("corrupted/0", [2], some) and len(made) == 2, "other settings, other images"
    for path in (tmp_path / FOLDER).glob("images-*.npz"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert kept.images("corrupted/0", [1], some) and len(made) == 3, "damaged ones are made again"
    assert Unfinished(tmp_path, ["another model"]).images("corrupted/0", [1], some) and len(made) == 4
    assert Unfinished(None, ["model"]).images("corrupted/0", [1], some) and len(made) == 5
    kept.remove()
    assert not (tmp_path / FOLDER).exists()


def test_a_damaged_supervisor_is_fitted_again(tmp_path: Path, observed: Any) -> None:
    kept, fitted = Unfinished(tmp_path, ["model"]), []

    def fit_it() -> Supervisor:
        fitted.append(1)
        return make("mdsa").fit(observed)

    for _ in range(2):
        kept.supervisor(make("mdsa"), "mdsa", fit_it)
    assert len(fitted) == 1
    (path,) = (tmp_path / FOLDER).glob("supervisor-*")
    path.write_bytes(path.read_bytes()[:-9])
    kept.supervisor(make("mdsa"), "mdsa", fit_it)
    assert len(fitted) == 2


@pytest.fixture
def observed(classifier: Classifier, digits: Dataset) -> Any:
    return classifier.observe(digits.train.head(200), make("mdsa").needs)
