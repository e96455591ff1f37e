"""Answers in JSON that can always be sent: names of files and folders need not be UTF-8."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from secondguess._text import visible

__all__ = ["PageJSON", "SafeJSON"]


class SafeJSON(JSONResponse):
    """JSON in which half a character, as in a file name that is not UTF-8, is written as an escape."""

    def render(self, content: Any) -> bytes:
        """The body."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


class PageJSON(SafeJSON):
    """JSON for a page that shows it to a person: see `secondguess._text.visible`."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return super().render(_shown(content))


def _shown(value: Any) -> Any:
    """The same value; in its texts, characters that change what is seen are written out."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, (list, tuple)) else value
