"""Answers in JSON that can always be sent: names of files and folders need not be UTF-8."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

__all__ = ["SafeJSON"]


class SafeJSON(JSONResponse):
    """JSON in which half a character, as in a file name that is not UTF-8, is written as an escape."""

    def render(self, content: Any) -> bytes:
        """The body."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")
