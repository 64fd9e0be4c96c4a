"""The images that a model has admitted: those being decoded, waiting for the model or computed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from captioner.errors import CaptionerError
from captioner.printable import counted
from captioner_server.errors import BusyError, RequestError
from captioner_server.intake.bulk import BulkSlots
from captioner_server.intake.fair_queue import BULK_SHARE
from captioner_server.intake.rules import AT_ONCE, Rule, first_rejection, token_images, token_rate
from captioner_server.intake.ticket import Ticket

_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_PRUDENCE = 0.75
"""Largest expected time of an answer, as a share of the caller's patience: an answer that comes slightly too
late has cost as much as one in time, and under overload all callers wait as long as they may."""
_BULK_BATCHES = 3
"""Batches of bulk images that are admitted at once: enough to keep the model busy, and few enough that
interactive calls do not wait for them."""


class AdmittedImages:
    """Admits images to one model. For use on one event loop.

    Images that cannot be answered in time are rejected at once: computing them would be wasted, and the
    caller can try another server."""

    def __init__(
        self,
        limit: int,
        batch: int,
        image_s: Callable[[], float],
        decoder_wait_s: Callable[[], float] = lambda: 0.0,
        decode_s: Callable[[], float] = lambda: 0.0,
        max_wait_s: float = math.inf,
        least_entitled: Callable[[str], asyncio.Future[Any] | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`image_s` returns the current time per image with the default search in batches of `batch`,
        `decoder_wait_s` how long a new image waits for a decoding process, and `decode_s` the time per image
        of all these processes. No call waits longer than `max_wait_s`. `least_entitled` returns what
        waits for the model and gives way to this caller, who has fewer images, when the queue is full."""
        self.limit = limit
        self.caller_limit = limit - limit // 4 if limit >= 8 else limit
        """Most images of one caller, so that others find room."""
        self.rules = (
            Rule("token_file", AT_ONCE, token_images),
            Rule("token_file", AT_ONCE, token_rate),
            Rule("queue_size", AT_ONCE, self._share),
            Rule("queue_size", AT_ONCE, self._room),
            Rule("max_wait_s", AT_ONCE, self._time),
        )
        self._interactive = 0
        self._callers: defaultdict[str, int] = defaultdict(int)  # interactive images by caller
        self._costs: defaultdict[str, float] = defaultdict(float)  # their costs
        self._batch, self._max_wait_s, self._clock = batch, max_wait_s, clock
        self._image_s, self._decoder_wait_s = image_s, decoder_wait_s
        self._least_entitled = least_entitled
        slots = max(1, min(limit - limit // 4, _BULK_BATCHES * batch))
        self._bulk = BulkSlots(slots, limit, lambda: batch * image_s(), decode_s)

    @property
    def inside(self) -> int:
        """Admitted images."""
        return self._interactive + self._bulk.inside + self._bulk.aside

    @property
    def aside(self) -> int:
        """Admitted images of streams that take long to decode."""
        return self._bulk.aside

    @property
    def idle(self) -> bool:
        """Whether no image is admitted or waits for admission."""
        return not self.inside and not self._bulk.waiting

    def rejection(self, ticket: Ticket) -> CaptionerError | None:
        """The error that the images of an interactive call would be rejected with now, if any."""
        return first_rejection(self.rules, ticket)

    @contextmanager
    def enter(self, ticket: Ticket) -> Iterator[None]:
        """Admit the images of an interactive call. Raises `BusyError` at once if there is no room or no time
        for them, and `RequestError` for more images than could ever be admitted."""
        if rejection := self.rejection(ticket):
            raise rejection
        if not self._fits(ticket) and (waiting := self._giving_way(ticket)):
            waiting.set_exception(
                self._busy("a caller with fewer images took the place of this (queue_size)")
            )
        caller, images, cost = ticket.caller, ticket.images, ticket.images * ticket.cost
        self._interactive += images
        self._callers[caller] += images
        self._costs[caller] += cost
        try:
            with ticket.allowance.enter(images):
                yield
        finally:
            self._interactive -= images
            self._callers[caller] -= images
            self._costs[caller] -= cost
            if not self._callers[caller]:
                del self._callers[caller], self._costs[caller]

    @asynccontextmanager
    async def wait(self, ticket: Ticket) -> AsyncIterator[None]:
        """Admit an image of a stream, in fair order, as soon as bulk work has room. Meanwhile the stream is
        not read, which slows its caller down."""
        async with ticket.allowance.wait(ticket), self._bulk.hold(ticket):
            yield

    def expected_s(self, ticket: Ticket) -> float:
        """Expected time of the images of an interactive call that arrives now. Callers take turns, so no
        caller has more work ahead of them than they have themselves.

        Work that fits into one batch is always admitted, so that a model that was slow is tried again."""
        own = self._costs.get(ticket.caller, 0.0) + ticket.images * ticket.cost
        others = sum(min(work, own) for other, work in self._costs.items() if other != ticket.caller)
        return self._work_s(own + others, max(self._batch, ticket.cost))

    @property
    def backlog_s(self) -> float:
        """Expected time of a new image behind all admitted ones."""
        return self._work_s(1 + sum(self._costs.values()), self._batch)

    def _share(self, ticket: Ticket) -> CaptionerError | None:
        """A caller may have three quarters of the queue."""
        if ticket.images > self.caller_limit:
            most = f"{ticket.images} images are more than the limit of {self.caller_limit} (of queue_size)"
            return RequestError(most, "inputs")
        if self._callers.get(ticket.caller, 0) + ticket.images > self.caller_limit:
            images = counted(self.caller_limit, "image")
            most = f"the caller has {images} in work, the most for one (of queue_size)"
            return self._busy(most)
        return None

    def _room(self, ticket: Ticket) -> BusyError | None:
        """There is room in the queue, or another caller with more images makes some."""
        if self._fits(ticket) or self._giving_way(ticket):
            return None
        return self._busy(f"all {self.limit} places for images in work are taken (queue_size)")

    def _fits(self, ticket: Ticket) -> bool:
        return self._interactive + self._bulk.inside + ticket.images <= self.limit

    def _giving_way(self, ticket: Ticket) -> asyncio.Future[Any] | None:
        """What waits and gives its place to an image of a caller with less than its share of the queue."""
        own = self._callers.get(ticket.caller, 0) + 1
        fewer = ticket.images == 1 and own * len(self._callers) <= self._interactive
        return self._least_entitled(ticket.caller) if fewer else None

    def _time(self, ticket: Ticket) -> BusyError | None:
        """The answer is expected in time."""
        patience_s = min(ticket.deadline_s - self._clock(), self._max_wait_s)
        expected_s = self.expected_s(ticket)
        if expected_s <= _PRUDENCE * patience_s:
            return None
        limit_s = max(0.0, patience_s)
        return self._busy(
            f"an answer would take about {expected_s:.1f} s, too close to the limit of {limit_s:.1f} s"
        )

    def _busy(self, message: str) -> BusyError:
        """With the time after which everything that is admitted now will be done."""
        done_s = (self._bulk.inside + sum(self._costs.values())) * self._image_s()
        return BusyError(message, min(max(done_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S))

    def _work_s(self, ahead: float, at_once: float) -> float:
        """Expected time of interactive work, with the share of bulk work and the batch in progress; only the
        wait for a decoder if it fits into one batch, `at_once`."""
        if ahead <= at_once:
            return self._decoder_wait_s()
        if self._bulk.inside:
            ahead /= 1 - BULK_SHARE
        return max((ahead + self._batch) * self._image_s(), self._decoder_wait_s())
