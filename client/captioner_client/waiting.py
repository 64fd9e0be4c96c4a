"""How calls are tried again.

1. While servers are unavailable or busy, gRPC repeats a call with one image, up to `max_attempts` attempts in
   all (`channel.service_config`). The pauses double, unless the server names one.
2. When these attempts have failed because no server can be reached, is starting or is shutting down,
   `Waiting` begins them again after half a second, or when the server says, for `wait_s`.
3. A batch sends what is unanswered over a new call, with the same attempts and pauses (`batch.Batch.run`),
   and waits as in 2. A stream of words that has begun fails: words that were handed out cannot be taken
   back.

All of it ends with the time for the call, or, in a batch, for the next answer (`timeout_s`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

from captioner.errors import CaptionerError
from captioner_client.errors import DeadlineExceededError, ServerUnavailableError, tells_more
from captioner_client.options import ClientOptions

log = logging.getLogger("captioner_client")

FIRST_BACKOFF_S, BACKOFF_FACTOR, MAX_BACKOFF_S = 0.1, 2, 3.0
"""The pause after the first failed attempt, by what each is longer than the one before, and the longest."""
_PAUSE_S = 0.5


def backoff_s(failures: int) -> float:
    """The pause after so many failed attempts, as gRPC makes it."""
    return min(FIRST_BACKOFF_S * BACKOFF_FACTOR ** (failures - 1), MAX_BACKOFF_S) * random.uniform(0.8, 1.2)


class Waiting:
    """The attempts of one call, each of which gRPC itself repeats up to `max_attempts` times."""

    def __init__(self, settings: ClientOptions, timeout_s: float) -> None:
        """`timeout_s` is the time for the whole call, or until the next answer of a batch (`restart`)."""
        self._timeout_s = timeout_s
        wait_s = timeout_s if settings.wait_s is None else min(settings.wait_s, timeout_s)
        self._wait_s = wait_s if settings.max_attempts > 1 else 0.0
        self.restart()

    def restart(self) -> None:
        """Begin the time again: a server has answered."""
        self._started = time.monotonic()
        self._reason: ServerUnavailableError | None = None

    @property
    def left_s(self) -> float:
        """Time for the next attempt."""
        return max(0.001, self._started + self._timeout_s - time.monotonic())

    async def after(self, error: CaptionerError) -> None:
        """Return when the call is to be tried again after it failed with `error`; otherwise raise why it
        failed. Logs a warning before the first wait."""
        if self._reason and isinstance(error, DeadlineExceededError):
            raise self._reason  # what the time was spent on
        # Waiting does not help against a certificate.
        if not isinstance(error, ServerUnavailableError) or "handshake" in str(error):
            raise error
        if self._reason and tells_more(self._reason, error):
            error = self._reason
        pause_s = max(_PAUSE_S, error.retry_after_s or 0.0)
        if time.monotonic() + pause_s > self._started + self._wait_s:
            raise error
        if self._reason is None or tells_more(error, self._reason):
            log.warning("%s; waiting for it, at most %g s", error, self._wait_s)
        self._reason = error
        await asyncio.sleep(pause_s)
