"""Under which names the service may be called: a request for another name is meant for another server, or a trick.

A page in somebody's browser can make its own name point at this machine (DNS rebinding). An address cannot be bent like
that, so addresses are always known, and so are `localhost` and the name of this machine; others are given by whoever
starts the service. A request without a `Host` header, which HTTP/1.0 allows, names nobody.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["KnownHosts"]


class KnownHosts:
    """An ASGI application that is reached under known names only.

    Args:
        app: the application.
        names: further names, without a port.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {name.lower().rstrip(".") for name in ("localhost", socket.gethostname(), *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 400."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) > 1 or (given and not self._is_known(given[0].decode("latin-1"))):
                sentence = "The Host header names another server; whoever runs this one can allow it (--allow-hosts)."
                await JSONResponse({"detail": sentence}, 400)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if not port.isdecimal() or not name:  # there is none, or these are the colons of an address
            name = host
        name = name.lower().rstrip(".")
        return name in self._names or _is_address(name.removeprefix("[").removesuffix("]"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
