"""A finished audit to look at, at once: the report of `make audit`, packed into the package.

`make demo` makes it again from the report that `make audit` wrote.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import make_folder, write_text
from secondguess.results import Result

__all__ = ["MOST", "PACKED", "Demo", "marked", "open_demo", "packed"]

PACKED, PAGE = "demo.html.gz", "report.html"
MOST = 500_000  # bytes that it may add to the package
TOP = re.compile(r'<header class="top">\n?')
MARK = re.compile(r'<p class="note demo">(.*?)</p>', re.DOTALL)


@dataclass(frozen=True)
class Demo(Result):
    """The page.

    Attributes:
        page: where it is.
        made: when, by which version and on what.
        opened: whether a browser was there to show it.
    """

    page: Path
    made: str
    opened: bool

    def summary(self) -> str:
        """What it is and where."""
        shown = "It is open in your browser" if self.opened else "Open it in a browser"
        return f"{self.made}\n{shown}: {self.page}"

    def to_dict(self) -> dict[str, Any]:
        """The same for a program."""
        return {"page": str(self.page), "made": self.made, "opened": self.opened}

    def save(self, folder: str | Path) -> Path:
        """Write the page into another folder."""
        path = make_folder(folder)
        write_text(path / PAGE, _page())
        return path


def open_demo(folder: str | Path | None = None, *, browser: bool = True) -> Demo:
    """Write the page of a finished audit and open it.

    Args:
        folder: where to write it; a temporary folder by default, which is left to the system to clean up.
        browser: whether to open it.
    """
    place = make_folder(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="secondguess-demo-"))
    page, path = _page(), (place / PAGE).resolve()
    write_text(path, page)
    mark = MARK.search(page)
    made = re.sub(r"<[^>]*>", "", mark[1]) if mark else ""
    return Demo(path, made, browser and webbrowser.open(path.as_uri()))


def marked(page: str, audit: Mapping[str, Any]) -> str:
    """The report of an audit with a line that says what it is.

    Args:
        page: `report.html`.
        audit: `audit.json`.
    """
    if len(TOP.findall(page)) != 1:
        raise UserError("This page is no report of an audit; give the report.html of make audit.")
    if audit["verdict"]["ready"] is None:
        raise UserError("This audit came to no verdict, for want of time perhaps; pack one that did.")
    date, version = str(audit["created"])[:10], str(audit["versions"]["secondguess"])
    data = str(audit["data"]["test"]["name"]).partition("/")[0]
    line = (
        f'<p class="note demo">A demonstration: this audit was made on {escape(date)} by secondguess {escape(version)} '
        f"on the embedded digits ({escape(data)}). <code>secondguess audit</code> makes one of your own model.</p>"
    )
    return TOP.sub(lambda found: f"{found[0]}{line}\n", page)


def packed(page: str) -> bytes:
    """The page as it is kept in the package; the same page gives the same bytes."""
    content = gzip.compress(page.encode("utf-8"), mtime=0)
    if len(content) > MOST:
        raise UserError(f"The page takes {len(content):,} bytes, but at most {MOST:,} may be added to the package.")
    return content


def _page() -> str:
    return gzip.decompress(files("secondguess.welcome").joinpath(PACKED).read_bytes()).decode("utf-8")
