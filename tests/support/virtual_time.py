"""Time that passes only while everybody waits for it: a busy machine changes nothing, and waiting is free."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Clock:
    """For coroutines without threads. Stands in for the module `time` of what reads the clock itself."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """As `asyncio.run`, on an event loop that goes by this clock."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(work)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(_Leaping(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.now_s


class _Leaping(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the clock there."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout else timeout)
        if timeout and not found:
            self._clock.now_s += timeout
        return found
