"""Watching over the model: one that fails again and again, or hangs, is taken out of service; and the process
ends if it does not recover."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

log = logging.getLogger(__name__)

EXIT_STATUS = 70
"""Exit status when the model does not recover (EX_SOFTWARE): an orchestrator restarts the process."""
FAILURES = 3
"""Batches that fail in a row before the server says that it does not serve."""


class Watched(Protocol):
    """What the supervisor asks of a batcher."""

    @property
    def failures(self) -> int:
        """Batches that have failed since the last one that did not."""

    @property
    def busy_since(self) -> float | None:
        """When the batch that is computed was begun, on `time.monotonic`'s clock."""

    @property
    def running(self) -> bool:
        """Whether batches are taken at all."""


class Supervisor:
    """Reports whether the model works, and tries it while it does not."""

    def __init__(
        self,
        model: Watched,
        attempt: Callable[[], Awaitable[object]],
        report: Callable[[bool], Awaitable[None]],
        *,
        failing_s: float,
        stuck_s: float,
        interval_s: float = 0.5,
    ) -> None:
        """`attempt` captions something, which counts among the model's batches; `report` is told whether the
        server serves. A batch that takes longer than `stuck_s` counts as failing."""
        self._model, self._attempt, self._report = model, attempt, report
        self._failing_s, self._stuck_s, self._interval_s = failing_s, stuck_s, interval_s

    async def run(self) -> str:
        """Returns why the process is to end, when the model has not recovered for `failing_s`."""
        failing_since: float | None = None
        while True:
            await asyncio.sleep(self._interval_s)
            now = time.monotonic()
            reason = self._trouble(now)
            if not self._model.running:
                return reason
            if reason and failing_since is None:
                failing_since = now
                log.error("the model fails", extra={"fields": {"reason": reason}})
                await self._report(False)
            if failing_since is None:
                continue
            if not reason:
                failing_since = None
                log.warning("the model has recovered")
                await self._report(True)
            elif now - failing_since >= self._failing_s:
                return reason
            elif self._model.busy_since is None:
                with suppress(Exception):  # it is counted where it happened
                    await asyncio.wait_for(self._attempt(), self._stuck_s)

    def _trouble(self, now: float) -> str:
        if not self._model.running:
            return "batches are not taken any more"
        if self._model.failures >= FAILURES:
            return f"{self._model.failures} batches in a row have failed"
        since = self._model.busy_since
        if since is not None and now - since > self._stuck_s:
            return f"a batch has taken more than {self._stuck_s:g} s (stuck_s)"
        return ""
