"""Wraps every HTTP call: admission, request id, metrics, log line and errors.

The counterpart of `captioner_server.rpc.interceptor`: calls are rejected before their body is read, and
accepted calls are finished before the server stops.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from captioner.errors import CaptionerError
from captioner_server.errors import (
    INTERNAL,
    BusyError,
    DeadlineError,
    RequestError,
    message_of,
    release_frames,
)
from captioner_server.http.errors import error_response
from captioner_server.http.guards.origins import Origins
from captioner_server.http.request.body import MOST_FIELDS, TIMEOUT, query_field
from captioner_server.intake.door import Door
from captioner_server.intake.state import ServerState
from captioner_server.intake.ticket import Kind, Ticket
from captioner_server.observation.call import Call, current_call
from captioner_server.observation.journal import Journal
from captioner_server.observation.tracing import call_span, current_trace

log = logging.getLogger(__name__)

T = TypeVar("T")

_TOO_LATE = f"the deadline passed before there was an answer ({TIMEOUT})"


async def read_nothing(request: Request) -> str:
    """For operations without a body."""
    return ""


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A call of the API. `read` and `answer` raise `CaptionerError`s."""

    method: str
    """Verb and path: its name in logs and metrics."""
    kind: Kind
    read: Callable[[Request], Awaitable[T]]
    size_of: Callable[[T], int]
    """The size in bytes of what was read."""
    answer: Callable[[T, Ticket], Awaitable[Response]]
    """Cancelled if the caller disconnects."""
    show_error: Callable[[CaptionerError], Response] = error_response
    """An error in the form of its protocol."""


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[T]):
    """An ASGI application that admits, reads and answers a call, or answers with an error. The call counts as
    open from when it was read until its answer has been sent."""

    operation: Operation[T]
    door: Door
    journal: Journal
    origins: Origins
    write_s: float
    """Longest time for the caller to read an answer, or a part of a stream."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        method = self.operation.method
        if request.method == "HEAD":  # which is answered as GET is
            method = method.replace("GET", "HEAD", 1)
        call = self.journal.begin(method, request.headers, peer_of(request))
        sending = _Sending(send, self.write_s, self.door.state)
        started = time.monotonic()
        code, reason = "CANCELLED", ""
        try:
            await self._work(request, sending, call)
            code = "OK"
        except ClientDisconnect as error:
            release_frames(error)
        except CaptionerError as error:
            code, reason = error.grpc_code, message_of(error)
            self.journal.count_error(error)
            release_frames(error)
            await self._fail(error, request, sending)
        except Exception as error:
            code, reason = "INTERNAL", type(error).__name__
            log.exception("a defect, in %s %s", self.operation.method, call.request_id)
            release_frames(error)
            internal = CaptionerError(INTERNAL)
            self.journal.count_error(internal)
            await self._fail(internal, request, sending)
        finally:
            self.journal.finish(call, code, reason, time.monotonic() - started)
            if trace := current_trace.get():
                trace.end()

    async def _work(self, request: Request, send: Send, call: Call) -> None:
        if request.scope["query_string"].count(b"&") >= MOST_FIELDS:  # thousands take as long as a caption
            raise RequestError(f"the query has more than {MOST_FIELDS} fields", "query")
        if request.method == "POST":
            self.origins.check(request.headers)
        deadline_s = _deadline_of(request)
        call.caller = await self.door.identify(", ".join(request.headers.getlist("authorization")), call.peer)
        try:
            await self._serve(request, send, call, deadline_s)
        except BusyError:  # also for want of time
            if time.monotonic() < deadline_s:
                raise
            raise DeadlineError(_TOO_LATE) from None

    async def _serve(self, request: Request, send: Send, call: Call, deadline_s: float) -> None:
        async with (
            self.door.admit(call.caller, self.operation.kind, deadline_s) as ticket,
            self.door.receive(ticket, lambda: self.operation.read(request), self.operation.size_of) as asked,
        ):
            call.arrived = True
            self.door.state.enter()
            try:
                making = _in_time(self.operation.answer(asked, ticket), deadline_s)
                await while_connected(request.receive, _answer(making, request, send))
            finally:
                self.door.state.leave()

    async def _fail(self, error: CaptionerError, request: Request, sending: _Sending) -> None:
        """Answer with an error. If an answer has begun, the connection is closed instead."""
        if not sending.started:
            await _send(self.operation.show_error(error), request, sending)


class _Sending:
    """Sends an answer, after which the connection is closed if the server leaves: a further request could
    arrive while the port closes. Raises `DeadlineError` if the caller does not read for `patience_s`."""

    def __init__(self, send: Send, patience_s: float, state: ServerState) -> None:
        self._send, self._patience_s, self._state = send, patience_s, state
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start" and self._state.leaving:
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        try:
            with call_span("send") if message.get("body") else nullcontext():
                async with asyncio.timeout(self._patience_s):
                    await self._send(message)
        except TimeoutError:
            raise DeadlineError(
                f"the caller has read nothing for {self._patience_s:g} s (stream_idle_s)"
            ) from None


async def _send(response: Response, request: Request, send: Send) -> None:
    call = current_call.get()
    response.headers["X-Request-Id"] = call.request_id
    if call.images:
        response.headers["Server-Timing"] = call.server_timing()
    response.headers.setdefault("Cache-Control", "no-store")
    await response(request.scope, request.receive, send)


async def _in_time(making: Awaitable[T], deadline_s: float) -> T:
    """The result of `making`. Raises `DeadlineError` when the deadline passes, as gRPC does by itself."""
    try:
        async with asyncio.timeout(None if deadline_s == math.inf else deadline_s - time.monotonic()):
            return await making
    except TimeoutError:
        raise DeadlineError(_TOO_LATE) from None


async def _answer(making: Awaitable[Response], request: Request, send: Send) -> None:
    await _send(await making, request, send)


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """The result of the work. Cancel the work and raise `ClientDisconnect` if the caller disconnects."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def peer_of(request: Request) -> str:
    """The address of the caller in the form of gRPC."""
    if request.client is None:
        return "unknown"
    host, port = request.client
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _deadline_of(request: Request) -> float:
    """The deadline of the caller by `time.monotonic`; infinity if there is none."""
    text = query_field(request, TIMEOUT)
    if text is None:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:  # also false for NaN
        raise RequestError(f"{TIMEOUT} must be a number of seconds above 0", TIMEOUT)
    return time.monotonic() + seconds
