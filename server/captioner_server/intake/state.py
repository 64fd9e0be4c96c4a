"""The state of the server: whether it accepts calls, and how many are open."""

from __future__ import annotations

import asyncio
import time
from enum import Enum

from captioner_server.errors import NotServingError


class Phase(Enum):
    """What a server does now; the value says why it accepts no calls."""

    STARTING = "the server is still loading its model"
    SERVING = ""
    FAILING = "the model fails on every batch"
    DRAINING = "the server is shutting down"


class ServerState:
    """The phase of the server and its count of open calls. For use on one event loop."""

    def __init__(self, retry_after_s: float) -> None:
        self.phase = Phase.STARTING
        self.open_calls = 0
        self.leaving = False
        """The lame-duck period: calls are accepted, but the server reports that it is not ready."""
        self.stalled = False
        """Calls are accepted, but none with an image has been answered for a while."""
        self._retry_after_s = retry_after_s
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = asyncio.Event()
        self._holding = False
        self._closed = asyncio.Event()
        self._rejected_s = 0.0

    @property
    def serving(self) -> bool:
        return self.phase is Phase.SERVING

    @property
    def not_ready(self) -> str:
        """Why new callers should not use this server; "" if they should."""
        if not self.serving:
            return self.phase.value
        if self.leaving:
            return Phase.DRAINING.value
        return "images wait and none has been answered for a while" if self.stalled else ""

    def rejection(self) -> NotServingError | None:
        """The error that a new call is rejected with; None if it is accepted."""
        if self.serving:
            return None
        self._rejected_s = time.monotonic()
        return NotServingError(self.phase.value, self._retry_after_s)

    def enter(self) -> None:
        """Count an accepted call as open; call `leave` when its answer has been sent."""
        self.open_calls += 1
        self._empty.clear()

    def leave(self) -> None:
        self.open_calls -= 1
        if not self.open_calls:
            self._empty.set()

    def drain(self) -> None:
        self.phase = Phase.DRAINING
        self._draining.set()

    async def draining(self) -> None:
        """Wait until the server drains: for calls that would otherwise not end."""
        await self._draining.wait()

    async def empty(self) -> None:
        """Wait until no call is open."""
        await self._empty.wait()

    async def quiet(self, quiet_s: float, limit_s: float) -> None:
        """Hold rejected calls from now on, and wait until none has arrived for `quiet_s`, at most `limit_s`.

        gRPC cancels calls that arrive while a port is being closed. Rejected callers stay away for a while;
        a caller that is held waits for its answer instead of calling again.
        """
        self._holding = True
        limit = time.monotonic() + limit_s
        self._rejected_s = time.monotonic()
        while (now := time.monotonic()) < min(self._rejected_s + quiet_s, limit):
            await asyncio.sleep(min(self._rejected_s + quiet_s, limit) - now)

    async def held(self) -> None:
        """Await this before rejecting a call."""
        if self._holding:
            await self._closed.wait()

    def close(self) -> None:
        """Release held calls, after the port was closed."""
        self._closed.set()
