"""Is this machine ready? Every check says what it found and, where something is missing, what to do."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from secondguess._text import amount
from secondguess.environment import versions
from secondguess.files import make_folder, write_json
from secondguess.results import Result, html_table
from secondguess.welcome.extras import Extra, extras, unmet

__all__ = ["Check", "Diagnosis", "diagnose"]

OLDEST = (3, 11)
LITTLE = 2 << 30  # bytes of disk; an audit of photographs with its cache takes about as much
FILE = "doctor.json"
MARKS = {"fine": "ok", "note": "--", "missing": "!!"}

State = Literal["fine", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        state: `fine`; `note` where something optional is missing; `missing` where nothing works without it.
        found: what is there.
        advice: what to do about it; "" where nothing is to be done.
    """

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis(Result):
    """What is there and what is missing.

    Attributes:
        checks: of the machine.
        extras: the optional parts.
    """

    checks: tuple[Check, ...]
    extras: tuple[Extra, ...]

    @property
    def ready(self) -> bool:
        """Whether everything that is needed is there."""
        return all(check.state != "missing" for check in self.checks)

    def summary(self) -> str:
        """The checks in a line each, and which extras there are."""
        lines = [f"{MARKS[one.state]}  {one.name}: {one.found}" for one in self.checks]
        for word, rows in (
            ("Extras", [one.name for one in self.extras if one.installed]),
            ("Not installed", [one.name for one in self.extras if not one.installed]),
        ):
            if rows:
                lines.append(f"{MARKS['fine' if word == 'Extras' else 'note']}  {word}: {', '.join(rows)}")
        return "\n".join(lines)

    def details(self) -> str:
        """The summary, and what to do about everything that is missing."""
        advice = [f"{one.name}: {one.advice}" for one in self.checks if one.advice]
        advice += [_advice(one) for one in self.extras if not one.installed]
        end = "Everything that is needed is here." if self.ready else "Something is missing that nothing works without."
        return "\n".join([self.summary(), "", *advice, *([""] if advice else []), end])

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "ready": self.ready,
            "checks": [vars(one) for one in self.checks],
            "extras": [
                {"name": one.name, "purpose": one.purpose, "installed": one.installed, "missing": list(one.unmet)}
                for one in self.extras
            ],
            "versions": versions(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `doctor.json` into a folder."""
        path = make_folder(folder)
        write_json(path / FILE, self.to_dict())
        return path

    def _repr_html_(self) -> str:
        rows = [(one.name, one.found, one.advice) for one in self.checks]
        rows += [(one.name, "installed" if one.installed else "not installed", one.purpose) for one in self.extras]
        return html_table(rows, ("what", "found", "advice"))


def diagnose(folder: str | Path = ".") -> Diagnosis:
    """Look at this machine: Python, torch, packages, GPU, extras, browser, and the folder for results.

    Args:
        folder: where results would be written.
    """
    looks: tuple[Callable[[], Iterator[Check]], ...] = (_python, _packages, _torch, _browser, lambda: _folder(folder))
    return Diagnosis(tuple(check for look in looks for check in look()), tuple(extras()))


def _advice(extra: Extra) -> str:
    return f'{extra.name} ({extra.purpose}): pip install "secondguess[{extra.name}]"; missing: {", ".join(extra.unmet)}'


def _python() -> Iterator[Check]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST:
        yield Check("Python", "fine", f"{found} at {sys.executable}")
    else:
        wanted = ".".join(map(str, OLDEST))
        yield Check("Python", "missing", found, f"secondguess needs Python {wanted} or newer.")


def _packages() -> Iterator[Check]:
    if missing := unmet():
        advice = "pip install --upgrade secondguess brings what it needs."
        yield Check("Packages", "missing", f"missing or too old: {', '.join(missing)}", advice)
    else:
        yield Check("Packages", "fine", "everything that the core needs")


def _torch() -> Iterator[Check]:
    try:
        import torch
    except Exception as error:  # a broken build raises OSError, RuntimeError and others
        advice = "pip install torch; on a machine without a GPU its CPU build, see https://pytorch.org/get-started."
        yield Check("torch", "missing", f"cannot be imported ({error})", advice)
        return
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    yield Check("torch", "fine", f"{torch.__version__}, built {built}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield Check("GPU", "fine", ", ".join(names))
    elif torch.backends.mps.is_available():
        yield Check("GPU", "fine", "Apple's, through mps")
    elif shutil.which("nvidia-smi") is None:
        yield Check("GPU", "note", "none; everything works without one, photographs take longer")
    elif torch.version.cuda:
        advice = (
            f"Update the driver to one that supports CUDA {torch.version.cuda}; nvidia-smi shows which it supports."
        )
        yield Check("GPU", "note", "one is here, but torch cannot use it", advice)
    else:
        advice = "Install torch with CUDA, see https://pytorch.org/get-started."
        yield Check("GPU", "note", "one is here, but torch is a CPU build", advice)


def _browser() -> Iterator[Check]:
    try:
        found = webbrowser.get()
        yield Check("Browser", "fine", str(getattr(found, "name", "") or type(found).__name__))
    except webbrowser.Error:
        advice = "Reports are plain files: copy them to a machine with a browser. Pages: ssh -L 8000:127.0.0.1:8000."
        yield Check("Browser", "note", "none here", advice)


def _folder(folder: str | Path) -> Iterator[Check]:
    path = Path(folder).resolve()
    try:
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    except OSError as error:
        yield Check("Folder", "missing", f"{path} cannot be written ({error.strerror})", "Go to a folder of your own.")
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{path} can be written, {amount(free)} free; {cores} processor cores"
    little = free < LITTLE
    yield Check("Folder", "note" if little else "fine", found, "Make room: caches grow." if little else "")
