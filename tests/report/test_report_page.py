from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest
from markupsafe import Markup

from secondguess.report import render
from secondguess.report.page import count, decimal, heat, percent, short


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "one.html") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


class Outline(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(0.9731, 1, "97.3%"), (1, 0, "100%"), (0.005, 0, "0%"), (0, 2, "0.00%")]
)
def test_percent(value: float, digits: int, text: str) -> None:
    assert percent(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9731, ".973"), (1, "1.000"), (0, "0.000"), (0.99996, "1.000"), (12.5, "12.500"), (-0.25, "-0.250")],
)
def test_decimal(value: float, text: str) -> None:
    assert decimal(value) == text


def test_count_and_short() -> None:
    assert count(1234567) == "1,234,567"
    assert short("0123456789abcdef") == "0123456789ab"
    assert short(None) == "none"


@pytest.mark.parametrize(("value", "text"), [(0.5, "0%"), (0.75, "50%"), (1, "100%"), (0.2, "0%"), (1.5, "100%")])
def test_heat(value: float, text: str) -> None:
    assert heat(value) == text


def test_filters_are_at_hand_in_templates(write: Callable[..., str], tmp_path: Path) -> None:
    name = write("{{ a | percent }} {{ a | decimal(2) }} {{ b | count }} {{ c | short }} {{ a | heat }}")
    assert render(name, [tmp_path], a=0.75, b=1000, c="f" * 20) == "75.0% .75 1,000 ffffffffffff 50%"


def test_an_undefined_name_is_an_error_and_not_a_hole_in_the_page(write: Callable[..., str], tmp_path: Path) -> None:
    name = write("{{ view.absent }}")
    with pytest.raises(jinja2.UndefinedError, match="absent"):
        render(name, [tmp_path], view={})


def test_a_missing_template_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(jinja2.TemplateNotFound, match=r"nope\.html"):
        render("nope.html", [tmp_path])


def test_everything_but_markup_is_escaped(write: Callable[..., str], tmp_path: Path) -> None:
    name = write('<p title="{{ text }}">{{ text }} {{ markup }}</p>')
    text = """<script>alert('1')</script>" onload="x"""
    made = render(name, [tmp_path], text=text, markup=Markup("<b>bold</b>"))
    outline = Outline(made)
    assert [tag for tag, _ in outline.tags] == ["p", "b"]
    assert outline.tags[0][1] == {"title": text}


def test_the_callers_templates_come_before_this_rooms_own(write: Callable[..., str], tmp_path: Path) -> None:
    write("mine", "page.html")
    assert render("page.html", [tmp_path]) == "mine"


def test_the_page_is_whole_without_a_network(write: Callable[..., str], tmp_path: Path) -> None:
    name = write('{% extends "page.html" %}{% block title %}{{ t }}{% endblock %}{% block main %}hello{% endblock %}')
    made = render(name, [tmp_path], t="a & b")
    outline = Outline(made)
    assert made.startswith("<!doctype html>")
    assert "<title>a &amp; b</title>" in made
    metas = [attributes for tag, attributes in outline.tags if tag == "meta"]
    policy = [one["content"] for one in metas if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert any(one.get("name") == "viewport" for one in metas)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in outline.tags}
    assert "prefers-color-scheme: dark" in made
    assert "@import" not in made and "url(" not in made
