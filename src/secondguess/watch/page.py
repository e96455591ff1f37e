"""Watching records: from a file of records, or the folder of a guard, to the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.guard.artefact import read_card
from secondguess.guard.stored_model import stored_model
from secondguess.images import load_images
from secondguess.model.agreement import agree
from secondguess.model.classifier import Classifier
from secondguess.service.records import Records
from secondguess.service.server import RECORDS
from secondguess.watch.estimates import estimator_for
from secondguess.watch.routes import watch_app
from secondguess.watch.stream import Estimate, Watch
from secondguess.web.access import Keys
from secondguess.web.server import listen, serve

__all__ = ["watch_records"]


def watch_records(
    records: str | Path,
    *,
    guard: str | Path | None = None,
    model: Any = None,
    validation: Any = None,
    loading: Mapping[str, Any] | None = None,
    port: int = 0,
    browser: bool = True,
    announce: Callable[[str], None] = print,
    **changes: Any,
) -> None:
    """Serve the page over the records of a service to this machine, until Ctrl-C.

    Args:
        records: a file or a URL of records, or the folder of a guard that holds them.
        guard: the folder of the guard, to show what it is known to miss; by default `records`, if a folder.
        model: what is served, to estimate its accuracy with; by default that of the guard.
        validation: labelled images it was not trained on; the accuracy is estimated where they are given.
        loading: options of `load` for them, where they differ from what the model takes.
        port: where to listen; 0 for any free port.
        browser: whether to open the page in the browser.
        announce: called with the link once the page can be opened.
        **changes: of the model's description, and how it is run, as for `Classifier.open`.
    """
    where, folder = str(records), None if guard is None else Path(guard)
    if Path(where).is_dir():
        folder = folder or Path(where)
        where = str(Path(where) / RECORDS)
    missed = None if folder is None else list(read_card(folder)["report"]["missed"])
    estimate = None
    if validation is not None:
        estimate = _estimate(_served(model, folder, changes | _fed(loading or {})), validation, loading or {})
    opened = Records(where, read_only=True)
    try:
        page = watch_app(Watch(opened, estimate=estimate, missed=missed))
        serve(page, Keys.new(), listen(port), announce=announce, browser=browser)
    finally:
        opened.close()


def _fed(loading: Mapping[str, Any]) -> dict[str, Any]:
    """What of the options of `load` says which images the model takes."""
    return {name: loading[name] for name in ("size", "channels", "resize") if name in loading}


def _served(model: Any, folder: Path | None, changes: dict[str, Any]) -> Classifier:
    """The model that is served: the one that is named, or that of the guard in a folder."""
    if model is None and folder is None:
        raise UserError("The accuracy is estimated with the model; say which with `model`, or give `guard`, a folder.")
    return Classifier.open(model if model is not None else stored_model(folder or "."), **changes)


def _estimate(classifier: Classifier, validation: Any, loading: Mapping[str, Any]) -> Estimate:
    images = load_images(validation, **classifier.loading | dict(loading))
    classifier, images, _ = agree(classifier, images)
    return estimator_for(classifier, images)
