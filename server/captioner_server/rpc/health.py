"""grpc.health.v1.Health, which a caller that does not read cannot block.

The servicer of grpcio-health writes to each watcher under the lock that setting a status needs. One `Watch`
that is never read would block every other watcher, and a server that starts, fails or drains.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from captioner_server.errors import BusyError, NotFoundError
from captioner_server.observation.call import current_call
from captioner_server.rpc.wire import begin_stream, write

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

LIVE = "live"
"""A service name that is SERVING until the server ends: any answer shows that the process is alive."""
_MAX_WATCHES = 32
"""Most `Watch` calls on one connection. A client needs one, but a proxy brings those of many clients."""
_MANY_WATCHES = 256
"""Number of `Watch` calls from which a connection may have one: each takes 27 KiB."""
_RETRY_AFTER_S = 5.0


class Health(health_pb2_grpc.HealthServicer):
    """The status of each service. For use on one event loop."""

    def __init__(self, services: Iterable[str], patience_s: float) -> None:
        """All `services`, and the empty name for the server as a whole, are NOT_SERVING. A watcher that does
        not read for `patience_s` is dropped."""
        self._statuses: dict[str, int] = dict.fromkeys(("", *services), NOT_SERVING)
        self._statuses[LIVE] = SERVING
        self._patience_s = patience_s
        self._changed = asyncio.Event()  # replaced at each change
        self._watches: Counter[str] = Counter()  # by connection
        self._ending = False

    def set(self, status: int) -> None:
        """Report the status of all services but `LIVE`. Without effect after `end`."""
        if not self._ending:
            self._report(dict.fromkeys(self._statuses, status) | {LIVE: SERVING})

    def end(self) -> None:
        """Report NOT_SERVING for all services, `LIVE` too, from now on."""
        self._ending = True
        self._report(dict.fromkeys(self._statuses, NOT_SERVING))

    def _report(self, statuses: dict[str, int]) -> None:
        self._statuses = statuses
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            raise NotFoundError("there is no such service")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext) -> None:
        connection = current_call.get().peer
        most = _MAX_WATCHES if self._watches.total() < _MANY_WATCHES else 1
        if self._watches[connection] >= most:
            raise BusyError("this connection has too many health watches", _RETRY_AFTER_S)
        self._watches[connection] += 1
        try:
            await self._watch(request.service, context)
        finally:
            self._watches -= Counter((connection,))  # forgets connections that have none left

    async def _watch(self, service: str, context: grpc.aio.ServicerContext) -> None:
        await begin_stream(context)
        told: int | None = None
        while True:
            changed, status = self._changed, self._statuses.get(service, UNKNOWN)
            if status != told:
                await write(context, health_pb2.HealthCheckResponse(status=status), self._patience_s)
            told = status
            await changed.wait()
