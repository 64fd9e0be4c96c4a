"""The server as a whole: its ports, its services, and its states from loading to draining."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2_grpc

from captioner.errors import clip
from captioner.protocol import PixelModel
from captioner.v1 import captioner_pb2, captioner_pb2_grpc
from captioner_server.captioning.models import Models
from captioner_server.captioning.pictures import Pictures
from captioner_server.captioning.supervisor import Condition
from captioner_server.errors import ServerStartError
from captioner_server.http.app import make_app
from captioner_server.http.metrics import make_metrics_app
from captioner_server.http.off_loop import off_loop
from captioner_server.http.pages.gallery import Gallery
from captioner_server.http.port.server import HttpServer
from captioner_server.inference import grpc_predict_v2_pb2, grpc_predict_v2_pb2_grpc
from captioner_server.intake.door import Door
from captioner_server.intake.state import Phase, ServerState
from captioner_server.observation.journal import Journal
from captioner_server.observation.metrics import Metrics
from captioner_server.options import ServerOptions
from captioner_server.process.heap import settle_garbage
from captioner_server.rpc.health import NOT_SERVING, SERVING, Health
from captioner_server.rpc.inference_servicer import InferenceServicer
from captioner_server.rpc.interceptor import CallInterceptor
from captioner_server.rpc.port import RpcPort
from captioner_server.rpc.reflect import add_reflection
from captioner_server.rpc.servicer import CaptionServicer
from captioner_server.tls import server_context, server_credentials, warn_of_expiry

if TYPE_CHECKING:
    from captioner_server.observation.spans import Tracing

_FILES = (captioner_pb2.DESCRIPTOR, grpc_predict_v2_pb2.DESCRIPTOR)
SERVICES = tuple(service.full_name for file in _FILES for service in file.services_by_name.values())
_INFERENCE = "inference.GRPCInferenceService"
_RETRY_AFTER_S = 1.0
_MAX_CONNECTION_CALLS = 100
"""Most calls at once on one connection: thousands of calls that are cancelled at once (rapid reset) delay
health checks for seconds. Clients queue further calls."""
_MAX_PENDING_CALLS = 1_000
"""Calls of one method that gRPC keeps until Python accepts them, one after the other, including those that
the caller has cancelled meanwhile; it cancels further ones. A call behind so many cancelled ones waits for a
fraction of a second. By default, gRPC cancels some of the calls at random from 1,000 on."""
_QUIET_S, _QUIET_LIMIT_S = 0.2, 2.0  # well under and over _RETRY_AFTER_S
_GO_AWAY_S = 0.1  # time for callers to receive GOAWAY
_LAST_SPANS_S = 2.0
"""Longest time to send the last spans."""
_FLUSH_S = 2.0  # to send the last rejections; streams that watch health take all of it


class CaptionServer:
    """`start` listens, `open` begins to serve models, `drain` shuts down. For use on one event loop."""

    def __init__(self, options: ServerOptions, gallery: Gallery | None = None) -> None:
        """Raises `ServerStartError` if a file in the options cannot be read."""
        self.options = options
        self.metrics = Metrics(options.metrics_callers)
        self.state = ServerState(_RETRY_AFTER_S)
        self.metrics.serving.set_function(lambda: float(self.state.serving and not self.state.stalled))
        self.models = Models(options, self.metrics, self._report)
        self.door = Door(self.state, options, self.models.rejection)
        self._expiries: Sequence[datetime] = ()
        if (tokens := self.door.tokens) is not None:
            self.metrics.unusable_files.labels("tokens").set_function(lambda: float(tokens.unusable))
        self.metrics.image_bytes.set_function(lambda: self.door.budget.used_bytes)
        self._tracing = _tracing(options)
        journal = Journal(self.metrics, self._tracing)
        interceptor = CallInterceptor(self.door, self.metrics, journal, options.stream_idle_s)
        self.http_url: str | None = None
        """The HTTP address after the start; None without HTTP."""
        self._http: HttpServer | None = None
        self._pictures = Pictures(options)
        if options.http_port is not None:
            app = make_app(self.models, self._pictures, options, self.door, journal, gallery)
            tls = partial(server_context, options, self._tell_certificate)
            self._http = HttpServer(app, options.host, options.http_port, options, tls=tls)
        self.metrics_url: str | None = None
        """Where the metrics are after the start; None without them."""
        self._metrics_http: HttpServer | None = None
        if options.metrics_port is not None:
            metrics_app = make_metrics_app(self.metrics.registry, options.metrics_host)
            self._metrics_http = HttpServer(
                metrics_app, options.metrics_host, options.metrics_port, options, serves="metrics"
            )
        self.services = tuple(name for name in SERVICES if options.inference or name != _INFERENCE)
        self._health = Health(self.services, options.stream_idle_s)
        self._rpc = RpcPort(partial(self._make_rpc, interceptor), options.grace_s)

    def _make_rpc(self, interceptor: CallInterceptor) -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=[interceptor], options=_channel_options(self.options))
        servicer = CaptionServicer(self.models, self.options, self.door)
        captioner_pb2_grpc.add_CaptionServiceServicer_to_server(servicer, server)
        if self.options.inference:
            grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
                InferenceServicer(self.models, self.state), server
            )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.options.reflection:
            add_reflection(server, self.services, _FILES)
        return server

    async def start(self) -> int:
        """Open the ports without serving yet; returns the gRPC port. Raises `ServerStartError`."""
        await off_loop(int)  # its thread starts now: later, the system may allow no further one
        address = self.options.address
        credentials = server_credentials(self.options, self._tell_certificate)
        _check_socket(address)
        port = await self._rpc.start(address, credentials)
        if self._http:
            scheme = "http" if credentials is None else "https"
            self.http_url = f"{scheme}://{self.options.host}:{await self._http.start()}"
        if self._metrics_http:
            metrics_port = await self._metrics_http.start()
            self.metrics_url = f"http://{self.options.metrics_host}:{metrics_port}/metrics"
        return port

    async def open(self, models: Mapping[str, PixelModel]) -> None:
        """Warm up the models, then serve them by name; the first is the default."""
        ready = {name: await self.models.prepare(model) for name, model in models.items()}
        if self.state.phase is not Phase.STARTING:  # a signal came meanwhile
            for hosted in ready.values():
                hosted.close()
            return
        for name, hosted in ready.items():
            self.models.put(name, hosted)
        settle_garbage()
        self.state.phase = Phase.SERVING
        self._health.set(SERVING)

    async def failed(self) -> str:
        """Wait until a model has failed permanently; returns the reason."""
        return await self.models.failed()

    async def _report(self, condition: Condition) -> None:
        """Report whether callers should come."""
        if self.state.phase is Phase.DRAINING:
            return
        self.state.phase = Phase.FAILING if condition is Condition.FAILS else Phase.SERVING
        self.state.stalled = condition is Condition.STALLED
        self._health.set(SERVING if condition is Condition.WORKS else NOT_SERVING)

    def _tell_certificate(self, expiries: Sequence[datetime] | None) -> None:
        """Tell when certificates that were read expire, as `Report`, or that renewed files cannot be used."""
        self.metrics.unusable_files.labels("certificate").set(expiries is None)
        if expiries is not None and expiries != self._expiries:  # they are read for gRPC and for HTTP
            self._expiries = expiries
            own, *authorities = (expiry.timestamp() for expiry in expiries)
            self.metrics.certificate_expiry.set(own)
            self.metrics.client_ca_expiry.set(min(authorities, default=math.nan))
            warn_of_expiry(*expiries)

    async def drain(self) -> bool:
        """Report NOT_SERVING, so that load balancers send calls elsewhere, and accept calls for
        `lame_duck_s`; then reject new calls, finish open ones and stop. Returns whether all open calls were
        finished within the grace period."""
        self.state.leaving = True
        self._health.end()
        await asyncio.sleep(self.options.lame_duck_s)
        self.state.drain()
        try:
            async with asyncio.timeout(self.options.grace_s):
                await self.state.empty()
        except TimeoutError:
            await self.stop()
            return False
        await self.state.quiet(_QUIET_S, _QUIET_LIMIT_S)
        stopping = asyncio.create_task(self.stop(_FLUSH_S))
        await asyncio.sleep(_GO_AWAY_S)
        self.state.close()
        await stopping
        return True

    async def stop(self, grace_s: float = 0) -> None:
        """Close the ports; calls still open are cancelled after the grace period."""
        ports = [port for port in (self._http, self._metrics_http) if port]
        await asyncio.gather(self._rpc.stop(grace_s), *(port.stop(grace_s) for port in ports))
        self.models.close()
        self._pictures.close()
        if self._tracing:
            await asyncio.to_thread(self._tracing.close, _LAST_SPANS_S)


def _tracing(options: ServerOptions) -> Tracing | None:
    if options.trace_endpoint is None:
        return None
    from captioner_server.observation.spans import Tracing

    return Tracing(options.trace_endpoint, options.trace_share)


def _check_socket(address: str) -> None:
    """Raises `ServerStartError` for the Unix socket of another server that runs: gRPC would take it away, and
    remove it at its end; and for a path that is too long for a socket."""
    path = address.removeprefix("unix:")
    if path == address:
        return
    try:
        with socket.socket(socket.AF_UNIX) as other:
            other.settimeout(1.0)
            other.connect(path.removeprefix("//"))
    except OSError as error:  # as a rule, nobody listens
        if error.errno is None and not isinstance(error, TimeoutError):
            raise ServerStartError(
                f"cannot listen on {clip(address)}: {error}"
            ) from None  # Python's own check
    else:
        raise ServerStartError(f"cannot listen on {address}: another server does")


def _channel_options(options: ServerOptions) -> Sequence[tuple[str, int]]:
    return (
        ("grpc.so_reuseport", 0),  # a second server on the port is an error and does not share its calls
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_CALLS),
        ("grpc.max_concurrent_streams", min(options.max_calls, _MAX_CONNECTION_CALLS)),
        # Otherwise gRPC rejects calls of well-behaved clients that begin one as soon as another has ended.
        ("grpc.http.overload_protection", 0),
        # Without bandwidth probes, gRPC buffers 64 KiB of a message that is not read yet, not megabytes that
        # the budget does not count. Messages that are read arrive as fast.
        ("grpc.http2.bdp_probe", 0),
        # Pings detect callers that vanished without closing their connection.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    )
