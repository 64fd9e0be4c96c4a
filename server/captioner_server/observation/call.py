"""The record of the current call, for its log line and its trailing metadata."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(slots=True)
class Call:
    """A record of a call that all parts of the server add to."""

    method: str
    request_id: str
    peer: str = ""
    caller: str = ""
    """The name of its token, or its address."""
    arrived: bool = False
    """Whether its message has arrived, or the first of a stream may."""
    images: int = 0
    failed: int = 0
    image_bytes: int = 0
    batch_size: int = 0
    """The largest batch that an image of this call was in."""
    seconds: dict[str, float] = field(default_factory=lambda: {"decode": 0.0, "queue": 0.0, "compute": 0.0})
    """Summed over the call's images."""

    @property
    def token(self) -> str | None:
        """The name of its token; None for callers without one."""
        return self.caller if self.caller != self.peer else None

    def add(self, queue_s: float, compute_s: float, batch_size: int = 0) -> None:
        """Add what one of its images took, and the size of the batch that the image was in, if any."""
        self.batch_size = max(self.batch_size, batch_size)
        self.seconds["queue"] += queue_s
        self.seconds["compute"] += compute_s

    def server_timing(self) -> str:
        """The value of the header Server-Timing (W3C): durations in milliseconds."""
        return ", ".join(f"{name};dur={1000 * seconds:.1f}" for name, seconds in self.seconds.items())

    def to_dict(self) -> dict[str, Any]:
        """The fields of the log line."""
        record: dict[str, Any] = {"method": self.method, "request_id": self.request_id}
        if self.token is not None:
            record["caller"] = self.token
        if self.images:
            times = {f"{name}_ms": round(1000 * seconds, 1) for name, seconds in self.seconds.items()}
            record |= {"images": self.images, "failed": self.failed, "image_bytes": self.image_bytes}
            record |= {"batch_size": self.batch_size, **times}
        return record


current_call: ContextVar[Call] = ContextVar("current_call")
"""Set for the task that answers a call, and all tasks that it starts."""


def request_id_of(metadata: Mapping[str, Any]) -> str:
    """The request id in the metadata or headers if it is valid, else a new one."""
    given = str(metadata.get("x-request-id", ""))
    # Not `uuid4`: its system call releases the GIL, and taking it back means waiting for the model's threads.
    return given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"
