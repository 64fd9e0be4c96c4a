"""The HTTP port: uvicorn on the server's own event loop, without its signals and its logs."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner_server.errors import ServerStartError
from captioner_server.options import ServerOptions
from captioner_server.tls import server_context

_IDLE_S = 10.0
"""Time for the head of a request to arrive, and for a connection between requests."""
_MAX_HEAD_BYTES = 2**15


class HttpServer:
    """`start` listens; `stop` closes the port and what is still open."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._options = options
        self._config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=options.max_calls,
            timeout_keep_alive=int(_IDLE_S),
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        self._server = uvicorn.Server(self._config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; returns the port. Raises `ServerStartError`."""
        # What it has to say is in the server's own logs.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._config.load()
        self._config.ssl = server_context(self._options)
        listening = _listen(self._options.host, self._options.http_port or 0)
        # `serve` would take the process's signals.
        self._serving = asyncio.create_task(self._server._serve([listening]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0.001)
        return int(listening.getsockname()[1])

    async def stop(self, grace_s: float = 0) -> None:
        """Close the port; requests still open are cancelled after the grace period."""
        if self._serving is None:
            return
        self._config.timeout_graceful_shutdown = grace_s  # type: ignore[assignment]
        self._server.should_exit = True
        await asyncio.wait({self._serving}, timeout=grace_s + 1)
        self._serving.cancel()


class _Protocol(H11Protocol):
    """Closes connections without a request under way: a head that never ends, a body that nobody wants."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen: object = None
        self._check = self.loop.call_later(_IDLE_S, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def _close_idle(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._seen is self.cycle:
            self.transport.close()
            return
        self._seen = self.cycle if idle else object()
        self._check = self.loop.call_later(_IDLE_S, self._close_idle)


def _listen(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        dual = address == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server((address, port), family=family, backlog=512, dualstack_ipv6=dual)
    except OSError as error:
        reason = error.strerror or "the address is not usable"
        raise ServerStartError(f"cannot serve HTTP on {host}:{port}: {reason}") from error
    listening.setblocking(False)
    return listening
