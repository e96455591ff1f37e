"""Results for trackers of experiments: the numbers as metrics, the files with the report as artefacts."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path
from typing import Any

from secondguess.errors import UserError, require
from secondguess.results import Result

__all__ = ["log_to_mlflow", "log_to_wandb", "metrics_of"]

MOST = 1000  # metrics that MLflow takes at a time


def metrics_of(result: Result, name: str) -> dict[str, float]:
    """The finite numbers of a result as `NAME/accuracy.test`, with letters that both trackers take."""
    return {
        f"{name}/{re.sub(r'[^0-9A-Za-z_. /-]+', '_', key)}": float(value)
        for key, value in result.metrics().items()
        if math.isfinite(value)
    }


def log_to_mlflow(result: Result, name: str = "secondguess") -> None:
    """Log a result to the active run of MLflow; one is started where none is active, as MLflow always does.

    Args:
        result: of any verb.
        name: the metrics begin with it, and the files are kept under it.
    """
    mlflow = require("mlflow", "mlflow")
    metrics = list(metrics_of(result, name).items())
    for start in range(0, len(metrics), MOST):
        mlflow.log_metrics(dict(metrics[start : start + MOST]))
    with tempfile.TemporaryDirectory() as folder:
        mlflow.log_artifacts(str(result.save(Path(folder) / name)), artifact_path=name)


def log_to_wandb(result: Result, name: str = "secondguess", *, run: Any = None) -> None:
    """Log a result to a run of Weights & Biases: metrics, the page as a panel, and the files as an artefact.

    Args:
        result: of any verb.
        name: the metrics begin with it, and so does the name of the artefact.
        run: that `wandb.init` has returned; the active one if left out.
    """
    wandb = require("wandb", "wandb")
    run = wandb.run if run is None else run
    if run is None:
        raise UserError("There is no active run of Weights & Biases; call wandb.init() first, or give run=.")
    with tempfile.TemporaryDirectory() as folder:
        place = result.save(Path(folder) / name)
        pages = {f"{name}/{page.stem}": wandb.Html(page.read_text("utf-8")) for page in sorted(place.glob("*.html"))}
        run.log(metrics_of(result, name) | pages)
        files = wandb.Artifact(f"{name}-{run.id}", type="secondguess")
        files.add_dir(str(place))
        run.log_artifact(files)
