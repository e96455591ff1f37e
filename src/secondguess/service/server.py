"""Running the service: bind, announce the address, and shut down cleanly.

A termination signal or Ctrl-C ends the listening at once; requests under way are answered, what was taken in is judged
and recorded, then the process ends.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from secondguess.errors import UserError
from secondguess.service.api import Service, service_app
from secondguess.service.hosts import KnownHosts
from secondguess.web.server import HOST, listen
from secondguess.web.server import run as run_app

__all__ = ["bind", "read_token", "run"]

PATIENCE = 7  # seconds for requests under way when the service is stopped
SHORTEST, LONGEST = 16, 4096  # letters of a token


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


def run(
    service: Service, listening: socket.socket, *, announce: Callable[[str], None], hosts: Sequence[str] = ()
) -> None:
    """Serve until a termination signal or Ctrl-C.

    Args:
        service: what to serve; its records are closed at the end.
        listening: what `bind` gave; it is closed at the end.
        announce: called with the address once requests are answered.
        hosts: further names under which the service may be called.
    """
    # It writes a line for every form that it cannot read; the caller gets the reason, and that is enough.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("secondguess.service.api").addFilter(service.throttle)
    service.records.begin(service.subject.card)  # where that fails, it is said before anything is served
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    run_app(
        KnownHosts(service_app(service), hosts),
        listening,
        ready=lambda: announce(address),
        patience=PATIENCE,
        lifespan="on",
        limits=service.connections,
        throttle=service.throttle,
        timeout_keep_alive=30,
    )
    if service.hangs:  # its thread would be waited for without end
        sys.stdout.flush()
        os._exit(1)
