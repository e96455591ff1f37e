"""Serving a page to this machine: bind, announce the address, open the browser, and shut down cleanly."""

from __future__ import annotations

import builtins
import json
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.errors import UserError
from secondguess.files import write_json
from secondguess.web.access import CheckedApp, Keys
from secondguess.web.logs import Throttle

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from secondguess.web.connections import ConnectionLimits

__all__ = ["ServedPage", "is_interactive", "listen", "run", "serve", "serve_in_thread"]

HOST = "127.0.0.1"
PATIENCE = 3  # seconds that a request under way is given when the server is stopped
BACKLOG = 256  # connections that wait to be accepted
AT_ONCE = 16  # connections accepted before they are counted; asyncio and uvicorn have one number for both
LOGS = ("asyncio", "uvicorn.error")  # what callers can make these write is unlimited


def listen(port: int = 0, *, remembered: Path | None = None) -> socket.socket:
    """A listening socket on 127.0.0.1.

    Args:
        port: the one wanted; 0 for any that is free.
        remembered: a file that keeps the port. With `port` 0 the one of the last time is taken if it is free, so that
            a page which is still open finds the server again.
    """
    bound = _bind(port) if port or remembered is None else _bind_again(remembered)
    if remembered is not None:
        write_json(remembered, {"port": bound.getsockname()[1]})
    return bound


def serve(
    app: ASGIApp,
    keys: Keys,
    listening: socket.socket,
    *,
    announce: Callable[[str], None],
    browser: bool = True,
) -> None:
    """Serve until Ctrl-C or a termination signal; requests under way are finished first.

    Args:
        app: the application; it is reached only through the checks of `access`.
        keys: its secrets.
        listening: what `listen` gave; it is closed at the end.
        announce: called with the link once the page can be opened.
        browser: whether to open it in the browser.
    """
    link = keys.link(int(listening.getsockname()[1]))
    server = _page_server(app, keys, listening, ready=lambda: _opened(link, announce, browser=browser))
    with suppress(KeyboardInterrupt):  # that is how a person stops it
        _run(server, listening, Throttle())


@dataclass(frozen=True, eq=False)
class ServedPage:
    """A page that is served in a thread of this process.

    Attributes:
        link: what opens it, with the key to it.
    """

    link: str
    _server: Any
    _thread: threading.Thread

    def close(self) -> None:
        """End it; requests under way are finished first."""
        self._server.should_exit = True
        self._thread.join()

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.link)}" target="_blank">Open the page</a>'


def is_interactive() -> bool:
    """Whether somebody types at this Python: a notebook, IPython, or the plain interpreter."""
    return hasattr(sys, "ps1") or "get_ipython" in vars(builtins)


def serve_in_thread(
    app: ASGIApp,
    keys: Keys,
    listening: socket.socket,
    *,
    announce: Callable[[str], None],
    browser: bool = True,
) -> ServedPage:
    """Serve beside what else this process does; the arguments are those of `serve`."""
    link = keys.link(int(listening.getsockname()[1]))
    answering = threading.Event()
    server = _page_server(app, keys, listening, ready=answering.set)

    def work() -> None:
        try:
            _run(server, listening, Throttle())
        finally:
            answering.set()

    thread = threading.Thread(target=work, name="page", daemon=True)
    thread.start()
    answering.wait()
    _opened(link, announce, browser=browser)
    return ServedPage(link, server, thread)


def _page_server(app: ASGIApp, keys: Keys, listening: socket.socket, ready: Callable[[], None]) -> Any:
    checked = CheckedApp(app, keys, int(listening.getsockname()[1]))
    return _server(checked, listening, ready=ready, patience=PATIENCE, limits=None, lifespan="off")


def _opened(link: str, announce: Callable[[str], None], *, browser: bool) -> None:
    announce(link)
    if browser:  # in a thread, since a browser in the terminal returns only when it is closed
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def run(
    app: ASGIApp,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    patience: int,
    limits: ConnectionLimits | None = None,
    throttle: Throttle | None = None,
    **options: Any,
) -> None:
    """Run an application until Ctrl-C or a termination signal, then close the socket.

    Args:
        app: the application.
        listening: the socket that it listens on.
        ready: called once requests are answered.
        patience: seconds that requests under way are given at the end.
        limits: of connections.
        throttle: keeps strangers from filling the log.
        **options: further ones of `uvicorn.Config`.
    """
    server = _server(app, listening, ready=ready, patience=patience, limits=limits, **options)
    with suppress(KeyboardInterrupt):  # that is how a person stops it
        _run(server, listening, throttle or Throttle())


def _server(
    app: ASGIApp,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    patience: int,
    limits: ConnectionLimits | None,
    **options: Any,
) -> Any:
    """A server that says when it is ready."""
    import uvicorn

    from secondguess.web import connections

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listening.listen(BACKLOG)
            if self.started:
                ready()

    config = uvicorn.Config(
        app,
        http=connections.limited_protocol(limits or connections.ConnectionLimits()),
        backlog=AT_ONCE,
        proxy_headers=False,  # nothing depends on who calls
        log_level="warning",
        access_log=False,  # it would print the token
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=patience,
        **options,
    )
    return Announcing(config)


def _run(server: Any, listening: socket.socket, throttle: Throttle) -> None:
    """Run a server until it is stopped, then close the socket."""
    for name in LOGS:
        logging.getLogger(name).addFilter(throttle)
    try:
        server.run(sockets=[listening])
    finally:
        for name in LOGS:
            logging.getLogger(name).removeFilter(throttle)
        listening.close()


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let another program take the port over
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: without, the body of an answer waits 40 ms for the caller to acknowledge its head.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind((HOST, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise UserError(
            f"Port {port} of {HOST} cannot be used ({error.strerror or error}); give another one with --port, or 0 for "
            "any."
        ) from error
    return bound


def _bind_again(remembered: Path) -> socket.socket:
    try:
        last = int(json.loads(remembered.read_text("utf-8"))["port"])
        return _bind(last)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, UserError):
        return _bind(0)
