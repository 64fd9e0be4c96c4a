"""Turns: a fixed number of slots or threads, given to callers in fair order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TypeVar

from captioner_server.errors import BusyError
from captioner_server.intake.fair_queue import Asker, FairQueue

T = TypeVar("T")

_RETRY_AFTER_S = 1.0


def submit(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> Future[T]:
    """As `threads.submit`. Raises `BusyError` if the system allows no further thread now."""
    held = [partial(work, *arguments)]
    try:
        return threads.submit(lambda: held.pop()())
    except RuntimeError:
        held.clear()  # the pool keeps what it could not start, and an image with it
        raise BusyError("the system allows the server no further thread now", _RETRY_AFTER_S) from None


class Turns:
    """A fixed number of slots, given to callers in fair order. For use on one event loop."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        """Slots that nobody holds."""
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def others_wait(self, caller: str) -> bool:
        """Whether a caller other than this one waits. Thread-safe."""
        return self._waiting.has_others(caller)

    @contextmanager
    def held(self, count: int) -> Iterator[None]:
        """Take this many free slots without waiting."""
        self.free -= count
        try:
            yield
        finally:
            self.add(count)

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Hold a slot, in fair order."""
        await self.enter(asker)
        try:
            yield
        finally:
            self.add(1)

    async def enter(self, asker: Asker, cost: float = 1.0) -> None:
        """Take a slot in fair order, at this expected cost; call `leave` afterwards."""
        if self.free > 0 and not self._waiting:
            self.free -= 1
        else:
            slot = asyncio.get_running_loop().create_future()
            self._waiting.add(slot, asker, cost)
            try:
                await slot  # set by `add`
            except asyncio.CancelledError:
                if slot in self._waiting:
                    self._waiting.discard(slot)
                elif not slot.cancelled():  # it was granted just before the cancellation
                    self.add(1)
                raise

    def leave(self, asker: Asker, more: float = 0.0) -> None:
        """Return a slot that has cost this much more than expected."""
        self._waiting.charge_more(asker, more)
        self.add(1)

    def add(self, slots: int) -> None:
        """Have so many more slots, or fewer if below 0: those that are held then are not replaced."""
        self.free += slots
        while self.free > 0 and self._waiting:
            slot = self._waiting.take(next(self._waiting.order()))
            if not slot.done():
                self.free -= 1
                slot.set_result(None)


class TurnPool:
    """A fixed number of threads, given to callers in fair order. For use on one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self.turns = Turns(threads)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(
        self,
        asker: Asker,
        work: Callable[[], T],
        expected: float,
        cost: Callable[[float], float] | None = None,
    ) -> T:
        """Run `work`, of an `expected` cost, on a thread. The turn lasts until the thread is done, even if
        the call is cancelled. The caller is charged what is expected, or, with `cost`, what that returns for
        the seconds that it took. Raises `BusyError` as `submit`."""
        loop = asyncio.get_running_loop()
        await self.turns.enter(asker, expected)
        started = time.monotonic()

        def done(_: Future[T]) -> None:
            more = cost(time.monotonic() - started) - expected if cost else 0.0
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.turns.leave, asker, more)

        try:
            job = submit(self._threads, work)
        except BusyError:
            self.turns.leave(asker)
            raise
        job.add_done_callback(done)
        try:
            return await asyncio.wrap_future(job)
        finally:
            del job  # holds the error whose frames hold it, and the image

    def close(self) -> None:
        """Do not wait for running threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
