from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from matplotlib.figure import Figure

import secondguess as sg
from secondguess import Classifier, ImageSet, UserError
from secondguess.audits import Findings, Section, sections
from secondguess.audits.context import Context
from secondguess.audits.sections import registry
from secondguess.metrics import Interval

OURS = [
    "overview", "accuracy", "deploy", "calibration", "gallery", "ambiguity", "boundary", "overconfidence",
    "human_doubt", "supervisors", "risk", "confident_errors", "priorities", "surprise_coverage", "label_free",
]  # fmt: skip
PARAMS = {"surprise_coverage": {"buckets": 100, "upper": None}}


class Brightness(Section):
    """Everything that a section without a template can show."""

    name = "brightness"
    title = "Is it right in the dark?"
    after = "accuracy"

    def __init__(self, levels: int = 2) -> None:
        self.levels = levels

    def run(self, context: Context) -> Findings:
        findings = Findings(numbers={"brightness.levels": context.number(float(self.levels))})
        findings.add_text("Images <b>differ</b> in brightness.")
        rows = [["dark", 3, 0.25, Interval(0.5, 0.25, 0.75, 8), None], ["<i>light</i>", 12345, True, "as is", 1e-9]]
        findings.add_table(["level", "images", "share", "accuracy", "note"], rows, caption="By level")
        figure = Figure()
        figure.subplots().plot([0, 1], [0, 1])
        findings.add_figure(figure, "Accuracy over brightness")
        findings.add_gallery(context.test.images[:3], ["one", "two <script>", "three"], title="The darkest")
        return findings


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The table of sections, as it was before once the test is over."""
    sections.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    return registry.REGISTRY.known


@pytest.fixture
def few(digits: sg.Dataset) -> ImageSet:
    return digits.test.head(40, seed=1)


def quick(classifier: Classifier, test: ImageSet, **options: Any) -> sg.AuditResult:
    return sg.audit(classifier, test, stress=[], supervisors=["entropy"], **options)


def test_our_own_stand_in_the_order_of_the_report() -> None:
    assert sections.names() == OURS
    for section in sections.make_all("all"):
        assert not section.template or (Path(sections.__file__).parent / section.template).is_file()
        assert section.params() == PARAMS.get(section.name, {}) and type(section).__doc__


def test_a_registered_section_takes_part_where_it_says(
    known: dict[str, Any], classifier: Classifier, few: ImageSet
) -> None:
    sections.register(Brightness)
    place = OURS.index("deploy") + 1  # the first that follows "accuracy"
    assert sections.names() == [*OURS[:place], "brightness", *OURS[place:]]
    result = quick(classifier, few, sections=["accuracy", "brightness:levels=5"])
    assert [section.status for section in result.sections] == ["done", "done"]
    assert result.numbers["brightness.levels"].value == 5
    with pytest.raises(UserError, match="no section 'brightnes'; did you mean 'brightness'"):
        quick(classifier, few, sections=["brightnes"])
    with pytest.raises(UserError, match="The section 'accuracy' was given more than once"):
        quick(classifier, few, sections=["accuracy", "accuracy"])


def test_parts_are_shown_without_a_template(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    result = quick(classifier, few, sections=["overview", Brightness()], folder=tmp_path)
    shown = str(result.sections[1].html)
    assert "<p>Images &lt;b&gt;differ&lt;/b&gt; in brightness.</p>" in shown
    cells = re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", shown.replace("<wbr>", ""))
    assert cells[:5] == ["level", "images", "share", "accuracy", "note"]
    assert cells[5:10] == ["dark", "3", "0.25", '.500<span class="range">.250 to .750</span>', "–"]
    assert cells[10:] == ["&lt;i&gt;light&lt;/i&gt;", "12,345", "yes", "as is", "1e-09"]
    assert (
        "#000000" not in shown and "#1f77b4" not in shown and "var(--accent)" in shown
    )  # follows the page into the dark
    assert shown.count("<svg") == 1 and 'aria-label="Accuracy over brightness"' in shown
    assert shown.count("data:image/png;base64,") == 3 and "two &lt;script&gt;" in shown
    assert "<h3>The darkest</h3>" in shown
    assert shown in result.report.read_text("utf-8")
    assert '<section id="brightness">' in result.report.read_text("utf-8")


def test_numbers_alone_are_shown_as_a_table(classifier: Classifier, few: ImageSet) -> None:
    class Bare(Section):
        name, title = "bare", "Numbers"
        numbers: ClassVar[dict[str, Any]] = {"bare.mean": 0.5, "bare.share": Interval(0.5, 0.25, 0.75, 8)}

        def run(self, context: Context) -> Findings:
            return Findings({name: context.number(value) for name, value in self.numbers.items()})

    (section,) = quick(classifier, few, sections=[Bare()]).sections
    cells = re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", str(section.html).replace("<wbr>", ""))
    assert cells == ["number", "value", "bare.mean", "0.5", "bare.share", '.500<span class="range">.250 to .750</span>']


def test_parts_that_do_not_fit_fail_the_section_with_a_sentence(classifier: Classifier, few: ImageSet) -> None:
    class Wrong(Section):
        name, title = "wrong", "Wrong"

        def run(self, context: Context) -> Findings:
            findings = Findings()
            findings.add_gallery(np.zeros((2, 1, 4, 4)), ["one"])
            return findings

    (section,) = quick(classifier, few, sections=[Wrong()]).sections
    assert section.status == "failed" and "has 1 captions" in section.reason
    with pytest.raises(UserError, match="does not have 2 cells"):
        Findings().add_table(["a", "b"], [["only one"]])


def test_order_with_followers_of_followers_and_of_nobody() -> None:
    def one(name: str, after: str = "") -> Section:
        parts: Any = {"name": name, "title": name, "after": after, "run": lambda self, context: Findings()}
        return type("One", (Section,), parts)()

    placed = [one("x", "y"), one("a"), one("b"), one("y", "a"), one("z", "a"), one("lost", "nobody")]
    assert [section.name for section in registry.in_order(placed)] == ["a", "y", "x", "z", "b", "lost"]
    circle = [one("p", "q"), one("q", "p"), one("a")]
    assert [section.name for section in registry.in_order(circle)] == ["a", "p", "q"]


def test_a_last_section_runs_after_all_others_and_keeps_its_place(classifier: Classifier, few: ImageSet) -> None:
    ran: list[str] = []

    def one(name: str, last: bool = False) -> Section:
        def run(self: Section, context: Context) -> Findings:
            ran.append(self.name)
            if self.name == "b":
                raise KeyboardInterrupt
            return Findings()

        return type("One", (Section,), {"name": name, "title": name, "last": last, "run": run})()

    result = quick(classifier, few, sections=[one("late", last=True), one("a"), one("c")])
    assert ran == ["a", "c", "late"] and [section.name for section in result.sections] == ["late", "a", "c"]
    ran.clear()
    result = quick(classifier, few, sections=[one("late", last=True), one("a"), one("b"), one("c")])
    assert ran == ["a", "b"] and result.interrupted
    assert [section.status for section in result.sections] == ["skipped", "done", "skipped", "skipped"]
