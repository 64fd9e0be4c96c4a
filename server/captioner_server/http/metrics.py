"""The metrics for Prometheus, on a port of their own."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from captioner_server.http.guards.origins import is_local_name
from captioner_server.http.off_loop import off_loop
from captioner_server.tls import is_local


def make_metrics_app(registry: CollectorRegistry, host: str) -> Starlette:
    """The application with /metrics. On a loopback `host` it answers for names of this machine only: the page
    of another site, whose name has been changed to mean this machine, learns nothing."""
    local = is_local(host)
    collecting: dict[str, asyncio.Task[bytes]] = {}

    async def collect(accept: str) -> bytes:
        """The metrics; those who ask while they are collected share them."""
        encode, kind = choose_encoder(accept)
        if kind not in collecting:
            collecting[kind] = asyncio.create_task(off_loop(encode, registry))
            collecting[kind].add_done_callback(lambda _: collecting.pop(kind))
        return await asyncio.shield(collecting[kind])

    async def metrics(request: Request) -> Response:
        if local and not is_local_name(request.headers.get("host", "")):
            return PlainTextResponse("this port is for this machine only (metrics_host)\n", 403)
        accept = request.headers.get("accept", "")
        try:
            _, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # the version is no number
            accept, kind = "", choose_encoder("")[1]
        return Response(await collect(accept), media_type=kind)

    return Starlette(routes=[Route("/metrics", metrics)])
