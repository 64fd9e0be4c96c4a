"""Checks before every HTTP call: the length of its body, the name of the server, and the page that calls.

A page of another site cannot read the answer to a call that it makes from a visitor's browser (cross-site
request forgery), but could make a server on the visitor's own machine work for it. If its host name is
changed to mean the visitor's machine (DNS rebinding), it could even read the answer.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner_server.errors import ForeignOriginError, RequestError
from captioner_server.http.errors import error_response
from captioner_server.http.guards.cors import Cors
from captioner_server.http.guards.origins import is_local_name


def make_guards(hosts: frozenset[str], origins: frozenset[str]) -> list[Middleware]:
    """The guards of a server with these names, any if there are none, and allowed origins."""
    return [
        Middleware(_OwnPagesOnly),
        *([Middleware(_KnownNames, names=hosts)] if hosts else []),
        Middleware(Cors, origins=origins),
    ]


class OneLength:
    """Rejects requests with two kinds of lengths, and closes the connection (RFC 9112, section 6.1): a proxy
    may take the other one, and so see other requests than the server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        if not {b"content-length", b"transfer-encoding"}.issubset(names):
            await self._app(scope, receive, send)
            return
        error = RequestError(
            "a request has a content-length or a transfer-encoding, not both", "content-length"
        )
        response = error_response(error)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)


class _OwnPagesOnly:
    """Lets no page of another site show or run what the server answers, as a picture or script for instance:
    a gallery's photos and captions are nobody's business."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start":
                header = (b"cross-origin-resource-policy", b"same-origin")
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        await self._app(scope, receive, mark)


class _KnownNames:
    """Rejects requests under other names than these and those of this machine: a page whose name has been
    changed to mean this server (DNS rebinding) reads nothing of it."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if is_local_name(host) or host.lower().partition(":")[0] in self._names:
            await self._app(scope, receive, send)
            return
        error = ForeignOriginError("this server is not called by that name (http_hosts)")
        await error_response(error)(scope, receive, send)
