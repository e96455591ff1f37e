"""Running the service: bind, announce the address, and shut down cleanly.

A termination signal or Ctrl-C ends the listening at once; requests under way are answered, what was taken in is judged
and recorded, then the process ends. SIGHUP puts the file of records aside, also one that comes while the guard is still
being read: then once requests are answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from secondguess.database import public_name
from secondguess.errors import UserError
from secondguess.images.fitting import check_resize
from secondguess.service.api import WAIT, Service, service_app
from secondguess.service.hosts import KnownHosts
from secondguess.service.judge_worker import Subject
from secondguess.service.limits import Limits
from secondguess.service.records import Records
from secondguess.web.server import HOST, listen
from secondguess.web.server import run as run_app

__all__ = ["RECORDS", "Hangups", "Recipe", "Serving", "bind", "read_token", "run", "serve_guard", "serve_here"]

RECORDS = "records.sqlite"  # in the folder of the guard

PATIENCE = 7  # seconds for requests under way when the service is stopped
IDLE = 30  # seconds between two requests on one connection
SHORTEST, LONGEST = 16, 4096  # letters of a token


@dataclass(frozen=True)
class Serving:
    """A service that answers requests.

    Attributes:
        address: where it is called.
        token: what callers send; None where it is in a file of its own.
        records: where predictions are recorded, without passwords.
        watched: what `secondguess guard watch` is given.
    """

    address: str
    token: str | None
    records: str
    watched: str


def serve_guard(
    folder: str | Path,
    model: Any = None,
    *,
    host: str = HOST,
    port: int = 8000,
    exposed: bool = False,
    records: str | None = None,
    token_file: Path | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
    thumbnails: bool = False,
    resize: str | None = None,
    wait: float = WAIT,
    workers: int = 1,
    announce: Callable[[Serving], None] = print,
    **changes: Any,
) -> None:
    """Serve the guard in a folder over HTTP until a termination signal or Ctrl-C.

    Args:
        folder: of the guard.
        model: what the guard was fitted on, where its folder does not hold it.
        host: where to listen.
        port: 0 for any that is free.
        exposed: whether other machines may call.
        records: an SQLite file or `postgresql://...`; by default in the folder of the guard.
        token_file: holds the token, and is made if it is missing; by default there is a fresh token.
        hosts: further names under which the service may be called.
        limits: of requests.
        thumbnails: whether a small picture of every image with an alarm is kept.
        resize: how pictures of other proportions are resized; by default as when the guard was fitted.
        wait: seconds that a request waits for others.
        workers: processes that answer at the same port, each with a model of its own and all with the same records.
        announce: called once requests are answered.
        **changes: of the model's description, and how it is run, as for `Classifier.open`.
    """
    if resize is not None:
        check_resize(resize)
    with Hangups() as hangups:
        token, kept = read_token(token_file), records or str(Path(folder) / RECORDS)
        recipe = Recipe(
            folder=Path(folder),
            model=model,
            changes=changes,
            records=kept,
            token=token,
            options={"limits": limits, "thumbnails": thumbnails, "wait": wait},
            resize=resize,
        )
        listening = bind(host, port, exposed=exposed)  # an address in use is known before the model is read
        shown, watched = public_name(kept), str(folder) if records is None else public_name(kept)

        def ready(address: str) -> None:
            announce(Serving(address, token if token_file is None else None, shown, watched))

        if workers > 1:
            from secondguess.service.workers import supervise

            supervise(recipe, listening, workers, announce=ready, hosts=hosts)
        else:
            serve_here(recipe, listening, announce=ready, hosts=hosts, hangups=hangups)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a process makes its service from; it can be sent to another one.

    Attributes:
        folder: of the guard.
        model: what the guard was fitted on, where its folder does not hold it.
        changes: of the model's description, as for `Classifier.open`.
        records: where they are kept.
        token: required of every request.
        options: further ones of `Service`.
        resize: how pictures of other proportions are resized; by default as when the guard was fitted.
    """

    folder: Path
    model: Any
    changes: Mapping[str, Any]
    records: str
    token: str
    options: Mapping[str, Any]
    resize: str | None = None

    def __call__(self) -> Service:
        """The service, its guard loaded and its records open."""
        from secondguess.guard import Guard

        guard = Guard.load(self.folder, self.model, **self.changes)
        resizing = check_resize(self.resize or guard.resized_by)
        return Service(Subject.of(guard), Records(self.records), self.token, resize=resizing, **self.options)


