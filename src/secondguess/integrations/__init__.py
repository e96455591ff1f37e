"""Beside other libraries: pipelines of transformers, trainers of Lightning, trackers of experiments, FiftyOne.

Each file needs its own library, which is imported when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secondguess.integrations.fiftyone import add_to_fiftyone
    from secondguess.integrations.lightning import GuardCallback
    from secondguess.integrations.pipelines import GuardedPipeline
    from secondguess.integrations.trackers import log_to_mlflow, log_to_wandb

__all__ = ["GuardCallback", "GuardedPipeline", "add_to_fiftyone", "log_to_mlflow", "log_to_wandb"]

_FILES = {
    "GuardCallback": "lightning",
    "GuardedPipeline": "pipelines",
    "add_to_fiftyone": "fiftyone",
    "log_to_mlflow": "trackers",
    "log_to_wandb": "trackers",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
