"""The ASGI application with all HTTP routes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.errors import clip
from captioner_server.captioning.models import Models
from captioner_server.captioning.pictures import Pictures
from captioner_server.errors import ForeignOriginError, NotServingError, RequestError
from captioner_server.http.body import CaptionCall
from captioner_server.http.caption import CaptionCalls
from captioner_server.http.cors import Cors
from captioner_server.http.dialects.ollama import show_error
from captioner_server.http.dialects.operations import dialect_operations
from captioner_server.http.docs_page import POLICY, docs_page
from captioner_server.http.endpoint import Endpoint, Operation
from captioner_server.http.errors import NotFoundError, error_response, error_to_json
from captioner_server.http.gallery import Gallery
from captioner_server.http.hints import hint
from captioner_server.http.openapi import calls_of, describe_api
from captioner_server.http.origin import Origins, is_local_name
from captioner_server.http.page import page_routes
from captioner_server.http.static_file import StaticFile
from captioner_server.intake.door import Door
from captioner_server.intake.ticket import Kind
from captioner_server.observation.journal import Journal
from captioner_server.options import ServerOptions
from captioner_server.tls import is_local

_RETRY_AFTER_S = 1.0


def make_app(
    models: Models,
    pictures: Pictures,
    options: ServerOptions,
    door: Door,
    journal: Journal,
    gallery: Gallery | None = None,
) -> Starlette:
    """Build the application."""
    calls = CaptionCalls(models, pictures, options)
    api = describe_api(options)
    origins = Origins(options.origins, is_local(options.host))

    operations: list[Operation[Any]] = [
        Operation("POST /v1/caption", Kind.IMAGE, calls.read, CaptionCall.size_of, calls.caption),
        Operation("POST /v1/caption:stream", Kind.WORDS, calls.read, CaptionCall.size_of, calls.stream),
        Operation("POST /v1/picture", Kind.IMAGE, calls.read, CaptionCall.size_of, calls.picture),
        Operation("GET /v1/model", Kind.SMALL, calls.read_name, len, calls.model),
        *dialect_operations(models, options),
        *(gallery.operations() if gallery else ()),
    ]

    async def live(request: Request) -> Response:
        return JSONResponse({"status": "SERVING"})

    async def ready(request: Request) -> Response:
        if reason := door.state.not_ready:
            return error_response(NotServingError(reason, _RETRY_AFTER_S))
        return JSONResponse({"status": "SERVING"})

    def file(path: str, content: str, kind: str, policy: str) -> Route:
        headers = {"Content-Security-Policy": policy}
        static = StaticFile(content.encode(), kind, headers, patience_s=options.stream_idle_s)
        return Route(path, static, methods=["GET"])

    def route(operation: Operation[Any]) -> Route:
        endpoint = Endpoint(operation, door, journal, origins, options.stream_idle_s)
        verb, path = operation.method.split()
        return Route(path, endpoint, methods=[verb])

    return Starlette(
        routes=[
            *map(route, operations),
            Route("/health", ready),
            Route("/healthz", live),
            Route("/readyz", ready),
            file("/openapi.json", json.dumps(api), "application/json", "default-src 'none'"),
            file("/docs", docs_page(api), "text/html", POLICY),
            *page_routes(options.stream_idle_s),
            *(gallery.routes(options.stream_idle_s) if gallery else ()),
        ],
        middleware=[
            Middleware(_OneLength),
            Middleware(_OwnPagesOnly),
            *_names(options.hosts),
            Middleware(Cors, origins=origins.allowed),
        ],
        exception_handlers={HTTPException: _not_found(calls_of(api))},
    )


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


def _names(names: frozenset[str]) -> list[Middleware]:
    return [Middleware(_KnownNames, names=names)] if names else []


def _not_found(known: Sequence[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answers requests for an address that is not there, or not with this method. `known` are the calls."""

    async def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        path = str(request.scope["path"])  # not `request.url`, which fails for some Host headers
        what = "has no such method" if status == 405 else "is not here"
        missing = NotFoundError(f"{request.method} {clip(path, 200)} {what}; {hint(path, known)}")
        content = error_to_json(missing)
        if path.startswith("/v1/"):  # OpenAI's clients look there too
            content["error"] |= {"type": "invalid_request_error", "param": None}
        response = show_error(missing) if path.startswith("/api/") else error_response(missing, content)
        response.status_code = status
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)
        return response

    return answer
