"""Access control of a local page: only the person with the link may use it, and only from the page itself.

A server on 127.0.0.1 is within reach of every web page that the person has open and of every other user of the
machine. Against each there is one check:

* **other users and programs**: the link holds a token; the first request trades it for a cookie (`HttpOnly`,
  `SameSite=Strict`), without which everything is refused;
* **DNS rebinding** (a name of the attacker's that resolves to 127.0.0.1): the `Host` header must be ours;
* **requests forged by other pages**: every request that may change something needs our `Origin` and a header with a
  second token, which only a page of ours can know; no header of ours ever allows another origin to read an answer;
* **scripts smuggled into the page**: the content security policy allows scripts and styles from our own files only.

The token outlives a restart: it is kept in a file that only its owner can read, so a page that is open when the server
is killed goes on when it is back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from secondguess.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CSRF_HEADER", "CheckedApp", "Keys"]

CSRF_HEADER = "x-csrf-token"
SAFE = ("GET", "HEAD")
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Keys:
    """The secrets of one page.

    Attributes:
        token: what the link holds.
    """

    token: str

    @classmethod
    def new(cls) -> Keys:
        """Fresh ones."""
        return cls(secrets.token_urlsafe(32))

    @classmethod
    def kept_in(cls, file: Path) -> Keys:
        """Those in a file, or fresh ones that are put there, readable by the owner only.

        A file that others can read, a copy say, is replaced: they may know what it holds.
        """
        try:
            token = json.loads(file.read_text("utf-8"))["token"]
            private = os.name != "posix" or not file.stat().st_mode & 0o077
            if private and isinstance(token, str) and len(token) >= 32:
                return cls(token)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or none that can be used
        keys = cls.new()
        try:
            file.unlink(missing_ok=True)  # one with other permissions would keep them
            # Written in place, since it must never be readable by others: an incomplete file is replaced.
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                json.dump({"token": keys.token}, opened)
        except OSError as error:
            raise UserError(f"The page's token cannot be kept in {file} ({error.strerror or error}).") from error
        return keys

    @property
    def csrf(self) -> str:
        """What the page sends in the header `X-CSRF-Token` with everything that may change something."""
        return hmac.new(self.token.encode(), b"csrf", hashlib.sha256).hexdigest()

    @property
    def cookie(self) -> str:
        """The name of the cookie; another one for every page, since cookies do not know ports."""
        return "secondguess_" + hashlib.sha256(self.token.encode()).hexdigest()[:12]

    @property
    def ticket(self) -> str:
        """The value of the cookie: not the token, since cookies know no ports and other local servers see this one."""
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def link(self, port: int) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{port}/?token={self.token}"


class CheckedApp:
    """An ASGI application behind the checks; it is not reached by anything that fails one.

    Args:
        app: the application.
        keys: the secrets.
        port: where the server listens, which is part of the `Host` header.
    """

    def __init__(self, app: ASGIApp, keys: Keys, port: int) -> None:
        self._app, self._keys = app, keys
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on, with the headers that make the answer safe."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSocket is served, and the connection is closed when nothing answers
        headers = _headers(scope)
        fresh = self._has_token(scope)
        refusal = self._refusal(scope["method"], headers, fresh)
        cookie = f"{self._keys.cookie}={self._keys.ticket}; HttpOnly; SameSite=Strict; Path=/" if fresh else None

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = SECURITY_HEADERS | ({"set-cookie": cookie} if cookie else {})
                extra |= {} if _has(message, b"cache-control") else {"cache-control": "no-store"}
                encoded = [(name.encode(), value.encode()) for name, value in extra.items()]
                message = {**message, "headers": [*message.get("headers", []), *encoded]}
            await send(message)

        if refusal is None:
            await self._app(scope, receive, guarded)
            return
        cookie = None
        status, text = refusal
        body = json.dumps({"detail": text}).encode()
        kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await guarded({"type": "http.response.start", "status": status, "headers": kind})
        await guarded({"type": "http.response.body", "body": body})

    def _refusal(self, method: str, headers: dict[str, str], fresh: bool) -> tuple[int, str] | None:
        """Status and reason, or None where the request may pass."""
        host = headers.get("host", "")
        if host not in self._hosts:
            return 403, "This server answers to 127.0.0.1 and localhost only."
        if not fresh and not self._has_cookie(headers):
            return 401, "Open the link that was printed when the page was started: it holds the token."
        if method in SAFE:
            return None
        if headers.get("origin") != f"http://{host}":
            return 403, "This request does not come from the page itself."
        if not _same(headers.get(CSRF_HEADER, ""), self._keys.csrf):
            return 403, "This request lacks the page's token; reload the page."
        return None

    def _has_token(self, scope: Scope) -> bool:
        """Whether the front page is asked for with the token in its address."""
        if scope["path"] != "/" or scope["method"] not in SAFE:
            return False
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])
        return _same(given[0], self._keys.token)

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._keys.cookie)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._keys.ticket)


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by their names; one that is given twice counts as neither."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key in found else value.decode("latin-1")
    return found


def _has(message: Message, name: bytes) -> bool:
    return any(key.lower() == name for key, _ in message.get("headers", []))


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
