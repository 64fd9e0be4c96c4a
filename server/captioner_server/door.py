"""Admission of calls for every protocol: identify the caller, accept or reject the call, receive its body.

The body is received only after the call was accepted:

    caller = await door.identify(authorization, peer)
    async with door.enter(caller, Kind.IMAGE, deadline_s) as entry, entry.receive(read, len) as body:
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from enum import Enum
from typing import TypeVar

from captioner.errors import CaptionerError
from captioner_server.allowance import Allowance
from captioner_server.errors import BusyError, RequestError
from captioner_server.gate import Gate
from captioner_server.intake import Intake, Receipt, default_budget
from captioner_server.options import ServerOptions
from captioner_server.tokens import Tokens
from captioner_server.tracing import call_stage

T = TypeVar("T")

MAX_SMALL_BYTES = 64 * 1024
"""Largest message of a call without images."""
_SMALL_MESSAGES = 4  # that arrive at the same time: they usually come with their call
_SMALL_ARRIVAL_S, _SMALL_CONTENDED_S = 5.0, 0.2
_RETRY_AFTER_S = 0.2


class Kind(Enum):
    """Kinds of calls by what they carry."""

    PROBE = "a query that is answered in any state"
    SMALL = "a query"
    IMAGE = "an image"
    WORDS = "an image, answered by a stream of words"
    BATCH = "a stream of images"

    @property
    def streams(self) -> bool:
        return self in (Kind.WORDS, Kind.BATCH)

    @property
    def brings_images(self) -> bool:
        return self in (Kind.IMAGE, Kind.WORDS, Kind.BATCH)


class Door:
    """For use on one event loop."""

    def __init__(
        self,
        gate: Gate,
        options: ServerOptions,
        overload: Callable[[float, str], CaptionerError | None],
    ) -> None:
        """`overload` returns the error that an image with a deadline and a caller would be rejected with now,
        or None. Raises `ServerStartError` for a token file that cannot be used."""
        self.gate = gate
        self._tokens = None if options.token_file is None else Tokens(options.token_file)
        self._anyone = Allowance()
        self._max_calls, self._max_streams = options.max_calls, options.max_streams
        self._overload = overload
        largest = options.max_message_bytes
        self.images = Intake(options.upload_bytes or default_budget(), largest, options.upload_s)
        self.small = Intake(
            _SMALL_MESSAGES * largest, largest, _SMALL_ARRIVAL_S, contended_s=_SMALL_CONTENDED_S
        )
        self.streams = 0
        self.receiving = 0
        """Calls whose message is still arriving."""

    async def identify(self, authorization: str, peer: str) -> str:
        """The caller: the name of its token, or its address. Raises `UnauthenticatedError`."""
        return peer if self._tokens is None else await self._tokens.name_of(authorization, peer)

    def allowance(self, caller: str) -> Allowance:
        """The limits of a caller, besides those of the server."""
        return self._anyone if self._tokens is None else self._tokens.allowance(caller)

    def refusal(self, kind: Kind, caller: str, deadline_s: float) -> CaptionerError | None:
        """The error that a call is rejected with; None if it is accepted, perhaps in the place of a waiting
        call of the caller that has the most."""
        if kind is Kind.PROBE:
            return None
        if refusal := self.gate.refusal():
            return refusal
        if self.gate.open_calls + self.receiving >= self._max_calls and not self.images.make_way(caller):
            return BusyError(f"all {self._max_calls} calls at once are taken (max_calls)", _RETRY_AFTER_S)
        return self._overload(deadline_s, caller) if kind in (Kind.IMAGE, Kind.WORDS) else None

    def _no_stream(self) -> CaptionerError | None:
        """The error if all streams are taken and none can be evicted for its silence; else None."""
        if self.streams < self._max_streams or self.images.evict_silent():
            return None
        return BusyError(f"all {self._max_streams} streams at once are taken (max_streams)", _RETRY_AFTER_S)

    @asynccontextmanager
    async def enter(self, caller: str, kind: Kind, deadline_s: float) -> AsyncIterator[Entry]:
        """Accept a call, or raise a `CaptionerError` before its body is read."""
        refusal = self.refusal(kind, caller, deadline_s) or (self._no_stream() if kind.streams else None)
        if refusal:
            raise refusal
        with nullcontext() if kind is Kind.PROBE else self.allowance(caller).call():
            self.streams += kind.streams
            try:
                yield Entry(self, caller, kind, deadline_s)
            finally:
                self.streams -= kind.streams


class Entry:
    """An accepted call whose body has not been received."""

    def __init__(self, door: Door, caller: str, kind: Kind, deadline_s: float) -> None:
        self.caller = caller
        self._door, self._kind, self._deadline_s = door, kind, deadline_s

    def room(self) -> AbstractAsyncContextManager[Receipt]:
        """Room for one message, until the context ends."""
        intake = self._door.images if self._kind.brings_images else self._door.small
        return intake.receive(self.caller)

    @asynccontextmanager
    async def receive(
        self, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int]
    ) -> AsyncIterator[T]:
        """The one message of a call; its bytes count until the context ends. The call counts as open while
        the message arrives, and may still be rejected afterwards."""
        async with AsyncExitStack() as held:
            self._door.receiving += 1
            try:
                with call_stage("admit"):
                    receipt = await held.enter_async_context(self.room())
                with call_stage("receive"):
                    message = await receipt.arrive(read())
            finally:
                self._door.receiving -= 1
            size = size_of(message)
            if not self._kind.brings_images and size > MAX_SMALL_BYTES:
                raise RequestError(f"a message of {size} bytes, the limit is {MAX_SMALL_BYTES}", "request")
            receipt.settle(size)
            if refusal := self._door.refusal(self._kind, self.caller, self._deadline_s):
                raise refusal
            yield message
