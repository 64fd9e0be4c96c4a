"""The record of every call, for all protocols: request id, trace, metrics and log line."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from captioner.errors import CaptionerError
from captioner_server.observation.call import Call, current_call, request_id_of
from captioner_server.observation.metrics import Metrics
from captioner_server.observation.tracing import current_trace

if TYPE_CHECKING:
    from captioner_server.observation.spans import Tracing

log = logging.getLogger("captioner_server.calls")

CANCELLED = "CANCELLED"
_SKIPPED_S = 10.0


class Journal:
    """Begin a call in the task that answers it."""

    def __init__(self, metrics: Metrics, tracing: Tracing | None) -> None:
        self._metrics, self._tracing = metrics, tracing
        self._skipped, self._skipped_since_s = 0, -math.inf

    def begin(self, method: str, headers: Mapping[str, Any], peer: str, *, probe: bool = False) -> Call:
        """Make a call the current one, with a trace if calls are traced; probes are not. The caller ends the
        trace when the answer has been sent."""
        call = Call(method, request_id_of(headers), peer, peer)
        current_call.set(call)
        current_trace.set(self._tracing.begin(call, headers) if self._tracing and not probe else None)
        return call

    def count_error(self, error: CaptionerError) -> None:
        """Count why a call ends with an error."""
        self._metrics.refused.labels(error.code).inc()

    def skip(self, method: str) -> None:
        """Count a call that its caller has cancelled before anything was done for it."""
        self._metrics.calls.labels(method, CANCELLED).inc()
        self._log_cancelled()

    def _log_cancelled(self) -> None:
        """One log line stands for all calls within `_SKIPPED_S` that are cancelled before their message has
        arrived: a flood of them costs little."""
        self._skipped += 1
        if time.monotonic() - self._skipped_since_s >= _SKIPPED_S:
            log.info("calls cancelled before their message", extra={"fields": {"count": self._skipped}})
            self._skipped, self._skipped_since_s = 0, time.monotonic()

    def finish(self, call: Call, code: str, reason: str, seconds: float, *, probe: bool = False) -> None:
        """Count and log a call that has ended. `reason` says why it failed; probes are logged at level
        DEBUG, calls that are cancelled before their message has arrived together."""
        self._metrics.calls.labels(call.method, code).inc()
        self._metrics.call_seconds.labels(call.method).observe(seconds)
        trace = current_trace.get()
        if trace:
            trace.finish(call, code)
        if code == CANCELLED and not call.arrived:
            self._log_cancelled()
            return
        level = logging.DEBUG if probe else logging.INFO
        if log.isEnabledFor(level):
            record = {**call.to_dict(), "code": code, "ms": round(1000 * seconds, 1)}
            if trace:
                record["trace_id"] = trace.trace_id
            if reason:
                record |= {"reason": reason, "peer": call.peer}
            log.log(level, "call", extra={"fields": record})
