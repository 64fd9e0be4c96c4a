"""Whether the server takes calls: not yet, now, or not any more; and what is still open."""

from __future__ import annotations

import asyncio
import time
from enum import Enum

from captioner_server.errors import NotServingError


class State(Enum):
    STARTING = "the server is still loading its model"
    SERVING = ""
    FAILING = "the model fails on every batch"
    DRAINING = "the server is shutting down"


class Gate:
    """The server's state and its count of open calls. For use on one event loop."""

    def __init__(self, retry_after_s: float) -> None:
        self.state = State.STARTING
        self.open_calls = 0
        self.leaving = False
        """Calls are still taken, but callers are to go elsewhere: the server is about to drain."""
        self._retry_after_s = retry_after_s
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = asyncio.Event()
        self._holding = False
        self._closed = asyncio.Event()
        self._refused_s = 0.0

    @property
    def serving(self) -> bool:
        return self.state is State.SERVING

    @property
    def ready(self) -> bool:
        """Whether callers are to come."""
        return self.serving and not self.leaving

    def refusal(self) -> NotServingError | None:
        """Why a call that comes now is refused, if it is."""
        if self.serving:
            return None
        self._refused_s = time.monotonic()
        return NotServingError(self.state.value, self._retry_after_s)

    def enter(self) -> None:
        """An accepted call is open, until its answer has been sent."""
        self.open_calls += 1
        self._empty.clear()

    def leave(self) -> None:
        self.open_calls -= 1
        if not self.open_calls:
            self._empty.set()

    def drain(self) -> None:
        self.state = State.DRAINING
        self._draining.set()

    async def draining(self) -> None:
        """Returns once the server drains: for calls without an end of their own."""
        await self._draining.wait()

    async def empty(self) -> None:
        """Returns once no call is open."""
        await self._empty.wait()

    async def quiet(self, quiet_s: float, limit_s: float) -> None:
        """Hold refused calls from now on; returns once none has come for `quiet_s`, or after `limit_s`.

        What reaches a port that is just being closed is cancelled by gRPC. Callers who were refused stay
        away for a while; those who do not are held, and who waits for an answer does not call again.
        """
        self._holding = True
        limit = time.monotonic() + limit_s
        self._refused_s = time.monotonic()
        while (now := time.monotonic()) < min(self._refused_s + quiet_s, limit):
            await asyncio.sleep(min(self._refused_s + quiet_s, limit) - now)

    async def held(self) -> None:
        """To be awaited before a call is told that it is refused."""
        if self._holding:
            await self._closed.wait()

    def close(self) -> None:
        """The port is closed: release held calls."""
        self._closed.set()
