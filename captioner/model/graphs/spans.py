"""Records what the time of captioning goes into, for example for traces of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Span:
    """A part of the work on a batch. Times are in nanoseconds, on the clock of `time.time_ns`."""

    name: str
    """"encode" or "search"."""
    start_ns: int
    end_ns: int = 0
    steps: int = 0
    """Number of decoder steps."""


_observed: ContextVar[list[Span] | None] = ContextVar("observed", default=None)


@contextmanager
def observe() -> Iterator[list[Span]]:
    """The spans of models within this context, in order."""
    spans: list[Span] = []
    token = _observed.set(spans)
    try:
        yield spans
    finally:
        _observed.reset(token)


@contextmanager
def span(name: str) -> Iterator[None]:
    """Record a span, within `observe`."""
    spans = _observed.get()
    if spans is None:
        yield
        return
    spans.append(one := Span(name, time.time_ns()))
    try:
        yield
    finally:
        one.end_ns = time.time_ns()


def count_step() -> None:
    """Count a decoder step in the current span."""
    if spans := _observed.get():
        spans[-1].steps += 1
