"""A bound on the images in the house: those being decoded, waiting for the model or computed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from captioner_server.errors import BusyError, RequestError


class Admission:
    """Counts images in and out. For use on one event loop."""

    def __init__(self, limit: int, retry_after_s: Callable[[], float]) -> None:
        """`retry_after_s` says when asking again is worth while; it goes into the refusal."""
        self.limit = limit
        self.inside = 0
        self._retry_after_s = retry_after_s
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        return self.inside >= self.limit

    @contextmanager
    def enter(self, images: int = 1) -> Iterator[None]:
        """Hold places for some images, or raise `BusyError` at once: for callers that wait for one answer.

        Raises `RequestError` for more images than there will ever be places."""
        if images > self.limit:
            raise RequestError(
                f"{images} images are more than the limit of {self.limit} (queue_size)", "inputs"
            )
        if self.inside + images > self.limit:
            raise self.refusal()
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

    def refusal(self) -> BusyError:
        return BusyError(
            f"all {self.limit} places for images in work are taken (queue_size)", self._retry_after_s()
        )

    def _leave(self, images: int) -> None:
        self.inside -= images
        while self._waiting and not self.full:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)
