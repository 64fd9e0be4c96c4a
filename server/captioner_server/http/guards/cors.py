"""Lets pages of named origins call and read answers (CORS), and says to others how they are named."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from captioner_server.http.errors import error_response
from captioner_server.http.guards.origins import foreign_page


class Cors(CORSMiddleware):
    """CORS for these origins, also where their pages are on the internet and the server is not (private
    network access). Pages of others get none of its headers."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        super().__init__(
            app,
            allow_origins=sorted(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # clients of other protocols send headers of their own
            allow_private_network=True,
            expose_headers=["retry-after", "server-timing", "x-request-id"],
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        origin = request_headers["origin"]
        if self.is_allowed_origin(origin):
            return super().preflight_response(request_headers)
        return error_response(foreign_page(origin))

    async def simple_response(
        self, scope: Scope, receive: Receive, send: Send, request_headers: Headers
    ) -> None:
        if self.is_allowed_origin(request_headers.get("origin", "")):
            await super().simple_response(scope, receive, send, request_headers)
        else:
            await self.app(scope, receive, send)
