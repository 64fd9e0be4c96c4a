"""Wraps every call: admission, request id, metrics, log line and errors.

Handlers raise `CaptionerError`s, which become statuses with details here. Calls are rejected before their
message is read, so that overload is cheap.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import grpc

from captioner.errors import CaptionerError
from captioner_server.errors import INTERNAL, NotServingError, message_of, release_frames
from captioner_server.intake.door import Door
from captioner_server.intake.ticket import Kind, Ticket
from captioner_server.observation.call import Call, current_call
from captioner_server.observation.journal import Journal
from captioner_server.observation.metrics import Metrics
from captioner_server.observation.tracing import current_trace
from captioner_server.rpc.errors import status_code, to_trailers
from captioner_server.rpc.wire import Received, begin_stream, deadline_of, lenient, read, read_one, write

log = logging.getLogger("captioner_server.calls")

Behaviour = Callable[[dict[str, Any], grpc.aio.ServicerContext], Awaitable[Any]]
"""Receives the metadata of the call."""

_HEALTH = "/grpc.health.v1.Health/"
"""Answered for everyone in any state, and not logged."""
_REFLECTION = "/grpc.reflection."
_PROBES = frozenset(
    f"/inference.GRPCInferenceService/{name}"
    for name in ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata")
)
"""Calls that are answered while the server starts or drains."""
_KINDS = {
    "/captioner.v1.CaptionService/Caption": Kind.IMAGE,
    "/captioner.v1.CaptionService/StreamCaption": Kind.WORDS,
    "/captioner.v1.CaptionService/CaptionBatch": Kind.BATCH,
    "/inference.GRPCInferenceService/ModelInfer": Kind.IMAGE,
}


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Admits, counts and logs calls. Streaming handlers are coroutines that use `context.write`."""

    def __init__(self, door: Door, metrics: Metrics, journal: Journal, patience_s: float) -> None:
        """A caller that does not read its answer for `patience_s` loses it."""
        self._door, self._state, self._journal, self._patience_s = door, door.state, journal, patience_s
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        metrics.in_flight.set_function(lambda: door.state.open_calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        if known := self._handlers.get(method):
            return known
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        if method.startswith(_REFLECTION):
            return self._reflection(handler)
        admitted = self._admitted(handler, method)
        # Single answers are written as streams are: gRPC would wait without limit for a caller to read them.
        self._handlers[method] = grpc.stream_stream_rpc_method_handler(
            self._around(admitted, method),
            lenient(handler.request_deserializer or bytes),
            handler.response_serializer,
        )
        return self._handlers[method]

    def _reflection(self, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Reflection: a stream of small messages for authorised callers, which does not count as a call."""
        answers: Any = handler.stream_stream

        async def behaviour(_: Any, context: grpc.aio.ServicerContext) -> None:
            try:
                caller = await self._identify(_metadata(context), context)
                async with self._door.admit(caller, Kind.PROBE, math.inf) as ticket:
                    await begin_stream(context)
                    async for answer in answers(self._small_messages(ticket, context), context):
                        await write(context, answer, self._patience_s, self._door.crowded)
            except CaptionerError as error:
                self._journal.count_error(error)
                release_frames(error)
                await _abort(context, error)

        return grpc.stream_stream_rpc_method_handler(
            behaviour, lenient(handler.request_deserializer or bytes), handler.response_serializer
        )

    async def _small_messages(self, ticket: Ticket, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        while True:
            reading = self._door.receive(ticket, lambda: read(context), lambda one: one.size if one else 0)
            async with reading as received:
                if received is None:
                    return
                self._door.check(ticket)
                message = received.checked()
            yield message

    async def _identify(self, metadata: dict[str, Any], context: grpc.aio.ServicerContext) -> str:
        return await self._door.identify(str(metadata.get("authorization", "")), context.peer())

    def _admitted(self, handler: grpc.RpcMethodHandler, method: str) -> Behaviour:
        """Admit a call before its message is read, and check again once it has arrived; from then on the call
        counts as accepted. The handler is of the streaming kind, as others start after the message."""
        kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        behaviour: Any = next(filter(None, kinds))
        kind = _kind(method)

        async def admitted(metadata: dict[str, Any], context: grpc.aio.ServicerContext) -> Any:
            call = current_call.get()
            if method.startswith(_HEALTH):
                async with (
                    self._door.admit(call.peer, kind, math.inf) as ticket,
                    self._door.receive(ticket, lambda: read_one(context), _size_of) as received,
                ):
                    message = received.checked()
                return await self._write(await behaviour(message, context), ticket, context)
            call.caller = await self._identify(metadata, context)
            async with self._door.admit(call.caller, kind, deadline_of(context)) as ticket:
                if handler.request_streaming:
                    call.arrived = True
                    return await self._answered(behaviour, ticket, ticket, context)
                async with self._door.receive(ticket, lambda: read_one(context), _size_of) as received:
                    call.arrived = True
                    return await self._answered(behaviour, received.checked(), ticket, context)

        return admitted

    async def _answered(
        self, behaviour: Any, request: Any, ticket: Ticket, context: grpc.aio.ServicerContext
    ) -> None:
        self._state.enter()
        try:
            await self._write(await behaviour(request, context), ticket, context)
        except BaseException:
            self._state.leave()
            raise
        # The call is over when its answer has been sent.
        context.add_done_callback(lambda _: self._state.leave())  # type: ignore[arg-type]

    async def _write(self, answer: Any, ticket: Ticket, context: grpc.aio.ServicerContext) -> None:
        """Send a single answer; streams have sent theirs, and their `answer` is None."""
        if answer is None:
            return
        self._door.answer(ticket, answer.ByteSize())
        await begin_stream(context)
        await write(context, answer, self._patience_s, self._door.crowded)

    def _around(self, behaviour: Behaviour, method: str) -> Callable[..., Awaitable[None]]:
        """Turn errors into statuses, set the trailing metadata, count and log."""
        probe = _kind(method) is Kind.PROBE

        async def around(_: Any, context: grpc.aio.ServicerContext) -> None:
            try:
                await _cancelled_calls_end()
            except asyncio.CancelledError:
                self._journal.skip(method)
                raise
            metadata = _metadata(context)
            call = self._journal.begin(method, metadata, context.peer(), probe=probe)
            if trace := current_trace.get():
                context.add_done_callback(lambda _: trace.end())  # type: ignore[arg-type]
            started = time.monotonic()
            code, reason = "CANCELLED", ""
            try:
                await behaviour(metadata, context)
                code = "OK"
                context.set_trailing_metadata(_trailers(call))
            except CaptionerError as error:
                code, reason = error.grpc_code, message_of(error)
                self._journal.count_error(error)
                release_frames(error)
                if isinstance(error, NotServingError):
                    await self._state.held()
                await _abort(context, error, _trailers(call))
            except Exception as error:
                code, reason = "INTERNAL", type(error).__name__
                log.exception("a defect, in %s %s", method, call.request_id)
                release_frames(error)
                internal = CaptionerError(INTERNAL)
                self._journal.count_error(internal)
                await _abort(context, internal, _trailers(call))
            finally:
                if not method.startswith(_HEALTH):
                    self._journal.finish(call, code, reason, time.monotonic() - started, probe=probe)

        return around


async def _cancelled_calls_end() -> None:
    """Raises `asyncio.CancelledError` in nearly all calls that the caller had cancelled before the server saw
    them: gRPC reports that within two iterations of the event loop. Nothing else is done for these, because
    calls that are begun and cancelled at once (rapid reset) delay those behind them."""
    for _ in range(2):
        await asyncio.sleep(0)


def _metadata(context: grpc.aio.ServicerContext) -> dict[str, Any]:
    """The values by key; several of one key are one list, as in HTTP, so that no part of it can be trusted
    alone: two tokens are none. There may be millions: a byte makes one, and gRPC limits the list of one frame
    only."""
    values: dict[str, list[Any]] = {}
    pairs: Iterable[tuple[str, Any]] = context.invocation_metadata() or ()
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: ", ".join(map(str, given)) if given[1:] else given[0] for key, given in values.items()}


async def _abort(
    context: grpc.aio.ServicerContext, error: CaptionerError, trailers: Sequence[tuple[str, str]] = ()
) -> None:
    """End the call with an error, and with these trailers beside its own. Raises `asyncio.CancelledError` if
    the caller has ended it meanwhile."""
    try:
        await context.abort(status_code(error), message_of(error), (*trailers, *to_trailers(error)))
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


def _kind(method: str) -> Kind:
    if method in _PROBES or method.startswith(_HEALTH):
        return Kind.PROBE
    return _KINDS.get(method, Kind.QUERY)


def _size_of(received: Received) -> int:
    return received.size


def _trailers(call: Call) -> tuple[tuple[str, str], ...]:
    return (("x-request-id", call.request_id), ("server-timing", call.server_timing()))
