"""A bound on admitted images: those being decoded, waiting for the model or computed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from captioner_server.captioning.bulk_places import BulkPlaces, Place
from captioner_server.errors import BusyError, RequestError
from captioner_server.fairness.fair_queue import BULK_SHARE, Claim

_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_PRUDENCE = 0.75
"""Largest expected time of an answer, as a share of the caller's patience: an answer that comes slightly too
late has cost as much as one in time, and under overload all callers wait as long as they may."""
_BULK_BATCHES = 3
"""Batches of bulk images that are admitted at once: enough to keep the model busy, and few enough that
interactive calls do not wait for them."""


class Admission:
    """Counts admitted images. For use on one event loop."""

    def __init__(
        self,
        limit: int,
        batch: int,
        image_s: Callable[[], float],
        decoder_wait_s: Callable[[], float] = lambda: 0.0,
        decode_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`image_s` returns the current time per image with the default search in batches of `batch`,
        `decoder_wait_s` how long a new image waits for a decoding process, and `decode_s` the time per image
        of all these processes."""
        self.limit = limit
        self.caller_limit = limit - limit // 4 if limit >= 8 else limit
        """Most images of one caller, so that others find room."""
        self._interactive = 0
        self._callers: defaultdict[str, int] = defaultdict(int)  # interactive images by caller
        self._costs: defaultdict[str, float] = defaultdict(float)  # their costs
        self._batch = batch
        self._image_s = image_s
        self._decoder_wait_s = decoder_wait_s
        places = max(1, min(limit - limit // 4, _BULK_BATCHES * batch))
        self._bulk = BulkPlaces(places, limit, lambda: batch * image_s(), decode_s)

    @property
    def inside(self) -> int:
        """Admitted images."""
        return self._interactive + self._bulk.inside + self._bulk.aside

    @property
    def idle(self) -> bool:
        """Whether no image is admitted or waits for admission."""
        return not self.inside and not self._bulk.waiting

    @contextmanager
    def enter(
        self, images: int = 1, patience_s: float = math.inf, caller: str = "", cost: float = 1.0
    ) -> Iterator[None]:
        """Admit the images of an interactive call that waits at most `patience_s`, or raise `BusyError` at
        once. `cost` is that of each image, in default searches.

        Raises `RequestError` for more images than could ever be admitted."""
        if images > self.caller_limit:
            raise RequestError(
                f"{images} images are more than the limit of {self.caller_limit} (of queue_size)", "inputs"
            )
        if refusal := self.refusal(images, patience_s, caller, cost):
            raise refusal
        self._interactive += images
        self._callers[caller] += images
        self._costs[caller] += images * cost
        try:
            yield
        finally:
            self._interactive -= images
            self._callers[caller] -= images
            self._costs[caller] -= images * cost
            if not self._callers[caller]:
                del self._callers[caller], self._costs[caller]

    @asynccontextmanager
    async def wait(self, claim: Claim) -> AsyncIterator[Place]:
        """Admit an image of a stream, in fair order, as soon as bulk work has room. Meanwhile the stream is
        not read, which slows its caller down."""
        place = await self._bulk.enter(claim)
        try:
            yield place
        finally:
            place.leave()

    def refusal(
        self, images: int = 1, patience_s: float = math.inf, caller: str = "", cost: float = 1.0
    ) -> BusyError | None:
        """The error that these images would be rejected with now; None if they would be admitted.

        Images that cannot be answered in time are rejected at once: computing them would be wasted, and the
        caller can try another server."""
        if self._interactive + self._bulk.inside + images > self.limit:
            message = f"all {self.limit} places for images in work are taken (queue_size)"
        elif self._callers.get(caller, 0) + images > self.caller_limit:
            message = f"the caller has {self.caller_limit} images in work, the most for one (of queue_size)"
        elif (expected_s := self.expected_s(images, caller, cost)) > _PRUDENCE * patience_s:
            message = (
                f"an answer would take about {expected_s:.1f} s, too close to the limit of "
                f"{max(0.0, patience_s):.1f} s"
            )
        else:
            return None
        all_done_s = (self._bulk.inside + sum(self._costs.values())) * self._image_s()
        return BusyError(message, min(max(all_done_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S))

    def expected_s(self, images: int = 1, caller: str = "", cost: float = 1.0) -> float:
        """Expected time of interactive images that arrive now. Callers take turns, so no caller has more work
        ahead of them than they have themselves.

        Work that fits into one batch is always admitted, so that a model that was slow is tried again."""
        own = self._costs.get(caller, 0.0) + images * cost
        others = sum(min(work, own) for other, work in self._costs.items() if other != caller)
        return self._work_s(own + others, max(self._batch, cost))

    @property
    def backlog_s(self) -> float:
        """Expected time of a new image behind all admitted ones."""
        return self._work_s(1 + sum(self._costs.values()), self._batch)

    def _work_s(self, ahead: float, at_once: float) -> float:
        """Expected time of interactive work, with the share of bulk work and the batch in progress; only the
        wait for a decoder if it fits into one batch, `at_once`."""
        if ahead <= at_once:
            return self._decoder_wait_s()
        if self._bulk.inside:
            ahead /= 1 - BULK_SHARE
        return max((ahead + self._batch) * self._image_s(), self._decoder_wait_s())
