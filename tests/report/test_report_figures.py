from __future__ import annotations

import base64
import io
import re
from typing import Any

import defusedxml.ElementTree
import numpy as np
import pytest
from markupsafe import Markup
from PIL import Image

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


def a_latent_space(**changes: Any) -> Markup:
    rng = np.random.default_rng(1)
    weights = np.zeros((10, 10))
    weights[4:6] = 1.0
    given = {
        "points": np.concatenate([rng.normal((-3, 0), 1, (60, 2)), rng.normal((3, 0), 1, (50, 2))]),
        "which": np.repeat([0, 1], [60, 50]),
        "weights": weights,
        "bounds": (-3.0, 3.0, -5.0, 5.0),
        "drawn": rng.uniform(-0.5, 0.5, (7, 2)),
        "names": ("cat", "dog"),
    }
    return figures.latent_space(**given | changes)


@pytest.fixture(scope="module", params=[a_histogram, a_reliability, a_latent_space])
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
    assert re.search("images|score|latent", words)


def test_it_refers_to_nothing_outside(chart: Markup) -> None:
    links = re.findall(r'(?:href|src)="([^"]*)"', chart) + re.findall(r"url\(([^)]*)\)", chart)
    assert links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert "<script" not in chart


def test_the_same_data_give_the_same_bytes() -> None:
    assert a_histogram() == a_histogram()
    assert a_reliability() == a_reliability()
    assert a_latent_space() == a_latent_space()


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


def test_thirty_bins_hold_nearly_every_finite_score_whatever_the_tail() -> None:
    scores = np.random.default_rng(0).normal(size=1000)
    bins = figures._bins(np.append(scores, [np.inf, -np.inf]))
    assert len(bins) == 31
    assert np.histogram(scores, bins)[0].sum() == 990
    with_tail = figures._bins(np.append(scores, 1e6))
    np.testing.assert_allclose(with_tail[[0, -1]], bins[[0, -1]], atol=0.1)


def test_bars_of_few_images_are_faint() -> None:
    opacities = {float(value) for value in re.findall(r"opacity: ([\d.]+)", a_reliability())}
    assert {0.25, 0.8} <= opacities


def use_count(chart: Markup, role: str, tag: str = "use") -> int:
    """How many marks are painted in the colour of a role."""
    root = defusedxml.ElementTree.fromstring(chart)
    return sum(f"var(--{role})" in (element.get("style") or "") for element in root.iter(f"{SVG}{tag}"))


def test_latent_space_shows_every_point_of_both_classes_and_every_drawn_one() -> None:
    chart = a_latent_space()
    root = defusedxml.ElementTree.fromstring(chart)
    words = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert {"cat", "dog", "confined space", "ambiguous images"} <= set(words)
    assert root.get("aria-label") == "Latent space between cat and dog"
    assert use_count(chart, "accent") == 60 + 1  # and one in the legend
    assert use_count(chart, "bad") == 50 + 1
    assert use_count(chart, "ink") >= 7


def test_latent_space_shades_the_cells_that_weigh_something() -> None:
    (picture,) = re.findall(r'href="data:image/png;base64,([^"]+)"', a_latent_space().replace("\n", ""))
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        alpha = np.asarray(image.convert("RGBA"))[..., 3]
    columns = alpha.max(axis=0) > 0
    assert (alpha > 0).mean() == pytest.approx(0.2, abs=0.03)
    assert 0.35 < np.flatnonzero(columns).mean() / len(columns) < 0.65  # a column in the middle: first index along x
    assert (alpha[:, columns].min(axis=0) > 0).mean() > 0.9


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": np.zeros((10, 10))},
        {"drawn": np.zeros((0, 2))},
        {"which": np.zeros(110, dtype=np.int64)},
        {"names": ("<b>", "a & b")},
        {"points": np.full((110, 2), 1e9)},
    ],
)
def test_odd_latent_spaces_can_be_drawn(changes: dict[str, Any]) -> None:
    drawn = defusedxml.ElementTree.fromstring(a_latent_space(**changes))
    assert drawn.get("role") == "img" and drawn.get("aria-label")


def test_large_sets_are_thinned_out() -> None:
    many = {"points": np.zeros((3000, 2)), "which": np.zeros(3000, dtype=np.int64)}
    assert use_count(a_latent_space(**many), "accent") == figures.MOST_POINTS + 1


def test_drawing_leaves_matplotlibs_settings_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    a_histogram()
    assert dict(mpl.rcParams) == before
