"""The HTTP port: uvicorn on the event loop of the server, without its signal handlers and logs."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from captioner.errors import reason_of
from captioner_server.errors import ServerStartError
from captioner_server.http.guards.middleware import OneLength
from captioner_server.http.port.protocol import MAX_HEAD_BYTES, bounded_protocol
from captioner_server.options import ServerOptions

_ABSOLUTE = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE | re.DOTALL)


class HttpServer:
    """`start` listens; `stop` closes the port and open connections."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        options: ServerOptions,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        serves: str = "HTTP",
    ) -> None:
        """`port` 0 takes a free one. Callers use HTTPS if `tls`, which the start asks, has a context for it.
        `serves` says in errors what is served."""
        self._host, self._port, self._serves = host, port, serves
        self._tls = tls
        self._config = uvicorn.Config(
            OneLength(_OriginForm(app)),
            http=bounded_protocol(options.stream_idle_s),
            ws="none",
            lifespan="off",
            workers=1,  # whatever WEB_CONCURRENCY says
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=options.http_keep_alive_s,  # type: ignore[arg-type]
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self._server = _Uvicorn(self._config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; returns the port. Raises `ServerStartError`."""
        # The server has its own logs.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._config.load()
        self._config.ssl = self._tls()
        listening = _listen(self._host, self._port, self._serves)
        self._serving = asyncio.create_task(self._server.serve([listening]))
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


class _OriginForm:
    """Gives the application the path of a target such as `http://host/path`, and the host in it as `Host`
    (RFC 9112, section 3.2.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if absolute := _ABSOLUTE.fullmatch(scope["raw_path"]):
            host, path = absolute[1], absolute[2] or b"/"
            headers = [(b"host", host), *(each for each in scope["headers"] if each[0] != b"host")]
            scope = {**scope, "raw_path": path, "path": unquote(path.decode("ascii")), "headers": headers}
        await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int, serves: str) -> socket.socket:
    address = host.strip("[]")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        dual = address == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server((address, port), family=family, backlog=512, dualstack_ipv6=dual)
    except (OSError, UnicodeError) as error:  # the latter for what cannot be a name
        reason = reason_of(error, "the address is not usable")
        reason = reason.partition(" (while")[0]
        raise ServerStartError(f"cannot serve {serves} on {host}:{port}: {reason}") from error
    listening.setblocking(False)
    # Head and body of an answer are two writes; without this the second waits 40 ms for the caller's delayed
    # acknowledgement. Accepted connections inherit it; asyncio only sets it on sockets with a protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
