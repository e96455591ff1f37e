"""secondguess: know when your image classifier is guessing.

The public names are loaded when they are first used, so that `import secondguess` takes milliseconds and torch is
imported only by those who need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from secondguess.accuracy import EstimateResult, estimate
    from secondguess.audits import AuditResult, audit
    from secondguess.comparison import Comparison, compare
    from secondguess.errors import UserError
    from secondguess.guard import Guard, Guarded
    from secondguess.hubris import OverconfidenceResult, overconfidence
    from secondguess.images import Dataset, ImageSet, load, load_images
    from secondguess.labelling import ErrorSearch, find_errors
    from secondguess.model.classifier import Classifier
    from secondguess.model.needs import Needs, Trace
    from secondguess.model.observation import Observation
    from secondguess.stress import StressSet
    from secondguess.supervisors import Supervisor, check_supervisor
    from secondguess.training import train, train_fleet

__all__ = [
    "AuditResult",
    "Classifier",
    "Comparison",
    "Dataset",
    "ErrorSearch",
    "EstimateResult",
    "Guard",
    "Guarded",
    "ImageSet",
    "Needs",
    "Observation",
    "OverconfidenceResult",
    "StressSet",
    "Supervisor",
    "Trace",
    "UserError",
    "__version__",
    "audit",
    "check_supervisor",
    "compare",
    "estimate",
    "find_errors",
    "load",
    "load_images",
    "overconfidence",
    "train",
    "train_fleet",
]

_ROOMS = {
    "AuditResult": "audits",
    "Classifier": "model",
    "Comparison": "comparison",
    "Dataset": "images",
    "ErrorSearch": "labelling",
    "EstimateResult": "accuracy",
    "Guard": "guard",
    "Guarded": "guard",
    "ImageSet": "images",
    "Needs": "model",
    "Observation": "model",
    "OverconfidenceResult": "hubris",
    "StressSet": "stress",
    "Supervisor": "supervisors",
    "Trace": "model",
    "UserError": "errors",
    "audit": "audits",
    "check_supervisor": "supervisors",
    "compare": "comparison",
    "estimate": "accuracy",
    "find_errors": "labelling",
    "load": "images",
    "load_images": "images",
    "overconfidence": "hubris",
    "train": "training",
    "train_fleet": "training",
}


# Rooms that are used by their own name, as in `secondguess.supervisors.make("entropy")`.
_OPEN_ROOMS = (
    "accuracy",
    "audits",
    "comparison",
    "guard",
    "hubris",
    "images",
    "integrations",
    "metrics",
    "model",
    "search",
    "stress",
    "supervisors",
    "training",
    "zoo",
)


def __getattr__(name: str) -> Any:
    if name in _OPEN_ROOMS:
        return importlib.import_module(f"secondguess.{name}")
    if name not in _ROOMS:
        raise AttributeError(f"module 'secondguess' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"secondguess.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_OPEN_ROOMS})
