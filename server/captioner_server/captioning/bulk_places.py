"""Places for bulk images: fair, and charged by the time that they are held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from captioner_server.fairness.fair_queue import Claim, Turns

_SLOW_S = (1.0, 10.0)
"""Least and most time after which a bulk image that has not been decoded is set aside."""
_MOST_ASIDE = 16
"""A caller with so many images set aside gets no places for further ones."""
_LEAST_IMAGE_S = 0.0001


class BulkPlaces:
    """Places for bulk images, given to callers in fair order and charged by the time that they are held.

    An image that takes long to decode is set aside: it is decoded and captioned as others are, but its place
    is free for another. A few callers with slow images would otherwise hold all places while they wait for
    the decoder of slow images. A caller with many images aside gets no further places, and as its stream is
    not read meanwhile, all that it keeps here is bounded."""

    def __init__(
        self, places: int, most_aside: int, batch_s: Callable[[], float], decode_s: Callable[[], float]
    ) -> None:
        self.inside = 0
        """Images that hold places."""
        self.aside = 0
        """Images that have been set aside."""
        self._places, self._most_aside = places, most_aside
        self._turns = Turns(places)
        self._batch_s, self._decode_s = batch_s, decode_s
        self._callers: dict[str, _Aside] = {}
        self._held_back = 0

    @property
    def waiting(self) -> int:
        return self._turns.waiting + self._held_back

    async def enter(self, claim: Claim) -> Place:
        """Take a place in fair order."""
        while (own := self._callers.get(claim.caller)) and own.images >= _MOST_ASIDE:
            self._held_back += 1
            try:
                await own.wait_for_fewer()
            finally:
                self._held_back -= 1
        await self._turns.enter(claim)
        self.inside += 1
        return Place(self, claim)

    @property
    def slow_s(self) -> float:
        """Longer where all images take long, such as large photos on a single core."""
        least_s, most_s = _SLOW_S
        return min(max(least_s, 2 * self._places * self._decode_s()), most_s)

    def give_back(self, claim: Claim, held_s: float) -> None:
        self.inside -= 1
        self._turns.leave(claim, held_s / max(self._batch_s(), _LEAST_IMAGE_S) - claim.cost)

    def set_aside(self, claim: Claim) -> bool:
        """Count another image aside, unless there are too many, which bounds the memory of decoded ones."""
        if self.aside >= self._most_aside:
            return False
        self.aside += 1
        self._callers.setdefault(claim.caller, _Aside()).images += 1
        return True

    def return_aside(self, claim: Claim) -> None:
        self.aside -= 1
        own = self._callers[claim.caller]
        own.images -= 1
        own.fewer.set()
        if not own.images:
            del self._callers[claim.caller]


class _Aside:
    """The images of one caller that have been set aside."""

    def __init__(self) -> None:
        self.images = 0
        self.fewer = asyncio.Event()

    async def wait_for_fewer(self) -> None:
        self.fewer.clear()
        await self.fewer.wait()


class Place:
    """The place of one bulk image."""

    def __init__(self, places: BulkPlaces, claim: Claim) -> None:
        self._places, self._claim = places, claim
        self._since_s = time.monotonic()
        self._aside = False
        self._wait()

    def keep(self) -> None:
        """The image has been decoded, and is not set aside any more."""
        self._timer.cancel()

    def leave(self) -> None:
        """The image is done."""
        self._timer.cancel()
        if self._aside:
            self._places.return_aside(self._claim)
        else:
            self._give_back()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._places.slow_s, self._set_aside)

    def _set_aside(self) -> None:
        self._aside = self._places.set_aside(self._claim)
        if self._aside:
            self._give_back()
        else:
            self._wait()

    def _give_back(self) -> None:
        self._places.give_back(self._claim, time.monotonic() - self._since_s)
