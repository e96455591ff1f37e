"""The service over HTTP: `POST /predict`, `GET /healthz`, `GET /metrics`, and a page that lists them.

Programs call it, so it asks for `Authorization: Bearer TOKEN` and knows neither cookies nor sessions. A request that
cannot be served gets a 4xx status and one sentence; 503 with `Retry-After` means that the service is at its limit or
cannot write records. Nothing is answered that has not been recorded.
"""

from __future__ import annotations

import asyncio
import hmac
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from secondguess import __version__
from secondguess.database import DatabaseFailed
from secondguess.images.fitting import Resizing
from secondguess.images.sources import Floats
from secondguess.service.batching import Batcher, Busy
from secondguess.service.judge_worker import Job, JudgeWorker, Subject
from secondguess.service.limits import BodyReader, Limits, Refused
from secondguess.service.metrics import CONTENT_TYPE, Metrics
from secondguess.service.reading import from_json, from_pictures, uploaded
from secondguess.service.records import Records
from secondguess.service.schema import PREDICT
from secondguess.web.access import SECURITY_HEADERS

__all__ = ["Service", "service_app"]

RETRY = "1"  # seconds
DECODERS = 2  # threads
WAIT = 0.002  # seconds that a request waits for others
PAGE_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


class Service:
    """The service behind the HTTP routes.

    Args:
        subject: judges.
        records: keep its answers.
        token: required of every request.
        limits: of requests.
        thumbnails: whether a small picture of every image with an alarm is kept.
        resize: how pictures of other proportions are brought to the model's shape.
        wait: seconds that a request waits for others to be judged together with.
    """

    def __init__(
        self,
        subject: Subject,
        records: Records,
        token: str,
        *,
        limits: Limits | None = None,
        thumbnails: bool = False,
        resize: Resizing = "stretch",
        wait: float = WAIT,
    ) -> None:
        self.subject, self.records, self.token, self.resize = subject, records, token, resize
        self.limits = limits or Limits()
        self.reader = BodyReader(self.limits)
        self.metrics = Metrics(subject.rate, lambda: float(self.batcher.images))
        worker = JudgeWorker(subject, records, thumbnails=thumbnails, recorded=self.metrics.judged)
        self.batcher: Batcher[Job, list[dict[str, Any]]] = Batcher(
            worker, size=max(64, self.limits.images), wait=wait, capacity=self.limits.waiting
        )
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="secondguess-decode")

    async def start(self) -> None:
        """Judge a black image, so that the first caller does not wait for what is set up late; then begin."""
        self.records.begin(self.subject.card)
        self.subject.judge(np.zeros((1, *self.subject.shape), np.float32))
        self.batcher.start()

    async def close(self) -> None:
        """Finish the accepted requests, then close the records."""
        await self.batcher.close()
        self._decoders.shutdown()
        self.records.close()

    async def predict(self, request: Request) -> dict[str, Any]:
        """The answer to a request."""
        async with self.reader.body(request) as body:
            images = await self._images(request, body)
        name = uuid.uuid4().hex
        try:
            results = await self.batcher.submit(Job(images, name), len(images))
        except Busy:
            raise Refused(503, "Too many images are waiting to be judged; try again in a moment.") from None
        except DatabaseFailed as error:
            raise Refused(503, f"The prediction could not be recorded ({error}), so it is not given.") from error
        return {"request": name, "results": results}

    async def _images(self, request: Request, body: bytes) -> Floats:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not body:
            raise Refused(400, "The request has no body; send an image, a form with images, or JSON.")
        loop = asyncio.get_running_loop()
        shape = self.subject.shape
        if kind == "application/json":
            return await loop.run_in_executor(self._decoders, from_json, body, shape, self.limits)
        if kind == "multipart/form-data":
            pictures = await uploaded(request.headers, body, self.limits)
        elif kind.startswith("image/") or kind == "application/octet-stream":
            pictures = [body]
        else:
            raise Refused(
                415, f"The content type {kind[:80]!r} is not understood; send image/..., multipart/form-data or JSON."
            )
        return await loop.run_in_executor(self._decoders, from_pictures, pictures, shape, self.resize, self.limits)


def service_app(service: Service) -> FastAPI:
    """The application; its lifespan starts the service and closes it in good order."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    app = FastAPI(
        title="secondguess guard",
        description="Predictions with a second opinion: p-value, verdict and action for every image.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page is fetched from other servers; ours is not
        redoc_url=None,
    )
    _add_errors(app)
    _add_predict(app, service)
    _add_pages(app, service)
    app.openapi().setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        sentence = {
            404: "There is nothing at this address; send images to POST /predict.",
            405: "This address does not take this method; / lists what there is.",
        }.get(error.status_code, error.detail)
        return JSONResponse({"detail": sentence}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def defect(request: Request, error: Exception) -> JSONResponse:
        # The traceback is in the log of the service.
        return JSONResponse({"detail": "The service failed on this request, through no fault of yours."}, 500)


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post("/predict", openapi_extra=PREDICT, summary="Judge one image or several")
    async def predict(request: Request) -> Response:
        began = time.perf_counter()
        status = 500  # unless an answer is found
        try:
            response = await _answered(service, request)
            status = response.status_code
        finally:
            service.metrics.request(status, time.perf_counter() - began)
        return response


async def _answered(service: Service, request: Request) -> Response:
    try:
        _check_token(request, service.token)
        return JSONResponse(await service.predict(request))
    except Refused as refused:
        if refused.status != 408:  # a caller who was too slow is not waited for again
            await service.reader.drain(request)
        headers = {"retry-after": RETRY} if refused.status == 503 else {}
        headers |= {"www-authenticate": "Bearer"} if refused.status == 401 else {}
        return JSONResponse({"detail": refused.sentence}, refused.status, headers)
    except ClientDisconnect:
        return JSONResponse({"detail": "The request ended before it was complete."}, 400)


def _add_pages(app: FastAPI, service: Service) -> None:
    page = (files("secondguess.service") / "static" / "service.html").read_text("utf-8")

    @app.get("/", include_in_schema=False)
    async def front() -> HTMLResponse:
        return HTMLResponse(page, headers=SECURITY_HEADERS | PAGE_POLICY)

    @app.get("/healthz", summary="Whether the service is up")
    async def healthz() -> dict[str, Any]:
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", summary="Counters for Prometheus")
    async def metrics(request: Request) -> Response:
        try:
            _check_token(request, service.token)
        except Refused as refused:
            return JSONResponse({"detail": refused.sentence}, 401, {"www-authenticate": "Bearer"})
        return Response(service.metrics.page(), media_type=CONTENT_TYPE)


def _check_token(request: Request, token: str) -> None:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode()):
        raise Refused(401, "The token is missing or wrong; send the header `Authorization: Bearer TOKEN`.")
