"""A bound on admitted images: those being decoded, waiting for the model or computed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from captioner_server.errors import BusyError, RequestError
from captioner_server.fair_queue import BULK_SHARE, Claim, Turns

_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_PRUDENCE = 0.75
"""Share of a caller's time that an answer may be expected to take: one that comes a moment too late has
cost as much as one in time, and in a storm everybody waits as long as is allowed."""
_BULK_BATCHES = 3
"""So many batches of bulk images are in the house at once: enough for the model never to wait for them, and
few enough for an interactive call not to."""


class Admission:
    """Counts images in and out. For use on one event loop."""

    def __init__(
        self,
        limit: int,
        batch: int,
        image_s: Callable[[], float],
        decoder_wait_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`image_s` says how long an image with the default search takes at present when there are many, in
        batches of `batch`, and `decoder_wait_s` how long one that comes now waits to be decoded."""
        self.limit = limit
        self.caller_limit = limit - limit // 4 if limit >= 8 else limit
        """Most images of one caller: some places are always left to others."""
        self.inside = 0
        self._bulk_inside = 0
        self._callers: defaultdict[str, int] = defaultdict(int)  # images of each that waits for an answer
        self._costs: defaultdict[str, float] = defaultdict(float)  # and what they cost
        self._batch = batch
        self._image_s = image_s
        self._decoder_wait_s = decoder_wait_s
        self._bulk = Turns(max(1, min(limit - limit // 4, _BULK_BATCHES * batch)))

    @property
    def idle(self) -> bool:
        """Whether no image has a place or waits for one."""
        return not self.inside and not self._bulk.waiting

    @contextmanager
    def enter(
        self, images: int = 1, patience_s: float = math.inf, caller: str = "", cost: float = 1.0
    ) -> Iterator[None]:
        """Hold places for some images, or raise `BusyError` at once: for callers that wait for one answer,
        and no longer than `patience_s`. `cost` is that of each image, in default searches.

        Raises `RequestError` for more images than there will ever be places."""
        if images > self.caller_limit:
            raise RequestError(
                f"{images} images are more than the limit of {self.caller_limit} (of queue_size)", "inputs"
            )
        if refusal := self.refusal(images, patience_s, caller, cost):
            raise refusal
        self.inside += images
        self._callers[caller] += images
        self._costs[caller] += images * cost
        try:
            yield
        finally:
            self.inside -= images
            self._callers[caller] -= images
            self._costs[caller] -= images * cost
            if not self._callers[caller]:
                del self._callers[caller], self._costs[caller]

    @asynccontextmanager
    async def wait(self, claim: Claim) -> AsyncIterator[None]:
        """Hold a place as soon as there is one for bulk work, in fair order: for streams, which push back on
        their callers by not reading on."""
        async with self._bulk.turn(claim):
            self.inside += 1
            self._bulk_inside += 1
            try:
                yield
            finally:
                self.inside -= 1
                self._bulk_inside -= 1

    def refusal(
        self, images: int = 1, patience_s: float = math.inf, caller: str = "", cost: float = 1.0
    ) -> BusyError | None:
        """Why so many images would be refused now, if they would.

        What cannot be answered in time is better refused than computed for nobody; and who is refused at
        once can ask elsewhere."""
        if self.inside + images > self.limit:
            message = f"all {self.limit} places for images in work are taken (queue_size)"
        elif self._callers.get(caller, 0) + images > self.caller_limit:
            message = f"the caller has {self.caller_limit} images in work, the most for one (of queue_size)"
        elif (expected_s := self.expected_s(images, caller, cost)) > _PRUDENCE * patience_s:
            message = (
                f"an answer would take about {expected_s:.1f} s, too near to the {patience_s:.1f} s there are"
            )
        else:
            return None
        all_done_s = (self._bulk_inside + sum(self._costs.values())) * self._image_s()
        return BusyError(message, min(max(all_done_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S))

    def expected_s(self, images: int = 1, caller: str = "", cost: float = 1.0) -> float:
        """How long interactive images take that come in now. Callers take turns: of the work of each other
        one, no more is ahead than the caller has itself.

        What fits into one batch always comes in, so that a model that was slow once is tried again."""
        own = self._costs.get(caller, 0.0) + images * cost
        others = sum(min(work, own) for other, work in self._costs.items() if other != caller)
        return self._work_s(own + others, max(self._batch, cost))

    @property
    def backlog_s(self) -> float:
        """How long a new image takes, including the wait for all images before it."""
        return self._work_s(1 + sum(self._costs.values()), self._batch)

    def _work_s(self, ahead: float, at_once: float) -> float:
        """How long interactive work takes, beside the share that bulk work keeps and the batch that is
        computed; as good as nothing if it is done `at_once`."""
        if ahead <= at_once:
            return self._decoder_wait_s()
        if self._bulk_inside:
            ahead /= 1 - BULK_SHARE
        return max((ahead + self._batch) * self._image_s(), self._decoder_wait_s())
