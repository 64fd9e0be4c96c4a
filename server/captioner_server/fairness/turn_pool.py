"""Threads that callers use in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from captioner_server.fairness.fair_queue import Claim, Turns

T = TypeVar("T")


class TurnPool:
    """A fixed number of threads, given to callers in fair order. For use on one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self.turns = Turns(threads)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(
        self, claim: Claim, work: Callable[[], T], cost: Callable[[float], float] = lambda seconds: 0.0
    ) -> T:
        """Run `work` on a thread. The turn lasts until the thread is done, even if the call is cancelled;
        `cost` converts its seconds to the cost that the caller is charged."""
        loop = asyncio.get_running_loop()
        await self.turns.enter(claim)
        started = time.monotonic()

        def done(_: Future[T]) -> None:
            more = cost(time.monotonic() - started) - claim.cost
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.turns.leave, claim, more)

        job = self._threads.submit(work)
        job.add_done_callback(done)
        try:
            return await asyncio.wrap_future(job)
        finally:
            del job  # holds the error whose frames hold it, and the image

    def close(self) -> None:
        """Do not wait for running threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
