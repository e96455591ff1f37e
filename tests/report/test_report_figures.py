from __future__ import annotations

import re

import defusedxml.ElementTree
import numpy as np
import pytest
from markupsafe import Markup

from secondguess.report import figures

SVG = "{http://www.w3.org/2000/svg}"


def a_histogram(name: str = "invalid") -> Markup:
    rng = np.random.default_rng(0)
    return figures.histogram(rng.normal(0, 1, 300), rng.normal(2, 1, 200), 1.5, "entropy", name)


def a_reliability() -> Markup:
    edges = np.linspace(0, 1, 6)
    confidence = np.array([np.nan, np.nan, 0.5, 0.7, 0.95])
    accuracy = np.array([np.nan, np.nan, 0.4, 0.75, 0.9])
    return figures.reliability(edges, confidence, accuracy, np.array([0, 0, 3, 40, 157]))


@pytest.fixture(scope="module", params=[a_histogram, a_reliability])
def chart(request: pytest.FixtureRequest) -> Markup:
    made: Markup = request.param()
    return made


def test_no_stand_in_colour_is_left(chart: Markup) -> None:
    for colour in figures.ROLES:
        assert colour not in chart
    roles = set(re.findall(r"var\(--([a-z-]+)\)", chart))
    assert {"ink", "muted", "accent"} <= roles <= set(figures.ROLES.values())


def test_no_colour_is_fixed_so_that_dark_mode_can_change_them_all(chart: Markup) -> None:
    painted = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", chart))
    assert all(colour == "none" or colour.startswith("var(--") for colour in painted), painted


def test_it_is_well_formed_and_speaks_to_screen_readers(chart: Markup) -> None:
    root = defusedxml.ElementTree.fromstring(chart, forbid_dtd=True, forbid_entities=True)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.get("class") == "chart"
    assert root.get("viewBox")
    assert root.get("width") is None and root.get("height") is None
    assert root.find(f".//{SVG}metadata") is None


def test_text_stays_text(chart: Markup) -> None:
    root = defusedxml.ElementTree.fromstring(chart)
    words = " ".join("".join(element.itertext()) for element in root.iter(f"{SVG}text"))
    assert re.search("images|score", words)


def test_it_refers_to_nothing_outside(chart: Markup) -> None:
    links = re.findall(r'(?:href|src)="([^"]*)"', chart) + re.findall(r"url\(([^)]*)\)", chart)
    assert links
    assert all(link.startswith("#") for link in links)
    assert "<script" not in chart


def test_the_same_data_give_the_same_bytes() -> None:
    assert a_histogram() == a_histogram()
    assert a_reliability() == a_reliability()


def test_identifiers_of_two_charts_in_one_page_do_not_clash() -> None:
    # What two charts have in common (tick marks) may share an id; clip paths depend on the chart's own size.
    first, second = (set(re.findall(r'clipPath id="([^"]+)"', chart)) for chart in (a_histogram("a"), a_histogram("b")))
    assert first and second
    assert not first & second


def test_the_label_is_escaped() -> None:
    chart = a_histogram('<script>alert("1")</script> & co')
    root = defusedxml.ElementTree.fromstring(chart)
    assert root.get("aria-label") == 'Scores of entropy on nominal and on <script>alert("1")</script> & co images'
    assert "<script>" not in chart
    words = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert '<script>alert("1")</script> & co' in words


@pytest.mark.parametrize(
    ("nominal", "other", "threshold"),
    [
        (np.zeros(5), np.zeros(3), 0.0),
        (np.array([0.0, 1.0, np.inf]), np.array([-np.inf, 0.5]), np.inf),
        (np.full(4, np.inf), np.full(4, np.inf), np.inf),
        (np.array([1e-300, 2e-300]), np.array([3e-300]), 1e-300),
        (np.array([-1e12]), np.array([1e12]), 0.0),
    ],
)
def test_odd_scores_can_be_drawn(nominal: np.ndarray, other: np.ndarray, threshold: float) -> None:
    assert figures.histogram(nominal, other, threshold, "entropy", "odd").startswith("<svg")


def test_thirty_bins_hold_every_finite_score() -> None:
    scores = np.random.default_rng(2).normal(size=100)
    bins = figures._bins(np.append(scores, [np.inf, -np.inf]))
    assert len(bins) == 31
    assert np.histogram(scores, bins)[0].sum() == 100


def test_bars_of_few_images_are_faint() -> None:
    opacities = {float(value) for value in re.findall(r"opacity: ([\d.]+)", a_reliability())}
    assert {0.25, 0.8} <= opacities


def test_drawing_leaves_matplotlibs_settings_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    a_histogram()
    assert dict(mpl.rcParams) == before
