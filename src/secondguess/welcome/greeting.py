"""What `secondguess` says without arguments."""

from __future__ import annotations

from importlib import metadata

from secondguess import __version__
from secondguess.welcome.extras import extras

__all__ = ["greeting"]

COMMANDS = (
    ("secondguess demo", "look at a finished audit in your browser, now"),
    ("secondguess audit --model model.onnx --data photos/", "audit your own model, in about ten minutes"),
    ("secondguess doctor", "see what is installed here, and what to do about the rest"),
)


def greeting() -> str:
    """Three commands to begin with, and what is installed; without importing anything that takes time."""
    width = max(len(command) for command, _ in COMMANDS)
    lines = [f"secondguess {__version__}: know when your image classifier is guessing.", ""]
    lines += [f"  {command:<{width}}  {what}" for command, what in COMMANDS]
    found = extras()
    there = [one.name for one in found if one.installed]
    absent = [one.name for one in found if not one.installed]
    lines += ["", f"Installed: {', '.join([_torch(), *there])}."]
    if absent:
        lines.append(f"Not installed: {', '.join(absent)}.")
    lines.append("All commands: secondguess --help. Completion for your shell: secondguess --install-completion.")
    return "\n".join(lines)


def _torch() -> str:
    try:
        return f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        return "no torch"
