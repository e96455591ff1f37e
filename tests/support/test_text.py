from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup

from secondguess._text import amount, few, visible
from secondguess.cli import main
from secondguess.errors import UserError
from secondguess.guard.thresholds import _rank, _rounded_up
from secondguess.hubris.files import read_predictions
from secondguess.images import ImageSet, save_npz
from secondguess.report import render


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_amounts(size: int, text: str) -> None:
    assert amount(size) == text


def test_what_turns_text_around_is_shown() -> None:
    assert visible("cat\u202e97%\u2066\x1b[31m\r\x9b") == r"cat\u202e97%\u2066\x1b[31m\r\x9b"
    assert visible("naïve ж 猫 قطة\n\t") == "naïve ж 猫 قطة\n\t"


def test_a_page_shows_it_too(tmp_path: Path) -> None:
    (tmp_path / "t.html").write_text("<p>{{ name }}: {{ 0.5 | percent }}{{ chart }}</p>")
    page = render("t.html", [tmp_path], name="<cat>\u202e", chart=Markup("<b>\u202e</b>"))
    assert page == r"<p>&lt;cat&gt;\u202e: 50.0%<b>\u202e</b></p>"


def test_the_terminal_shows_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = ImageSet.from_arrays(np.zeros((2, 4, 4), np.uint8), [0, 1], class_names=["a\u202e", "b\x1b[2J"])
    save_npz(images, tmp_path / "a.npz")
    assert main(["data", str(tmp_path / "a.npz")]) == 0
    printed = capsys.readouterr().out
    assert r"a\u202e (1), b\x1b[2J (1)" in printed
    assert main(["data", "no\u202ewhere"]) == 2
    assert r"no\u202ewhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("n", "text"), [(98, "0.011"), (99, "0.01"), (100, "0.01"), (9, "0.1"), (3, "0.25"), (1500, "0.00067")]
)
def test_the_rate_that_is_offered_can_be_promised(n: int, text: str) -> None:
    assert _rounded_up(1 / (n + 1)) == text
    assert _rank(n, float(text)) >= 1


def test_a_table_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0.1,0.9\n0.2,0.8\n")
    with pytest.raises(UserError, match=r"a\.csv begins with numbers; give it a header"):
        read_predictions(tmp_path / "a.csv")


def test_warnings_are_sentences(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warned(*_: object, **__: object) -> int:
        for text in ("The first.", "The second.", "The first."):
            warnings.warn(text, stacklevel=1)
        warnings.warn("of a library", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("secondguess.cli.app.app", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["guard", "fit"]) == 0
        assert capsys.readouterr().err == "Warning: The first.\nWarning: The second.\n"
        for quiet in ("-q", "--quiet"):
            assert main(["guard", "fit", quiet]) == 0
            assert capsys.readouterr().err == ""


def test_of_many_names_the_first_are_told() -> None:
    assert few([]) == "" and few(["a", "b"], 2) == "a, b"
    assert few([f"n{number}" for number in range(1200)], 2) == "n0, n1 and 1,198 more"
