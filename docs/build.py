"""Build the site into `site/`: write the pages that scripts write, check all pages, run Sphinx with warnings as errors.

    python docs/build.py [--no-gallery] [--screenshot] [--check]

Broken links, pictures without a description (in the pages as they are written and in the finished site), pages that no
table of contents leads to, code that no test runs and anything that a reader's browser would fetch from the net fail
the build. Python that no test can run is indented, below a comment that says why: `<!-- not run: it needs a robot -->`.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
GENERATED = ("generated", "gallery")  # below docs/: written by the build
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)|^\[[^\]]+\]: (?!https?://)([^#\s]+)()", re.MULTILINE)
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)  # those that get an anchor
IMG = re.compile(r"<img(?![^>]*\salt=\"[^\"])[^>]*>")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)")
FENCE = re.compile(r"^( *)(`{3,}|~{3,}|:{3,})([^`\n]*)$", re.MULTILINE)
# Lines that are indented by four spaces or more, with the line above them that may say why nobody runs them.
INDENTED = re.compile(
    r"^(<!-- not run: \S.* -->\n\n)?((?: {4,}\S.*\n|\n(?= {4}))*(?: {4,}\S.*(?:\n|\Z)))", re.MULTILINE
)
IMPORT = re.compile(r"^(?:from [\w.]+ import \S|import \w|>>> )", re.MULTILINE)
ENTRY = re.compile(r"^(?:[^:<\n]*<)?(/?[\w/.-]+)>?$")
# What a fence may hold: tests/test_docs.py runs Python, tests/test_tutorials.py the `sh` of a tutorial.
LANGUAGES = {"python", "sh", "toml", "json", "text", "yaml", "caddyfile", "nginx"}
FETCHED = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"(https?:)?//|<link[^>]*\shref=\"(https?:)?//[^>]*stylesheet")
RESERVED = {"search", "genindex", "py-modindex"}  # pages that Sphinx writes itself
CHROMIUM = "/usr/bin/chromium"


def pages() -> list[Path]:
    """The Markdown files that people write: of the repository's root and of all of docs/."""
    inner = (ROOT / "docs").rglob("*.md")
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(one for one in inner if one.relative_to(ROOT).parts[1] not in GENERATED),
    ]


def troubles() -> list[str]:
    """Everything that is wrong with the pages as they are written; an empty list if nothing is."""
    found = broken_links() + unlisted_pages()
    for page in pages():
        name, text = page.relative_to(ROOT), page.read_text("utf-8")
        found += [f"{name}: {target} has no description" for alt, target in PICTURE.findall(text) if not alt.strip()]
        found += [f"{name}: {tag} has no description" for tag in IMG.findall(text)]
        typed = page.parent.name == "tutorials"
        found += [f"{name}: {what}" for what in unexecuted(text, typed=typed) + indented_python(text)]
    return found


def broken_links() -> list[str]:
    """Relative links in Markdown files that lead nowhere, or to a heading that is not there."""
    found = []
    for page in pages():
        for inline, anchor, reference, _ in LINK.findall(_prose(page.read_text("utf-8"))):
            name = inline or reference
            target = page.parent / name if name else page
            if _written_later(target):
                continue
            if not target.exists():
                found.append(f"{page.relative_to(ROOT)}: {name} is not there")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text("utf-8")):
                found.append(f"{page.relative_to(ROOT)}: {name}#{anchor} is no heading")
    return found


def anchors(text: str) -> set[str]:
    """The names of the headings of a page, as links name them on GitHub and on the site."""
    bare = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(_prose(text)))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in bare}


