"""Decodes images in fair order, and those that take long apart from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from captioner.errors import DecodingInterruptedError
from captioner.images.preparation import Preparation
from captioner.images.worker_process import PreemptedError, WorkersError
from captioner.images.workers import DecodeWorkers
from captioner.protocol import Pixels
from captioner_server.errors import BusyError
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import TurnPool

_LEAST_IMAGE_S = 0.002
_SLOW_NICENESS = 5
"""A third of the processor time of an ordinary process, if both want all of it."""
_SLOW_WAITING = 16
"""Most interactive images that wait for each process for slow images."""
_RETRY_AFTER_S = 5.0
_SLICE_S = (0.1, 0.5)
"""Least and most processor time after which an image is slow, in seconds."""


class Decoders:
    """Processes for ordinary images, and as many with a lower priority for slow ones.

    An image that takes several times as long as others is stopped if other callers wait, and decoded again in
    a process for slow images. Nobody waits for the whole of another caller's slow image."""

    def __init__(self, preparation: Preparation, count: int, max_cpu_s: float) -> None:
        """`count` processes of each kind; an image may take `max_cpu_s` seconds of processor time."""
        self._ordinary = _Pool(preparation, count, max_cpu_s)
        self._slow = _Pool(preparation, count, max_cpu_s, _SLOW_NICENESS)

    async def load(self, image: bytes, ticket: Ticket) -> Pixels:
        """The model's input. Raises an `ImageError`, and `BusyError` for a slow image if too many others
        wait, or if the processes are killed or cannot be started."""

        def preempt(used_s: float) -> bool:
            return used_s >= self._slice_s and self._ordinary.turns.others_wait(ticket.caller)

        try:
            return await self._ordinary.load(image, ticket, preempt)
        except PreemptedError:
            if not ticket.bulk and self._slow.turns.waiting >= _SLOW_WAITING * self._slow.workers.count:
                message = "too many images that take long to decode are waiting"
                raise BusyError(message, _RETRY_AFTER_S) from None
        return await self._slow.load(image, ticket)

    @property
    def _slice_s(self) -> float:
        """Longer where slow images are usual and can be decoded, as those of phones: images that run into
        their limit do not count."""
        least_s, most_s = _SLICE_S
        usual_s = max(4 * self._ordinary.workers.image_s, 1.5 * self._slow.workers.image_s)
        return min(max(least_s, usual_s), most_s)

    @property
    def restarts(self) -> int:
        """Restarts of processes that crashed, reached a limit or were killed from outside."""
        return self._ordinary.workers.restarts + self._slow.workers.restarts

    @property
    def image_s(self) -> float:
        """Recent time per ordinary image with all processes at work, in seconds."""
        return self._ordinary.workers.image_s / self._ordinary.workers.count

    def expected_wait_s(self) -> float:
        """Expected wait of a new image for a process."""
        return self._ordinary.workers.expected_wait_s(self._ordinary.turns.waiting)

    async def warm_up(self) -> None:
        """Start the processes for ordinary images; the others start with the first slow image."""
        await asyncio.get_running_loop().run_in_executor(None, self._ordinary.workers.warm_up)

    def close(self) -> None:
        """End all processes; images that are being decoded fail."""
        self._ordinary.close()
        self._slow.close()


class _Pool:
    """Processes, and the turns of callers at them."""

    def __init__(self, preparation: Preparation, count: int, max_cpu_s: float, niceness: int = 0) -> None:
        self.workers = DecodeWorkers(preparation, count, max_cpu_s, niceness)
        self._threads = TurnPool(count, "decode")
        self.turns = self._threads.turns

    async def load(
        self, image: bytes, ticket: Ticket, preempt: Callable[[float], bool] | None = None
    ) -> Pixels:
        try:
            return await self._threads.run(
                ticket, partial(self.workers.load, image, preempt), 1.0, self._cost
            )
        except (DecodingInterruptedError, WorkersError) as error:
            raise BusyError(str(error), _RETRY_AFTER_S) from None

    def _cost(self, seconds: float) -> float:
        """Cost of decoding an image that took so many seconds, in units of an average image."""
        return seconds / max(self.workers.image_s, _LEAST_IMAGE_S)

    def close(self) -> None:
        self._threads.close()
        self.workers.close()
