"""Pack the report that `make audit` wrote into the package, for `secondguess demo`.

python docs/make_demo.py [out/audit]
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

from secondguess.files import write_bytes
from secondguess.welcome.demo import PACKED, marked, packed

ROOT = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> None:
    """Read the audit, write the page."""
    audit = ROOT / (words[0] if words else "out/audit")
    report = (audit / "report.html").read_text("utf-8")
    report = report.replace(escape(str(audit)), "out/audit")  # the command that made it, without a folder of ours
    page = marked(report, json.loads((audit / "audit.json").read_text("utf-8")))
    write_bytes(ROOT / "src/secondguess/welcome" / PACKED, packed(page))


if __name__ == "__main__":
    main(sys.argv[1:])
