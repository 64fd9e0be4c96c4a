"""The door of the server, for every protocol: identify the caller, admit the call, receive its message.

The message is received only after the call was admitted:

    caller = await door.identify(authorization, peer)
    async with door.admit(caller, Kind.IMAGE, deadline_s) as ticket:
        async with door.receive(ticket, read, size_of) as message:
            ...
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from captioner_server.errors import BusyError, RequestError, UnauthenticatedError
from captioner_server.intake.allowance import Allowance
from captioner_server.intake.messages import ByteBudget, SmallMessages, default_budget, evict
from captioner_server.intake.rules import ALL, AT_ONCE, STREAMS, Rejection, Rule, first_rejection, token_calls
from captioner_server.intake.state import ServerState
from captioner_server.intake.ticket import Kind, Ticket, current_ticket
from captioner_server.intake.tokens import Tokens
from captioner_server.observation.tracing import call_span
from captioner_server.options import ServerOptions

T = TypeVar("T")

MAX_SMALL_BYTES = 64 * 1024
"""Largest message of a call without images."""
_LATE_SMALL_MESSAGES = 4
_CROWDED_CALLS = 3 / 4
"""Share of all calls from which callers that do not read their answers are cut off sooner."""
_CALLER_STREAMS = 3 / 4
"""Largest share of all streams that one caller may have."""
_RETRY_AFTER_S = 0.2


class Door:
    """For use on one event loop."""

    def __init__(self, state: ServerState, options: ServerOptions, overload: Rejection) -> None:
        """`overload` is asked about calls with an image: whether every model would reject them. Raises
        `ServerStartError` for a token file that cannot be used."""
        self.state = state
        self.tokens = None if options.token_file is None else Tokens(options.token_file)
        """Who may call; None if everyone may."""
        self._anyone = Allowance()
        self._max_calls, self._max_streams = options.max_calls, options.max_streams
        self._caller_streams = math.ceil(_CALLER_STREAMS * options.max_streams)
        self.budget = ByteBudget(
            options.upload_bytes or default_budget(), options.max_message_bytes, options.upload_s
        )
        self._small = SmallMessages(_LATE_SMALL_MESSAGES)
        self.streams: set[Ticket] = set()
        """Open streams."""
        self.receiving = 0
        """Calls with images whose message is still arriving."""
        self.rules = (
            Rule("token_file", ALL, token_calls, again=False),
            Rule("", ALL, lambda _: state.rejection()),
            Rule("queue_size", AT_ONCE, overload),
            Rule("max_calls", ALL, self._calls_taken),
            Rule("max_streams", STREAMS, self._streams_taken, again=False),
        )

    def crowded(self) -> bool:
        """Whether answers that are not read take what others need, or delay the end of the server."""
        many = self._calls >= _CROWDED_CALLS * self._max_calls
        return many or self.budget.contended or not self.state.serving

    async def identify(self, authorization: str, peer: str) -> str:
        """The caller: the name of its token, or its address. Raises `UnauthenticatedError`."""
        return peer if self.tokens is None else await self.tokens.name_of(authorization, peer)

    def check(self, ticket: Ticket) -> None:
        """Ask this now and then in a call that lasts. Raises `UnauthenticatedError` if its token has been
        taken back since the call was admitted."""
        if self.tokens is not None:
            self.tokens.reload()
        if ticket.allowance.revoked:
            raise UnauthenticatedError("the token of this call is no longer valid")

    @asynccontextmanager
    async def admit(self, caller: str, kind: Kind, deadline_s: float) -> AsyncIterator[Ticket]:
        """The ticket of an admitted call. Raises a `CaptionerError` if a rule rejects the call, before its
        message is read. No other call is cut off for one that is rejected."""
        ticket = Ticket(caller, kind, deadline_s, self._allowance(caller))
        current_ticket.set(ticket)
        if kind is Kind.PROBE:
            yield ticket
            return
        self._ask(self.rules, ticket)
        with ticket.allowance.call():
            if kind.streams:
                self._make_room_for_stream(ticket)
                self.streams.add(ticket)
            try:
                yield ticket
            finally:
                self.streams.discard(ticket)

    @asynccontextmanager
    async def receive(
        self, ticket: Ticket, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int]
    ) -> AsyncIterator[T]:
        """The one message of a call; its bytes count until the context ends. A call with an image counts as
        open while it arrives. The call may still be rejected afterwards."""
        async with AsyncExitStack() as held:
            if ticket.kind.brings_images:
                message = await self._receive_image(ticket, read, size_of, held)
            else:
                message = await self._receive_small(read, size_of)
            self._ask((rule for rule in self.rules if rule.again), ticket)
            yield message

    def answer(self, ticket: Ticket, size: int) -> None:
        """Record that the answer takes `size` bytes until the context of `receive` ends."""
        if ticket.kind.brings_images:
            self.budget.settle(ticket, size)

    @property
    def _calls(self) -> int:
        return self.state.open_calls + self.receiving

    def _allowance(self, caller: str) -> Allowance:
        return self._anyone if self.tokens is None else self.tokens.allowance(caller)

    def _ask(self, rules: Iterable[Rule], ticket: Ticket) -> None:
        """Raise the rejection of the first rule that has one. Otherwise make room, if all calls are taken."""
        if rejection := first_rejection(rules, ticket):
            raise rejection
        taken = ticket.kind is not Kind.PROBE and self._calls >= self._max_calls
        if taken and (waiting := self.budget.least_entitled(ticket.caller)):
            self.budget.reject(waiting)

    def _calls_taken(self, ticket: Ticket) -> BusyError | None:
        """All calls are taken, and none of them is to be cut off for this one: one that waits for bytes, of
        the caller that has the most of these."""
        if self._calls < self._max_calls or self.budget.least_entitled(ticket.caller):
            return None
        return BusyError(f"all {self._max_calls} calls at once are taken (max_calls)", _RETRY_AFTER_S)

    def _streams_taken(self, ticket: Ticket) -> BusyError | None:
        """All streams, or all that one caller may have, are taken, and none of these is silent."""
        own = self._has_all_its_streams(ticket)
        if (not own and len(self.streams) < self._max_streams) or self._silent_stream(ticket):
            return None
        all_taken = f"all {self._max_streams} streams at once are taken (max_streams)"
        most = f"one caller may have {self._caller_streams} of the {self._max_streams} streams (max_streams)"
        return BusyError(most if own else all_taken, _RETRY_AFTER_S)

    def _make_room_for_stream(self, ticket: Ticket) -> None:
        if self._has_all_its_streams(ticket) or len(self.streams) >= self._max_streams:
            evict(self._silent_stream(ticket))

    def _has_all_its_streams(self, ticket: Ticket) -> bool:
        return sum(one.caller == ticket.caller for one in self.streams) >= self._caller_streams

    def _silent_stream(self, ticket: Ticket) -> Ticket | None:
        """The stream to be cut off for another one of this caller."""
        own = self._has_all_its_streams(ticket)
        return self.budget.silent(lambda one: one.kind.streams and (not own or one.caller == ticket.caller))

    async def _receive_image(
        self,
        ticket: Ticket,
        read: Callable[[], Awaitable[T]],
        size_of: Callable[[T], int],
        held: AsyncExitStack,
    ) -> T:
        self.receiving += 1
        try:
            with call_span("admit"):
                await held.enter_async_context(self.budget.hold(ticket))
            with call_span("receive"):
                message = await self.budget.arrive(ticket, read())
        finally:
            self.receiving -= 1
        self.budget.settle(ticket, size_of(message))
        return message

    async def _receive_small(self, read: Callable[[], Awaitable[T]], size_of: Callable[[T], int]) -> T:
        with call_span("receive"):
            message = await self._small.arrive(read())
        if (size := size_of(message)) > MAX_SMALL_BYTES:
            raise RequestError(f"a message of {size} bytes, the limit is {MAX_SMALL_BYTES}", "request")
        return message
