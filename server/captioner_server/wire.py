"""Small things that every servicer needs of a call."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from captioner_server.errors import DeadlineError, RequestError
from captioner_server.message_guard import check_message


@dataclass(frozen=True, slots=True)
class Malformed:
    """Stands for a request that is not a message of its type, or is beyond the limits."""

    error: RequestError


def lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that gives `Malformed` where gRPC would end the call with UNKNOWN. It checks the bytes
    with `check_message` before it parses them."""
    descriptor = getattr(getattr(deserialize, "__self__", None), "DESCRIPTOR", None)

    def parse(raw: bytes) -> Any:
        try:
            check_message(raw, descriptor)
            return deserialize(raw)
        except RequestError as error:
            return Malformed(error)
        except DecodeError:
            return Malformed(malformed())

    return parse


def malformed() -> RequestError:
    return RequestError("the request is not a message of this call's type", "request")


def deadline_of(context: grpc.aio.ServicerContext) -> float:
    """The caller's deadline on `time.monotonic`'s clock; infinity where there is none."""
    remaining = context.time_remaining()
    return math.inf if remaining is None else time.monotonic() + remaining


async def begin_stream(context: grpc.aio.ServicerContext) -> None:
    """To be called before anything is written: a write that is stuck would hold the initial metadata
    back, and with them every means to end the call."""
    await context.send_initial_metadata(())


async def write(context: grpc.aio.ServicerContext, message: Message, patience_s: float) -> None:
    """Send a message of a stream. Raises `DeadlineError` when the caller does not read for so long, and
    `asyncio.CancelledError` when the caller has gone."""
    try:
        async with asyncio.timeout(patience_s):
            await context.write(message)
    except TimeoutError:
        raise DeadlineError(f"the caller has read nothing for {patience_s:g} s (stream_idle_s)") from None
    except Exception as error:  # gRPC's own kinds are private; a write fails only when the call is over
        raise asyncio.CancelledError from error
