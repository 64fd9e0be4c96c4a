"""Around every call: who may come in, what it is called, how it ended.

Handlers raise `CaptionerError`s; here they become statuses with details. Calls that are refused are
refused before their message is read, which keeps a storm cheap.
"""

from __future__ import annotations

import hmac
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from captioner.errors import CaptionerError
from captioner_server.call import Call, current_call
from captioner_server.errors import (
    INTERNAL,
    BusyError,
    NotServingError,
    UnauthenticatedError,
    message_of,
    status_code,
    to_trailers,
)
from captioner_server.gate import Gate
from captioner_server.metrics import Metrics
from captioner_server.wire import Malformed, deadline_of, lenient, malformed

log = logging.getLogger("captioner_server.calls")

Behaviour = Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]

_OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Services that answer anybody, at any time, and are not worth a log line."""
_PROBES = frozenset(
    f"/inference.GRPCInferenceService/{name}"
    for name in ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata")
)
"""Calls that answer while the server starts or drains."""
_STREAMS = frozenset(f"/captioner.v1.CaptionService/{name}" for name in ("StreamCaption", "CaptionBatch"))
_WAITING = frozenset(
    (
        "/captioner.v1.CaptionService/Caption",
        "/captioner.v1.CaptionService/StreamCaption",
        "/inference.GRPCInferenceService/ModelInfer",
    )
)
"""Calls that are refused at once when one more image has no place, or no time."""
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_RETRY_AFTER_S = 0.2


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Admits, names, counts and logs calls. Streaming handlers are coroutines that use `context.write`."""

    def __init__(
        self,
        gate: Gate,
        metrics: Metrics,
        *,
        max_calls: int,
        max_streams: int,
        token: str | None,
        overload: Callable[[float], CaptionerError | None],
    ) -> None:
        """`overload` says why one more image would be refused now, if it would, given its deadline."""
        self._gate, self._metrics = gate, metrics
        self._max_calls, self._max_streams = max_calls, max_streams
        self._token = token
        self._overload = overload
        self._streams = 0
        metrics.in_flight.set_function(lambda: gate.open_calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(_OPEN):
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        build = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return build(
            self._around(self._admitted(handler, method, metadata), method, metadata),
            lenient(handler.request_deserializer or bytes),
            handler.response_serializer,
        )

    def _unauthenticated(self, metadata: dict[str, Any]) -> CaptionerError | None:
        given = str(metadata.get("authorization", ""))
        if self._token is None or hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return None
        return UnauthenticatedError("the call carries no valid token (authorization: Bearer ...)")

    def _refusal(self, method: str, context: grpc.aio.ServicerContext) -> CaptionerError | None:
        if method in _PROBES:
            return None
        if refusal := self._gate.refusal():
            return refusal
        if self._gate.open_calls >= self._max_calls:
            return BusyError(f"all {self._max_calls} calls at once are taken (max_calls)", _RETRY_AFTER_S)
        if method in _STREAMS and self._streams >= self._max_streams:
            return BusyError(
                f"all {self._max_streams} streams at once are taken (max_streams)", _RETRY_AFTER_S
            )
        return self._overload(deadline_of(context)) if method in _WAITING else None

    def _admitted(self, handler: grpc.RpcMethodHandler, method: str, metadata: dict[str, Any]) -> Behaviour:
        """Reads the message only of a call that is not refused, and checks again once it is there; from
        then on the call counts as accepted. For a handler of the streaming kind: others begin with the
        message."""
        kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        behaviour: Any = next(filter(None, kinds))

        async def admitted(request: Any, context: grpc.aio.ServicerContext) -> Any:
            if refusal := self._unauthenticated(metadata) or self._refusal(method, context):
                raise refusal
            if not handler.request_streaming:
                request = await context.read()
                if request is grpc.aio.EOF:  # type: ignore[attr-defined]
                    raise malformed()
                if isinstance(request, Malformed):
                    raise request.error
                if refusal := self._refusal(method, context):
                    raise refusal
            self._gate.enter()
            stream = method in _STREAMS
            self._streams += stream
            try:
                answer = await behaviour(request, context)
            except BaseException:
                self._gate.leave()
                raise
            finally:
                self._streams -= stream
            # Only when the answer has been sent is the call over.
            context.add_done_callback(lambda _: self._gate.leave())  # type: ignore[arg-type]
            return answer

        return admitted

    def _around(self, behaviour: Behaviour, method: str, metadata: dict[str, Any]) -> Behaviour:
        """Turns errors into statuses; sets the trailing metadata; counts and logs."""
        given = str(metadata.get("x-request-id", ""))
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

        async def around(request: Any, context: grpc.aio.ServicerContext) -> Any:
            call = Call(method, request_id)
            current_call.set(call)
            started = time.monotonic()
            code, reason = "CANCELLED", ""
            try:
                answer = await behaviour(request, context)
                code = "OK"
                context.set_trailing_metadata(_trailers(call))
                return answer
            except CaptionerError as error:
                code, reason = error.grpc_code, message_of(error)
                if isinstance(error, NotServingError):
                    await self._gate.held()
                await context.abort(status_code(error), reason, (*_trailers(call), *to_trailers(error)))
            except Exception as error:
                code, reason = "INTERNAL", type(error).__name__
                log.exception("a defect, in %s %s", method, request_id)
                internal = CaptionerError(INTERNAL)
                await context.abort(
                    status_code(internal), str(internal), (*_trailers(call), *to_trailers(internal))
                )
            finally:
                self._metrics.calls.labels(method, code).inc()
                self._log(call, code, reason, time.monotonic() - started)

        return around

    def _log(self, call: Call, code: str, reason: str, seconds: float) -> None:
        level = logging.DEBUG if call.method in _PROBES else logging.INFO
        if log.isEnabledFor(level):
            record = {**call.to_dict(), "code": code, "ms": round(1000 * seconds, 1)}
            log.log(level, "call", extra={"fields": {**record, "reason": reason} if reason else record})


def _trailers(call: Call) -> tuple[tuple[str, str], ...]:
    return (("x-request-id", call.request_id), ("server-timing", call.server_timing()))
