"""A ticket: who calls, what for, and what the call holds, from the door until its answer."""

from __future__ import annotations

import asyncio
import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum

from captioner_server.intake.allowance import Allowance


class Kind(Enum):
    """Kinds of calls by what they carry."""

    PROBE = "a query that is answered in any state"
    QUERY = "a query"
    IMAGE = "an image"
    WORDS = "an image, answered by a stream of words"
    BATCH = "a stream of images"

    @property
    def streams(self) -> bool:
        return self in (Kind.WORDS, Kind.BATCH)

    @property
    def brings_images(self) -> bool:
        return self in (Kind.IMAGE, Kind.WORDS, Kind.BATCH)


@dataclass(slots=True, eq=False)
class Ticket:
    """Carried by a call, and by each image of a batch stream."""

    caller: str = ""
    """The name of its token, or its connection."""
    kind: Kind = Kind.IMAGE
    deadline_s: float = math.inf
    """By `time.monotonic`."""
    allowance: Allowance = field(default_factory=Allowance)
    """The limits of its token."""
    images: int = 1
    """Images that it asks for at once."""
    cost: float = 1.0
    """Cost of each image, in default searches of the model."""
    held_bytes: int = 0
    """Bytes that it holds of the budget of messages."""
    arrives_since_s: float = 0.0
    """When its message began to arrive, by `time.monotonic`."""
    evicted: asyncio.Future[None] | None = None
    """Done when its message is evicted: stop waiting for it."""
    slow_timer: asyncio.TimerHandle | None = None
    """Fires when its image has taken long to decode."""

    @property
    def bulk(self) -> bool:
        """Whether it gives way to interactive calls."""
        return self.kind is Kind.BATCH

    def for_image(self) -> Ticket:
        """A ticket for the next image of a stream."""
        return Ticket(self.caller, self.kind, self.deadline_s, self.allowance)

    def decoded(self) -> None:
        """Its image has been decoded, so that it cannot become slow any more."""
        if self.slow_timer:
            self.slow_timer.cancel()


current_ticket: ContextVar[Ticket] = ContextVar("current_ticket")
"""Set for the task that answers a call, for handlers whose arguments gRPC defines."""
