"""The sections of an audit: `make_all("all")` gives them in the order of the report, `register` adds one."""

from secondguess.audits.sections.registry import Section, get, make, make_all, names, register

__all__ = ["Section", "get", "make", "make_all", "names", "register"]
