"""Limits on incoming messages: their bytes in total, and the time that each may take to arrive.

gRPC reveals the size of a message only when it is complete. The size of the largest message is therefore
reserved while one arrives, and its real size is held until its call is over. A caller that sends nothing
while others wait for a reservation loses its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from captioner.memory import available_memory
from captioner_server.errors import BusyError, DeadlineError
from captioner_server.intake.fair_queue import FairQueue
from captioner_server.intake.ticket import Ticket

T = TypeVar("T")

_RETRY_AFTER_S = 0.5
_MIB = 2**20


class ByteBudget:
    """A budget of bytes for messages with images and for their answers. For use on one event loop."""

    def __init__(
        self, budget_bytes: int, message_bytes: int, arrival_s: float, contended_s: float = 2.0
    ) -> None:
        """`message_bytes` is the size of the largest message. A message may take `arrival_s` to arrive, and
        `contended_s` while others wait for its bytes."""
        self.budget_bytes = max(budget_bytes, message_bytes)
        self.used_bytes = 0
        self.arrival_s = arrival_s
        self._message_bytes, self._contended_s = message_bytes, contended_s
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._arriving: dict[Ticket, None] = {}  # the longest first
        self._check: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def hold(self, ticket: Ticket) -> AsyncIterator[None]:
        """Reserve the bytes of one message, until the context ends. Raises `BusyError` if they are not free
        within `arrival_s`."""
        if self._waiting or not self._fits():
            await self._wait(ticket)
        else:
            self.used_bytes += self._message_bytes
        ticket.held_bytes = self._message_bytes
        ticket.arrives_since_s = time.monotonic()
        ticket.evicted = asyncio.get_running_loop().create_future()
        self._arriving[ticket] = None
        try:
            yield
        finally:
            self.settle(ticket, 0)

    def settle(self, ticket: Ticket, count: int) -> None:
        """Record that the message of a ticket, or the answer to it, takes `count` bytes; 0 when no longer
        needed."""
        self._arriving.pop(ticket, None)
        freed, ticket.held_bytes = ticket.held_bytes - count, count
        if freed:
            self._give(freed)

    async def arrive(self, ticket: Ticket, read: Awaitable[T]) -> T:
        """The result of `read`. Raises `DeadlineError` if it takes too long, `BusyError` if it is evicted."""
        assert ticket.evicted is not None
        reading: asyncio.Future[T] = asyncio.ensure_future(read)
        events: set[asyncio.Future[Any]] = {reading, ticket.evicted}
        try:
            await asyncio.wait(events, timeout=self.arrival_s, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
        if ticket.evicted.done():
            raise evicted()
        raise DeadlineError(f"the message did not arrive within {self.arrival_s:g} s (upload_s)")

    @property
    def contended(self) -> bool:
        """Whether messages wait for bytes."""
        return bool(self._waiting)

    def silent(self, among: Callable[[Ticket], bool] = lambda _: True) -> Ticket | None:
        """The ticket whose message has been arriving for longest `among` these, if for `contended_s`."""
        for ticket in self._arriving:
            if among(ticket) and ticket.evicted and not ticket.evicted.done():
                waited_s = time.monotonic() - ticket.arrives_since_s
                return ticket if waited_s >= self._contended_s else None
        return None

    def least_entitled(self, caller: str) -> asyncio.Future[None] | None:
        """The newest waiting message of the caller that has the most, if `caller` has at least two fewer."""
        waiting = self._waiting.newest_of_most(caller)
        return None if waiting is None or waiting.done() else waiting

    def reject(self, waiting: asyncio.Future[None]) -> None:
        """Reject a waiting message."""
        self._waiting.discard(waiting)
        waiting.set_exception(_no_bytes())

    def _fits(self) -> bool:
        return self.used_bytes + self._message_bytes <= self.budget_bytes

    async def _wait(self, ticket: Ticket) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.add(granted, ticket)
        self._watch()
        taken = False
        try:
            async with asyncio.timeout(self.arrival_s):
                await granted
            taken = True
        except TimeoutError:
            raise _no_bytes() from None
        finally:
            if granted in self._waiting:
                self._waiting.discard(granted)
            elif not taken and not granted.cancelled() and granted.exception() is None:
                self._give(self._message_bytes)  # granted just before the cancellation

    def _give(self, count: int) -> None:
        """Free some bytes and give them to waiting calls."""
        self.used_bytes -= count
        while self._waiting and self._fits():
            granted = self._waiting.take(next(self._waiting.order()))
            if not granted.done():
                self.used_bytes += self._message_bytes
                granted.set_result(None)

    def _watch(self) -> None:
        """While calls wait, evict silent messages periodically."""
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(self._contended_s / 4, self._evict)

    def _evict(self) -> None:
        self._check = None
        if self._waiting:
            evict(self.silent())
            self._watch()


class SmallMessages:
    """Small messages, which arrive with their calls. Only a few may come later than that: no more than what
    the network delivers in a moment is in memory beside those few, whatever its size. For use on one event
    loop."""

    def __init__(self, late: int, arrival_s: float = 5.0, prompt_s: float = 0.2) -> None:
        """`late` messages may take longer than `prompt_s`, and none longer than `arrival_s`."""
        self._free, self._arrival_s, self._prompt_s = late, arrival_s, prompt_s

    async def arrive(self, read: Awaitable[T]) -> T:
        """The result of `read`. Raises `BusyError` if too many are late, `DeadlineError` if it takes too
        long."""
        reading: asyncio.Future[T] = asyncio.ensure_future(read)
        try:
            await asyncio.wait({reading}, timeout=self._prompt_s)
            if not reading.done():
                if not self._free:
                    raise evicted()
                self._free -= 1
                try:
                    await asyncio.wait({reading}, timeout=self._arrival_s - self._prompt_s)
                finally:
                    self._free += 1
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
        raise DeadlineError(f"the message did not arrive within {self._arrival_s:g} s")


def evict(ticket: Ticket | None) -> None:
    """Tell the call of the ticket, if there is one, to stop waiting for its message."""
    if ticket and ticket.evicted:
        ticket.evicted.set_result(None)


def evicted() -> BusyError:
    """The error of a call whose message was evicted."""
    return BusyError("no data arrived in time while other calls were waiting", _RETRY_AFTER_S)


def _no_bytes() -> BusyError:
    return BusyError("there is no room for another message (upload_bytes)", _RETRY_AFTER_S)


def default_budget() -> int:
    """A quarter of the memory that this process may use, in bytes, from 256 MiB to 4 GiB."""
    return max(256 * _MIB, min((available_memory() or 2**34) // 4, 2**32))
