"""Write the pages that scripts write, check the links, and take the screenshot of the README anew from a real audit."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
CHROMIUM = "/usr/bin/chromium"


def broken_links() -> list[str]:
    """Relative links in Markdown files that lead nowhere."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]


def take_screenshot() -> None:
    """Run the default audit and photograph the top of its report."""
    from playwright.sync_api import sync_playwright

    subprocess.run([sys.executable, "-m", "secondguess", "audit", "--out", "out/audit"], cwd=ROOT, check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1120, "height": 1180}, color_scheme="light")
        page.goto((ROOT / "out/audit/report.html").as_uri())
        page.screenshot(path=ROOT / "docs/images/report.png")
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-screenshot", action="store_true", help="leave the screenshot as it is (no audit is run)")
    options = parser.parse_args()
    for script in ("make_numbers", "make_supervisors", "make_reproduction"):
        subprocess.run([sys.executable, f"docs/{script}.py"], cwd=ROOT, check=True)
    if options.no_screenshot:
        pass
    elif Path(CHROMIUM).exists():
        take_screenshot()
    else:
        sys.stderr.write(f"No {CHROMIUM}: the screenshot was not taken.\n")
    if broken := broken_links():
        sys.exit("Broken links:\n" + "\n".join(broken))
