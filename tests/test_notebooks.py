"""In a notebook: bars while a verb works, rows for data frames, charts to be restyled.

IPython is played by a stand-in with the documented `get_ipython`, `display` and `HTML`; pandas is real, and polars
where it is installed.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import secondguess as sg
from secondguess import UserError
from secondguess.progress import NotebookBars, Silent, shown

FEW = {"stress": [], "sections": ["accuracy", "calibration"], "minutes": None}


def model(pixels: Any) -> Any:
    """Right about most digits with a light middle, by rote."""
    columns = np.asarray(pixels).mean(axis=(1, 2))[:, :8]
    scores = np.tile(np.linspace(0, 1, 10), (len(columns), 1)) + 3 * np.pad(columns, ((0, 0), (0, 2)))
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


class Shown(list[str]):
    """What a notebook was given to display: each display once, as it was last."""

    def display(self, what: Any, *, display_id: bool) -> Any:
        assert display_id
        place = len(self)
        self.append(what.data)
        return SimpleNamespace(update=lambda new: self.__setitem__(place, new.data))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    below, package, module = Shown(), ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.HTML, module.display = lambda text: SimpleNamespace(data=text), below.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return below


@pytest.fixture(scope="module")
def digits() -> Any:
    data = sg.load("digits")
    return sg.images.Dataset("few", data.train.head(300, seed=0), data.test.head(150, seed=0))


@pytest.fixture(scope="module")
def results(digits: Any) -> dict[str, Any]:
    classifier = sg.Classifier(model, class_names=digits.class_names)
    audit = sg.audit(classifier, digits, **FEW)
    found = sg.find_errors(classifier, digits.test, attack=None, min_confidence=0)
    found.tell(rows := found.ask(4), digits.test.labels[rows])
    guard = sg.Guard(["entropy"], false_alarms=0.1, rule="bonferroni")
    guard.fit(classifier, digits.train, digits.test, minutes=None)
    return {
        "audit": audit,
        "compare": sg.compare(audit, audit),
        "guard": guard,
        "judge": guard.judge(digits.test.images[:3]),
        "estimate": sg.estimate(classifier, digits.test, like=digits, estimators="icos", minutes=None),
        "find_errors": found,
        "overconfidence": sg.overconfidence(classifier, digits, on="blend", between="3,8", count=20, resamples=5),
    }


VERBS = ["audit", "compare", "guard", "judge", "estimate", "find_errors", "overconfidence"]


@pytest.mark.parametrize("verb", VERBS)
def test_rows_are_a_data_frame(results: dict[str, Any], verb: str) -> None:
    rows = results[verb].rows()
    frame = pd.DataFrame(rows)
    assert len(frame) == len(rows) > 0
    assert all(isinstance(value, (str, int, float, type(None))) for row in rows for value in row.values())
    assert {tuple(row) for row in rows} == {tuple(rows[0])}, "every row has the same columns"


@pytest.mark.parametrize("verb", VERBS)
def test_rows_are_a_data_frame_of_polars(results: dict[str, Any], verb: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    rows = results[verb].rows()
    frame = polars.DataFrame(rows)
    assert frame.shape == (len(rows), len(rows[0]))
    assert [None if one != one else one for one in frame[:, 1]] == [
        None if row[1] != row[1] else row[1] for row in (tuple(row.values()) for row in rows)
    ]


CHARTS = {
    "audit": [{}, {"what": "reliability"}],
    "compare": [{}, {"family": "overall"}],
    "guard": [{}],
    "estimate": [{}],
    "find_errors": [{}],
    "overconfidence": [{}],
}


@pytest.mark.parametrize("verb", CHARTS)
def test_a_chart_is_drawn_where_it_is_wanted(results: dict[str, Any], verb: str) -> None:
    for options in CHARTS[verb]:
        given = Figure().subplots()
        assert results[verb].plot(ax=given, **options) is given
        assert given.has_data() and given.get_xlabel()
        given.set_title("mine")  # and restyled


def test_a_chart_makes_its_own_figure(results: dict[str, Any]) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    axes = results["audit"].plot()
    assert isinstance(axes, Axes) and axes.get_legend_handles_labels()[1][-1] == "confidence"
    plt.close(axes.figure)


def test_what_cannot_be_drawn_is_said(results: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="'roc' cannot be drawn; choose 'risk' or 'reliability'"):
        results["audit"].plot("roc")
    with pytest.raises(UserError, match=r"family 'kinds' was compared; there are: overall"):
        results["compare"].plot("kinds")
    with pytest.raises(UserError, match="no answers to labelled test images"):
        sg.AuditResult(about={}).plot()
    with pytest.raises(UserError, match="has not learnt anything yet"):
        sg.Guard("entropy").plot()


def test_a_verb_shows_bars_in_a_notebook(notebook: Shown, digits: Any) -> None:
    sg.overconfidence(sg.Classifier(model), digits, on="blend", between="3,8", count=20, resamples=5)
    assert any("Blending images 20 of 20" in bar for bar in notebook)
    assert all(bar.startswith("<div><progress value=") for bar in notebook)


def test_a_bar_follows_the_work(notebook: Shown) -> None:
    with NotebookBars(every=0).task("a < b", 4) as advance:
        assert 'value="0" max="4"' in notebook[0] and "a &lt; b" in notebook[0]
        advance(1, 4)
        assert 'value="1" max="4"' in notebook[0] and "s left" in notebook[0]
        advance(4, 4)
    assert "4 of 4" in notebook[0] and "left" not in notebook[0]
    with pytest.raises(RuntimeError), NotebookBars().task("ends early", 4) as advance:
        advance(2, 4)
        raise RuntimeError
    assert "2 of 4" in notebook[1]


def test_elsewhere_nothing_is_shown_and_what_is_given_is_taken(
    notebook: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(shown(None), NotebookBars)
    assert isinstance(shown(given := Silent()), Silent) and shown(given) is given
    terminal: Any = sys.modules["IPython"]
    monkeypatch.setattr(terminal, "get_ipython", lambda: SimpleNamespace())
    assert isinstance(shown(None), Silent)
    monkeypatch.delitem(sys.modules, "IPython")
    assert isinstance(shown(None), Silent)
