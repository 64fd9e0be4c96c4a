"""Leaves the event loop time for other calls while large messages arrive.

gRPC hands a message to Python in one piece and on the event loop, which takes 20 ms for 30 MB. Several that
arrive at once would block the loop for the sum of that.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Awaitable, Generator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_LONG_S = 0.002
"""A message that takes less time to unpack delays nobody."""
_PAUSE = 4.0
"""Length of a pause, in times of the unpacking before it."""
_PROMPT_S = 0.02
"""A message that arrives faster is small and does not wait."""


class Pace:
    """Unpacks one large message at a time, with a pause afterwards. For use on one event loop."""

    def __init__(self) -> None:
        self._free_s = 0.0  # when the pause ends, by `time.monotonic`
        self._unpacking_s = 0.0  # in all so far

    @types.coroutine
    def run(self, read: Awaitable[T]) -> Generator[Any, Any, T]:
        """The result of `read`, which awaits the arrival of a message and then unpacks it."""
        steps = read.__await__()
        since_s, unpacking_s = time.monotonic(), self._unpacking_s
        try:
            while True:
                arrival = self._step(steps)
                try:
                    yield arrival
                    own_s = time.monotonic() - since_s - (self._unpacking_s - unpacking_s)
                    if own_s > _PROMPT_S:
                        yield from self._turn().__await__()
                except BaseException as error:
                    self._end(steps, arrival, error)
                    raise
        except StopIteration as end:
            result: T = end.value
            return result

    def _end(self, steps: Generator[Any, Any, T], arrival: Any, error: BaseException) -> None:
        """End `read` with an error. If its message has arrived, only unpacking frees it."""
        with suppress(StopIteration):
            if isinstance(arrival, asyncio.Future) and arrival.done() and not arrival.cancelled():
                self._step(steps)
            else:
                steps.throw(error)

    def _step(self, steps: Generator[Any, Any, T]) -> Any:
        started_s = time.monotonic()
        try:
            return next(steps)
        finally:
            now_s = time.monotonic()
            if (took_s := now_s - started_s) > _LONG_S:
                self._unpacking_s += took_s
                self._free_s = now_s + _PAUSE * took_s

    async def _turn(self) -> None:
        while (left_s := self._free_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
