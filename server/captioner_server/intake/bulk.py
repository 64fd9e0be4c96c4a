"""Slots for the images of batch streams: fair, and charged by the time that they are held."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import Turns

_SLOW_S = (1.0, 10.0)
"""Least and most time after which a bulk image that has not been decoded is set aside."""
_MOST_ASIDE_PER_CALLER = 16
"""A caller with so many images set aside gets no slots for further ones."""
_LEAST_BATCH_S = 0.0001


class BulkSlots:
    """Slots for bulk images, given to callers in fair order and charged by the time that they are held.

    An image that takes long to decode is set aside: it is decoded and captioned as others are, but its slot
    is free for another. A few callers with slow images would otherwise hold all slots while they wait for
    the decoder of slow images. A caller with many images aside gets no further slots, and as its stream is
    not read meanwhile, all that it keeps here is bounded."""

    def __init__(
        self, slots: int, most_aside: int, batch_s: Callable[[], float], decode_s: Callable[[], float]
    ) -> None:
        """`most_aside` images of all callers together may wait decoded. `batch_s` returns the current time of
        a batch, `decode_s` the time to decode an image."""
        self.inside = 0
        """Images that hold slots."""
        self._slots, self._most_aside = slots, most_aside
        self._turns = Turns(slots)
        self._batch_s, self._decode_s = batch_s, decode_s
        self._aside: Counter[str] = Counter()  # by caller
        self._fewer = asyncio.Event()  # replaced whenever fewer images are aside
        self._held_back = 0

    @property
    def aside(self) -> int:
        """Images that have been set aside."""
        return self._aside.total()

    @property
    def waiting(self) -> int:
        """Images that wait for a slot."""
        return self._turns.waiting + self._held_back

    @asynccontextmanager
    async def hold(self, ticket: Ticket) -> AsyncIterator[None]:
        """Hold a slot, in fair order. Call `ticket.decoded` when the image has been decoded."""
        await self._while_many_aside(ticket.caller)
        await self._turns.enter(ticket)
        self.inside += 1
        since_s, aside = time.monotonic(), False

        def give_back() -> None:
            self.inside -= 1
            held_s = time.monotonic() - since_s
            self._turns.leave(ticket, held_s / max(self._batch_s(), _LEAST_BATCH_S) - 1.0)

        def set_aside() -> None:
            nonlocal aside
            aside = self.aside < self._most_aside  # bounds the memory of decoded images
            if aside:
                self._aside[ticket.caller] += 1
                give_back()
            else:
                watch()

        def watch() -> None:
            ticket.slow_timer = asyncio.get_running_loop().call_later(self._slow_s, set_aside)

        watch()
        try:
            yield
        finally:
            ticket.decoded()
            if aside:
                self._return(ticket.caller)
            else:
                give_back()

    def _return(self, caller: str) -> None:
        self._aside -= Counter((caller,))  # forgets callers that have none left
        self._fewer.set()
        self._fewer = asyncio.Event()

    async def _while_many_aside(self, caller: str) -> None:
        while self._aside[caller] >= _MOST_ASIDE_PER_CALLER:
            self._held_back += 1
            try:
                await self._fewer.wait()
            finally:
                self._held_back -= 1

    @property
    def _slow_s(self) -> float:
        """Longer where all images take long, such as large photos on a single core."""
        least_s, most_s = _SLOW_S
        return min(max(least_s, 2 * self._slots * self._decode_s()), most_s)
