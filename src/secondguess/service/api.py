"""The service over HTTP: `POST /predict`, `GET /healthz`, `GET /readyz`, `GET /metrics`, and a page that lists them.

Programs call it, so it asks for `Authorization: Bearer TOKEN` and knows neither cookies nor sessions. A request that
cannot be served gets a 4xx status and one sentence; 503 with `Retry-After` means that the service is at its limit or
cannot write records. Nothing is answered that has not been recorded.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
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
from secondguess.web.answers import SafeJSON
from secondguess.web.connections import ConnectionLimits
from secondguess.web.logs import Throttle

__all__ = ["Service", "service_app"]

RETRY = "1"  # seconds
TRIAL = 5.0  # seconds that a trial may take before the service is called not ready
TRIED = 1.0  # seconds for which the outcome of a trial is believed, so that asking costs nothing
COUNTED = 1.0  # seconds after which other workers know what waits here
CLOSING = 2.0  # seconds that the batch in progress is given at the end
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

    Attributes:
        hangs: whether a thread was still busy when the service was closed.
        connections: what connections may do; counts those that were ended.
        throttle: of the log; counts the lines that were left out.
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
        self.hangs = False
        self.connections, self.throttle = ConnectionLimits(), Throttle()
        self.reader = BodyReader(self.limits)
        self.metrics = Metrics(subject.rate, lambda: float(self.batcher.images))
        self.metrics.add_counts(
            "secondguess_ended_connections", "Connections ended early.", "reason", lambda: self.connections.refused
        )
        self.metrics.add_counts(
            "secondguess_dropped_log_lines", "Log lines left out.", "log", lambda: {"server": self.throttle.dropped}
        )
        self._worker = JudgeWorker(subject, records, thumbnails=thumbnails, recorded=self.metrics.judged)
        self.batcher: Batcher[Job, list[dict[str, Any]]] = Batcher(
            self._worker,
            size=max(64, self.limits.images),
            wait=wait,
            capacity=self.limits.waiting,
            shared=(DatabaseFailed,),
        )
        self._trial = asyncio.Lock()
        self._tried, self._trouble = -math.inf, ""
        self._counting: asyncio.Task[None] | None = None
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="secondguess-decode")

    async def start(self) -> None:
        """Judge a black image, so that the first caller does not wait for what is set up late; then begin."""
        self.records.begin(self.subject.card)
        self.subject.judge(np.zeros((1, *self.subject.shape), np.float32))
        self.batcher.start()
        if self.metrics.are_shared:  # another worker may be asked for them
            self._counting = asyncio.create_task(self._keep_counting())

    async def rotate(self) -> None:
        """Put the file of records aside and go on in an empty one; the log says under which name, or why not."""
        self._worker.rotates = True
        await self._try()

    async def close(self) -> None:
        """Finish the accepted requests, then close the records; what hangs in a model or a disk is left behind."""
        if self._counting is not None:
            self._counting.cancel()
        try:
            await asyncio.wait_for(self.batcher.close(), CLOSING)
        except TimeoutError:
            self.hangs = True
            logging.getLogger(__name__).error("The last images were not judged and recorded in time, nor answered.")
            return
        self._decoders.shutdown()
        self._worker.writer.close()
        self.hangs = self._worker.writer.hangs
        if not self.hangs:
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
        except asyncio.CancelledError:  # the time for an orderly end is over
            raise Refused(503, "The service was stopped before the images were judged; try again.") from None
        except DatabaseFailed as error:  # the log says why
            sentence = "The prediction could not be recorded, so it is not given; try again in a moment."
            raise Refused(503, sentence) from error
        return {"request": name, "results": results}

    async def trouble(self) -> str:
        """Why predictions cannot be given now, as a sentence; "" where they can: a trial went the way of a request."""
        async with self._trial:
            if time.monotonic() - self._tried >= TRIED:
                self._trouble = await self._try()
                self._tried = time.monotonic()
            return self._trouble

    async def _keep_counting(self) -> None:
        while True:
            self.metrics.refresh()
            await asyncio.sleep(COUNTED)

    async def _try(self) -> str:
        black = np.zeros((1, *self.subject.shape), np.float32)
        try:
            await asyncio.wait_for(self.batcher.submit(Job(black, None), 1), TRIAL)
        except Busy:
            return "Too many images are waiting to be judged."
        except DatabaseFailed:
            return "Records cannot be written."
        except TimeoutError:
            return f"An image could not be judged and recorded within {TRIAL:g} seconds."
        except Exception:
            logging.getLogger(__name__).exception("The model failed on a black image")
            return "The model fails."
        return ""

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
        redirect_slashes=False,  # a redirect would be built from what the caller says our name is
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
        return SafeJSON(await service.predict(request))
    except Refused as refused:
        if refused.status != 408:  # a caller who was too slow is not waited for again
            await service.reader.drain(request)
        headers = {"retry-after": RETRY} if refused.status == 503 else {}
        headers |= {"www-authenticate": "Bearer"} if refused.status == 401 else {}
        headers |= {"connection": "close"} if refused.status == 408 else {}
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

    @app.get("/readyz", summary="Whether predictions can be given: the model answers, records can be written")
    async def readyz() -> Response:
        trouble = await service.trouble()
        if trouble:
            return JSONResponse({"status": "not ready", "detail": trouble}, 503, {"retry-after": RETRY})
        return JSONResponse({"status": "ready"})

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
