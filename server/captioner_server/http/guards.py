"""What stands before all HTTP calls, against requests that lie about themselves and pages of other sites.

A page of another site cannot read the answer to a call that it makes from a visitor's browser (cross-site
request forgery), but could make a server on the visitor's own machine work for it. If its host name is
changed to mean the visitor's machine (DNS rebinding), it could even read the answer.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner_server.errors import ForeignOriginError, RequestError
from captioner_server.http.cors import Cors, foreign_page
from captioner_server.http.errors import error_response

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def make_guards(hosts: frozenset[str], origins: frozenset[str]) -> list[Middleware]:
    """The guards of a server with these names, any if there are none, and allowed origins."""
    return [
        Middleware(_OneLength),
        Middleware(_OwnPagesOnly),
        *([Middleware(_KnownNames, names=hosts)] if hosts else []),
        Middleware(Cors, origins=origins),
    ]


class _OneLength:
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


@dataclass(frozen=True, slots=True)
class Origins:
    """The pages that may call: the server's own, and those of other sites that it allows."""

    allowed: frozenset[str]
    """Origins of other sites; "*" for all."""
    local: bool
    """Whether only this machine can reach the server: then the server has no other names than localhost."""

    def check(self, headers: Headers) -> None:
        """Raise `ForeignOriginError` for a call of a page that may not. Other programs than browsers send
        none of these headers."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if {"*", origin} & self.allowed:
            return
        if site is not None:  # browsers send it to HTTPS and to localhost, where names cannot be rebound
            foreign = site in ("cross-site", "same-site")
        elif origin is not None:
            host = headers.get("host", "")
            foreign = not _is_at(origin, host) or (self.local and not is_local_name(host))
        else:
            foreign = False
        if foreign:
            raise foreign_page(origin)


def _is_at(origin: str, host: str) -> bool:
    """Whether the page comes from the host and port that it calls. The scheme may differ: a proxy may serve
    HTTPS."""
    scheme, _, place = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme, "")
    return place != "" and place.removesuffix(port) == host.lower().removesuffix(port)


def is_local_name(host: str) -> bool:
    """Whether no name server chooses what the host in a Host header means."""
    name = re.sub(r":\d*$", "", host.lower()).strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
