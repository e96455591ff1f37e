"""README.md: how many of each there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from claims import ROOT, Claim, says

PAGE = "README.md"
WORDS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen"}


def claims() -> Iterator[Claim]:
    """All of them."""
    page = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8").split("## Estimators")[1].split("\n## ")[0]
    names = [name for line in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)]
    yield says(f"| accuracy | {WORDS[len(names)]} estimators without labels")