def _prose(text: str) -> str:
    """A page without its blocks of code, in which `#` begins a comment and brackets mean something else."""
    return re.sub(r"^( *)```[^`{\n]*\n.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def unlisted_pages() -> list[str]:
    """Pages below docs/ to which no table of contents leads, and entries of one that lead nowhere."""
    docs, found, reached = ROOT / "docs", [], {ROOT / "docs" / "index.md"}
    for page in pages():
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            for entry in filter(None, (ENTRY.match(line.strip()) for line in tree.splitlines())):
                target = (docs / entry[1][1:] if entry[1].startswith("/") else page.parent / entry[1]).with_suffix(
                    ".md"
                )
                reached.add(target)
                if not target.exists() and not _written_later(target):
                    found.append(
                        f"{page.relative_to(ROOT)}: the table of contents names {entry[1]}, which is not there"
                    )
    found += [f"docs/{name}.md: Sphinx has a page of that name" for name in RESERVED if (docs / f"{name}.md").exists()]
    inner = (page for page in pages() if page.is_relative_to(docs))
    return found + [f"{page.relative_to(ROOT)} is in no table of contents" for page in inner if page not in reached]


def unexecuted(text: str, *, typed: bool = True) -> list[str]:
    """Blocks of code that no test would see: without a language, of an unknown one, or Python that is indented.

    Args:
        text: of the page.
        typed: whether a test types its blocks of `sh`, as those of a tutorial.
    """
    found, inside, directives = [], "", []
    for indentation, fence, info in FENCE.findall(text):
        if inside:
            inside = "" if fence == inside and not info.strip() else inside
            continue
        language = info.strip()
        if language.startswith("{"):  # a directive, whose own content is looked at
            directives.append(fence)
            continue
        if not language and fence in directives:  # its end
            directives.remove(fence)
            continue
        inside = fence
        if language not in LANGUAGES:
            found.append(f"a block of {language!r}, which no test runs: use one of {', '.join(sorted(LANGUAGES))}")
        elif language == "python" and (indentation or fence != "```"):
            found.append("a block of Python is indented, so no test would run it")
        elif language == "sh" and not typed:
            found.append("a block of 'sh', which is typed in tutorials only: indent it by four spaces")
    return found


def indented_python(text: str) -> list[str]:
    """Blocks that are code by their indentation alone, as shell commands may be, but hold Python: no test runs it."""
    return [
        f"Python that no test runs begins with {code.strip().splitlines()[0]!r}: fence it, or say above it why not"
        for reason, code in INDENTED.findall(_prose(text))
        if not reason and _is_python(dedent(code))
    ]


def _is_python(code: str) -> bool:
    """Whether it is a program: formulas and settings may parse as one, but import and call nothing."""
    if IMPORT.search(code):
        return True
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call) for node in ast.walk(tree))


class _Pictures(HTMLParser):
    """Collects the pictures of a page that have no description."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.bare: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        # A decoration is told apart by its role, not by an empty description, which may have been forgotten.
        if tag == "img" and not (known.get("alt") or "").strip() and known.get("role") != "presentation":
            self.bare.append(known.get("src") or "a picture")


def undescribed() -> list[str]:
    """Pictures of the finished site without a description, thumbnails of the gallery included."""
    return [
        f"{page.relative_to(SITE)}: {picture} has no description"
        for page in sorted(SITE.rglob("*.html"))
        for picture in _Pictures(page.read_text("utf-8")).bare
    ]


def fetched() -> list[str]:
    """Pages of the finished site that would load something from the net."""
    return [
        f"{page.relative_to(SITE)} loads {match.group()}"
        for page in SITE.rglob("*.html")
        for match in FETCHED.finditer(page.read_text("utf-8"))
    ]


def _written_later(target: Path) -> bool:
    inner = target.resolve().relative_to(ROOT).parts
    return inner[0] == "docs" and inner[1] in GENERATED


def forget_old_examples() -> None:
    """Remove what the gallery has of examples that are no longer there."""
    examples = {path.relative_to(ROOT / "docs/examples").with_suffix("") for path in ROOT.glob("docs/examples/*/*.py")}
    for old in ROOT.glob("docs/gallery/*/*.rst"):
        inner = old.relative_to(ROOT / "docs/gallery").with_suffix("")
        if inner not in examples and inner.name != "index":
            old.unlink()


def take_screenshot() -> None:
    """Photograph the top of the report that `secondguess demo` shows."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        demo = [sys.executable, "-m", "secondguess", "demo", "--no-browser", "--quiet", "--out", folder]
        subprocess.run(demo, cwd=ROOT, check=True)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1120, "height": 1180}, color_scheme="light")
        page.goto(next(Path(folder).glob("*.html")).as_uri())
        page.screenshot(path=ROOT / "docs/images/report.png")
        browser.close()


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--no-gallery", action="store_true", help="do not run the examples (seconds instead of minutes)"
    )
    parser.add_argument("--screenshot", action="store_true", help=f"take that of the README anew, with {CHROMIUM}")
    parser.add_argument("--check", action="store_true", help="only check the pages as they are written, build nothing")
    options = parser.parse_args()
    if options.check:
        sys.exit("\n".join(troubles()) or 0)
    for script in ("make_numbers", "make_supervisors", "make_measured", "make_reproduction"):
        subprocess.run([sys.executable, f"docs/{script}.py"], cwd=ROOT, check=True)
    if options.screenshot:
        take_screenshot()
    if found := troubles():
        sys.exit("\n".join(found))
    forget_old_examples()
    shutil.rmtree(SITE, ignore_errors=True)
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", "build/doctrees", "docs", "site"]
    without = ["-D", "plot_gallery=0"] if options.no_gallery else []
    if subprocess.run([*sphinx, *without], cwd=ROOT).returncode:
        sys.exit("The site has warnings or errors, see above.")
    if found := fetched() + undescribed():
        sys.exit("\n".join(found))
    sys.stdout.write(f"{SITE / 'index.html'}\n")


if __name__ == "__main__":
    main()
