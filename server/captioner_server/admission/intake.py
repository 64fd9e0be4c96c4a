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
from captioner_server.fairness.fair_queue import Claim, FairQueue

T = TypeVar("T")

_RETRY_AFTER_S = 0.5
_MIB = 2**20


class Intake:
    """A budget of bytes in flight. For use on one event loop."""

    def __init__(
        self, budget_bytes: int, message_bytes: int, arrival_s: float, contended_s: float = 2.0
    ) -> None:
        """`message_bytes` is the size of the largest message. A message may take `arrival_s` to arrive, and
        `contended_s` while others wait for its room."""
        self.budget_bytes = max(budget_bytes, message_bytes)
        self.used_bytes = 0
        self.arrival_s = arrival_s
        self._message_bytes, self._contended_s = message_bytes, contended_s
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._arriving: dict[Receipt, None] = {}  # the longest first
        self._check: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def receive(self, caller: str, stream: bool = False) -> AsyncIterator[Receipt]:
        """Room for one message, of a stream or not, until the context ends. Raises `BusyError` if there is
        none within `arrival_s`."""
        if self._waiting or not self._fits():
            await self._wait(caller)
        else:
            self.used_bytes += self._message_bytes
        receipt = Receipt(self, self._message_bytes, caller, stream)
        self._arriving[receipt] = None
        try:
            yield receipt
        finally:
            receipt.settle(0)

    @property
    def contended(self) -> bool:
        """Whether messages wait for room."""
        return bool(self._waiting)

    def evict_silent(self, among: Callable[[Receipt], bool] = lambda _: True) -> bool:
        """Evict the message that has been arriving for longest `among` these, if for `contended_s`; returns
        whether there was one."""
        now = time.monotonic()
        receipt = next((one for one in self._arriving if among(one) and not one.evicted.done()), None)
        if receipt is None or now - receipt.since < self._contended_s:
            return False
        receipt.evicted.set_result(None)
        return True

    def least_entitled(self, caller: str) -> asyncio.Future[None] | None:
        """The newest waiting message of the caller that has the most, if `caller` has at least two fewer."""
        room = self._waiting.newest_of_most(caller)
        return None if room is None or room.done() else room

    def reject(self, room: asyncio.Future[None]) -> None:
        """Reject a waiting message."""
        self._waiting.discard(room)
        room.set_exception(_no_room())

    def _fits(self) -> bool:
        return self.used_bytes + self._message_bytes <= self.budget_bytes

    async def _wait(self, caller: str) -> None:
        room = asyncio.get_running_loop().create_future()
        self._waiting.add(room, Claim(caller))
        self._watch()
        granted = False
        try:
            async with asyncio.timeout(self.arrival_s):
                await room
            granted = True
        except TimeoutError:
            raise _no_room() from None
        finally:
            if room in self._waiting:
                self._waiting.discard(room)
            elif not granted and not room.cancelled() and room.exception() is None:
                self._give(self._message_bytes)  # it was granted just before the cancellation

    def _give(self, count: int) -> None:
        """Free some bytes and give them to waiting calls."""
        self.used_bytes -= count
        while self._waiting and self._fits():
            room = self._waiting.take(next(self._waiting.order()))
            if not room.done():
                self.used_bytes += self._message_bytes
                room.set_result(None)

    def _watch(self) -> None:
        """While calls wait, evict silent reservations periodically."""
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(self._contended_s / 4, self._evict)

    def _evict(self) -> None:
        self._check = None
        if self._waiting:
            self.evict_silent()
            self._watch()

    def _settled(self, receipt: Receipt, freed: int) -> None:
        """`freed` is negative if more bytes are held than before."""
        self._arriving.pop(receipt, None)
        if freed:
            self._give(freed)


class Receipt:
    """Room for one message."""

    def __init__(self, intake: Intake, reserved: int, caller: str, stream: bool) -> None:
        self.since = time.monotonic()
        self.caller, self.stream = caller, stream
        self.evicted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the message is evicted: stop waiting for it."""
        self._intake, self._held = intake, reserved

    def settle(self, count: int) -> None:
        """Record that the message, or the answer to it, takes `count` bytes; 0 when no longer needed."""
        freed, self._held = self._held - count, count
        self._intake._settled(self, freed)

    async def arrive(self, read: Awaitable[T]) -> T:
        """The result of `read`. Raises `DeadlineError` if it takes too long, `BusyError` if it is evicted."""
        reading: asyncio.Future[T] = asyncio.ensure_future(read)
        events: set[asyncio.Future[Any]] = {reading, self.evicted}
        try:
            await asyncio.wait(
                events,
                timeout=self._intake.arrival_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
        if self.evicted.done():
            raise evicted()
        raise DeadlineError(f"the message did not arrive within {self._intake.arrival_s:g} s (upload_s)")


class SmallIntake:
    """Small messages, which arrive with their calls. A message that comes later than that needs one of a few
    places: no more than what the network delivers in a moment is in memory beside those few, whatever its
    size. For use on one event loop."""

    def __init__(self, places: int, arrival_s: float = 5.0, prompt_s: float = 0.2) -> None:
        """A message has a place from `prompt_s` until `arrival_s`."""
        self._free, self._arrival_s, self._prompt_s = places, arrival_s, prompt_s

    async def arrive(self, read: Awaitable[T]) -> T:
        """The result of `read`. Raises `BusyError` if all places are taken, `DeadlineError` if it takes too
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


def _no_room() -> BusyError:
    return BusyError("there is no room for another message (upload_bytes)", _RETRY_AFTER_S)


def evicted() -> BusyError:
    return BusyError("no data arrived in time while other calls were waiting", _RETRY_AFTER_S)


def default_budget() -> int:
    """A quarter of the memory that this process may use, in bytes, from 256 MiB to 4 GiB."""
    return max(256 * _MIB, min((available_memory() or 2**34) // 4, 2**32))
