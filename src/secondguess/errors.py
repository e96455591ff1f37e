"""Errors that a user can correct.

A `UserError` is one sentence: what was given, what was expected, what to do. The command line prints it without a
traceback and exits with code 2; everything else that is raised is a defect of secondguess and keeps its traceback.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["MissingExtra", "UserError", "require"]


class UserError(Exception):
    """Something the user gave cannot be used; the message says what to do about it."""


class MissingExtra(UserError):
    """An optional library is not installed; the message names the extra that brings it."""


def require(module: str, extra: str) -> ModuleType:
    """Import `module`; raise a `MissingExtra` that names the extra if it is not installed.

    Args:
        module: dotted name of the module to import.
        extra: the name in `pip install "secondguess[extra]"`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f'This needs the package {package!r}, which is not installed: pip install "secondguess[{extra}]".'
        ) from error
