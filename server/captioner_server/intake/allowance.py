"""The limits of one token and their use: open calls, admitted images, images per second."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from captioner_server.intake.fair_queue import Asker
from captioner_server.intake.turns import Turns


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
    """The limits of a token and what its caller uses of them; `rules` compares the two. For use on one event
    loop."""

    def __init__(self, limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.calls = 0
        """Open calls."""
        self.revoked = False
        """Whether its token has been taken back."""
        self._clock = clock
        self._images = Turns(limits.images or sys.maxsize)
        self._burst = max(1.0, limits.rate or 0.0)
        self._saved, self._saved_at = self._burst, clock()  # images that are allowed now

    def change(self, limits: Limits) -> None:
        """Apply other limits, also to what is open."""
        self._images.add((limits.images or sys.maxsize) - (self.limits.images or sys.maxsize))
        self._burst = max(1.0, limits.rate or 0.0)
        self.limits = limits

    @property
    def free_images(self) -> int:
        """Images that may be admitted besides those that are."""
        return self._images.free

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count an open call."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    @contextmanager
    def enter(self, images: int) -> Iterator[None]:
        """Count the admitted images of an interactive call."""
        self._saved -= images
        with self._images.held(images):
            yield

    @asynccontextmanager
    async def wait(self, asker: Asker) -> AsyncIterator[None]:
        """Admit an image of a stream, as soon as the limits allow."""
        async with self._images.turn(asker):
            while (wait_s := self.wait_s(1)) > 0:
                await asyncio.sleep(wait_s)
            self._saved -= 1
            yield

    def wait_s(self, images: int) -> float:
        """Time until this many images are allowed, or a full burst if they are more."""
        if self.limits.rate is None:
            return 0.0
        now = self._clock()
        self._saved = min(self._burst, self._saved + (now - self._saved_at) * self.limits.rate)
        self._saved_at = now
        return max(0.0, (min(images, self._burst) - self._saved) / self.limits.rate)
