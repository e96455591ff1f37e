"""People label the images that a search for errors leads to, in code or on a page of this machine.

`finding` is the entry, `session` says which image comes next, `store` keeps what people said, `page` and `routes`
are the page.
"""

from __future__ import annotations

from secondguess.labelling.error_search import ErrorSearch
from secondguess.labelling.export import export_labels
from secondguess.labelling.finding import find_errors

__all__ = ["ErrorSearch", "export_labels", "find_errors"]
