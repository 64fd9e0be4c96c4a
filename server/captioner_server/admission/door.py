"""Admission of calls for every protocol: identify the caller, accept or reject the call, receive its body.

The body is received only after the call was accepted:

    caller = await door.identify(authorization, peer)
    async with door.enter(caller, Kind.IMAGE, deadline_s) as entry, entry.receive(read, len) as body:
        ...
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from enum import Enum
from typing import TypeVar

from captioner.errors import CaptionerError
from captioner_server.admission.gate import Gate
from captioner_server.admission.intake import Intake, Receipt, SmallIntake, default_budget
from captioner_server.admission.tokens import Tokens
from captioner_server.errors import BusyError, RequestError
from captioner_server.fairness.allowance import Allowance
from captioner_server.fairness.tally import Tally
from captioner_server.observation.tracing import call_stage
from captioner_server.options import ServerOptions

T = TypeVar("T")

MAX_SMALL_BYTES = 64 * 1024
"""Largest message of a call without images."""
_LATE_SMALL_MESSAGES = 4
_CROWDED_CALLS = 3 / 4
"""Share of all calls from which callers that do not read their answers lose their places sooner."""
_CALLER_STREAMS = 3 / 4
"""Largest share of all streams that one caller may have."""
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
        self.small = SmallIntake(_LATE_SMALL_MESSAGES)
        self.streams = Tally()
        self.receiving = 0
        """Calls with images whose message is still arriving."""

    def crowded(self) -> bool:
        """Whether answers that are not read take what others need, or delay the end of the server."""
        calls = self.gate.open_calls + self.receiving
        many = calls >= _CROWDED_CALLS * self._max_calls
        return many or self.images.contended or not self.gate.serving

    @property
    def _caller_streams(self) -> int:
        return math.ceil(_CALLER_STREAMS * self._max_streams)

    async def identify(self, authorization: str, peer: str) -> str:
        """The caller: the name of its token, or its address. Raises `UnauthenticatedError`."""
        return peer if self._tokens is None else await self._tokens.name_of(authorization, peer)

    def allowance(self, caller: str) -> Allowance:
        """The limits of a caller, besides those of the server."""
        return self._anyone if self._tokens is None else self._tokens.allowance(caller)

    def refusal(self, kind: Kind, caller: str, deadline_s: float) -> CaptionerError | None:
        """The error that a call is rejected with now, however many others are open; None if there is none."""
        if kind is Kind.PROBE:
            return None
        if refusal := self.gate.refusal():
            return refusal
        return self._overload(deadline_s, caller) if kind in (Kind.IMAGE, Kind.WORDS) else None

    def no_place(self, kind: Kind, caller: str, *, entered: bool = False) -> CaptionerError | None:
        """The error if all streams or calls are taken. Otherwise None, perhaps because another has lost its
        place: a silent stream, or a waiting call of the caller that has the most. A call that has `entered`
        is counted among the streams already."""
        if kind is Kind.PROBE:
            return None
        new_stream = kind.streams and not entered
        calls_taken = self.gate.open_calls + self.receiving >= self._max_calls
        waiting = self.images.least_entitled(caller) if calls_taken else None
        if calls_taken and waiting is None:
            return BusyError(f"all {self._max_calls} calls at once are taken (max_calls)", _RETRY_AFTER_S)
        if new_stream and (refusal := self._no_stream(caller)):
            return refusal
        if waiting is not None:
            self.images.reject(waiting)
        return None

    @asynccontextmanager
    async def enter(self, caller: str, kind: Kind, deadline_s: float) -> AsyncIterator[Entry]:
        """Accept a call, or raise a `CaptionerError` before its body is read. No other call loses its place
        to one that is rejected."""
        with nullcontext() if kind is Kind.PROBE else self.allowance(caller).call():
            if refusal := self.refusal(kind, caller, deadline_s) or self.no_place(kind, caller):
                raise refusal
            with self.streams.one(caller) if kind.streams else nullcontext():
                yield Entry(self, caller, kind, deadline_s)

    def _no_stream(self, caller: str) -> CaptionerError | None:
        """The error if all streams, or all that one caller may have, are taken and none is silent."""
        if self.streams[caller] >= self._caller_streams:
            what = (
                f"one caller may have {self._caller_streams} of the {self._max_streams} streams (max_streams)"
            )
            own = self.images.evict_silent(lambda one: one.stream and one.caller == caller)
            return None if own else BusyError(what, _RETRY_AFTER_S)
        taken = self.streams.total >= self._max_streams
        if taken and not self.images.evict_silent(lambda one: one.stream):
            what = f"all {self._max_streams} streams at once are taken (max_streams)"
            return BusyError(what, _RETRY_AFTER_S)
        return None


class Entry:
    """An accepted call whose body has not been received."""

    def __init__(self, door: Door, caller: str, kind: Kind, deadline_s: float) -> None:
        self.caller = caller
        self._receipt: Receipt | None = None
        self._door, self._kind, self._deadline_s = door, kind, deadline_s

    def room(self) -> AbstractAsyncContextManager[Receipt]:
        """Room for one image, until the context ends."""
        return self._door.images.receive(self.caller, self._kind.streams)

    def crowded(self) -> bool:
        """As `Door.crowded`."""
        return self._door.crowded()

    def answer(self, size: int) -> None:
        """Record that the answer takes `size` bytes until the context of `receive` ends."""
        if self._receipt is not None:
            self._receipt.settle(size)

    @asynccontextmanager
    async def receive(
        self, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int]
    ) -> AsyncIterator[T]:
        """The one message of a call; its bytes count until the context ends. A call with an image counts as
        open while it arrives. The call may still be rejected afterwards."""
        async with AsyncExitStack() as held:
            if self._kind.brings_images:
                message = await self._image(read, size_of, held)
            else:
                message = await self._small(read, size_of)
            refusal = self._door.refusal(self._kind, self.caller, self._deadline_s)
            if refusal := refusal or self._door.no_place(self._kind, self.caller, entered=True):
                raise refusal
            yield message

    async def _image(
        self, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int], held: AsyncExitStack
    ) -> T:
        self._door.receiving += 1
        try:
            with call_stage("admit"):
                receipt = await held.enter_async_context(self.room())
            with call_stage("receive"):
                message = await receipt.arrive(read())
        finally:
            self._door.receiving -= 1
        receipt.settle(size_of(message))
        self._receipt = receipt
        return message

    async def _small(self, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int]) -> T:
        with call_stage("receive"):
            message = await self._door.small.arrive(read())
        if (size := size_of(message)) > MAX_SMALL_BYTES:
            raise RequestError(f"a message of {size} bytes, the limit is {MAX_SMALL_BYTES}", "request")
        return message