def serve_here(
    make: Callable[[], Service],
    listening: socket.socket,
    *,
    announce: Callable[[str], None],
    hosts: Sequence[str] = (),
    hangups: Hangups | None = None,
) -> None:
    """Make a service and serve it in this process; the arguments are those of `run`."""
    from threadpoolctl import threadpool_limits

    try:
        service = make()
    except BaseException:
        listening.close()
        raise
    # Images come one by one: threads of NumPy would wait for the cores that the threads of the model hold.
    with threadpool_limits(1, user_api="blas"):
        run(service, listening, announce=announce, hosts=hosts, hangups=hangups)


def read_token(file: Path | None) -> str:
    """The token in a file, or a fresh one, which is stored there (readable by the owner only) if a file is given.

    A file that everybody can read, or that others can change, is refused.
    """
    if file is None:
        return secrets.token_urlsafe(32)
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            token = opened.read(LONGEST).strip()
    except FileNotFoundError:
        return _put_token(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The token file {file} cannot be read ({type(error).__name__}).") from error
    if os.name == "posix" and mode & 0o027:
        raise UserError(
            f"The token file {file} can be read by everybody or changed by others; give it to its owner only "
            f"(chmod 600 {file}), and put another token there if somebody may have seen this one."
        )
    if len(token) < SHORTEST or not token.isascii() or len(token.split()) != 1:
        raise UserError(
            f"The token file {file} must hold one word of at least {SHORTEST} letters; remove it to get a fresh one."
        )
    return token


def _put_token(file: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(token + "\n")
    except OSError as error:
        raise UserError(f"The token file {file} cannot be written ({error.strerror or error}).") from error
    return token


def bind(host: str, port: int, *, exposed: bool = False) -> socket.socket:
    """A listening socket.

    Args:
        host: 127.0.0.1, or with `exposed` any address of this machine.
        port: 0 for any that is free.
        exposed: whether other machines may call; the token then travels as plain text unless a proxy encrypts it.
    """
    if host in (HOST, "localhost"):
        return listen(port)
    if not exposed:
        raise UserError(
            f"--host {host} would let other machines call the service; add --exposed if that is meant, and put a proxy "
            "with TLS before it."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UserError(f"{host}:{port} cannot be used ({error.strerror or error}); give another address.") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for the reason given in `web.server`
    return listening


class Hangups:
    """SIGHUP, what a tool that rotates logs sends.

    Within the block it is remembered, since it would end the process, until somebody attends to it.
    """

    def __init__(self) -> None:
        self._waits = False

    def __enter__(self) -> Self:
        if hasattr(signal, "SIGHUP"):  # not on Windows
            self._before = signal.signal(signal.SIGHUP, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._before)

    def attend(self, rotate: Callable[[], None]) -> None:
        """Call a function for every signal from now on, and for those before, in the running event loop."""
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rotate)
        if self._waits:
            rotate()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._waits = True


def run(
    service: Service,
    listening: socket.socket,
    *,
    announce: Callable[[str], None],
    hosts: Sequence[str] = (),
    hangups: Hangups | None = None,
) -> None:
    """Serve until a termination signal or Ctrl-C.

    Args:
        service: what to serve; its records are closed at the end.
        listening: what `bind` gave; it is closed at the end.
        announce: called with the address once requests are answered.
        hosts: further names under which the service may be called.
        hangups: since when SIGHUP is attended to; by default from now on.
    """
    hangups = hangups or Hangups()
    # It writes a line for every form that it cannot read; the caller gets the reason, and that is enough.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("secondguess.service.api").addFilter(service.throttle)
    service.records.begin(service.subject.card)  # where that fails, it is said before anything is served
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    rotations: set[asyncio.Task[None]] = set()  # a task that nobody holds may vanish

    def rotate() -> None:
        rotations.add(task := asyncio.get_running_loop().create_task(service.rotate()))
        task.add_done_callback(rotations.discard)

    def ready() -> None:
        hangups.attend(rotate)
        announce(address)

    run_app(
        KnownHosts(service_app(service), hosts),
        listening,
        ready=ready,
        patience=PATIENCE,
        lifespan="on",
        limits=service.connections,
        throttle=service.throttle,
        timeout_keep_alive=IDLE,
    )
    if service.hangs:  # its thread would be waited for without end
        sys.stdout.flush()
        os._exit(1)
