"""Words of a caption as they are decoded, from threads of the model to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from captioner.options import CaptionOptions
from captioner.protocol import PixelModel, Pixels
from captioner.results import Caption, Word
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import TurnPool
from captioner_server.observation.call import current_call
from captioner_server.observation.metrics import Metrics
from captioner_server.observation.tracing import begin_wait

if TYPE_CHECKING:
    from captioner_server.observation.spans import WaitSpans


class WordStreams:
    """Streams words of one model, on `threads` threads that callers take turns at."""

    def __init__(self, model: PixelModel, threads: int, metrics: Metrics) -> None:
        self._model, self._metrics = model, metrics
        self._threads = TurnPool(threads, "stream")

    def close(self) -> None:
        """Stop without waiting for running threads."""
        self._threads.close()

    async def timed(
        self, ticket: Ticket, pixels: Pixels, options: CaptionOptions
    ) -> AsyncGenerator[Word | Caption]:
        """Each word of an image, uint8 (size, size, channels), as greedy search decodes it, then the caption;
        their time counts for the call."""
        call = current_call.get()
        submitted = started = time.monotonic()
        trace = begin_wait()

        def begin() -> None:
            nonlocal started
            started = time.monotonic()
            if trace:
                trace.begin_compute()

        try:
            async with aclosing(self.untimed(ticket, pixels, options, begin, trace)) as items:
                async for item in items:
                    yield item
        finally:
            if trace:
                trace.end()
        compute_s = time.monotonic() - started
        call.add(started - submitted, compute_s)
        self._metrics.count_share(call.token, compute_s)

    async def untimed(
        self,
        ticket: Ticket,
        pixels: Pixels,
        options: CaptionOptions,
        begin: Callable[[], None] = lambda: None,
        trace: WaitSpans | None = None,
    ) -> AsyncGenerator[Word | Caption]:
        """The same, without counting the time. `begin` is called when the work starts. A slow reader does not
        hold it up: words are buffered."""
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Word | Caption | None] = asyncio.Queue()  # never more than max_words + 2
        gone = threading.Event()

        def produce() -> None:
            loop.call_soon_threadsafe(begin)
            for item in self._model.stream_pixels(pixels, options):
                if gone.is_set():
                    return
                loop.call_soon_threadsafe(items.put_nowait, item)

        async def produce_in_turn() -> None:
            work = trace.observing(produce) if trace else produce
            try:
                await self._threads.run(ticket, work, ticket.cost)
            finally:
                items.put_nowait(None)

        producer = asyncio.create_task(produce_in_turn())
        try:
            while (item := await items.get()) is not None:
                yield item
            await producer  # raises what went wrong in there
        finally:
            gone.set()
            producer.cancel()
