"""The caller's trace, for the server to continue."""

from __future__ import annotations

import sys


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """The metadata that the caller's OpenTelemetry adds to a call, mainly `traceparent`; empty without a
    current span. A caller that has a span has imported OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return ()
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return tuple((name.lower(), value) for name, value in carrier.items())
