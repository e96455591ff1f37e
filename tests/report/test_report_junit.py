from __future__ import annotations

from xml.etree.ElementTree import Element

import defusedxml.ElementTree
import pytest

from secondguess.report import Case, junit_xml


def parsed(cases: list[Case], suite: str = "audit") -> Element:
    text = junit_xml(suite, cases)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    assert text.endswith("\n")
    root: Element = defusedxml.ElementTree.fromstring(text.encode("utf-8"))
    return root


def test_counts_and_contents() -> None:
    root = parsed(
        [
            Case("section", "one", seconds=1.25),
            Case("section", "two", "error", "it broke"),
            Case("gate", "three", "failed", "too low"),
            Case("gate", "four", "failed", "too high"),
            Case("section", "five", "skipped", "no time", 0.5),
        ]
    )
    assert root.tag == "testsuite"
    assert dict(root.attrib) == {
        "name": "audit", "tests": "5", "failures": "2", "errors": "1", "skipped": "1", "time": "1.750",
    }  # fmt: skip
    assert [
        (case.get("classname"), case.get("name"), [(child.tag, child.get("message")) for child in case])
        for case in root
    ] == [
        ("section", "one", []),
        ("section", "two", [("error", "it broke")]),
        ("gate", "three", [("failure", "too low")]),
        ("gate", "four", [("failure", "too high")]),
        ("section", "five", [("skipped", "no time")]),
    ]
    assert root[0].get("time") == "1.250"


def test_no_cases() -> None:
    root = parsed([])
    assert (root.get("tests"), len(root)) == ("0", 0)


@pytest.mark.parametrize("text", ["a < b > c & \"d\" 'e'", "]]>", "überräschend 数字 🙂", "two\nlines\tand a tab"])
def test_every_text_survives(text: str) -> None:
    root = parsed([Case(text, text, "failed", text)], suite=text)
    assert root.get("name") == text
    assert root[0].get("classname") == root[0].get("name") == root[0][0].get("message") == text


def test_characters_that_xml_cannot_hold_do_not_spoil_the_file() -> None:
    root = parsed([Case("g", "a\x00b", "error", "\x1b[31mred\x1b[0m \ud800 \ufffe end")])
    message = root[0][0].get("message")
    assert message is not None
    assert "red" in message and message.endswith("end")
    assert "\x1b" not in message
