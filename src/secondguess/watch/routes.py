"""The watch page over HTTP: its three files, its state as JSON, and thumbnails by number. Nothing can be changed."""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from secondguess.database import DatabaseFailed
from secondguess.errors import UserError
from secondguess.watch.stream import Watch
from secondguess.web.answers import PageJSON
from secondguess.web.logs import Outage

__all__ = ["watch_app"]

FOR_EVER = "private, max-age=31536000, immutable"  # a record never changes


def watch_app(watch: Watch) -> FastAPI:
    """The application behind the watch page; serve it through `server.serve`, which guards it."""
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, default_response_class=PageJSON
    )
    static, shared = files("secondguess.watch") / "static", files("secondguess.web") / "static"
    html = (static / "watch.html").read_text("utf-8")
    script = (static / "watch.js").read_bytes()
    outage = Outage(logging.getLogger(__name__), "The records cannot be read", "The records are read again")
    style = (shared / "page.css").read_bytes() + (static / "watch.css").read_bytes()

    @app.exception_handler(UserError)
    async def refused(request: Request, error: UserError) -> PageJSON:
        return PageJSON({"detail": str(error)}, 400)

    @app.exception_handler(DatabaseFailed)
    async def failed(request: Request, error: DatabaseFailed) -> PageJSON:
        outage.failed(error)
        return PageJSON({"detail": "The records cannot be read now; the terminal says why."}, 503)

    @app.get("/")
    def front() -> HTMLResponse:
        return HTMLResponse(html)

    @app.get("/watch.js")
    def javascript() -> Response:
        return Response(script, media_type="text/javascript; charset=utf-8")

    @app.get("/watch.css")
    def stylesheet() -> Response:
        return Response(style, media_type="text/css; charset=utf-8")

    @app.get("/favicon.ico")
    def icon() -> Response:
        return Response(status_code=204)

    @app.get("/api/watch")
    def state(span: str = "all") -> dict[str, Any]:
        found = watch.state(span)
        outage.worked()
        return found

    @app.get("/thumbnails/{number}.png")
    def thumbnail(number: int) -> Response:
        picture = watch.thumbnail(number) if 0 < number < 2**63 else None
        if picture is None:
            raise HTTPException(404, "There is no such picture.")
        return Response(picture, media_type="image/png", headers={"cache-control": FOR_EVER})

    return app
