"""The labelling page over HTTP: the page's files, images by their number, and the calls of its script.

Nothing is found by a path: files are read once, images come out of the loaded set by position. Handlers are plain
functions, which the server runs in threads; the session has its own lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import files
from threading import Lock
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from secondguess.database import DatabaseFailed
from secondguess.errors import MissingExtra, UserError
from secondguess.labelling.answers import shortcuts
from secondguess.labelling.curve import curve
from secondguess.labelling.export import FORMATS, exported
from secondguess.labelling.session import LabellingSession, NotAsked
from secondguess.labelling.store import Store
from secondguess.web.access import Keys
from secondguess.web.answers import PageJSON
from secondguess.web.logs import Outage
from secondguess.web.pictures import Album, png

__all__ = ["LabelPage", "label_app"]

MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet", "npz": "application/zip"}
SCRIPT, STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
PARTS = {"label.js": SCRIPT, "curve.js": SCRIPT, "page.css": STYLE}
SHARED = ("curve.js", "page.css")  # with the other pages
FOR_EVER = "private, max-age=31536000, immutable"  # an image's address holds the fingerprint of its set
SHOWN_ERRORS = 200

Annotator = Annotated[str, Field(max_length=200)]
Key = Annotated[str, Field(min_length=8, max_length=100)]
Explain = Callable[[int], dict[str, Any]]


class Who(BaseModel):
    """The annotator of a request."""

    annotator: Annotator


class Undone(Who):
    """Take back the last answer."""

    key: Key


class Passed(Undone):
    """An image is skipped."""

    image: int


class Answered(Passed):
    """An image is answered: one class, several where it is ambiguous, none where it is invalid."""

    classes: Annotated[list[int], Field(max_length=100_000)]


@dataclass(frozen=True)
class LabelPage:
    """What a page is made of.

    Attributes:
        labelling: the session.
        store: of the session, for exports.
        keys: whose CSRF token the page is given.
        album: the images of the session's pool.
        annotator: the name that the page suggests at first.
        explain: position of an image -> what is to be shown, or None where explanations cannot be made.
    """

    labelling: LabellingSession
    store: Store
    keys: Keys
    album: Album
    annotator: str = ""
    explain: Explain | None = None


def label_app(page: LabelPage) -> FastAPI:
    """The application behind the labelling page; serve it through `server.serve`, which guards it."""
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, default_response_class=PageJSON
    )
    app.state.outage = Outage(logging.getLogger(__name__), "Answers cannot be saved", "Answers are saved again")
    app.add_exception_handler(UserError, _refused)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    _add_page(app, page)
    _add_session(app, page)
    _add_findings(app, page)
    return app


def _refused(request: Request, error: Exception) -> PageJSON:
    """A sentence instead of a traceback: 409 where the page is behind the session, 503 where the page may try again."""
    if isinstance(error, DatabaseFailed):
        request.app.state.outage.failed(error)
        return PageJSON({"detail": f"Nothing can be saved at the moment: {error}"}, 503)
    return PageJSON({"detail": str(error)}, 409 if isinstance(error, NotAsked) else 400)


def _misunderstood(request: Request, error: Exception) -> PageJSON:
    """A sentence about a request of another shape, which repeats nothing of it: it may hold what cannot be encoded."""
    assert isinstance(error, RequestValidationError)
    fields = {str(one["loc"][-1]) for one in error.errors()}
    if any(one["type"] == "string_unicode" for one in error.errors()):
        return PageJSON({"detail": f"The {', '.join(sorted(fields))} holds half a character; write it anew."}, 400)
    return PageJSON({"detail": f"The request is not understood: look at {', '.join(sorted(fields))}."}, 422)


def _add_page(app: FastAPI, page: LabelPage) -> None:
    static = files("secondguess.labelling") / "static"
    html = (static / "label.html").read_text("utf-8").replace("{{ csrf }}", page.keys.csrf)
    shared = files("secondguess.web") / "static"
    parts = {name: ((shared if name in SHARED else static) / name).read_bytes() for name in PARTS}
    known = page.labelling.search.pool.images.content_fingerprint

    @app.get("/")
    def front() -> HTMLResponse:
        return HTMLResponse(html)

    @app.get("/favicon.ico")
    def icon() -> Response:
        return Response(status_code=204)

    @app.get("/{name}.{kind}")
    def part(name: str, kind: str) -> Response:
        content = parts.get(f"{name}.{kind}")
        if content is None:
            raise HTTPException(404, "There is no such file.")
        return Response(content, media_type=PARTS[f"{name}.{kind}"])

    @app.get("/images/{fingerprint}/{image}.png")
    def picture(fingerprint: str, image: int) -> Response:
        if fingerprint != known or not 0 <= image < len(page.album):
            raise HTTPException(404, "There is no such image.")
        return Response(png(page.album[image]), media_type="image/png", headers={"cache-control": FOR_EVER})


def _add_session(app: FastAPI, page: LabelPage) -> None:
    labelling = page.labelling
    pool = labelling.search.pool

    @app.get("/api/session")
    def session() -> dict[str, Any]:
        return {
            "name": pool.images.name,
            "search": labelling.search.title or labelling.search.name,
            "classes": list(labelling.class_names),
            "shortcuts": shortcuts(labelling.class_names),
            "images": f"/images/{pool.images.content_fingerprint}/",
            "shape": list(pool.images.shape),
            "annotator": page.annotator,
            "overlap": labelling.overlap,
            "show_answer": labelling.show_answer,
            "explains": page.explain is not None,
        }

    def state(annotator: str, verdict: dict[str, Any] | None = None) -> dict[str, Any]:
        question = labelling.next(annotator)
        return {
            "question": None if question is None else asdict(question),
            "verdict": verdict,
            "progress": asdict(labelling.progress(annotator)),
        }

    @app.post("/api/next")
    def following(body: Who) -> dict[str, Any]:
        return state(body.annotator)

    @app.post("/api/answer")
    def answer(body: Answered) -> dict[str, Any]:
        verdict = labelling.answer(body.annotator, body.image, tuple(body.classes), body.key)
        app.state.outage.worked()
        return state(body.annotator, asdict(verdict))

    @app.post("/api/skip")
    def skip(body: Passed) -> dict[str, Any]:
        labelling.skip(body.annotator, body.image, body.key)
        app.state.outage.worked()
        return state(body.annotator)

    @app.post("/api/undo")
    def undo(body: Undone) -> dict[str, Any]:
        labelling.undo(body.annotator, body.key)
        app.state.outage.worked()
        return state(body.annotator)


def _add_findings(app: FastAPI, page: LabelPage) -> None:
    labelling = page.labelling
    explaining = Lock()  # one at a time: each takes hundreds of passes through the model

    @app.get("/api/findings")
    def findings() -> dict[str, Any]:
        found = labelling.errors()
        return {"curve": curve(*labelling.outcomes()), "errors": [asdict(one) for one in found[:SHOWN_ERRORS]]}

    @app.get("/api/explanations/{image}")
    def explanation(image: int) -> dict[str, Any]:
        if page.explain is None:
            raise HTTPException(404, 'Explanations need captum: pip install "secondguess[explain]".')
        if not 0 <= image < len(page.album):
            raise HTTPException(404, "There is no such image.")
        if not (labelling.show_answer or labelling.is_answered(image)):
            raise HTTPException(403, "The model's answer is hidden until the image has been answered.")
        with explaining:
            return page.explain(image)

    @app.get("/export/labels.{kind}")
    def download(kind: str) -> Response:
        if kind not in FORMATS:
            raise HTTPException(404, f"There is {', '.join(FORMATS)}.")
        try:
            content = exported(page.store, kind)
        except MissingExtra as error:
            raise HTTPException(501, str(error)) from error
        disposition = {"content-disposition": f'attachment; filename="labels.{kind}"'}
        return Response(content, media_type=MEDIA[kind], headers=disposition)
