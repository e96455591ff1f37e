"""A Sphinx extension: docstrings and signatures as autodoc should show them.

Docstrings are written in Markdown, as all of the documentation, and autodoc reads reStructuredText. The two agree on
lists and paragraphs. What is changed here is what they disagree on: indented blocks and single backticks are code, and
`*`, `_` and `|` outside of them are themselves.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

SECTION = re.compile(
    r"^\s*(Args|Arguments|Attributes|Example|Examples|Note|Notes|Raises|Returns|Yields|Warning|References):$"
)
BULLET = re.compile(r"^(\s*)[*-] ")


def as_restructured_text(lines: list[str]) -> list[str]:
    """The same text in the other language."""
    result: list[str] = []
    text: list[str] = []  # since the last block of code
    code: int | None = None  # indentation of the text before the block of code that we are in
    for place, line in enumerate(lines):
        if code is not None and line.strip() and _indentation(line) <= code:
            code = None
            result += [""] if result[-1].strip() else []
        if code is None and _begins_code(lines, place):
            code = _indentation_before(lines, place)
            result += [*_escaped(text), " " * code + "::", ""]
            text = []
        (text if code is None else result).append(line)
    return result + _escaped(text)


def _begins_code(lines: list[str], place: int) -> bool:
    """Whether an indented line after an empty one is code: neither a section's text nor more of a list."""
    line = lines[place]
    if not line.strip() or place == 0 or lines[place - 1].strip():
        return False
    before = next((one for one in reversed(lines[:place]) if one.strip()), "")
    deeper = _indentation(line) >= _indentation(before) + 4
    return deeper and not SECTION.match(before) and not BULLET.match(before)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indentation_before(lines: list[str], place: int) -> int:
    return _indentation(next((one for one in reversed(lines[:place]) if one.strip()), ""))


def _escaped(lines: list[str]) -> list[str]:
    """Code between single backticks, which may go on in the next line, gets double ones; the rest is escaped."""
    pieces = re.split(r"(?<!`)(`[^`]+`)(?!`)", "\n".join(lines))
    return "".join(f"`{one}`" if one.startswith("`") and one != "``" else _plain(one) for one in pieces).split("\n")


def _plain(text: str) -> str:
    escaped = re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", text)
    return re.sub(r"^(\s*)\\\* ", r"\1* ", escaped, flags=re.MULTILINE)  # the bullets of a list


def signature(value: Any) -> tuple[str, str] | None:
    """Parameters and result with their types as the source code spells them, instead of what these stand for."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    parameters = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    text = str(inspect.Signature([one.replace(annotation=_Spelt.of(one.annotation)) for one in parameters]))
    returned = found.return_annotation
    spelt = (
        "" if returned is inspect.Signature.empty or isinstance(value, type) else str(returned or "None").strip("'\"")
    )
    return text, spelt


class _Spelt:
    """An annotation that is printed without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, annotation: Any) -> Any:
        return cls(annotation) if isinstance(annotation, str) else annotation


def _process(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_restructured_text(lines)


def _process_signature(app: Any, what: str, name: str, value: Any, *rest: Any) -> tuple[str, str] | None:
    return signature(value) if what in ("class", "function", "method") else None


def _join_with_dashes(app: Any, doctree: Any) -> None:
    """Between a parameter and its meaning; elsewhere two hyphens begin an option."""
    from docutils import nodes

    for text in [one for one in doctree.findall(nodes.Text) if one == " -- "]:
        text.parent.replace(text, nodes.Text(" – "))


def setup(app: Any) -> dict[str, bool]:
    """Before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("doctree-read", _join_with_dashes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
