"""The table of supervisors: who stands in it, under which heading, at which price, and who is as good as the best."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet, Needs, Observation, Supervisor, Trace
from secondguess.planning import Pace
from secondguess.planning.pace import SAMPLED
from secondguess.supervisors import register, registry

FIT, SCORE = 0.08, 0.05  # seconds that the slow one takes, at least


class Slow(Supervisor):
    """Needs traces, learns, and takes its time for both."""

    name = "slow"
    family = "sluggards"

    @property
    def needs(self) -> Needs:
        return Needs(traces=frozenset({Trace()}))

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert observation.samples is None  # nobody who learns has asked for them
        time.sleep(FIT)
        self.mean_ = observation.trace("penultimate").mean(axis=0)

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        time.sleep(SCORE)
        return np.linalg.norm(observation.trace("penultimate") - self.mean_, axis=1)


class Sampled(Supervisor):
    """Looks at dropout samples, learns nothing."""

    name = "sampled"
    requires_fit = False

    @property
    def needs(self) -> Needs:
        return Needs(samples=7)

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        assert observation.samples is not None
        return observation.samples.var(axis=1).sum(axis=1)


class Coin(Supervisor):
    """Knows nothing, and says so."""

    name = "coin"

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        warnings.warn("The coin has <two> sides.", stacklevel=2)

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        warnings.warn("The coin has <two> sides.", stacklevel=2)
        warnings.warn("It was tossed.", stacklevel=2)
        return (observation.probabilities[:, 0] * 1e6) % 1.0


class Recorder:
    """What was reported, and how much there was of it."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    @contextmanager
    def task(self, label: str, total: int) -> Any:
        yield lambda done, total: self.seen.__setitem__(label, total)


@pytest.fixture(scope="module")
def few(digits: Dataset) -> ImageSet:
    return digits.test.head(120, seed=1)


@pytest.fixture(scope="module")
def told() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def result(
    net: Any, few: ImageSet, digits: Dataset, told: Recorder, tmp_path_factory: pytest.TempPathFactory
) -> AuditResult:
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        few,
        train=digits.train,
        folder=tmp_path_factory.mktemp("supervisors"),
        supervisors=["entropy", Slow(), Sampled(), "pcs", Coin()],
        stress=["corrupted", "invalid"],
        sections=["supervisors"],
        progress=told,
    )


@pytest.fixture(scope="module")
def page(result: AuditResult) -> str:
    return result.report.read_text("utf-8").partition('id="supervisors"')[2].partition("</section>")[0]


def _table(page: str) -> str:
    """The table of every supervisor on every stress set."""
    return page.partition('aria-label="Supervisors against stress sets"')[2].partition("</table>")[0]


def test_the_price_is_what_the_clock_says(result: AuditResult, few: ImageSet) -> None:
    numbers = {name: number.value for name, number in result.numbers.items()}
    assert FIT <= numbers["supervisor.slow.fitting.seconds"] < FIT + 1
    assert SCORE <= numbers["supervisor.slow.microseconds"] * len(few) / 1e6 < SCORE + 1
    assert numbers["supervisor.entropy.microseconds"] < numbers["supervisor.slow.microseconds"]
    assert numbers["supervisor.sampled.observing.microseconds"] > 0
    assert numbers["supervisor.entropy.observing.microseconds"] == 0
    assert "supervisor.entropy.fitting.seconds" not in numbers


def test_what_several_share_is_charged_to_each(
    classifier: Classifier, few: ImageSet, digits: Dataset, tmp_path: Path
) -> None:
    first = type("First", (Slow,), {"name": "first", "shared": "members"})
    second = type("Second", (Sampled,), {"name": "second", "shared": "members"})
    options: Any = {"supervisors": [first(), second()], "stress": ["invalid"], "sections": ["supervisors"]}
    result = sg.audit(classifier, few, train=digits.train, folder=tmp_path, **options)
    numbers = {name: number.value for name, number in result.numbers.items()}
    assert numbers["supervisor.second.microseconds"] == numbers["supervisor.first.microseconds"]
    assert numbers["supervisor.second.fitting.seconds"] == numbers["supervisor.first.fitting.seconds"] >= FIT


@pytest.mark.usefixtures("result")  # told is filled by it
def test_only_what_learners_need_is_observed_in_training(told: Recorder, few: ImageSet, digits: Dataset) -> None:
    assert digits.train is not None
    assert told.seen["Observing training images"] == len(digits.train)
    assert told.seen["Observing test images"] == len(few) * (1 + 7)
    assert told.seen["Fitting slow"] == 1
    assert "Fitting entropy" not in told.seen


def test_rows_stand_under_their_families(page: str) -> None:
    table = _table(page)
    headings = re.findall(r'<th scope="rowgroup" colspan="(\d+)" class="muted">([^<]+)</th>', table)
    assert [name for _, name in headings] == ["softmax", "sluggards", "other"]
    columns = len(re.findall(r'<th scope="col">', table))
    assert {int(width) for width, _ in headings} == {columns}
    assert re.findall(r'<th scope="row">([^<]+)</th>', table) == ["entropy", "pcs", "slow", "sampled", "coin"]
    assert all(len(re.findall("<td", row)) == columns - 1 for row in table.split('<th scope="row">')[1:])


