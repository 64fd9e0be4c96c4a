"""Reading and writing the messages of a call, for all servicers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from captioner_server.errors import DeadlineError, RequestError
from captioner_server.observation.tracing import call_span
from captioner_server.rpc.message_guard import Content, check_message, malformed
from captioner_server.rpc.pace import Pace

_CROWDED_S, _RECHECK_S = 2.0, 0.5
_CANCELLATION_S = 0.2
"""A call that is cancelled within its message looks as if it had none until gRPC reports the cancellation, a
few iterations of the event loop later."""
_LARGE_BYTES = 256 * 1024
"""Smaller contents of messages are copied faster than they are taken apart."""
_PACE = Pace()


@dataclass(frozen=True, slots=True)
class Received:
    """A received message."""

    message: Any
    """None if the bytes are not a message of the right type or exceed the limits."""
    size: int
    """Bytes of memory that it takes."""
    error: RequestError | None = None

    def checked(self) -> Any:
        """The message; raises the error."""
        if self.error:
            raise self.error
        return self.message


def lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Received]:
    """A deserializer that returns errors; with an exception, gRPC would end the call with UNKNOWN. It checks
    the bytes with `check_message` before parsing them."""
    descriptor = getattr(getattr(deserialize, "__self__", None), "DESCRIPTOR", None)

    def parse(raw: bytes) -> Received:
        try:
            contents = check_message(raw, descriptor)
            own = [content for content in contents if not content.nested]
            # Reading a nested content copies it, and the parsed message stays until the call ends.
            size = len(raw) + sum(content.end - content.content for content in contents if content.nested)
            if len(own) == 1 and len(raw) > _LARGE_BYTES:
                return Received(_Large(raw, own[0], deserialize), size)
            return Received(deserialize(raw), size)
        except RequestError as error:
            return Received(None, len(raw), error.with_traceback(None))  # its frames hold the bytes
        except DecodeError:
            return Received(None, len(raw), malformed())

    return parse


class _Large:
    """A message whose content of type `bytes` (an image) stays where it was received. Protobuf would copy it
    twice, which takes longer than receiving it."""

    def __init__(self, raw: bytes, content: Content, deserialize: Callable[[bytes], Any]) -> None:
        self._message = deserialize(raw[: content.start] + raw[content.end :])
        view = memoryview(raw)[content.content : content.end]
        single = isinstance(getattr(self._message, content.name), bytes)
        setattr(self, content.name, view if single else [view])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)


async def read(context: grpc.aio.ServicerContext) -> Received | None:
    """The next message of a call whose deserializer is `lenient`; None after the last. Raises
    `asyncio.CancelledError` if the call is over."""
    try:
        received: Any = await _PACE.run(context.read())
    except Exception as error:  # a private one of gRPC, for example for a message that inflates too far
        raise asyncio.CancelledError from error
    return None if received is grpc.aio.EOF else received  # type: ignore[attr-defined]


async def read_one(context: grpc.aio.ServicerContext) -> Received:
    """The one message of a call. Raises `RequestError` if there is none, and `asyncio.CancelledError` if the
    caller has gone."""
    if (received := await read(context)) is None:
        await asyncio.sleep(_CANCELLATION_S)
        raise malformed()
    return received


def deadline_of(context: grpc.aio.ServicerContext) -> float:
    """The deadline of the caller by `time.monotonic`; infinity if there is none.

    gRPC tells it by the system's clock. If that was set forward since the call came, nothing remains; then
    only gRPC, which ends the call in time, knows the deadline."""
    remaining = context.time_remaining()
    return time.monotonic() + remaining if remaining else math.inf


async def begin_stream(context: grpc.aio.ServicerContext) -> None:
    """Call this before the first write: a blocked write would also block the initial metadata, without which
    the call cannot be ended."""
    await context.send_initial_metadata(())


async def write(
    context: grpc.aio.ServicerContext,
    message: Message,
    patience_s: float,
    crowded: Callable[[], bool] = lambda: False,
) -> None:
    """Send a message, after `begin_stream`. Raises `DeadlineError` if the caller does not read for
    `patience_s`, or for 2 s while `crowded` is true, and `asyncio.CancelledError` if the caller has gone."""
    started = time.monotonic()
    try:
        with call_span("send"):
            async with _patience(patience_s, crowded):
                await context.write(message)
    except TimeoutError:
        waited_s = time.monotonic() - started
        raise DeadlineError(f"the caller has read nothing for {waited_s:.0f} s (stream_idle_s)") from None
    except Exception as error:  # gRPC's own errors are private; a write fails only when the call is over
        raise asyncio.CancelledError from error


@asynccontextmanager
async def _patience(patience_s: float, crowded: Callable[[], bool]) -> AsyncIterator[None]:
    """Raises `TimeoutError` after `patience_s`, or as soon as it is crowded after `_CROWDED_S`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(patience_s) as limit:
        timer = loop.call_later(_CROWDED_S, lambda: check())

        def check() -> None:
            nonlocal timer
            if crowded():
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(_RECHECK_S, check)

        try:
            yield
        finally:
            timer.cancel()
