from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = _loaded("make_numbers")
says = importlib.import_module("claims").says
MODULES = list(maker.modules())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.PAGE)
def test_what_a_page_says_of_a_record_is_what_the_record_holds(module):
    text = (ROOT / module.PAGE).read_text("utf-8")
    _, found = maker.differences(text, module.claims())
    assert found == [], "python docs/make_numbers.py mends numbers; words are mended by hand"


def test_a_number_that_differs_is_found_and_mended():
    text = "The pool of 1,000 images\nhas an SDR of .74 (-.5)."
    claim = says("of {:,} images has an SDR of {:.2f} ({:.1f})", 2000, 0.7551, -0.04)
    mended, found = maker.differences(text, [claim])
    assert mended == "The pool of 2,000 images\nhas an SDR of .76 (.0)."
    assert len(found) == 3
    assert maker.differences(mended, [claim]) == (mended, [])


def test_text_that_is_missing_or_stands_there_twice_is_reported():
    text = "A lift of 1.2 here. A lift of 1.3 there."
    assert "2 times" in maker.differences(text, [says("A lift of {:.1f}", 1.2)])[1][0]
    assert "0 times" in maker.differences(text, [says("An SDR of {:.1f}", 1.2)])[1][0]
    assert maker.differences(text, [says("A lift of {:.1f} there", 1.3)])[1] == []


def test_words_that_the_records_do_not_bear_out_are_reported():
    assert "not so" in maker.differences("It is the best.", [says("the best", provided=False)])[1][0]


def test_numbers_without_a_claim_are_listed():
    text = "First .5 and `code 0.1`.\nThen .6."
    assert maker.uncovered(text, [says("First {:.1f}", 0.5)]) == ["2: Then .6."]
    assert maker.uncovered(text, []) == ["1: First .5 and `code #.#`.", "2: Then .6."]
    assert maker.uncovered("<!-- a -->\n| .7 |\n<!-- /a -->\n| .8 |\n", []) == ["4: | .8 |"]


def test_the_details_of_the_reproduction_are_up_to_date():
    maker = _loaded("make_reproduction")
    assert maker.DETAILS.read_text("utf-8") == maker.page(maker.DETAILS), "run python docs/make_reproduction.py"


def test_building_the_pages_can_be_asked_what_it_does():
    words = [sys.executable, "docs/build.py", "--help"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--no-gallery" in shown
