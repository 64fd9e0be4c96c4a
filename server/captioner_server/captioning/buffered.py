"""Work that does not wait for whoever reads what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def buffered(work: AsyncGenerator[T], done: Callable[[], object]) -> AsyncGenerator[T]:
    """The items of `work`, which runs to its end, however slowly they are read; then `done` is called. An
    unread answer holds no place of work this way. For work with few items, as all are kept."""
    found: asyncio.Queue[T | None] = asyncio.Queue()

    async def run() -> None:
        try:
            async with aclosing(work):
                async for item in work:
                    found.put_nowait(item)
        finally:
            done()
            found.put_nowait(None)

    running = asyncio.create_task(run())
    try:
        while (item := await found.get()) is not None:
            yield item
        await running  # raises what went wrong
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
