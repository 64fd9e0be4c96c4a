"""Watches a model: if it fails repeatedly or hangs, it is taken out of service, and the process exits if it
does not recover. If images are admitted and none is answered, callers are sent elsewhere meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from typing import Protocol

log = logging.getLogger(__name__)

EXIT_STATUS = 70
"""Exit status when the model does not recover (EX_SOFTWARE): an orchestrator restarts the process."""
FAILURES = 3
"""Consecutive failed batches after which the server reports NOT_SERVING."""
_INTERVAL_S = 0.5


class Condition(IntEnum):
    """How a model does, the best first."""

    WORKS = 0
    STALLED = 1
    """Images are admitted, and none has been answered for a while."""
    FAILS = 2


class Watched(Protocol):
    """The part of a batcher that the supervisor uses."""

    @property
    def failures(self) -> int:
        """Consecutive batches that failed."""

    @property
    def busy_since(self) -> float | None:
        """Start time of the oldest batch that is being computed, by `time.monotonic`."""

    @property
    def running(self) -> bool:
        """Whether the batcher runs."""


class Supervisor:
    """Reports the condition of the model, and keeps trying it while it fails."""

    def __init__(
        self,
        model: Watched,
        attempt: Callable[[], Awaitable[object]],
        report: Callable[[Condition], Awaitable[None]],
        stalled: Callable[[], bool],
        *,
        failing_s: float,
        stuck_s: float,
    ) -> None:
        """`attempt` captions a test image, which counts as a batch. `report` receives a condition that is
        new. `stalled` returns whether images wait and none is answered. A batch that takes longer than
        `stuck_s` counts as failed."""
        self._model, self._attempt, self._report, self._stalled = model, attempt, report, stalled
        self._failing_s, self._stuck_s = failing_s, stuck_s

    async def run(self) -> str:
        """Run until the model has failed for `failing_s`; returns the reason, for the process to exit."""
        reported, since = Condition.WORKS, 0.0
        while True:
            await asyncio.sleep(_INTERVAL_S)
            now = time.monotonic()
            reason = self._trouble(now)
            if not self._model.running:
                return reason
            condition = (
                Condition.FAILS if reason else Condition.STALLED if self._stalled() else Condition.WORKS
            )
            if condition is not reported:
                self._log(condition, reason)
                await self._report(condition)
                reported, since = condition, now
            if condition is not Condition.FAILS:
                continue
            if now - since >= self._failing_s:
                return reason
            if self._model.busy_since is None:
                with suppress(Exception):  # the batcher counts failures
                    await asyncio.wait_for(self._attempt(), self._stuck_s)

    @staticmethod
    def _log(condition: Condition, reason: str) -> None:
        if condition is Condition.FAILS:
            log.error("the model fails", extra={"fields": {"reason": reason}})
        elif condition is Condition.STALLED:
            log.warning("images wait and none is answered")
        else:
            log.warning("the model has recovered")

    def _trouble(self, now: float) -> str:
        if not self._model.running:
            return "batches are no longer processed"
        if self._model.failures >= FAILURES:
            return f"{self._model.failures} batches in a row have failed"
        since = self._model.busy_since
        if since is not None and now - since > self._stuck_s:
            return f"a batch has taken more than {self._stuck_s:g} s (stuck_s)"
        return ""
