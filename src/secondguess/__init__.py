"""secondguess: know when your image classifier is guessing.

The public names are loaded when they are first used, so that `import secondguess` takes milliseconds and torch is
imported only by those who need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from secondguess.audit import AuditResult, run_audit
    from secondguess.classifier import Classifier
    from secondguess.data import Dataset, ImageSet, load, load_images
    from secondguess.errors import UserError
    from secondguess.guard import Guard, Guarded
    from secondguess.observation import Needs, Observation, Trace
    from secondguess.stress import StressSet
    from secondguess.supervisors import Supervisor, check_supervisor
    from secondguess.training import train, train_fleet

__all__ = [
    "AuditResult",
    "Classifier",
    "Dataset",
    "Guard",
    "Guarded",
    "ImageSet",
    "Needs",
    "Observation",
    "StressSet",
    "Supervisor",
    "Trace",
    "UserError",
    "__version__",
    "check_supervisor",
    "load",
    "load_images",
    "run_audit",
    "train",
    "train_fleet",
]

_ROOMS = {
    "AuditResult": "audit",
    "Classifier": "classifier",
    "Dataset": "data",
    "Guard": "guard",
    "Guarded": "guard",
    "ImageSet": "data",
    "Needs": "observation",
    "Observation": "observation",
    "StressSet": "stress",
    "Supervisor": "supervisors",
    "Trace": "observation",
    "UserError": "errors",
    "check_supervisor": "supervisors",
    "load": "data",
    "load_images": "data",
    "run_audit": "audit",
    "train": "training",
    "train_fleet": "training",
}


# Rooms that are used by their own name, as in `secondguess.supervisors.make("entropy")`.
_OPEN_ROOMS = ("audit", "data", "guard", "hubris", "metrics", "search", "stress", "supervisors", "training", "zoo")


def __getattr__(name: str) -> Any:
    if name in _OPEN_ROOMS:
        return importlib.import_module(f"secondguess.{name}")
    if name not in _ROOMS:
        raise AttributeError(f"module 'secondguess' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"secondguess.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