def test_one_family_needs_no_heading(audited: AuditResult) -> None:
    assert 'scope="rowgroup"' not in audited.report.read_text("utf-8")


def test_who_is_within_noise_of_the_best_is_marked(page: str, result: AuditResult) -> None:
    rows = _table(page).split('<th scope="row">')[1:]
    cells = {row.partition("<")[0]: row.split('<td class="heat')[1:] for row in rows}
    marked = {name: ["≈" in cell for cell in found] for name, found in cells.items()}
    best = {name: [cell.startswith(" best") for cell in found] for name, found in cells.items()}
    assert marked.keys() == {"entropy", "pcs", "slow", "sampled", "coin"}
    for index, column in enumerate(["mistakes", "corrupted", "corrupted.mistakes", "invalid"]):
        intervals = {name: result.numbers[f"supervisor.{name}.{column}.auroc"].interval for name in marked}
        first = max(intervals, key=lambda name: intervals[name].value)
        for name, interval in intervals.items():
            assert best[name][index] == (name == first)
            assert marked[name][index] == (name != first and interval.high >= intervals[first].low), (name, column)
    assert not marked["coin"][2]


def test_warnings_of_a_supervisor_reach_the_reader_once(page: str) -> None:
    assert page.count("coin: The coin has &lt;two&gt; sides. It was tossed.") == 1


def test_other_warnings_are_not_swallowed(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    class Outdated(Coin):
        name = "outdated"
        requires_fit = False

        def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn("old", FutureWarning, stacklevel=2)
            return observation.confidences

    with pytest.warns(FutureWarning, match="old"):
        result = sg.audit(classifier, few, folder=tmp_path, supervisors=[Outdated()], stress=["invalid"])
    assert not result.failed


@pytest.fixture
def expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two softmax supervisors are known, and one that is expensive."""
    registry.names()
    monkeypatch.setattr(registry.REGISTRY, "known", {name: registry.get(name) for name in ("entropy", "pcs")})
    register(type("Costly", (Sampled,), {"name": "costly", "expensive": True}))


@pytest.mark.usefixtures("expensive")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["entropy", "pcs"]),
        ({"supervisors": "standard"}, ["entropy", "pcs"]),
        ({"supervisors": "all"}, ["entropy", "pcs", "costly"]),
        ({"supervisors": ["standard", "costly"]}, ["entropy", "pcs", "costly"]),
        ({"supervisors": ["costly"]}, ["costly"]),
    ],
)
def test_an_expensive_supervisor_is_used_only_when_asked_for(
    asked: dict[str, Any], found: list[str], classifier: Classifier, few: ImageSet, tmp_path: Path
) -> None:
    result = sg.audit(classifier, few, folder=tmp_path, stress=[], sections=(), **asked)
    assert result.about["supervisors"] == found


def test_an_observation_is_timed_once_for_equal_needs_and_past_the_cache(
    net: Any, few: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = Classifier(net, device="cpu", cache=tmp_path)
    asked: list[Needs] = []
    observe = Classifier.observe

    def recorded(self: Classifier, images: ImageSet, needs: Needs, **options: Any) -> Observation:
        assert self.cache is None
        asked.append(needs)
        return observe(self, images, needs, **options)

    monkeypatch.setattr(Classifier, "observe", recorded)
    pace = Pace(classifier, few)
    assert pace.extra(Needs(logits=True, images=True)) == 0
    assert asked == []
    traces = Needs(traces=frozenset({Trace()}))
    first = pace.extra(traces)
    assert set(asked) == {traces, Needs()}
    known = len(asked)
    assert pace.extra(traces | Needs(logits=True)) == first
    assert len(asked) == known
    assert pace.extra(Needs(samples=100)) > 0
    assert {needs.samples for needs in asked[known:]} == {SAMPLED}, "samples cost alike, so a few are enough"
    assert classifier.cache is not None
    assert not list(tmp_path.rglob("*.npy"))


def test_an_audit_passes_the_images_through_the_model_once(
    classifier: Classifier, few: ImageSet, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the supervisors need: beside the one pass, a few images are looked at to see what each need costs."""
    passes: list[int] = []
    observe = Classifier.observe

    def counted(self: Classifier, images: ImageSet, needs: Needs | None = None, **options: Any) -> Observation:
        if len(images) >= len(few):
            passes.append(len(images))
        return observe(self, images, needs, **options)

    monkeypatch.setattr(Classifier, "observe", counted)
    settings: Any = {"supervisors": ["entropy", "dsa", "knn", "mdsa"], "stress": [], "sections": ["supervisors"]}
    result = sg.audit(classifier, few, train=digits.train, folder=tmp_path, **settings)
    assert not result.failed
    assert digits.train is not None
    assert sorted(passes) == [len(few), len(digits.train)]
