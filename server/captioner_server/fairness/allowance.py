"""The limits of one caller and their use: open calls, admitted images, images per second."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from captioner_server.errors import BusyError, RequestError
from captioner_server.fairness.fair_queue import Claim, Turns

_RETRY_AFTER_S = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """None means that only the limits of the server apply."""

    calls: int | None = None
    """Most open calls."""
    images: int | None = None
    """Most admitted images."""
    rate: float | None = None
    """Images per second, with bursts of up to one second."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Limits:
        """From NAME=NUMBER each. Raises `ValueError`."""
        kinds: dict[str, Callable[[str], float]] = {"calls": int, "images": int, "rate": float}
        values: dict[str, float] = {}
        for text in texts:
            name, _, number = text.partition("=")
            if name not in kinds or name in values:
                raise ValueError(f"{name} is not one of {', '.join(kinds)}, each once")
            values[name] = kinds[name](number)
            if not 0 < values[name] < float("inf"):  # also false for NaN
                raise ValueError(f"{name} must be above 0")
        return cls(**values)  # type: ignore[arg-type]


class Allowance:
    """The limits of a caller and what it uses of them. For use on one event loop."""

    def __init__(self, limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.calls = 0
        """Open calls."""
        self._clock = clock
        self._places = Turns(limits.images or sys.maxsize)
        self._burst = max(1.0, limits.rate or 0.0)
        self._saved, self._saved_at = self._burst, clock()  # images that are allowed now

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count an open call. Raises `BusyError` if there are too many."""
        if self.limits.calls is not None and self.calls >= self.limits.calls:
            raise BusyError(f"the token allows {self.limits.calls} calls at once", _RETRY_AFTER_S)
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    def refusal(self, images: int = 1) -> BusyError | None:
        """The error that these images would be rejected with now, if any."""
        if self._places.free < images:
            return BusyError(f"the token allows {self.limits.images} images in work", _RETRY_AFTER_S)
        if (wait_s := self._wait_s(images)) > 0:
            return BusyError(f"the token allows {self.limits.rate:g} images a second", wait_s)
        return None

    @contextmanager
    def enter(self, images: int) -> Iterator[None]:
        """Admit the images of an interactive call. Raises `BusyError` if they are too many now, and
        `RequestError` if they always would be."""
        if images > (self.limits.images or images):
            raise RequestError(
                f"the token allows {self.limits.images} images in work, not {images}", "inputs"
            )
        if refusal := self.refusal(images):
            raise refusal
        self._saved -= images
        with self._places.held(images):
            yield

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Admit an image of a stream, as soon as the limits allow."""
        async with self._places.turn(Claim()):
            while (wait_s := self._wait_s(1)) > 0:
                await asyncio.sleep(wait_s)
            self._saved -= 1
            yield

    def _wait_s(self, images: int) -> float:
        """Time until this many images are allowed, or a full burst if they are more."""
        if self.limits.rate is None:
            return 0.0
        now = self._clock()
        self._saved = min(self._burst, self._saved + (now - self._saved_at) * self.limits.rate)
        self._saved_at = now
        return max(0.0, (min(images, self._burst) - self._saved) / self.limits.rate)
