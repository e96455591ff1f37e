"""Studies by name. Every module in `secondguess_lab.studies.papers` has a tuple `STUDIES`; a new module is found."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import lru_cache

from secondguess.errors import UserError
from secondguess_lab.studies import papers
from secondguess_lab.studies.base import Study

__all__ = ["get", "names"]


@lru_cache
def _all() -> dict[str, Study]:
    known: dict[str, Study] = {}
    for module in pkgutil.iter_modules(papers.__path__, f"{papers.__name__}."):
        for study in importlib.import_module(module.name).STUDIES:
            if study.name in known:
                raise ValueError(f"two studies are called {study.name!r}")
            known[study.name] = study
    return known


def names() -> list[str]:
    """The names of all studies, paper by paper."""
    return list(_all())


def get(name: str) -> Study:
    """The study of that name."""
    known = _all()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are: {', '.join(known)}."
        raise UserError(f"There is no study {name!r}; {hint}")
    return known[name]
