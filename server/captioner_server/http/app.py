"""The ASGI application: all HTTP routes, behind the guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from captioner.errors import clip
from captioner.readable_json import dump_json
from captioner_server.captioning.models import Models
from captioner_server.captioning.pictures import Pictures
from captioner_server.errors import NotFoundError, NotServingError
from captioner_server.http.caption import CaptionCalls
from captioner_server.http.description.docs_page import POLICY, docs_page
from captioner_server.http.description.hints import hint
from captioner_server.http.description.openapi import calls_of, describe_api
from captioner_server.http.dialects.ollama import ollama_error
from captioner_server.http.dialects.operations import dialect_operations
from captioner_server.http.endpoint import Endpoint, Operation, peer_of
from captioner_server.http.errors import error_response, error_to_json
from captioner_server.http.guards.middleware import make_guards
from captioner_server.http.guards.origins import Origins
from captioner_server.http.pages.gallery import Gallery
from captioner_server.http.pages.page import page_routes
from captioner_server.http.pages.static_file import StaticFile
from captioner_server.http.request.body import CaptionCall
from captioner_server.intake.door import Door
from captioner_server.intake.state import ServerState
from captioner_server.intake.ticket import Kind
from captioner_server.observation.journal import Journal
from captioner_server.options import ServerOptions
from captioner_server.tls import is_local

_RETRY_AFTER_S = 1.0
_UNKNOWN = "unknown"
"""The method, in logs and metrics, of requests for what is not there."""


def make_app(
    models: Models,
    pictures: Pictures,
    options: ServerOptions,
    door: Door,
    journal: Journal,
    gallery: Gallery | None,
) -> Starlette:
    """Build the application."""
    calls = CaptionCalls(models, pictures, options)
    api = describe_api(options)
    origins = Origins(options.origins, is_local(options.host))

    operations: list[Operation[Any]] = [
        Operation("POST /v1/caption", Kind.IMAGE, calls.read, CaptionCall.size_of, calls.caption),
        Operation("POST /v1/caption:stream", Kind.WORDS, calls.read, CaptionCall.size_of, calls.stream),
        Operation("POST /v1/picture", Kind.IMAGE, calls.read_image, CaptionCall.size_of, calls.picture),
        Operation("GET /v1/model", Kind.QUERY, calls.read_name, len, calls.model),
        *dialect_operations(models, options),
        *(gallery.operations() if gallery else ()),
    ]

    def file(path: str, content: str, kind: str, policy: str) -> Route:
        headers = {"Content-Security-Policy": policy}
        static = StaticFile(content.encode(), kind, headers, patience_s=options.stream_idle_s)
        return Route(path, static, methods=["GET"])

    def route(operation: Operation[Any]) -> Route:
        endpoint = Endpoint(operation, door, journal, origins, options.stream_idle_s)
        verb, path = operation.method.split()
        return Route(path, endpoint, methods=[verb])

    app = Starlette(
        routes=[
            *map(route, operations),
            *_health_routes(door.state),
            file("/openapi.json", dump_json(api), "application/json", "default-src 'none'"),
            file("/docs", docs_page(api), "text/html", POLICY),
            *page_routes(options.stream_idle_s),
            *(gallery.routes(options.stream_idle_s) if gallery else ()),
        ],
        middleware=make_guards(options.hosts, origins.allowed),
        exception_handlers={HTTPException: _not_found(calls_of(api), journal)},
    )
    # Starlette would send callers of /docs/ to http:, also those that reach a proxy by https:.
    app.router.redirect_slashes = False
    return app


def _health_routes(state: ServerState) -> list[Route]:
    async def live(request: Request) -> Response:
        return JSONResponse({"status": "SERVING"})

    async def ready(request: Request) -> Response:
        reason = state.not_ready
        return error_response(NotServingError(reason, _RETRY_AFTER_S)) if reason else await live(request)

    return [Route("/health", ready), Route("/healthz", live), Route("/readyz", ready)]


def _not_found(known: Sequence[str], journal: Journal) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answers requests for an address that is not there, or not with this method. `known` are the calls."""

    async def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        path = str(request.scope["path"])  # not `request.url`, which fails for some Host headers
        what = "has no such method" if status == 405 else "is not here"
        asked = f"{clip(request.method, 20)} {clip(path, 200)} {what}"
        missing = NotFoundError(f"{asked}; {hint(path, known)}")
        call = journal.begin(_UNKNOWN, request.headers, peer_of(request))
        journal.count_error(missing)
        journal.finish(call, missing.grpc_code, asked, 0.0)
        content = error_to_json(missing)
        if path.startswith("/v1/"):  # OpenAI's clients look there too
            content["error"] |= {"type": "invalid_request_error", "param": None}
        # Clients of Ollama and of the Open Inference Protocol expect the same form.
        is_text = path.startswith(("/api/", "/v2/models", "/v2/health", "/v2/repository"))
        response = ollama_error(missing) if is_text else error_response(missing, content)
        response.status_code = status
        response.headers["X-Request-Id"] = call.request_id
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)
        return response

    return answer
