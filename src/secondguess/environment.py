"""Versions of the software that produced a result."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]

PACKAGES = ("secondguess", "numpy", "scipy", "scikit-learn", "torch", "onnxruntime", "pillow")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that take part, without importing them."""
    return dict(_versions())


@cache  # reading the metadata takes longer than a small task
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
