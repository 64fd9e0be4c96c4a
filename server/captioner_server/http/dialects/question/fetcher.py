"""Fetches images from URLs for callers, who share the threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

from starlette.requests import Request

from captioner.images.fetch import Fetch
from captioner_server.errors import BusyError
from captioner_server.http.endpoint import while_connected
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import Turns, submit

_FETCHES, _CALLER_FETCHES = 64, 16
"""Most fetches at once, of all callers and of one."""
_WAIT_S = 10.0
"""Longest wait for a turn; beyond it, a call would seem to have been slow itself."""
_RETRY_AFTER_S = 1.0


class Fetcher:
    """For use on one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """An image has at most `max_bytes`."""
        self._max_bytes = max_bytes
        self._turns = Turns(_FETCHES)
        self._shares: WeakValueDictionary[str, Turns] = WeakValueDictionary()  # of callers that fetch
        self._threads = ThreadPoolExecutor(_FETCHES, "fetch")

    async def fetch(self, url: str, request: Request, ticket: Ticket) -> bytes:
        """The content of a URL. Raises an `ImageError`, `BusyError` if there is no turn for long, and
        `ClientDisconnect` if the caller of the request has gone; then the fetch ends, too."""
        fetching = Fetch(url, self._max_bytes)
        work = asyncio.create_task(self._in_turn(fetching.run, ticket))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        try:
            return await while_connected(request.receive, asyncio.shield(work))
        finally:
            if fetching.started:
                fetching.stop()  # it keeps its turn until its thread has ended
            else:
                work.cancel()

    async def _in_turn(self, run: Callable[[], bytes], ticket: Ticket) -> bytes:
        share = self._shares.setdefault(ticket.caller, Turns(_CALLER_FETCHES))
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await turns.enter_async_context(share.turn(ticket))
                    await turns.enter_async_context(self._turns.turn(ticket))
            except TimeoutError:
                most = f"{_FETCHES} images are fetched at once, {_CALLER_FETCHES} of one caller"
                raise BusyError(f"no turn to fetch the image: {most}", _RETRY_AFTER_S) from None
            return await asyncio.wrap_future(submit(self._threads, run))
