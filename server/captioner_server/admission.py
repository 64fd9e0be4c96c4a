"""A bound on the images in the house: those being decoded, waiting for the model or computed."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from captioner_server.errors import BusyError, RequestError

_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_PRUDENCE = 0.75
"""Share of a caller's time that an answer may be expected to take: one that comes a moment too late has
cost as much as one in time, and in a storm everybody waits as long as is allowed."""


class Admission:
    """Counts images in and out. For use on one event loop."""

    def __init__(
        self,
        limit: int,
        batch: int,
        image_s: Callable[[], float],
        decoder_wait_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`image_s` says how long an image takes at present when there are many, in batches of `batch`, and
        `decoder_wait_s` how long one that comes now waits to be decoded."""
        self.limit = limit
        self.inside = 0
        self._batch = batch
        self._image_s = image_s
        self._decoder_wait_s = decoder_wait_s
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        return self.inside >= self.limit

    @contextmanager
    def enter(self, images: int = 1, patience_s: float = math.inf) -> Iterator[None]:
        """Hold places for some images, or raise `BusyError` at once: for callers that wait for one answer,
        and no longer than `patience_s`.

        Raises `RequestError` for more images than there will ever be places."""
        if images > self.limit:
            raise RequestError(
                f"{images} images are more than the limit of {self.limit} (queue_size)", "inputs"
            )
        if refusal := self.refusal(images, patience_s):
            raise refusal
        self.inside += images
        try:
            yield
        finally:
            self._leave(images)

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Hold a place as soon as there is one, first come, first served: for streams, which push back on
        their callers by not reading on."""
        if self.full:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place  # whoever leaves hands its place over
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._leave(1)
                raise
        else:
            self.inside += 1
        try:
            yield
        finally:
            self._leave(1)

    def refusal(self, images: int = 1, patience_s: float = math.inf) -> BusyError | None:
        """Why so many images would be refused now, if they would.

        What cannot be answered in time is better refused than computed for nobody; and who is refused at
        once can ask elsewhere."""
        if self.inside + images > self.limit:
            message = f"all {self.limit} places for images in work are taken (queue_size)"
        elif (expected_s := self._expected_s(images)) > _PRUDENCE * patience_s:
            message = (
                f"an answer would take about {expected_s:.1f} s, too near to the {patience_s:.1f} s there are"
            )
        else:
            return None
        all_done_s = self.inside * self._image_s()
        return BusyError(message, min(max(all_done_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S))

    def _expected_s(self, images: int) -> float:
        """How long images take that come in now: as long as those ahead of them, and the last batch.

        What fits into one batch always comes in, so that a model that was slow once is tried again."""
        inside = self.inside + images
        model_s = (inside + self._batch) * self._image_s() if inside > self._batch else 0.0
        return max(model_s, self._decoder_wait_s())

    def _leave(self, images: int) -> None:
        self.inside -= images
        while self._waiting and not self.full:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)
