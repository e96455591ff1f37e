"""The labelling page of a session, served to this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from secondguess.errors import UserError, require

if TYPE_CHECKING:
    from secondguess.labelling.session import LabellingSession
    from secondguess.labelling.store import Store
    from secondguess.model.classifier import Classifier
    from secondguess.web.server import ServedPage

__all__ = ["check_extra", "serve_page"]

KEYS, PORT = ".access.json", ".port.json"  # in the folder of the labels


def check_extra() -> None:
    """Raise a `UserError` unless a page can be served."""
    for module in ("fastapi", "uvicorn"):
        require(module, "app")


def serve_page(
    session: LabellingSession,
    store: Store,
    classifier: Classifier,
    annotator: str,
    port: int,
    *,
    browser: bool,
    announce: Callable[[str], None],
    block: bool,
) -> ServedPage | None:
    """Serve a session whose answers are kept in a folder.

    Args:
        session: which images are shown.
        store: of the session.
        classifier: explains its answers, where possible.
        annotator: the name that the page suggests.
        port: where to listen; 0 for the port of the last time, or any other.
        browser: whether to open the page.
        announce: called with the link once the page can be opened.
        block: whether to serve until Ctrl-C, rather than in a thread, which the result can end.
    """
    check_extra()
    from secondguess.labelling.explaining import explainer
    from secondguess.labelling.routes import LabelPage, label_app
    from secondguess.web.access import Keys
    from secondguess.web.pictures import Album
    from secondguess.web.server import listen, serve, serve_in_thread

    if store.folder is None:
        raise UserError("Answers on the page are kept in a folder, but this session has none; name one.")
    listening = listen(port, remembered=store.folder / PORT)
    keys = Keys.kept_in(store.folder / KEYS)
    pool = session.search.pool
    album = Album(pool.images.images)
    page = LabelPage(session, store, keys, album, annotator, explainer(classifier, lambda: session.search.pool, album))
    if not block:
        return serve_in_thread(label_app(page), keys, listening, announce=announce, browser=browser)
    serve(label_app(page), keys, listening, announce=announce, browser=browser)
    return None
